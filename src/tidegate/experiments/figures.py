"""The figures of the studies: numbers and an axis in, the axis out."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ..arrays import Floats
from ..reports.figures import BETTER, CANDIDATE, OBSERVED, SAFE, STATIONARY, legend_above
from .coverage import CoverageRow
from .sweep import Columns
from .tables import CellSummary
from .trend_coverage import Noise, TrendCell

ALGORITHM_COLORS = {"SPIN 50-50": CANDIDATE, "Stationary": STATIONARY}
METHOD_COLORS = (CANDIDATE, "#fb923c", SAFE, BETTER, "#7c3aed", "#0e7490")


def draw_bars(axis: Axes, summaries: Sequence[CellSummary], field: str, label: str) -> Axes:
    """One group of bars per speed, one bar per algorithm, with standard errors."""
    algorithms = list(dict.fromkeys(one.algorithm for one in summaries))
    cells = list(dict.fromkeys(one.cell for one in summaries))
    width = 0.8 / len(algorithms)
    for i, algorithm in enumerate(algorithms):
        estimates = [getattr(one, field) for one in summaries if one.algorithm == algorithm]
        axis.bar(
            np.arange(len(cells)) + (i - (len(algorithms) - 1) / 2) * width,
            [one.mean for one in estimates],
            width,
            yerr=[one.error for one in estimates],
            color=ALGORITHM_COLORS.get(algorithm),
            label=algorithm,
            error_kw={"lw": 1},
        )
    axis.set_xticks(range(len(cells)), cells)
    return _labelled(axis, "speed", label)


def draw_curves(axis: Axes, columns: Columns, cell: str, num_episodes: int) -> Axes:
    """Mean true performance over all runs along the episodes, with standard errors."""
    safe = columns["curve_safe"][columns["cell"] == cell].mean(axis=0)
    episodes = _middles(safe.size, num_episodes)
    axis.plot(episodes, safe, color=SAFE, label="safe policy")
    for algorithm, values in _curves(columns, "curve_performance", cell).items():
        mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
        color = ALGORITHM_COLORS.get(algorithm)
        (line,) = axis.plot(episodes, mean, color=color, label=algorithm)
        axis.fill_between(episodes, mean - error, mean + error, color=line.get_color(), alpha=0.3)
    return _labelled(axis, "episode", f"true performance, speed {cell}")


def draw_unsafe(axis: Axes, columns: Columns, cell: str, num_episodes: int) -> Axes:
    """Share of runs under a policy truly worse than the safe one, along the episodes."""
    for algorithm, values in _curves(columns, "curve_unsafe", cell).items():
        share = 100 * values.mean(axis=0)
        episodes = _middles(share.size, num_episodes)
        axis.plot(episodes, share, color=ALGORITHM_COLORS.get(algorithm), label=algorithm)
    axis.axhline(5, color="#6b7280", lw=0.8, ls=":")
    return _labelled(axis, "episode", f"% under an unsafe policy, speed {cell}")


def draw_coverage(axis: Axes, rows: Sequence[CoverageRow], noise: Noise = Noise.SKEWED) -> Axes:
    """Coverage against the length of the log, a line per method with ± one standard error.

    Only rows that differ from the default cell in nothing but length and noise are drawn.
    """
    centre = TrendCell(noise=noise)
    shown = [row for row in rows if {**row.factors, "episodes": centre.episodes} == centre.factors]
    for color, method in zip(METHOD_COLORS, dict.fromkeys(row.method for row in shown), strict=False):
        line = [row for row in shown if row.method == method]
        line.sort(key=lambda row: row.factors["episodes"])
        axis.errorbar(
            [row.factors["episodes"] for row in line],
            [100 * row.coverage for row in line],
            yerr=[100 * row.error for row in line],
            color=color, lw=1.4, marker="o", ms=3.5, elinewidth=0.8, label=method,
        )  # fmt: skip
    axis.axhline(100 * (1 - centre.alpha), color=OBSERVED, lw=1, ls="--", label="nominal")
    lengths = sorted({row.factors["episodes"] for row in shown})
    axis.set_xscale("log")
    axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axis.minorticks_off()
    label = f"coverage of {1 - centre.alpha:.0%} intervals, %"
    return _labelled(axis, f"episodes in the log ({noise.value} noise)", label)


def _curves(columns: Columns, name: str, cell: str) -> dict[str, Floats]:
    """The curves of all runs of each algorithm in a cell."""
    here = columns["cell"] == cell
    names = dict.fromkeys(columns["algorithm"].tolist())
    return {one: columns[name][here & (columns["algorithm"] == one)] for one in names}


def _middles(bins: int, num_episodes: int) -> Floats:
    return (np.arange(bins) + 0.5) * num_episodes / bins


def _labelled(axis: Axes, x: str, y: str) -> Axes:
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    legend_above(axis, ncols=3)
    return axis
