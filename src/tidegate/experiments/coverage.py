"""Coverage: how often does an interval for the forecast contain the truth?

A study is a list of cells. Each cell simulates logs whose future is known and asks several methods for an
interval. From there to the rows of a table, all coverage studies are the same.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..arrays import in_double
from ..bootstrap import ConfidenceInterval
from ..inputs import seed_of, whole
from .reproduce import Effort, run_jobs
from .store import Store
from .sweep import Columns


class Judged(NamedTuple):
    """One column per method: did its interval hold the truth, how wide was it, and its interval score."""

    covered: Bool[Array, "*logs methods"]
    widths: Float[Array, "*logs methods"]
    scores: Float[Array, "*logs methods"]


class Simulated(NamedTuple):
    """One row per log: how the methods fared, and what else to keep."""

    judged: Judged
    facts: Columns


class CoverageCell(Protocol):
    """One setting of a study."""

    @property
    def factors(self) -> dict[str, Any]:
        """What distinguishes it from other cells, as plain values."""

    @property
    def methods(self) -> tuple[str, ...]: ...

    def simulate(self, key: PRNGKeyArray, count: int) -> Simulated: ...


@dataclasses.dataclass(frozen=True)
class CoverageJob:
    """All logs of one cell; an engine runs it like a batch of a sweep."""

    cell: CoverageCell
    count: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole("runs", self.count, 1))
        object.__setattr__(self, "seed", seed_of(self.seed))

    @property
    def name(self) -> str:
        return "-".join(str(value).replace(" ", "_") for value in self.cell.factors.values())

    @property
    def program(self) -> str:
        return self.name

    def prepare(self) -> None:
        """Nothing to share: a program is compiled when its first job runs."""

    @in_double
    def run(self) -> Columns:
        """One row per simulated log, with three columns per method."""
        judged, facts = self.cell.simulate(jax.random.key(self.seed), self.count)
        columns = {name: np.full(self.count, value) for name, value in self.cell.factors.items()}
        columns |= {"run": np.arange(self.count), **facts}
        for i, method in enumerate(self.cell.methods):
            columns[f"{method}: covered"] = np.asarray(judged.covered)[:, i]
            columns[f"{method}: width"] = np.asarray(judged.widths)[:, i]
            columns[f"{method}: score"] = np.asarray(judged.scores)[:, i]
        return columns


@dataclasses.dataclass(frozen=True)
class CoverageRow:
    """How one method fared in the cell with these factors."""

    factors: Mapping[str, Any]
    method: str
    runs: int
    coverage: float
    median_width: float
    mean_score: float

    @property
    def error(self) -> float:
        """The standard error of the coverage."""
        return binomial_error(self.coverage, self.runs)


def run_coverage(cells: Sequence[CoverageCell], out: Path, effort: Effort) -> list[CoverageRow]:
    """Run the cells that the folder lacks; return how every method fared in every cell."""
    jobs = [CoverageJob(cell, effort.runs, effort.seed) for cell in cells]
    store = Store(out, {"cells": list(cells), "runs": effort.runs, "seed": effort.seed})
    return summarise_coverage(run_jobs(jobs, store, effort), list(cells[0].factors))


def summarise_coverage(columns: Columns, factors: Sequence[str]) -> list[CoverageRow]:
    """Count, in each cell and for each method, how many intervals hold the truth."""
    cells = list(zip(*(columns[name].tolist() for name in factors), strict=True))
    methods = [name.removesuffix(": width") for name in columns if name.endswith(": width")]
    rows = []
    for cell in dict.fromkeys(cells):
        here = np.array([one == cell for one in cells])
        rows += [
            CoverageRow(
                factors=dict(zip(factors, cell, strict=True)),
                method=method,
                runs=int(here.sum()),
                coverage=float(columns[f"{method}: covered"][here].mean()),
                median_width=float(np.median(columns[f"{method}: width"][here])),
                mean_score=float(np.mean(columns[f"{method}: score"][here])),
            )
            for method in methods
        ]
    return rows


def by_cell(rows: Sequence[CoverageRow]) -> list[list[CoverageRow]]:
    """The rows of each cell together, their methods in the same order in every cell."""
    methods = list(dict.fromkeys(row.method for row in rows))
    cells: dict[tuple[Any, ...], list[CoverageRow]] = {}
    for row in sorted(rows, key=lambda row: methods.index(row.method)):
        cells.setdefault(tuple(row.factors.values()), []).append(row)
    order = list(dict.fromkeys(tuple(row.factors.values()) for row in rows))
    return [cells[cell] for cell in order]


def judge(intervals: Iterable[ConfidenceInterval], truth: Float[Array, ""], alpha: float) -> Judged:
    """How the intervals of all methods fared."""
    found = list(intervals)
    lower = jnp.stack([interval.lower for interval in found])
    upper = jnp.stack([interval.upper for interval in found])
    covered = (lower <= truth) & (truth <= upper)
    return Judged(covered, upper - lower, interval_score(lower, upper, truth, alpha))


def interval_score(lower: Any, upper: Any, truth: Any, alpha: float) -> Any:
    """Width, plus 2/α of the distance by which the truth was missed: lower is better."""
    missed = jnp.maximum(lower - truth, 0.0) + jnp.maximum(truth - upper, 0.0)
    return (upper - lower) + 2 / alpha * missed


def binomial_error(rate: float, runs: int) -> float:
    """The standard error of a share among independent runs."""
    return math.sqrt(rate * (1 - rate) / runs)
