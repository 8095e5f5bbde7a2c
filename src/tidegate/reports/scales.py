"""What every time scale says of a candidate: numbers and an axis in, the axis out."""

import math
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from .figures import CANDIDATE, OBSERVED, legend_above

if TYPE_CHECKING:
    from ..records import Advantage, Scale

MARKS: dict[str, dict[str, Any]] = {
    "leads": {"marker": "D", "mfc": CANDIDATE, "color": CANDIDATE},
    "must pass": {"marker": "o", "mfc": CANDIDATE, "color": CANDIDATE},
    "must not contradict": {"marker": "o", "mfc": "white", "color": CANDIDATE},
    "not asked": {"marker": "o", "mfc": OBSERVED, "color": OBSERVED},
}


def draw_scales(axis: Axes, advantage: "Advantage", unit: str = "episodes") -> Axes:
    """The forecast advantage at each scale, the longest on top, with its noise and its bias."""
    roles = [advantage.role(index) for index in range(len(advantage.scales))]
    for row, (scale, role) in enumerate(zip(advantage.scales, roles, strict=True)):
        _draw_scale(axis, row, scale, MARKS[role])
    for role, mark in MARKS.items():
        if role in roles:
            axis.plot([], [], ls="", ms=6, label=role, **mark)
    axis.axvline(-advantage.margin, color="#374151", lw=1)
    axis.set_yticks(
        range(len(roles)), [f"last {round(one.span):,} {unit}" for one in advantage.scales]
    )
    axis.invert_yaxis()
    axis.margins(y=0.12)
    axis.set_xlabel("forecast advantage, candidate − safe")
    legend_above(axis, ncols=4, markerscale=1)
    return axis


def _draw_scale(axis: Axes, row: int, scale: "Scale", mark: dict[str, Any]) -> None:
    """A thick bar for one standard error of noise, a thin one for noise and bias together."""
    if not math.isfinite(scale.point + scale.standard_error):
        return
    noise = math.sqrt(max(scale.standard_error**2 - scale.bias**2, 0.0))
    for reach, width in ((scale.standard_error, 1.0), (noise, 4.0)):
        ends = (scale.point - reach, scale.point + reach)
        axis.plot(ends, (row, row), color=mark["color"], lw=width, alpha=0.6, solid_capstyle="butt")
    axis.plot(scale.point, row, ms=6, **mark)
