"""Numbers and an axis in, the axis out; nothing is computed here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from ..arrays import Floats
    from ..backtesting import PolicyBacktest
    from ..experiments.demo import Demo, LiveRun
    from ..performance import Forecast
    from ..records import Decision

Bin = Mapping[str, Any]  # mean and standard_error of the episodes numbered from … to …
CANDIDATE, SAFE, OBSERVED = "#c2410c", "#1d4ed8", "#9ca3af"
BETTER, WORSE, KEPT = "#15803d", "#b91c1c", "#e5e7eb"
STATIONARY = "#a16207"
RIVALS = ("#0d9488", "#a855f7")  # SPIN and the stationary baseline, beside our own
MAX_DOTS = 4000  # more than that is a blot
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
    axis: Axes, decision: "Decision", observed_numbers: "Floats", observed_returns: "Floats"
) -> Axes:
    """The paper's Figure 1: what was observed, what either policy would have earned, and will."""
    past = observed_numbers <= decision.safe.episode_numbers.max(initial=0.0)
    _draw_dots(
        axis, observed_numbers[past], observed_returns[past], color=OBSERVED, alpha=0.6,
        label="observed return",
    )  # fmt: skip
    return draw_comparison(axis, decision.candidate, decision.safe)


def draw_comparison(
    axis: Axes,
    candidate: "Forecast",
    safe: "Forecast",
    *,
    candidate_past: "Sequence[Bin]" = (),
    safe_past: "Sequence[Bin]" = (),
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """What either policy would have earned in each past episode, and will earn on average."""
    for forecast, past, color, name in (
        (safe, safe_past, SAFE, "safe policy"),
        (candidate, candidate_past, CANDIDATE, "candidate"),
    ):
        _draw_dots(axis, forecast.episode_numbers, forecast.returns, color=color, alpha=0.35)
        _draw_bins(axis, past, color)
        _draw_forecast(axis, forecast, color, name)
    axis.set_ylim(*_visible_range((candidate, safe), (*candidate_past, *safe_past)))
    axis.set_xlabel(time_label)
    axis.set_ylabel("return")
    legend_above(axis, ncols=legend_columns)
    return axis


def draw_evaluation(
    axis: Axes,
    forecast: "Forecast",
    stationary: "Forecast | None" = None,
    *,
    past: "Sequence[Bin]" = (),
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """One policy: what it would have earned, its trend and forecast; and if nothing changes."""
    numbers, returns = forecast.episode_numbers, forecast.returns
    _draw_dots(axis, numbers, returns, color=CANDIDATE, alpha=0.35, label="estimated return")
    _draw_bins(axis, past, CANDIDATE)
    if stationary is not None:
        _draw_forecast(axis, stationary, STATIONARY, "if nothing changes")
    _draw_forecast(axis, forecast, CANDIDATE, "policy")
    axis.set_ylim(*_visible_range((forecast, stationary or forecast), past))
    axis.set_xlabel(time_label)
    axis.set_ylabel("return")
    legend_above(axis, ncols=legend_columns)
    return axis


def _draw_dots(axis: Axes, numbers: "Floats", returns: "Floats", **style: Any) -> None:
    """Dots that stay few, however long the log is."""
    every = max(1, -(-numbers.size // MAX_DOTS))
    axis.scatter(numbers[::every], returns[::every], s=6, linewidths=0, rasterized=True, **style)


def _draw_bins(axis: Axes, past: "Sequence[Bin]", color: str) -> None:
    """Means of consecutive episodes with their standard errors."""
    centres = [(one["from"] + one["to"]) / 2 for one in past]
    means, errors = (_numbers(past, name) for name in ("mean", "standard_error"))
    axis.errorbar(
        centres, means, yerr=np.nan_to_num(errors), fmt="o", color=color, ms=3.5, elinewidth=1,
        alpha=0.8,
    )  # fmt: skip


def _numbers(past: "Sequence[Bin]", name: str) -> "Floats":
    return np.array([np.nan if one[name] is None else one[name] for one in past], np.float64)


def draw_showcase(axis: Axes, run: "LiveRun") -> Axes:
    """The decision that a run puts on show, over the returns it had observed by then."""
    return draw_decision(axis, run.showcase, run.episode_numbers, run.observed_returns)


def _visible_range(
    both: "tuple[Forecast, Forecast]", past: "Sequence[Bin]" = ()
) -> tuple[float, float]:
    """All trends, means and bounds, and all but the most extreme two per cent of the estimates."""
    estimates = np.concatenate([one.returns for one in both])
    shown = [
        *(np.percentile(estimates, [1, 99]) if estimates.size else []),
        *np.concatenate([one.curve for one in both]),
        *(_numbers(past, "mean") + np.nan_to_num(_numbers(past, "standard_error"))),
        *(_numbers(past, "mean") - np.nan_to_num(_numbers(past, "standard_error"))),
        *(bound for one in both for bound in (one.lower, one.upper)),
    ]
    return _margined(shown)


def _margined(shown: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in shown if np.isfinite(value)] or [0.0, 1.0]
    margin = 0.05 * (max(finite) - min(finite)) or 1.0
    return min(finite) - margin, max(finite) + margin


def legend_above(axis: Axes, ncols: int, markerscale: float = 2) -> None:
    """A legend that cannot cover a curve."""
    axis.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=ncols, fontsize=8, markerscale=markerscale,
        borderaxespad=0.2,
    )  # fmt: skip


def _draw_forecast(axis: Axes, forecast: "Forecast", color: str, name: str) -> None:
    """The trend, and at its end the interval of the mean over the forecast window, drawn wide enough."""
    axis.plot(forecast.curve_times, forecast.curve, color=color, lw=1.8, label=f"{name}: trend")
    times = forecast.forecast_times
    first = forecast.episode_numbers.min(initial=forecast.curve_times[0])
    width = max(times[-1] - times[0] + 1, 0.02 * (times[-1] - first))
    axis.fill_between(
        [times[0], times[0] + width], forecast.lower, forecast.upper, color=color, alpha=0.3, lw=0,
        label=f"{name}: forecast, {1 - forecast.alpha:.0%} interval",
    )  # fmt: skip
    axis.plot([times[0], times[0] + width], [forecast.point] * 2, color=color, lw=2.5)


def draw_backtest(
    axis: Axes,
    dates: "Floats",
    policy: "PolicyBacktest",
    alpha: float,
    color: str,
    *,
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """At each past date: the forecast with its intervals, and whether what came next lay inside."""
    known = policy.known
    inside = known & (policy.predicted_lower <= policy.realised)
    inside &= policy.realised <= policy.predicted_upper
    nominal = f"{1 - alpha:.0%}"
    axis.vlines(
        dates[known], policy.predicted_lower[known], policy.predicted_upper[known], color=color,
        alpha=0.25, lw=7, label=f"{nominal} interval of what is measured next",
    )  # fmt: skip
    axis.vlines(
        dates, policy.lower, policy.upper, color=color, lw=2, alpha=0.9,
        label=f"{nominal} interval of the forecast",
    )  # fmt: skip
    axis.plot(dates, policy.forecast, "_", color=color, ms=9, mew=2, label="forecast")
    axis.plot(
        dates[inside], policy.realised[inside], "o", color=BETTER, ms=5, label="came next: inside"
    )
    missed = known & ~inside
    axis.plot(
        dates[missed], policy.realised[missed], "X", color=WORSE, ms=8, label="came next: outside"
    )
    axis.set_xlabel(f"date of the forecast ({time_label})")
    axis.set_ylabel("mean return")
    axis.margins(0.06, 0.08)
    axis.set_ylim(*_backtest_range(policy))
    legend_above(axis, ncols=legend_columns, markerscale=1)
    return axis


def _backtest_range(policy: "PolicyBacktest") -> tuple[float, float]:
    """All that came next, and all intervals but those that dwarf the others, which are cut off."""
    width = policy.predicted_upper - policy.predicted_lower
    usual = policy.known & (
        width <= 5 * np.median(width[policy.known] if policy.known.any() else 0.0)
    )
    shown = (policy.predicted_lower[usual], policy.predicted_upper[usual], policy.realised)
    return _margined(np.concatenate(shown))


def draw_learning_curves(axis: Axes, demo: "Demo") -> Axes:
    """True performance of the policy in force, window by window."""
    ends = demo.shown.window_ends
    axis.plot(ends, demo.best_performance, color=OBSERVED, lw=1, ls=":", label="best single action")
    axis.plot(ends, demo.shown.safe_performance, color=SAFE, lw=1.6, label="safe policy")
    for order, (run, color) in enumerate(zip(demo.runs, (CANDIDATE, *RIVALS), strict=True)):
        axis.plot(ends, run.performance, color=color, lw=1.2, label=run.name, zorder=4 - order)
    axis.set_xlabel("episode")
    axis.set_ylabel("true performance")
    legend_above(axis, ncols=5)
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
