"""A watch over time: the mean advantage since the release, its bounds, and where it rolled back."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from .calendar import Clock
from .figures import AXIS, CANDIDATE, WORSE, Plain, floats, legend_above, margined, set_time_axis

if TYPE_CHECKING:
    from ..arrays import Floats

REACH = 2.0  # how far beyond the means and the latest bounds a picture goes, in heights of these
SETTLED = 0.5  # the later part of the bounds decides how much of the early ones is shown


def draw_watch(
    axis: Axes, curve: Plain, margin: float, harm: Plain | None, clock: Clock, *, legend_columns: int = 3
) -> Axes:
    """One outcome, signed so that more is better; `harm` is what this sequence showed, if it did."""
    names = ("episode", "mean", "lower", "upper")
    numbers, mean, lower, upper = (floats(curve[name]) for name in names)
    low, high = _visible_range(mean, lower, upper, margin)
    axis.set_ylim(low, high)
    known = np.isfinite(lower) & np.isfinite(upper)
    bottom, top = np.clip(lower, low, high), np.clip(upper, low, high)
    axis.fill_between(numbers, bottom, top, where=known, color=CANDIDATE, alpha=0.18, lw=0)
    axis.plot(numbers, np.where(known, upper, np.nan), color=CANDIDATE, lw=1, label="bounds, at every time")
    axis.plot(numbers, np.where(known, lower, np.nan), color=CANDIDATE, lw=1)
    axis.plot(numbers, mean, color=CANDIDATE, lw=2.2, label="mean advantage since the release")
    label = "no difference" if margin == 0 else "the margin"
    axis.axhline(-margin, color=AXIS, lw=1.2, zorder=1, label=label)
    if harm is not None:
        axis.axvline(harm["episode"], color=WORSE, lw=1.6, ls=(0, (3, 3)), label="rolled back")
    axis.set_ylabel("new policy − safe policy")
    set_time_axis(axis, clock, 6 if legend_columns > 1 else 3)
    legend_above(axis, ncols=legend_columns + 1 if legend_columns > 1 else 1)
    return axis


def _visible_range(mean: "Floats", lower: "Floats", upper: "Floats", margin: float) -> tuple[float, float]:
    """The later means and bounds, the margin, and as much of the first ones as leaves these visible."""
    later = slice(int(SETTLED * mean.size), None)
    ends = np.concatenate([mean[later], lower[later], upper[later], [-margin, 0.0]])
    low, high = margined(ends)
    room = REACH * (high - low)
    others = np.clip(np.concatenate([mean, lower, upper]), low - room, high + room)
    return margined([low, high, *others[np.isfinite(others)]])
