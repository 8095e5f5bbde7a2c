"""Draws the pictures of the README. Run by `make figures`."""

from pathlib import Path

import matplotlib.pyplot as plt

from tidegate.experiments.demo import run_demo
from tidegate.experiments.demo_page import CLOCK, draw_showcase
from tidegate.record import plain
from tidegate.reports.figures import STYLE
from tidegate.reports.numbers import signed
from tidegate.reports.page import save_svg
from tidegate.reports.scale_figure import draw_scales

HERE = Path(__file__).parent

if __name__ == "__main__":
    run = run_demo(seed=0).shown
    advantage = run.showcase.advantage
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(9, 7.2), layout="constrained")
        above, below = figure.subfigures(2, height_ratios=(4.2, 3.0))
        draw_showcase(above.subplots(), run)
        draw_scales(below.subplots(), plain(advantage), CLOCK.span)
    save_svg(
        figure,
        HERE / "decision.svg",
        "One decision: returns, trends and forecasts of both policies; and the forecast advantage at every "
        f"time scale, {signed(advantage.point, 3)} at the one that leads, at least "
        f"{signed(advantage.lower, 3)}.",
    )
