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
        figure, (above, below) = plt.subplots(2, figsize=(9, 7.8), height_ratios=(4.2, 3.4))
        figure.subplots_adjust(left=0.18, right=0.86, top=0.95, bottom=0.07, hspace=0.42)
        draw_showcase(above, run)
        draw_scales(below, plain(advantage), CLOCK.span)
    save_svg(
        figure,
        HERE / "decision.svg",
        "One decision: returns, trends and forecasts of both policies; and the forecast advantage by the "
        f"models of its trend, {signed(advantage.point, 3)} by all together, at least "
        f"{signed(advantage.lower, 3)}.",
    )
