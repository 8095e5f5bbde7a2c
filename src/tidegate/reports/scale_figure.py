"""The picture that shows why the gate opened or not: the bound that decides, and what each model would say.

The first bar is the mixture's; it decides. The others are families of models, in order of weight: the
heavier, the darker.
"""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .figures import AXIS, BETTER, CANDIDATE, OBSERVED, Plain, floats, legend_above
from .model_words import family_words, shown_families
from .numbers import signed

NARROW_LABEL = 22  # letters of a line: beside more of them, a narrow picture has no room for its axis


@dataclasses.dataclass(frozen=True)
class Row:
    """One bar, from the forecast advantage to its lower bound."""

    label: str
    weight: float
    point: float
    bound: float
    limit: float
    decides: bool = False

    @property
    def color(self) -> str:
        """Green for a bound above the line, orange for one that is not; grey where nothing is decided."""
        if not self.decides:
            return OBSERVED
        return BETTER if self.bound > self.limit else CANDIDATE

    @property
    def mark(self) -> dict[str, Any]:
        return {
            "marker": "s" if self.decides else "o",
            "ms": 7.0 if self.decides else 5.0,
            "color": self.color,
        }


def scale_rows(advantage: Plain, span: Callable[[float], str]) -> list[Row]:
    """All models together, then every family that has weight."""
    limit = -advantage["margin"]
    point, bound = floats((advantage["point"], advantage["lower"]))
    rows = [Row("all models together", 1.0, point, bound, limit, decides=True)]
    families = shown_families(advantage)
    for one in families if len(families) > 1 else ():
        point, bound = floats((one["point"], one["lower"]))
        rows.append(Row(family_words(one, span), one["weight"], point, bound, limit))
    return rows


def draw_scales(
    axis: Axes, advantage: Plain, span: Callable[[float], str], *, legend_columns: int = 3
) -> Axes:
    """The forecast advantage with its bound: all together, and by each family."""
    rows, broad = scale_rows(advantage, span), legend_columns > 1
    axis.set_xlim(*_visible_range(rows))
    for place, row in enumerate(rows):
        _draw_row(axis, place, row)
        if broad and np.isfinite(row.bound):
            words = f"at least {signed(row.bound, 3)}" if row.decides else f"weight {row.weight:.0%}"
            axis.text(
                *(1.015, place, words), transform=axis.get_yaxis_transform(),
                va="center", fontsize=9, color=row.color,
            )  # fmt: skip
    axis.axvline(-advantage["margin"], color=AXIS, lw=1.2, zorder=1)
    axis.axhline(0.5, color=OBSERVED, lw=0.6)
    labels = [row.label if broad else textwrap.fill(row.label, NARROW_LABEL) for row in rows]
    axis.set_yticks(range(len(rows)), labels)
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set(fontsize=10 if row.decides else 9, color=AXIS)
        label.set_fontweight("bold" if row.decides else "normal")
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("candidate − safe policy, per episode")
    tick = Line2D(
        [], [], ls="", marker="|", ms=11, mew=2.2, color=AXIS, label=f"bound, level {advantage['level']:.2g}"
    )
    mark = Line2D([], [], ls="", marker="o", ms=6, color=AXIS, label="forecast")
    legend_above(axis, ncols=2, handles=[mark, tick])
    return axis


def _visible_range(rows: Sequence[Row]) -> tuple[float, float]:
    """What decides, and the line that it must clear; other rows end in arrows."""
    ends = [
        end for row in rows if row.decides for end in (row.point, row.bound, row.limit) if np.isfinite(end)
    ]
    low, high = min(ends, default=-1.0), max(ends, default=1.0)
    width = high - low or 1.0
    return low - 0.5 * width, high + 0.5 * width


def _draw_row(axis: Axes, place: int, row: Row) -> None:
    """A bar from the forecast to its bound, a tick at the bound, arrows for what lies outside."""
    if not np.isfinite(row.point):
        return
    low, high = axis.get_xlim()
    alpha = 0.55 if row.decides else min(0.9, 0.25 + 0.65 * row.weight)
    ends = np.clip([row.point, row.bound if np.isfinite(row.bound) else row.point], low, high)
    axis.plot(
        *(ends, [place] * 2), lw=5.0 if row.decides else 2.5, color=row.color, alpha=alpha,
        solid_capstyle="butt",
    )  # fmt: skip
    if low <= row.bound <= high:
        height = 0.3 if row.decides else 0.18
        axis.plot([row.bound] * 2, [place - height, place + height], color=row.color, lw=1.8)
    if low <= row.point <= high:
        axis.plot(row.point, place, ls="", **row.mark)
    for end in (row.point, row.bound):
        if end < low or end > high:
            axis.plot(
                *(low if end < low else high, place), "<" if end < low else ">", color=row.color, mew=0, ms=6,
                clip_on=False,
            )  # fmt: skip
