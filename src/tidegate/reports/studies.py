"""The figures of a study: numbers and an axis in, the axis out."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from .figures import CANDIDATE, SAFE, legend_above

if TYPE_CHECKING:
    from ..experiments.sweep import Column
    from ..experiments.tables import CellSummary

COLORS = {"SPIN 50-50": CANDIDATE, "Stationary": "#a16207"}


def draw_bars(axis: Axes, summaries: "list[CellSummary]", field: str, label: str) -> Axes:
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
            color=COLORS.get(algorithm),
            label=algorithm,
            error_kw={"lw": 1},
        )
    axis.set_xticks(range(len(cells)), cells)
    axis.set_xlabel("speed")
    axis.set_ylabel(label)
    legend_above(axis, ncols=3)
    return axis


def draw_curves(axis: Axes, columns: "dict[str, Column]", cell: str, num_episodes: int) -> Axes:
    """Mean true performance over all runs along the episodes, with standard errors."""
    rows = columns["cell"] == cell
    bins = columns["curve_performance"].shape[1]
    episodes = (np.arange(bins) + 0.5) * num_episodes / bins
    axis.plot(episodes, columns["curve_safe"][rows].mean(axis=0), color=SAFE, label="safe policy")
    for algorithm in dict.fromkeys(columns["algorithm"].tolist()):
        values = columns["curve_performance"][rows & (columns["algorithm"] == algorithm)]
        mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
        color = COLORS.get(algorithm)
        (line,) = axis.plot(episodes, mean, color=color, label=algorithm)
        axis.fill_between(episodes, mean - error, mean + error, color=line.get_color(), alpha=0.3)
    axis.set_xlabel("episode")
    axis.set_ylabel(f"true performance, speed {cell}")
    legend_above(axis, ncols=3)
    return axis


def draw_unsafe(axis: Axes, columns: "dict[str, Column]", cell: str, num_episodes: int) -> Axes:
    """Share of runs under a policy truly worse than the safe one, along the episodes."""
    bins = columns["curve_unsafe"].shape[1]
    episodes = (np.arange(bins) + 0.5) * num_episodes / bins
    for algorithm in dict.fromkeys(columns["algorithm"].tolist()):
        rows = (columns["cell"] == cell) & (columns["algorithm"] == algorithm)
        share = 100 * columns["curve_unsafe"][rows].mean(axis=0)
        axis.plot(episodes, share, color=COLORS.get(algorithm), label=algorithm)
    axis.axhline(5, color="#6b7280", lw=0.8, ls=":")
    axis.set_xlabel("episode")
    axis.set_ylabel(f"% under an unsafe policy, speed {cell}")
    legend_above(axis, ncols=3)
    return axis
