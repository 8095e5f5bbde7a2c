"""Numbers and an axis in, the axis out; nothing is computed here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..record import plain

if TYPE_CHECKING:
    from ..arrays import Floats
    from ..record import Decision

Plain = Mapping[str, Any]  # a record, or a part of one, in plain values
CANDIDATE, SAFE, OBSERVED = "#c2410c", "#1d4ed8", "#9ca3af"
BETTER, WORSE, KEPT = "#15803d", "#b91c1c", "#e5e7eb"
STATIONARY = "#a16207"
MAX_DOTS = 4000  # more would be a blot
MARKS: dict[str, dict[str, Any]] = {
    "leads": {"marker": "D", "mfc": CANDIDATE, "color": CANDIDATE},
    "must pass": {"marker": "o", "mfc": CANDIDATE, "color": CANDIDATE},
    "must not contradict": {"marker": "o", "mfc": "white", "color": CANDIDATE},
    "not asked": {"marker": "o", "mfc": OBSERVED, "color": OBSERVED},
}
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
    return draw_comparison(axis, plain(decision.candidate), plain(decision.safe))


def draw_comparison(
    axis: Axes,
    candidate: Plain,
    safe: Plain,
    *,
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """What either policy would have earned in each past episode, and will earn on average."""
    for forecast, color, name in (
        (safe, SAFE, "safe policy"),
        (candidate, CANDIDATE, "candidate"),
    ):
        _draw_dots(axis, *_points(forecast), color=color, alpha=0.35)
        _draw_bins(axis, forecast["past"], color)
        _draw_forecast(axis, forecast, color, name)
    axis.set_ylim(*_visible_range(candidate, safe))
    axis.set_xlabel(time_label)
    axis.set_ylabel("return")
    legend_above(axis, ncols=legend_columns)
    return axis


def draw_evaluation(
    axis: Axes,
    forecast: Plain,
    stationary: Plain | None = None,
    *,
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """One policy: what it would have earned, its trend and forecast; and if nothing changes."""
    _draw_dots(axis, *_points(forecast), color=CANDIDATE, alpha=0.35, label="estimated return")
    _draw_bins(axis, forecast["past"], CANDIDATE)
    if stationary is not None:
        _draw_forecast(axis, stationary, STATIONARY, "if nothing changes")
    _draw_forecast(axis, forecast, CANDIDATE, "policy")
    axis.set_ylim(*_visible_range(forecast, *([stationary] if stationary else [])))
    axis.set_xlabel(time_label)
    axis.set_ylabel("return")
    legend_above(axis, ncols=legend_columns)
    return axis


def _draw_dots(axis: Axes, numbers: "Floats", returns: "Floats", **style: Any) -> None:
    """At most `MAX_DOTS` dots, however long the log is."""
    every = max(1, -(-numbers.size // MAX_DOTS))
    axis.scatter(numbers[::every], returns[::every], s=6, linewidths=0, rasterized=True, **style)


def _points(forecast: Plain) -> tuple["Floats", "Floats"]:
    """Episodes and estimated returns, as many as the record keeps."""
    points = forecast["points"]
    return floats(points["episode"]), floats(points["estimated_return"])


def _draw_bins(axis: Axes, past: Sequence[Plain], color: str) -> None:
    """Means of consecutive episodes with their standard errors."""
    centres = [(one["from"] + one["to"]) / 2 for one in past]
    means, errors = (floats(one[name] for one in past) for name in ("mean", "standard_error"))
    axis.errorbar(
        centres, means, yerr=np.nan_to_num(errors), fmt="o", color=color, ms=3.5, elinewidth=1,
        alpha=0.8,
    )  # fmt: skip


def floats(values: Iterable[float | None]) -> "Floats":
    """Numbers of a record; null stands for what was not finite."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _visible_range(*forecasts: Plain) -> tuple[float, float]:
    """All trends, means and bounds, and all but the most extreme two per cent of the estimates."""
    estimates = np.concatenate([_points(one)[1] for one in forecasts])
    bins = [one for forecast in forecasts for one in forecast["past"]]
    means, errors = (floats(one[name] for one in bins) for name in ("mean", "standard_error"))
    shown = [
        *(np.percentile(estimates, [1, 99]) if estimates.size else []),
        *np.concatenate([floats(one["curve"]["fitted"]) for one in forecasts]),
        *(means + np.nan_to_num(errors)),
        *(means - np.nan_to_num(errors)),
        *floats(one[bound] for one in forecasts for bound in ("lower", "upper")),
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


def _draw_forecast(axis: Axes, forecast: Plain, color: str, name: str) -> None:
    """The trend, and at its end the interval of the mean over the forecast window, drawn wide enough."""
    times = floats(forecast["curve"]["episode"])
    axis.plot(times, floats(forecast["curve"]["fitted"]), color=color, lw=1.8, label=f"{name}: trend")
    first, last = floats(forecast["forecast_episodes"] or (None, None))
    lower, point, upper = floats(forecast[name] for name in ("lower", "point", "upper"))
    start = _points(forecast)[0].min(initial=times[0])
    window = [first, first + max(last - first + 1, 0.02 * (last - start))]
    axis.fill_between(
        window, lower, upper, color=color, alpha=0.3, lw=0,
        label=f"{name}: forecast, {1 - forecast['alpha']:.0%} interval",
    )  # fmt: skip
    axis.plot(window, [point] * 2, color=color, lw=2.5)


def draw_backtest(
    axis: Axes,
    backtest: Plain,
    role: str,
    color: str,
    *,
    time_label: str = "episode",
    legend_columns: int = 3,
) -> Axes:
    """At each past date: the forecast with its intervals, and whether what came next lay inside."""
    dates, nominal = floats(backtest["dates"]), f"{1 - backtest['alpha']:.0%}"
    policy = {name: floats(values) for name, values in backtest[role].items()}
    realised, low, high = (policy[name] for name in ("realised", "predicted_lower", "predicted_upper"))
    known = np.isfinite(realised) & np.isfinite(low) & np.isfinite(high)
    inside = known & (low <= realised) & (realised <= high)
    missed = known & ~inside
    axis.vlines(
        dates[known], low[known], high[known], color=color, alpha=0.25, lw=7,
        label=f"{nominal} interval of what is measured next",
    )  # fmt: skip
    axis.vlines(
        dates, policy["lower"], policy["upper"], color=color, lw=2, alpha=0.9,
        label=f"{nominal} interval of the forecast",
    )  # fmt: skip
    axis.plot(dates, policy["forecast"], "_", color=color, ms=9, mew=2, label="forecast")
    axis.plot(dates[inside], realised[inside], "o", color=BETTER, ms=5, label="came next: inside")
    axis.plot(dates[missed], realised[missed], "X", color=WORSE, ms=8, label="came next: outside")
    axis.set_xlabel(f"date of the forecast ({time_label})")
    axis.set_ylabel("mean return")
    axis.margins(0.06, 0.08)
    # Intervals that dwarf the others are cut off.
    usual = known & (high - low <= 5 * np.median((high - low)[known] if known.any() else 0.0))
    axis.set_ylim(*_margined(np.concatenate([low[usual], high[usual], realised])))
    legend_above(axis, ncols=legend_columns, markerscale=1)
    return axis


def draw_scales(axis: Axes, advantage: Plain, unit: str = "episodes") -> Axes:
    """The forecast advantage at each scale, the longest on top, with its noise and its bias."""
    scales = advantage["scales"]
    for row, scale in enumerate(scales):
        _draw_scale(axis, row, scale, MARKS[scale["role"]])
    for role, mark in MARKS.items():
        if any(scale["role"] == role for scale in scales):
            axis.plot([], [], ls="", ms=6, label=role, **mark)
    axis.axvline(-advantage["margin"], color="#374151", lw=1)
    axis.set_yticks(range(len(scales)), [f"last {round(one['span']):,} {unit}" for one in scales])
    axis.invert_yaxis()
    axis.margins(y=0.12)
    axis.set_xlabel("forecast advantage, candidate − safe")
    legend_above(axis, ncols=4, markerscale=1)
    return axis


def _draw_scale(axis: Axes, row: int, scale: Plain, mark: dict[str, Any]) -> None:
    """A thick bar for one standard error of noise, a thin one for noise and bias together."""
    point, error, bias = floats(scale[name] for name in ("point", "standard_error", "bias"))
    if not np.isfinite(point + error):
        return
    noise = np.sqrt(max(error**2 - bias**2, 0.0))
    for reach, width in ((error, 1.0), (noise, 4.0)):
        ends = (point - reach, point + reach)
        axis.plot(ends, (row, row), color=mark["color"], lw=width, alpha=0.6, solid_capstyle="butt")
    axis.plot(point, row, ms=6, **mark)
