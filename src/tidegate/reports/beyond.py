"""The tables of the study beyond the paper: rows in, Markdown out."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..experiments.tables import Estimate

if TYPE_CHECKING:
    from ..experiments.beyond_coverage import LogSummary
    from ..experiments.sweep import Column

REFERENCE = "SPIN"
CLEAR, ROUNDING = 2.0, 1e-6  # a denominator is this many standard errors, and 32-bit noise, above 0


@dataclasses.dataclass(frozen=True)
class WorldSummary:
    """One algorithm in one world; `ratio` is its improvement over SPIN's, if SPIN's is clearly above 0."""

    world: str
    algorithm: str
    runs: int
    violation: Estimate
    improvement: Estimate
    ratio: Estimate | None
    deployment: Estimate


def summarise_worlds(columns: "dict[str, Column]", worlds: Iterable[str]) -> list[WorldSummary]:
    """Means and standard errors, with settings as the clusters, in the order of the worlds."""
    summaries = []
    for world in worlds:
        here = _rows(columns, columns["cell"] == world)
        reference = _rows(here, here["algorithm"] == REFERENCE)
        for algorithm in dict.fromkeys(here["algorithm"].tolist()):
            mine = _rows(here, here["algorithm"] == algorithm)
            settings = mine["setting"]
            summaries.append(
                WorldSummary(
                    world=world,
                    algorithm=algorithm,
                    runs=len(settings),
                    violation=Estimate.of(100 * mine["violation_rate"], settings),
                    improvement=Estimate.of(mine["improvement_over_safe"], settings),
                    ratio=_ratio(mine, reference),
                    deployment=Estimate.of(mine["deployment_rate"], settings),
                )
            )
    return summaries


def sweep_table(columns: "dict[str, Column]", worlds: Iterable[str]) -> str:
    """One line per world and algorithm."""
    names = ["world", "algorithm", "runs", "violation %", "improvement", f"over {REFERENCE}'s"]
    lines = [
        [
            one.world,
            one.algorithm,
            f"{one.runs:,}",
            _pm(one.violation, 2),
            _pm(one.improvement, 4),
            "" if one.ratio is None else _pm(one.ratio, 2),
            _pm(one.deployment, 3),
        ]
        for one in summarise_worlds(columns, worlds)
    ]
    return _markdown([*names, "deployment rate"], lines)


def lapse_table(columns: "dict[str, Column]") -> str:
    """How long a policy that the jump had made worse was still in force."""
    names = ["algorithm", "runs", "episodes until it was gone", "median", "95th percentile"]
    lines = []
    for algorithm in dict.fromkeys(columns["algorithm"].tolist()):
        jumped = ~np.isnan(columns["lapse"]) & (columns["algorithm"] == algorithm)
        lapse = columns["lapse"][jumped]
        mean = Estimate.of(lapse, columns["setting"][jumped])
        middle, high = np.quantile(lapse, [0.5, 0.95])
        lines.append([algorithm, f"{lapse.size:,}", _pm(mean, 1), f"{middle:.0f}", f"{high:.0f}"])
    return _markdown(names, lines)


def coverage_table(summaries: "Sequence[LogSummary]") -> str:
    """One line per cell: for each method the share of intervals that hold the truth, and their width."""
    methods = list(dict.fromkeys(one.method for one in summaries))
    names = ["world", "k", "look-ahead", "logs"]
    for method in methods:
        names += [f"{method}: coverage %", "median width"]
    found = {(one.world, one.episodes, one.lookahead, one.method): one for one in summaries}
    lines = []
    for world, episodes, lookahead in dict.fromkeys(cell[:3] for cell in found):
        ours = [found[world, episodes, lookahead, method] for method in methods]
        line = [world, f"{episodes:,}", f"{lookahead}", f"{ours[0].runs:,}"]
        for one in ours:
            coverage = Estimate(100 * one.coverage, 100 * one.error)
            line += [_pm(coverage, 1), f"{one.median_width:.3g}"]
        lines.append(line)
    return _markdown(names, lines)


def _rows(columns: "dict[str, Column]", chosen: "Column") -> "dict[str, Column]":
    return {name: values[chosen] for name, values in columns.items()}


def _ratio(mine: "dict[str, Column]", reference: "dict[str, Column]") -> Estimate | None:
    """Of two means over the same settings, whose noise is shared; its error by the delta method."""
    ours, theirs = (_by_run(one) for one in (mine, reference))
    if ours.shape != theirs.shape:
        return None
    below = Estimate.of(theirs, np.sort(reference["setting"]))
    if not below.mean > max(CLEAR * below.error, ROUNDING):
        return None
    ratio = float(ours.mean()) / below.mean
    spread = Estimate.of(ours - ratio * theirs, np.sort(mine["setting"]))
    return Estimate(ratio, spread.error / below.mean)


def _by_run(columns: "dict[str, Column]") -> "Column":
    """Improvements in the order of settings and trials."""
    order = np.lexsort((columns["trial"], columns["setting"]))
    return columns["improvement_over_safe"][order]


def _pm(estimate: Estimate, digits: int) -> str:
    if math.isnan(estimate.error):
        return f"{estimate.mean:.{digits}f}"
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def _markdown(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [names, ["---"] * len(names), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
