"""The demonstration as one self-contained page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..record import plain
from ..reports.diabetes import draw_best_treatment, draw_glucose_days
from ..reports.figures import (
    BETTER,
    CANDIDATE,
    KEPT,
    OBSERVED,
    SAFE,
    WORSE,
    draw_decision,
    draw_figure,
    draw_scales,
    legend_above,
)
from ..reports.page import inline_svg, templates
from ..simulators.diabetes import TREATMENTS
from .demo import Demo, LiveRun, patient_days, true_advantage
from .domains import Domain

RUN_COLORS = (CANDIDATE, "#0d9488", "#a855f7")  # Tidegate, SPIN, the stationary baseline
_TEMPLATES = templates(Path(__file__).parent / "templates")


def demo_page(demo: Demo) -> str:
    """The demonstration as a page."""
    run = demo.shown
    advantage = plain(run.showcase.advantage)
    rows = len(advantage["scales"])
    curves = draw_figure(9, 3.6, lambda axis: _draw_learning_curves(axis, demo))
    strips = draw_figure(9, 2.3, lambda axis: _draw_decisions(axis, demo.runs))
    picture = draw_figure(9, 4.2, lambda axis: draw_showcase(axis, run))
    scales = draw_figure(9, 1.3 + 0.3 * rows, lambda axis: draw_scales(axis, advantage))
    return _TEMPLATES.get_template(f"{demo.domain}.html").render(
        demo=demo,
        patient=_patient_pictures(demo) if demo.domain is Domain.DIABETES else {},
        summary=demo.summary(),
        decision=run.showcase,
        advantage=advantage,
        rows=advantage["scales"],
        truth=true_advantage(demo),
        curves=inline_svg(curves, "True performance of the policy in force over time"),
        strips=inline_svg(strips, "Decisions of the algorithms along time"),
        picture=inline_svg(picture, "One decision: returns, trends and forecasts"),
        scales=inline_svg(scales, "The same decision: the forecast advantage at every time scale"),
        record=json.dumps(run.showcase.to_dict(), indent=1),
        settings=json.dumps({run.name: run.settings for run in demo.runs}, indent=1),
    )


def draw_showcase(axis: Axes, run: LiveRun) -> Axes:
    """The decision that a run puts on show, over the returns it had observed by then."""
    return draw_decision(axis, run.showcase, run.episode_numbers, run.observed_returns)


def _patient_pictures(demo: Demo) -> dict[str, Any]:
    """A day under the likeliest treatment of either policy, and the treatments along time."""
    days = patient_days(demo)
    glucose = draw_figure(9, 4.0, lambda axis: draw_glucose_days(axis, days))
    drift = draw_figure(
        *(9, 3.8),
        lambda axis: draw_best_treatment(axis, demo.shown.window_ends, demo.action_performance, TREATMENTS),
    )
    return {
        "outside": [name for name, day in days.items() if bool(day.out_of_range)],
        "glucose": inline_svg(glucose, "Glucose of a day under both treatments"),
        "drift": inline_svg(drift, "True worth of the treatments as the patient drifts"),
    }


def _draw_learning_curves(axis: Axes, demo: Demo) -> Axes:
    """True performance of the policy in force, window by window."""
    ends, best = demo.shown.window_ends, demo.action_performance.max(axis=1)
    axis.plot(ends, best, color=OBSERVED, lw=1, ls=":", label="best single action")
    axis.plot(ends, demo.shown.safe_performance, color=SAFE, lw=1.6, label="safe policy")
    for order, (run, color) in enumerate(zip(demo.runs, RUN_COLORS, strict=True)):
        axis.plot(ends, run.performance, color=color, lw=1.2, label=run.name, zorder=4 - order)
    axis.set_xlabel("episode")
    axis.set_ylabel("true performance")
    legend_above(axis, ncols=5)
    return axis


def _draw_decisions(axis: Axes, runs: Sequence[LiveRun]) -> Axes:
    """One strip per algorithm: kept, deployed and truly better, deployed and truly worse."""
    meanings = {
        KEPT: "safe policy kept",
        BETTER: "candidate, truly better",
        WORSE: "candidate, truly worse",
    }
    for row, run in enumerate(reversed(runs)):
        widths = np.diff(run.window_ends, prepend=2 * run.window_ends[0] - run.window_ends[1])
        starts = run.window_ends - widths
        masks = ~run.deployed, run.deployed & ~run.unsafe, run.unsafe
        for mask, color in zip(masks, meanings, strict=True):
            bars = list(zip(starts[mask], widths[mask], strict=True))
            axis.broken_barh(bars, (row - 0.36, 0.72), facecolors=color, edgecolors=color, lw=0.5)
    for color, meaning in meanings.items():
        axis.broken_barh([], (0, 0), facecolors=color, label=meaning)
    axis.set_yticks(range(len(runs)), [run.name for run in reversed(runs)])
    axis.set_ylim(-0.6, len(runs) - 0.4)
    axis.set_xlabel("episode")
    legend_above(axis, ncols=3)
    return axis
