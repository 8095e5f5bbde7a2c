"""A study from jobs to rows, in a folder that remembers how far it got."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..errors import SettingsError
from ..inputs import one_of, seed_of, whole
from .batches import Batch, cut
from .engines import J, batch_size, run_local, run_ray
from .store import Store, write_parquet
from .sweep import Columns, Sweep, list_runs

MOST_SETTINGS = 1_000
Progress: TypeAlias = Callable[[str, int, int], None]  # what is counted, how many are done, of how many


def silent(name: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much of a study is run, from which seed and where, and who is told how far it got."""

    runs: int
    seed: int
    engine: str = "local"
    address: str | None = None
    progress: Progress = silent

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", whole("runs", self.runs, 1))
        object.__setattr__(self, "seed", seed_of(self.seed))
        one_of("engine", self.engine, ("local", "ray"))


def run_study(sweeps: Sequence[Sweep], out: Path, effort: Effort, *, size: int | None = None) -> Columns:
    """Run every batch that the folder lacks; return all rows and leave them in rows.parquet.

    Runs per cell: up to 1,000 settings, then several trials of each.
    """
    settings, trials = split_runs(effort.runs)
    store = Store(out, {"sweeps": list(sweeps), "runs": effort.runs, "seed": effort.seed})
    # A study that goes on keeps its batches, or its parts would not fit.
    size = int(store.manifest.get("batch_size", size or batch_size()))
    batches = [
        batch
        for sweep in sweeps
        for batch in cut(
            sweep,
            list_runs(sweep, settings=settings, trials=trials, seed=effort.seed),
            size=size,
            seed=effort.seed,
        )
    ]
    store.note(batch_size=size)
    return run_jobs(batches, store, effort, _in_order)


def run_jobs(
    jobs: Sequence[J],
    store: Store,
    effort: Effort,
    order: Callable[[Columns, Sequence[J]], Columns] = lambda columns, _: columns,
) -> Columns:
    """Run every job whose part the store lacks; return all rows and leave them in rows.parquet."""
    _run_missing(jobs, store, effort)
    columns = order(store.load(jobs), jobs)
    write_parquet(columns, store.folder / "rows.parquet")
    store.note(rows=sum(job.count for job in jobs), finished=True)
    return columns


def split_runs(runs: int) -> tuple[int, int]:
    """Runs per cell -> (settings, trials)."""
    runs = whole("runs", runs, 1)
    if runs > MOST_SETTINGS and runs % MOST_SETTINGS:
        raise SettingsError(f"runs is {runs}", expected=f"up to {MOST_SETTINGS}, or a multiple of it")
    return min(runs, MOST_SETTINGS), max(1, runs // MOST_SETTINGS)


def _in_order(columns: Columns, batches: Sequence[Batch]) -> Columns:
    """The order of the sweeps, their cells, settings and trials, however they were batched."""
    rank = {name: i for i, name in enumerate(dict.fromkeys(b.sweep.name for b in batches))}
    algorithm = np.array([rank[str(name)] for name in columns["algorithm"]])
    order = np.lexsort((columns["trial"], columns["setting"], columns["cell"], algorithm))
    return {name: values[order] for name, values in columns.items()}


def _run_missing(jobs: Sequence[J], store: Store, effort: Effort) -> None:
    missing = [job for job in jobs if not store.has(job)]
    total = sum(job.count for job in jobs)
    finished = total - sum(job.count for job in missing)

    def done(job: J, columns: Columns) -> None:
        nonlocal finished
        store.save(job, columns)
        finished += job.count
        effort.progress("runs", finished, total)

    effort.progress("runs", finished, total)
    if effort.engine == "local":
        run_local(missing, done)
    else:
        run_ray(missing, done, address=effort.address)
