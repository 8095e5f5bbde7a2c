"""What every time scale says of a candidate: numbers and an axis in, the axis out."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .figures import CANDIDATE, OBSERVED, Plain, floats, legend_above

MARKS: dict[str, dict[str, Any]] = {
    "leads": {"marker": "D", "mfc": CANDIDATE, "color": CANDIDATE},
    "must pass": {"marker": "o", "mfc": CANDIDATE, "color": CANDIDATE},
    "must not contradict": {"marker": "o", "mfc": "white", "color": CANDIDATE},
    "not asked": {"marker": "o", "mfc": OBSERVED, "color": OBSERVED},
}


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
