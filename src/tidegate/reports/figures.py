"""Numbers and an axis in, the axis out; nothing is computed here.

What lies outside a picture is marked by an arrow at its edge.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ..record import plain
from .calendar import Clock
from .palette import LIGHT

if TYPE_CHECKING:
    from ..arrays import Floats
    from ..record import Decision

Plain = Mapping[str, Any]  # a record, or a part of one, in plain values
CANDIDATE, SAFE, OBSERVED = LIGHT["candidate"], LIGHT["safe"], LIGHT["observed"]
BETTER, WORSE, KEPT = LIGHT["better"], LIGHT["worse"], LIGHT["line"]
STATIONARY, AXIS, GROUND = LIGHT["stationary"], LIGHT["axis"], LIGHT["ground"]
MAX_DOTS = 1000  # more would be a blot
MAX_ARROWS = 60
REACH = 0.75  # how far beyond the means and trends a picture goes, in heights of these
STYLE: Any = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "legend.frameon": False,
    "text.color": AXIS,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": AXIS,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
}


def draw_figure(width: float, height: float, draw: Callable[[Axes], Axes]) -> Figure:
    """A figure in the house style with one axis, drawn by `draw`."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(width, height), layout="constrained")
        draw(axis)
    return figure


def draw_decision(
    axis: Axes,
    decision: "Decision",
    observed_numbers: "Floats",
    observed_returns: "Floats",
    legend_columns: int = 3,
) -> Axes:
    """The paper's Figure 1: what was observed, what either policy would have earned, and will."""
    past = observed_numbers <= decision.safe.episode_numbers.max(initial=0.0)
    observed = observed_numbers[past], observed_returns[past]
    axis.plot([], [], "o", ms=3, color=OBSERVED, label="observed return")
    _draw_dots(axis, *observed, OBSERVED, 0.5)
    draw_comparison(
        axis, plain(decision.candidate), plain(decision.safe), Clock(), legend_columns=legend_columns
    )
    _mark_outside(axis, *observed, OBSERVED)
    return axis


def draw_comparison(
    axis: Axes, candidate: Plain, safe: Plain, clock: Clock, *, legend_columns: int = 3
) -> Axes:
    """What either policy would have earned in each past episode, and will earn on average."""
    policies = ((safe, SAFE, "safe policy"), (candidate, CANDIDATE, "candidate"))
    return _draw_policies(axis, policies, clock, legend_columns)


def draw_evaluation(
    axis: Axes, forecast: Plain, stationary: Plain | None, clock: Clock, *, legend_columns: int = 3
) -> Axes:
    """One policy: what it would have earned, its trend and forecast; and if nothing changes."""
    policies = [(forecast, CANDIDATE, "policy")]
    if stationary is not None:
        still = {**stationary, "past": [], "points": {"episode": [], "estimated_return": []}}
        policies.insert(0, (still, STATIONARY, "if nothing changes"))
    return _draw_policies(axis, policies, clock, legend_columns)


def _draw_policies(
    axis: Axes, policies: Sequence[tuple[Plain, str, str]], clock: Clock, legend_columns: int
) -> Axes:
    forecasts = [one for one, _, _ in policies]
    low, high = _visible_range(forecasts)
    axis.set_ylim(low, high)
    for place, (forecast, color, name) in enumerate(policies):
        dots = _points(forecast)
        _draw_dots(axis, *dots, color, 0.4)
        _draw_bins(axis, forecast["past"], color)
        _draw_trend(axis, forecast, color, name)
        _draw_interval(axis, forecast, color, (place + 1) / (len(policies) + 1))
        _mark_outside(axis, *dots, color)
    widths = {f"{1 - one['alpha']:.0%}" for one in forecasts}
    _mark_now(axis, forecasts)
    axis.plot([], [], color=AXIS, lw=6, alpha=0.4, label=f"{', '.join(widths)} interval of the forecast")
    axis.set_ylabel("return of an episode")
    set_time_axis(axis, clock, 6 if legend_columns > 1 else 3)
    legend_above(axis, ncols=legend_columns + 1 if legend_columns > 1 else 1)
    return axis


def set_time_axis(axis: Axes, clock: Clock, most: int) -> None:
    """Dates where they are known, else numbers."""
    low, high = axis.get_xlim()
    ticks = clock.ticks(low, high, most)
    if ticks:
        axis.set_xticks([time for time, _ in ticks], [label for _, label in ticks])
    else:
        axis.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(most))
    axis.set_xlim(low, high)
    axis.set_xlabel(clock.axis)


