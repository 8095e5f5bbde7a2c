"""Numbers and an axis in, the axis out; nothing is computed here."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from ..experiments.demo import Demo, LiveRun, Series
    from ..performance import Forecast
    from ..records import Decision

CANDIDATE, SAFE, OBSERVED = "#c2410c", "#1d4ed8", "#9ca3af"
BETTER, WORSE, KEPT = "#15803d", "#b91c1c", "#e5e7eb"
STYLE: Any = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "legend.frameon": False,
    "axes.labelcolor": "#374151",
    "xtick.color": "#374151",
    "ytick.color": "#374151",
}


def draw_figure(width: float, height: float, draw: Callable[[Axes], Axes]) -> Figure:
    """A figure in the house style with one axis, drawn by `draw`."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(width, height), layout="constrained")
        draw(axis)
    return figure


def draw_decision(
    axis: Axes, decision: "Decision", observed_numbers: "Series", observed_returns: "Series"
) -> Axes:
    """The paper's Figure 1: what was observed, what either policy would have earned, and will."""
    last = decision.safe.episode_numbers.max(initial=0.0)
    past = observed_numbers <= last
    dots: Any = {"s": 6, "linewidths": 0, "rasterized": True}
    axis.scatter(
        observed_numbers[past], observed_returns[past], color=OBSERVED, alpha=0.6, **dots,
        label="observed return",
    )  # fmt: skip
    for forecast, color, name in (
        (decision.safe, SAFE, "safe policy"),
        (decision.candidate, CANDIDATE, "candidate"),
    ):
        axis.scatter(forecast.episode_numbers, forecast.returns, color=color, alpha=0.35, **dots)
        _draw_forecast(axis, forecast, color, name)
    low, high = _visible_range(decision)
    axis.set_ylim(low, high)
    axis.set_xlabel("episode")
    axis.set_ylabel("return")
    legend_above(axis, ncols=3)
    return axis


def draw_showcase(axis: Axes, run: "LiveRun") -> Axes:
    """The decision that a run puts on show, over the returns it had observed by then."""
    return draw_decision(axis, run.showcase, run.episode_numbers, run.observed_returns)


def _visible_range(decision: "Decision") -> tuple[float, float]:
    """All trends and bounds, and all but the most extreme two per cent of the estimates."""
    both = (decision.candidate, decision.safe)
    estimates = np.concatenate([one.returns for one in both])
    shown = [
        *(np.percentile(estimates, [1, 99]) if estimates.size else []),
        *np.concatenate([one.curve for one in both]),
        *(bound for one in both for bound in (one.lower, one.upper)),
    ]
    finite = [value for value in shown if np.isfinite(value)] or [0.0, 1.0]
    margin = 0.05 * (max(finite) - min(finite)) or 1.0
    return min(finite) - margin, max(finite) + margin


def legend_above(axis: Axes, ncols: int) -> None:
    """A legend that cannot cover a curve."""
    axis.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=ncols, fontsize=8, markerscale=2,
        borderaxespad=0.2,
    )  # fmt: skip


def _draw_forecast(axis: Axes, forecast: "Forecast", color: str, name: str) -> None:
    """The trend, and at its end the interval of the mean over the forecast window, drawn wide enough."""
    axis.plot(forecast.curve_times, forecast.curve, color=color, lw=1.8, label=f"{name}: trend")
    times = forecast.forecast_times
    width = max(times[-1] - times[0] + 1, 0.02 * (times[-1] - forecast.curve_times[0]))
    axis.fill_between(
        [times[0], times[0] + width], forecast.lower, forecast.upper, color=color, alpha=0.3, lw=0,
        label=f"{name}: forecast, {1 - forecast.alpha:.0%} interval",
    )  # fmt: skip
    axis.plot([times[0], times[0] + width], [forecast.point] * 2, color=color, lw=2.5)


def draw_learning_curves(axis: Axes, demo: "Demo") -> Axes:
    """True performance of the policy in force, window by window."""
    ends = demo.spin.window_ends
    axis.plot(ends, demo.best_performance, color=OBSERVED, lw=1, ls=":", label="best single item")
    axis.plot(ends, demo.spin.safe_performance, color=SAFE, lw=1.6, label="safe policy")
    axis.plot(
        ends, demo.baseline.performance, color="#a16207", lw=1, alpha=0.9, label=demo.baseline.name
    )
    axis.plot(ends, demo.spin.performance, color=CANDIDATE, lw=1.4, label=demo.spin.name)
    axis.set_xlabel("episode")
    axis.set_ylabel("true performance")
    legend_above(axis, ncols=4)
    return axis


def draw_decisions(axis: Axes, runs: "tuple[LiveRun, ...]") -> Axes:
    """One strip per algorithm: kept, deployed and truly better, deployed and truly worse."""
    for row, run in enumerate(reversed(runs)):
        widths = np.diff(run.window_ends, prepend=2 * run.window_ends[0] - run.window_ends[1])
        starts = run.window_ends - widths
        for mask, color in (
            (~run.deployed, KEPT),
            (run.deployed & ~run.unsafe, BETTER),
            (run.unsafe, WORSE),
        ):
            bars = list(zip(starts[mask], widths[mask], strict=True))
            axis.broken_barh(bars, (row - 0.36, 0.72), facecolors=color, edgecolors=color, lw=0.5)
    for color, meaning in (
        (KEPT, "safe policy kept"),
        (BETTER, "candidate, truly better"),
        (WORSE, "candidate, truly worse"),
    ):
        axis.broken_barh([], (0, 0), facecolors=color, label=meaning)
    axis.set_yticks(range(len(runs)), [run.name for run in reversed(runs)])
    axis.set_ylim(-0.6, len(runs) - 0.4)
    axis.set_xlabel("episode")
    legend_above(axis, ncols=3)
    return axis
