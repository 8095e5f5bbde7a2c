"""The gate at past dates: what it forecast, what it decided, and what came next."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from .calendar import Clock
from .figures import (
    AXIS,
    BETTER,
    GROUND,
    OBSERVED,
    WORSE,
    Plain,
    floats,
    legend_above,
    margined,
    set_time_axis,
)

if TYPE_CHECKING:
    from ..arrays import Floats

DWARFS = 5  # an interval so many times as wide as the usual one is cut off
SEEN = 1.96  # standard errors: 95 % of what came next


def draw_advantages(axis: Axes, backtest: Plain, clock: Clock, *, legend_columns: int = 3) -> Axes:
    """Candidate − safe policy at each past date: the bound that decided, the verdict, and what came next."""
    names = ("dates", "advantage", "advantage_lower", "difference", "difference_noise")
    dates, point, lower, came, noise = (floats(backtest[name]) for name in names)
    reach, gap = SEEN * noise, _gap(dates)
    axis.set_ylim(*_range_of_advantages(point, lower, came, reach))
    axis.axhline(0, color=AXIS, lw=1.2, zorder=1)
    opened = np.array([verdict == "DEPLOY" for verdict in backtest["verdicts"]], bool)
    for which, style in (
        (opened, {"color": BETTER, "mfc": BETTER, "label": "forecast, gate open"}),
        (~opened, {"color": OBSERVED, "mfc": GROUND, "label": "forecast, gate shut"}),
    ):
        _draw_forecasts(axis, dates[which] - gap, point[which], lower[which], style)
    for which, style in (
        (came >= 0, {"marker": "o", "color": BETTER, "label": "came next: better"}),
        (came < 0, {"marker": "X", "color": WORSE, "label": "came next: worse"}),
    ):
        _draw_sequel(axis, dates[which] + gap, came[which], reach[which], style)
    axis.set_ylabel("candidate − safe policy")
    return _dated(axis, clock, legend_columns)


def _draw_forecasts(
    axis: Axes, dates: "Floats", point: "Floats", lower: "Floats", style: dict[str, Any]
) -> None:
    """From the forecast down to the bound."""
    if not dates.size:
        return
    color = style["color"]
    axis.vlines(dates, lower, point, color=color, lw=5, alpha=0.55)
    axis.plot(dates, lower, "_", color=color, ms=12, mew=2.2)
    axis.plot(dates, point, ls="", marker="D", ms=5, **style)
    _mark_beyond(axis, dates, lower, point, color)


def _draw_sequel(axis: Axes, dates: "Floats", came: "Floats", reach: "Floats", style: dict[str, Any]) -> None:
    """What was measured afterwards, with its noise."""
    if not dates.size:
        return
    axis.vlines(dates, came - reach, came + reach, color=style["color"], lw=1)
    axis.plot(dates, came, ls="", ms=6, mew=0, **style)
    _mark_beyond(axis, dates, came - reach, came + reach, style["color"])


def _range_of_advantages(
    point: "Floats", lower: "Floats", came: "Floats", reach: "Floats"
) -> tuple[float, float]:
    """Zero, all forecasts and all that came next, and as much of bounds and noise as leaves these visible."""
    low, high = margined([0.0, *point, *came])
    room = high - low
    others = np.clip([*lower, *(came - reach), *(came + reach)], low - room, high + room)
    return margined([low, high, *others])


def _mark_beyond(axis: Axes, times: "Floats", lower: "Floats", upper: "Floats", color: str) -> None:
    """Arrows where a bar goes on outside."""
    low, high = axis.get_ylim()
    for beyond, edge, marker in ((upper > high, high, "^"), (lower < low, low, "v")):
        axis.plot(
            times[beyond], np.full(int(beyond.sum()), edge), marker, color=color, ms=6, mew=0, clip_on=False
        )


def _gap(dates: "Floats") -> float:
    """How far apart the two marks of a date stand."""
    return float(0.12 * np.min(np.diff(dates))) if dates.size > 1 else 0.0


def draw_backtest(
    axis: Axes, backtest: Plain, role: str, color: str, clock: Clock, *, legend_columns: int = 3
) -> Axes:
    """At each past date: the forecast with its intervals, and whether what came next lay inside."""
    dates, nominal = floats(backtest["dates"]), f"{1 - backtest['alpha']:.0%}"
    policy = {name: floats(values) for name, values in backtest[role].items()}
    realised, low, high = (policy[name] for name in ("realised", "predicted_lower", "predicted_upper"))
    known = np.isfinite(realised) & np.isfinite(low) & np.isfinite(high)
    inside = known & (low <= realised) & (realised <= high)
    missed = known & ~inside
    usual = known & (high - low <= DWARFS * np.median((high - low)[known] if known.any() else 0.0))
    axis.set_ylim(*margined(np.concatenate([low[usual], high[usual], realised])))
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
    if missed.any():
        axis.plot(dates[missed], realised[missed], "X", color=WORSE, ms=8, label="came next: outside")
    _mark_beyond(axis, dates, low, high, color)
    axis.set_ylabel("mean return")
    return _dated(axis, clock, legend_columns)


def _dated(axis: Axes, clock: Clock, legend_columns: int) -> Axes:
    axis.margins(x=0.06)
    set_time_axis(axis, clock, 6 if legend_columns > 1 else 3)
    axis.set_xlabel(
        f"date of the forecast: {clock.axis}" if not clock.dated else "date of the forecast (UTC)"
    )
    legend_above(axis, ncols=legend_columns)
    return axis
