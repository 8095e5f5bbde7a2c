"""Draws the pictures of the README. Run by `make figures`."""

from pathlib import Path

import matplotlib.pyplot as plt

from tidegate.experiments.demo import run_demo
from tidegate.experiments.demo_page import draw_showcase
from tidegate.record import plain
from tidegate.reports.figures import STYLE, draw_scales
from tidegate.reports.page import save_svg

HERE = Path(__file__).parent

if __name__ == "__main__":
    run = run_demo(seed=0).shown
    with plt.rc_context(STYLE):
        figure, (above, below) = plt.subplots(
            2, figsize=(9, 7.2), height_ratios=(4.2, 3.0), layout="constrained"
        )
        draw_showcase(above, run)
        draw_scales(below, plain(run.showcase.advantage))
    save_svg(figure, HERE / "decision.svg", "One decision: returns, forecasts, and every time scale")
