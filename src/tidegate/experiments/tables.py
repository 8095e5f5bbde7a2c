"""Rows -> the paper's table, its numbers beside ours."""

import dataclasses
from functools import partial

import numpy as np

from .sweep import Column

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


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over runs and its standard error; trials of one setting are alike, so settings count."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Column, settings: Column) -> "Estimate":
        _, member = np.unique(settings, return_inverse=True)
        means = np.bincount(member, values) / np.bincount(member)
        spread = means.std(ddof=1) / np.sqrt(means.size) if means.size > 1 else np.nan
        return cls(float(values.mean()), float(spread))


@dataclasses.dataclass(frozen=True)
class CellSummary:
    """One algorithm in one cell."""

    algorithm: str
    cell: str
    runs: int
    improvement: Estimate
    normalised: Estimate
    violation: Estimate
    deployment: Estimate


def summarise(columns: dict[str, Column]) -> list[CellSummary]:
    """Means and standard errors; improvement also over the largest single run of SPIN and baseline."""
    summaries = []
    for algorithm in dict.fromkeys(columns["algorithm"].tolist()):
        for cell in dict.fromkeys(columns["cell"].tolist()):
            rows = (columns["algorithm"] == algorithm) & (columns["cell"] == cell)
            improvement = columns["improvement_over_safe"][rows]
            estimate = partial(Estimate.of, settings=columns["setting"][rows])
            summaries.append(
                CellSummary(
                    algorithm=algorithm,
                    cell=cell,
                    runs=int(rows.sum()),
                    improvement=estimate(improvement),
                    normalised=estimate(improvement / _largest(columns, cell)),
                    violation=estimate(100 * columns["violation_rate"][rows]),
                    deployment=estimate(columns["deployment_rate"][rows]),
                )
            )
    return summaries


def _largest(columns: dict[str, Column], cell: str) -> float:
    same = columns["cell"] == cell
    named = same & np.isin(columns["algorithm"], NORMALISERS)
    rows = named if named.any() else same
    return float(columns["improvement_over_safe"][rows].max())


def markdown(summaries: list[CellSummary], *, published: bool = True) -> str:
    """One line per algorithm and cell, with the paper's numbers beside ours where it has them."""
    names = ["algorithm", "speed", "runs", "improvement", "normalised", "violation %"]
    names.append("deployment rate")
    if published:
        names.insert(5, "paper")
        names.insert(7, "paper")
    lines = [names, ["---"] * len(names)]
    for one in summaries:
        line = [
            one.algorithm,
            one.cell,
            f"{one.runs:,}",
            *(_pm(one.improvement, 3), _pm(one.normalised, 3), _pm(one.violation, 2)),
            _pm(one.deployment, 3),
        ]
        if published:
            improvement, violation = _paper(one)
            line.insert(5, improvement)
            line.insert(7, violation)
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _paper(one: CellSummary) -> tuple[str, str]:
    if one.algorithm not in PUBLISHED or one.cell not in "0123":
        return "", ""
    improvement, violation = PUBLISHED[one.algorithm]
    return f"{improvement[int(one.cell)]:.2f}", f"{violation[int(one.cell)]:.1f}"


def _pm(estimate: Estimate, digits: int) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"
