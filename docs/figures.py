"""Draws the pictures of the README. Run by `make figures`."""

from pathlib import Path

from tidegate.experiments.demo import run_demo
from tidegate.reports.figures import draw_figure, draw_showcase
from tidegate.reports.page import save_svg

HERE = Path(__file__).parent

if __name__ == "__main__":
    demo = run_demo(seed=0)
    figure = draw_figure(9, 4.2, lambda axis: draw_showcase(axis, demo.spin))
    save_svg(figure, HERE / "decision.svg", "One decision: returns, trends and forecasts")
