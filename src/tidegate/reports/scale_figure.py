"""The picture that shows why the gate opened or not: the bound that decides, at every time scale.

A scale that must pass has its lower bound at the level of the test: it passes if all of its bar is right of
the line. One that must not contradict has its upper bound: it contradicts if all of its bar is left of it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .figures import AXIS, BETTER, CANDIDATE, GROUND, OBSERVED, WORSE, Plain, floats, legend_above
from .numbers import signed

TOGETHER = "together"
ASKED = ("leads", "must pass")
MARKERS = {TOGETHER: "s", "leads": "D", "must pass": "o", "must not contradict": "o", "not asked": "o"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One bar, from the forecast advantage to the bound that matters."""

    label: str
    role: str
    point: float
    bound: float
    limit: float

    @property
    def asked(self) -> bool:
        return self.role in (TOGETHER, *ASKED)

    @property
    def color(self) -> str:
        """Green for what passes, orange for what should and does not, red for what contradicts."""
        if self.asked:
            return BETTER if self.bound > self.limit else CANDIDATE
        contradicts = self.role == "must not contradict" and self.bound < self.limit
        return WORSE if contradicts else OBSERVED

    @property
    def quiet(self) -> bool:
        """Whether nothing hangs on it."""
        return self.role == "not asked"

    @property
    def mark(self) -> dict[str, Any]:
        """How the forecast is marked: filled if it must pass, open if it must not contradict."""
        size = 7.0 if self.asked else 3.0 if self.quiet else 5.5
        face = GROUND if self.role == "must not contradict" else self.color
        return {"marker": MARKERS[self.role], "ms": size, "mfc": face, "mec": self.color, "mew": 1.3}


def scale_rows(advantage: Plain, span: Callable[[float], str]) -> list[Row]:
    """All that must pass together, then every scale, the longest first."""
    limit = -advantage["margin"]
    point, bound = floats((advantage["point"], advantage["lower"]))
    rows = [Row("all that must pass", TOGETHER, point, bound, limit)]
    for one in advantage["scales"]:
        side = "upper" if one["role"] == "must not contradict" else "lower"
        point, bound = floats((one["point"], one[side]))
        rows.append(Row(f"last {span(one['span'])}", one["role"], point, bound, limit))
    return rows


def draw_scales(
    axis: Axes, advantage: Plain, span: Callable[[float], str], *, legend_columns: int = 3
) -> Axes:
    """The forecast advantage with its bound: all together, and at each scale."""
    rows = scale_rows(advantage, span)
    axis.set_xlim(*_visible_range(rows))
    for place, row in enumerate(rows):
        _draw_row(axis, place, row)
        if legend_columns > 1 and row.asked and np.isfinite(row.bound):
            axis.text(
                *(1.015, place, f"at least {signed(row.bound, 3)}"), transform=axis.get_yaxis_transform(),
                va="center", fontsize=9, color=row.color,
            )  # fmt: skip
    axis.axvline(-advantage["margin"], color=AXIS, lw=1.2, zorder=1)
    axis.axhline(0.5, color=OBSERVED, lw=0.6)
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set(fontsize=8 if row.quiet else 10, color=OBSERVED if row.quiet else AXIS)
        label.set_fontweight("bold" if row.role == TOGETHER else "normal")
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("candidate − safe policy, per episode")
    legend_above(axis, ncols=5 if legend_columns > 1 else 2, handles=_legend(rows, advantage["level"]))
    return axis


def _visible_range(rows: Sequence[Row]) -> tuple[float, float]:
    """What decides, and the line that it must clear; other rows end in arrows."""
    asked = [row for row in rows if row.asked]
    ends = [end for row in asked for end in (row.point, row.bound, row.limit) if np.isfinite(end)]
    low, high = min(ends, default=-1.0), max(ends, default=1.0)
    width = high - low or 1.0
    return low - 0.15 * width, high + 0.3 * width


def _draw_row(axis: Axes, place: int, row: Row) -> None:
    """A bar from the forecast to its bound, a tick at the bound, arrows for what lies outside."""
    if not np.isfinite(row.point):
        return
    low, high = axis.get_xlim()
    thickness = 5.0 if row.asked else 0.8 if row.quiet else 1.4
    style: dict[str, Any] = {
        "color": row.color,
        "alpha": 0.55 if row.asked else 0.8,
        "solid_capstyle": "butt",
    }
    ends = np.clip([row.point, row.bound if np.isfinite(row.bound) else row.point], low, high)
    axis.plot(ends, [place] * 2, lw=thickness, **style)
    if low <= row.bound <= high and not row.quiet:
        height = 0.3 if row.asked else 0.2
        axis.plot(
            [row.bound] * 2, [place - height, place + height], color=row.color, lw=2.2 if row.asked else 1.4
        )
    if low <= row.point <= high:
        axis.plot(row.point, place, ls="", **row.mark)
    for end in (row.point, row.bound):
        if end < low or end > high:
            axis.plot(
                *(low if end < low else high, place), "<" if end < low else ">", color=row.color, mew=0,
                ms=4 if row.quiet else 7, clip_on=False,
            )  # fmt: skip


def _legend(rows: Sequence[Row], level: float) -> list[Line2D]:
    """The marks that are in the picture."""
    found = {row.role: row for row in rows if row.role != TOGETHER}
    marks = [
        Line2D([], [], ls="", label=role, **{**found[role].mark, "mec": AXIS, "mfc": _face(found[role])})
        for role in MARKERS
        if role in found
    ]
    tick = Line2D([], [], ls="", marker="|", ms=11, mew=2.2, color=AXIS, label=f"bound, level {level:.2g}")
    return [*marks, tick]


def _face(row: Row) -> str:
    return GROUND if row.role == "must not contradict" else OBSERVED if row.quiet else AXIS
