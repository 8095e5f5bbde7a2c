"""The demonstration as one self-contained page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..record import plain
from ..reports.calendar import Clock
from ..reports.diabetes import draw_best_treatment, draw_glucose_days
from ..reports.figures import (
    BETTER,
    CANDIDATE,
    KEPT,
    OBSERVED,
    SAFE,
    STATIONARY,
    WORSE,
    draw_decision,
    legend_above,
)
from ..reports.log_pictures import OUTSIDE, Picture, picture, scale_picture
from ..reports.numbers import figure, signed
from ..reports.page import templates
from ..reports.palette import LIGHT
from ..simulators.diabetes import TREATMENTS
from .demo import Demo, LiveRun, patient_days, true_advantage
from .domains import Domain

RUN_COLORS = (CANDIDATE, LIGHT["teal"], STATIONARY)  # Tidegate, SPIN, the stationary baseline
CLOCK = Clock()
_TEMPLATES = templates(Path(__file__).parent / "templates")


def demo_page(demo: Demo) -> str:
    """The demonstration as a page."""
    run = demo.shown
    advantage = plain(run.showcase.advantage)
    first, last = run.showcase.safe.forecast_times[[0, -1]]
    return _TEMPLATES.get_template(f"{demo.domain}.html").render(
        demo=demo,
        clock=CLOCK,
        patient=_patient_pictures(demo) if demo.domain is Domain.DIABETES else {},
        summary=demo.summary(),
        decision=run.showcase,
        advantage=advantage,
        window=CLOCK.window(float(first), float(last)),
        truth=true_advantage(demo),
        curves=_curves_picture(demo),
        strips=_decisions_picture(demo.runs),
        comparison=_showcase_picture(run),
        scales=scale_picture(advantage, CLOCK),
        record=json.dumps(run.showcase.to_dict(), indent=1),
        settings=json.dumps({run.name: run.settings for run in demo.runs}, indent=1),
    )


def draw_showcase(axis: Axes, run: LiveRun, legend_columns: int = 3) -> Axes:
    """The decision that a run puts on show, over the returns it had observed by then."""
    return draw_decision(axis, run.showcase, run.episode_numbers, run.observed_returns, legend_columns)


def _showcase_picture(run: LiveRun) -> Picture:
    candidate, safe = run.showcase.candidate, run.showcase.safe
    return picture(
        "One decision: what was observed, trends and forecasts. Forecast of the mean return: candidate "
        f"{figure(candidate.point)}, safe policy {figure(safe.point)}.",
        "Grey: returns that were observed. Blue and orange dots: what the safe policy and the candidate "
        "would have earned in the held-out episodes, by importance sampling around what a model of the "
        "rewards predicts (doubly robust: a wrong model adds noise, not bias). Lines: each policy’s path by "
        "the model that leads for it. Bars at the right: forecasts with their intervals. These may overlap: "
        "the gate tests the difference between the policies, which share the same episodes and the same "
        f"noise. {OUTSIDE}",
        lambda axis, columns: draw_showcase(axis, run, columns),
    )


def _patient_pictures(demo: Demo) -> dict[str, Any]:
    """A day under the likeliest treatment of either policy, and the treatments over time."""
    days, ends = patient_days(demo), demo.shown.window_ends
    day = demo.shown.showcase.safe.forecast_times[0]
    reached = ", ".join(
        f"{name} between {np.min(one.glucose):.0f} and {np.max(one.glucose):.0f}"
        for name, one in days.items()
    )
    best = [int(row.argmax()) + 1 for row in demo.action_performance[[0, -1]]]
    return {
        "outside": [name for name, one in days.items() if bool(one.out_of_range)],
        "glucose": picture(
            f"Glucose of a day under both treatments, in mg/dL: {reached}.",
            f"Day {day:g} under the likeliest treatment of the safe policy and of the candidate in the "
            "decision below, with the same meals. Triangles: meals announced. Stems: boluses (right axis).",
            lambda axis, columns: draw_glucose_days(axis, days, legend_columns=columns),
        ),
        "drift": picture(
            "True worth of the treatments as the patient drifts: treatment "
            f"{best[0]} is the best one at first, treatment {best[1]} at the end.",
            "True mean return of each treatment as the patient drifts; the strip at the bottom has the "
            "colour of the best one.",
            lambda axis, columns: draw_best_treatment(
                axis, ends, demo.action_performance, TREATMENTS, legend_columns=columns
            ),
        ),
    }


def _curves_picture(demo: Demo) -> Picture:
    """True performance of the policy in force, window by window."""
    means = ", ".join(f"{run.name} {signed(run.improvement_over_safe, 3)}" for run in demo.runs)
    return picture(
        f"True performance of the policy in force over time. Mean improvement over the safe policy: {means}.",
        "The true performance of whichever policy was in force. Below the blue line is worse than doing "
        "nothing.",
        lambda axis, columns: _draw_learning_curves(axis, demo, columns),
        height=3.6,
    )


def _draw_learning_curves(axis: Axes, demo: Demo, legend_columns: int) -> Axes:
    ends, best = demo.shown.window_ends, demo.action_performance.max(axis=1)
    axis.plot(ends, best, color=OBSERVED, lw=1, ls=":", label="best single action")
    axis.plot(ends, demo.shown.safe_performance, color=SAFE, lw=1.6, label="safe policy")
    for order, (run, color) in enumerate(zip(demo.runs, RUN_COLORS, strict=True)):
        axis.plot(ends, run.performance, color=color, lw=1.2, label=run.name, zorder=4 - order)
    axis.set_xlabel("episode")
    axis.set_ylabel("true performance")
    legend_above(axis, ncols=5 if legend_columns > 1 else 2)
    return axis


def _decisions_picture(runs: Sequence[LiveRun]) -> Picture:
    """One strip per algorithm: kept, deployed and truly better, deployed and truly worse."""
    told = "; ".join(
        f"{run.name}, a candidate in {int(run.deployed.sum())} of {run.deployed.size} windows, truly worse "
        f"in {int(run.unsafe.sum())}"
        for run in runs
    )
    return picture(
        f"Decisions of the algorithms over time: {told}.",
        "Green: a candidate ran and was truly better than the safe policy. Red: it was truly worse.",
        lambda axis, columns: _draw_decisions(axis, runs, columns),
        height=2.3,
    )


def _draw_decisions(axis: Axes, runs: Sequence[LiveRun], legend_columns: int) -> Axes:
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
    legend_above(axis, ncols=legend_columns)
    return axis
