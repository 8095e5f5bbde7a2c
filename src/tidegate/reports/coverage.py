"""The picture of the coverage study: numbers and an axis in, the axis out."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from ..experiments.coverage import CoverageCell, CoverageRow, Noise
from .figures import CANDIDATE, OBSERVED, SAFE

COLORS = (CANDIDATE, "#fb923c", SAFE, "#15803d", "#7c3aed", "#0e7490")  # in the order of METHODS


def draw_coverage(axis: Axes, rows: Sequence[CoverageRow], noise: Noise = Noise.SKEWED) -> Axes:
    """Coverage against the length of the log, a line per method with ± one standard error.

    Of the rows, those are drawn that differ from the default cell in nothing but length and noise.
    """
    centre = CoverageCell(noise=noise)
    shown = [row for row in rows if _differs_in_length_alone(row, centre)]
    for color, method in zip(COLORS, dict.fromkeys(row["method"] for row in shown), strict=False):
        _draw_method(axis, [row for row in shown if row["method"] == method], color)
    axis.axhline(100 * (1 - centre.alpha), color=OBSERVED, lw=1, ls="--", label="nominal")
    lengths = sorted({row["episodes"] for row in shown})
    axis.set_xscale("log")
    axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel(f"episodes in the log ({noise.value} noise)")
    axis.set_ylabel(f"coverage of {1 - centre.alpha:.0%} intervals, %")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, fontsize=8, borderaxespad=0.2)
    return axis


def _draw_method(axis: Axes, rows: Sequence[CoverageRow], color: str) -> None:
    rows = sorted(rows, key=lambda row: row["episodes"])
    axis.errorbar(
        [row["episodes"] for row in rows],
        [100 * row["coverage"] for row in rows],
        yerr=[100 * row["standard_error"] for row in rows],
        color=color, lw=1.4, marker="o", ms=3.5, elinewidth=0.8, label=rows[0]["method"],
    )  # fmt: skip


def _differs_in_length_alone(row: CoverageRow, centre: CoverageCell) -> bool:
    return (row["noise"], row["alpha"], row["order"], row["lookahead"], row["draws"]) == (
        centre.noise.value, centre.alpha, centre.order, centre.lookahead, centre.draws,
    )  # fmt: skip