def _draw_dots(axis: Axes, numbers: "Floats", returns: "Floats", color: str, alpha: float) -> None:
    """At most `MAX_DOTS` dots, however long the log is: one path, whose lines are as short as their ends."""
    shown = np.isfinite(returns)
    numbers, returns = numbers[shown], returns[shown]
    every = max(1, -(-numbers.size // MAX_DOTS))
    places = np.repeat(np.column_stack([numbers, returns])[::every], 2, axis=0)
    if not places.size:
        return
    codes = np.tile([Path.MOVETO, Path.LINETO], len(places) // 2)
    path = Path(places, codes)
    path.should_simplify = False
    axis.add_patch(PathPatch(path, fc="none", ec=color, lw=2.2, alpha=alpha, capstyle="round"))
    axis.update_datalim([(numbers.min(), axis.get_ylim()[0]), (numbers.max(), axis.get_ylim()[1])])


def _mark_outside(axis: Axes, numbers: "Floats", returns: "Floats", color: str) -> None:
    """An arrow at the edge for each dot beyond it, or for as many as can be told apart."""
    low, high = axis.get_ylim()
    for beyond, edge, marker in ((returns > high, high, "^"), (returns < low, low, "v")):
        times = numbers[beyond][:: max(1, -(-int(beyond.sum()) // MAX_ARROWS))]
        axis.plot(
            times, np.full(times.size, edge), marker, color=color, ms=3.5, mew=0, alpha=0.55, clip_on=False
        )


def _points(forecast: Plain) -> tuple["Floats", "Floats"]:
    """Episodes and estimated returns, as many as the record keeps."""
    points = forecast["points"]
    return floats(points["episode"]), floats(points["estimated_return"])


def _draw_bins(axis: Axes, past: Sequence[Plain], color: str) -> None:
    """Means of consecutive episodes with their standard errors."""
    centres = [(one["from"] + one["to"]) / 2 for one in past]
    means, errors = (floats(one[name] for one in past) for name in ("mean", "standard_error"))
    axis.errorbar(
        centres, means, yerr=np.nan_to_num(errors), fmt="o", color=color, ms=4, elinewidth=1,
        alpha=0.85,
    )  # fmt: skip


def floats(values: Iterable[float | None]) -> "Floats":
    """Numbers of a record; null stands for what was not finite."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _visible_range(forecasts: Sequence[Plain]) -> tuple[float, float]:
    """All means and trends; and of bounds and single estimates, what does not flatten these."""
    bins = [one for forecast in forecasts for one in forecast["past"]]
    means, errors = (floats(one[name] for one in bins) for name in ("mean", "standard_error"))
    fitted = np.concatenate([floats(one["curve"]["fitted"]) for one in forecasts])
    points = floats(one["point"] for one in forecasts)
    low, high = margined([*means, *fitted, *points])
    estimates = np.concatenate([_points(one)[1] for one in forecasts])
    estimates = estimates[np.isfinite(estimates)]
    others = [
        *(means - np.nan_to_num(errors)),
        *(means + np.nan_to_num(errors)),
        *floats(one[bound] for one in forecasts for bound in ("lower", "upper")),
        *(np.percentile(estimates, [1, 99]) if estimates.size else []),
    ]
    reach = REACH * (high - low)
    return margined([low, high, *np.clip(others, low - reach, high + reach)])


def margined(shown: Iterable[float]) -> tuple[float, float]:
    """The range of what is finite, and a little more."""
    finite = [value for value in shown if np.isfinite(value)] or [0.0, 1.0]
    margin = 0.05 * (max(finite) - min(finite)) or 1.0
    return min(finite) - margin, max(finite) + margin


def legend_above(axis: Axes, ncols: int, handles: Any = None) -> None:
    """A legend that cannot cover a curve: as wide as the figure, or above its axis if that has others."""
    handles = handles or axis.get_legend_handles_labels()[0]
    figure, grid = axis.get_figure(), axis.get_gridspec()
    if figure is None or not handles:
        return
    style: Any = {
        "handles": handles,
        "ncols": ncols,
        "fontsize": 9,
        "columnspacing": 1.4,
        "handlelength": 1.6,
    }
    if grid is not None and grid.nrows > 1:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3, **style)
    else:
        figure.legend(loc="outside upper left", borderaxespad=0.2, **style)


def _draw_trend(axis: Axes, forecast: Plain, color: str, name: str) -> None:
    times, fitted = (floats(forecast["curve"][part]) for part in ("episode", "fitted"))
    axis.plot(times, fitted, color=color, lw=2, label=name)


def _draw_interval(axis: Axes, forecast: Plain, color: str, share: float) -> None:
    """The interval of the mean over the forecast window, at this share of the window's width."""
    lower, point, upper = floats(forecast[name] for name in ("lower", "point", "upper"))
    start, end = _window(forecast)
    place, (low, high) = start + share * (end - start), axis.get_ylim()
    axis.plot(
        [place] * 2, np.clip([lower, upper], low, high), color=color, lw=6, alpha=0.4, solid_capstyle="butt"
    )
    axis.plot(place, point, "_", color=color, ms=11, mew=2.5)
    for beyond, edge, marker in ((upper > high, high, "^"), (lower < low, low, "v")):
        if beyond:
            axis.plot(place, edge, marker, color=color, ms=7, mew=0, clip_on=False)
    axis.update_datalim([(end, low)])


def _window(forecast: Plain) -> tuple[float, float]:
    """The forecast window, drawn wide enough to be seen."""
    first, last = floats(forecast["forecast_episodes"] or (None, None))
    start = _points(forecast)[0].min(initial=floats(forecast["curve"]["episode"]).min(initial=first))
    return first, first + max(last - first + 1, 0.08 * (last - start))


def _mark_now(axis: Axes, forecasts: Sequence[Plain]) -> None:
    """Where the log ends and the forecast begins."""
    first = _window(forecasts[0])[0]
    if np.isfinite(first):
        axis.axvline(first, color=OBSERVED, lw=1, ls=(0, (3, 3)))
