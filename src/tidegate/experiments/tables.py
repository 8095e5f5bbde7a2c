"""Rows of runs -> summaries -> Markdown, with the paper's numbers beside ours where it has them."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..arrays import Values
from .sweep import Columns

# Table 1 of Chandak et al. (2020): normalised improvement and violation % at speeds 0 to 3.
PUBLISHED = {
    "SPIN 75-25": ((0.56, 0.22, 0.17, 0.14), (0.0, 3.6, 5.1, 5.4)),
    "SPIN 25-75": ((0.48, 0.29, 0.21, 0.19), (0.0, 4.6, 6.5, 7.0)),
    "SPIN 50-50": ((0.62, 0.28, 0.21, 0.18), (0.0, 4.7, 6.4, 6.6)),
    "SPIN-mean": ((0.70, 0.28, 0.24, 0.19), (0.2, 4.9, 6.3, 7.1)),
    "No safety": ((0.73, 0.22, 0.16, 0.19), (9.4, 37.6, 40.2, 38.6)),
    "Stationary": ((0.85, 0.12, 0.07, 0.07), (0.0, 19.8, 15.3, 11.9)),
}
NORMALISERS = ("SPIN 50-50", "Stationary")
REFERENCE = "SPIN"
CLEAR, ROUNDING = 2.0, 1e-6  # a denominator is this many standard errors, and 32-bit noise, above 0


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over runs and its standard error, clustered by setting: trials of one setting are dependent."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Values, settings: Values) -> "Estimate":
        _, member = np.unique(settings, return_inverse=True)
        means = np.bincount(member, values) / np.bincount(member)
        spread = means.std(ddof=1) / np.sqrt(means.size) if means.size > 1 else np.nan
        return cls(float(values.mean()), float(spread))

    def text(self, digits: int) -> str:
        """Mean ± error; a single setting has no error."""
        mean = f"{self.mean:.{digits}f}"
        return mean if math.isnan(self.error) else f"{mean} ± {self.error:.{digits}f}"


@dataclasses.dataclass(frozen=True)
class CellSummary:
    """One algorithm in one cell.

    `largest` is the improvement of the best single run of SPIN and the baseline. `ratio` is the
    improvement over that of SPIN in the same runs, if SPIN's is clearly above 0.
    """

    algorithm: str
    cell: str
    runs: int
    improvement: Estimate
    largest: float
    ratio: Estimate | None
    violation: Estimate
    deployment: Estimate

    @property
    def normalised(self) -> Estimate:
        """The improvement as a share of the largest."""
        scale = 1 / self.largest if self.largest else math.nan
        return Estimate(self.improvement.mean * scale, self.improvement.error * abs(scale))


def summarise(columns: Columns) -> list[CellSummary]:
    """Means and standard errors of each algorithm in each cell."""
    cells = {cell: _rows(columns, columns["cell"] == cell) for cell in _distinct(columns["cell"])}
    return [
        _summary(here, algorithm, cell)
        for algorithm in _distinct(columns["algorithm"])
        for cell, here in cells.items()
        if algorithm in here["algorithm"]
    ]


def _summary(here: Columns, algorithm: str, cell: str) -> CellSummary:
    mine = _rows(here, here["algorithm"] == algorithm)
    settings = mine["setting"]
    return CellSummary(
        algorithm=algorithm,
        cell=cell,
        runs=len(settings),
        improvement=Estimate.of(mine["improvement_over_safe"], settings),
        largest=_largest(here),
        ratio=_ratio(mine, _rows(here, here["algorithm"] == REFERENCE)),
        violation=Estimate.of(100 * mine["violation_rate"], settings),
        deployment=Estimate.of(mine["deployment_rate"], settings),
    )


def _distinct(names: Values) -> list[str]:
    return list(dict.fromkeys(names.tolist()))


def _rows(columns: Columns, chosen: Values) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}


def _largest(here: Columns) -> float:
    named = np.isin(here["algorithm"], NORMALISERS)
    rows = named if named.any() else np.ones_like(named)
    return float(here["improvement_over_safe"][rows].max())


def _ratio(mine: Columns, reference: Columns) -> Estimate | None:
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


def _by_run(columns: Columns) -> Values:
    """Improvements in the order of settings and trials."""
    order = np.lexsort((columns["trial"], columns["setting"]))
    return columns["improvement_over_safe"][order]


def markdown(summaries: Sequence[CellSummary], *, published: bool = True) -> str:
    """One line per algorithm and cell, with the paper's numbers beside ours where it has them."""
    paper = ["paper"] * published
    names = [
        "algorithm",
        "speed",
        "runs",
        "improvement",
        "normalised",
        *paper,
        "violation %",
        *paper,
    ]
    lines = []
    for one in summaries:
        improvement, violation = ([text] * published for text in _paper(one))
        lines.append(
            [
                *(one.algorithm, one.cell, f"{one.runs:,}", one.improvement.text(3)),
                *(one.normalised.text(3), *improvement, one.violation.text(2), *violation),
                one.deployment.text(3),
            ]
        )
    return markdown_table([*names, "deployment rate"], lines)


def _paper(one: CellSummary) -> tuple[str, str]:
    if one.algorithm not in PUBLISHED or one.cell not in "0123":
        return "", ""
    improvement, violation = PUBLISHED[one.algorithm]
    return f"{improvement[int(one.cell)]:.2f}", f"{violation[int(one.cell)]:.1f}"


def world_table(summaries: Sequence[CellSummary], worlds: Iterable[str]) -> str:
    """One line per world and algorithm, in the order of the worlds."""
    names = ["world", "algorithm", "runs", "violation %", "improvement", f"over {REFERENCE}'s"]
    lines = [
        [
            *(one.cell, one.algorithm, f"{one.runs:,}", one.violation.text(2)),
            *(one.improvement.text(4), one.ratio.text(2) if one.ratio else ""),
            one.deployment.text(3),
        ]
        for world in worlds
        for one in summaries
        if one.cell == world
    ]
    return markdown_table([*names, "deployment rate"], lines)


def lapse_table(columns: Columns) -> str:
    """For how long a policy that the jump had made worse stayed in force."""
    names = ["algorithm", "runs", "episodes until it was gone", "median", "95th percentile"]
    lines = []
    for algorithm in _distinct(columns["algorithm"]):
        jumped = ~np.isnan(columns["lapse"]) & (columns["algorithm"] == algorithm)
        lapse = columns["lapse"][jumped]
        mean = Estimate.of(lapse, columns["setting"][jumped]).text(1)
        middle, high = np.quantile(lapse, [0.5, 0.95])
        lines.append([algorithm, f"{lapse.size:,}", mean, f"{middle:.0f}", f"{high:.0f}"])
    return markdown_table(names, lines)


def markdown_table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [names, ["---"] * len(names), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
