"""A study from sweeps to rows, tables and figures, in a folder that remembers how far it got."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..errors import SettingsError
from .batches import Batch, cut
from .engines import Done, J, batch_size, run_local, run_ray
from .store import Store, write_parquet
from .sweep import Column, Sweep, list_runs

MOST_SETTINGS = 1_000
Progress = Callable[[str, int, int], None]


def run_study(
    sweeps: Sequence[Sweep],
    *,
    runs: int,
    seed: int,
    out: Path,
    engine: str = "local",
    address: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Column]:
    """Run every batch that the folder lacks; return all rows and leave them in rows.parquet.

    `runs` per cell: up to 1,000 settings, then several trials of each.
    """
    settings, trials = split_runs(runs)
    store = Store(out, {"sweeps": list(sweeps), "runs": runs, "seed": seed})
    # A study that goes on keeps its batches, or its parts would not fit.
    size = int(store.manifest.get("batch_size", size or batch_size()))
    batches = [
        batch
        for sweep in sweeps
        for batch in cut(
            sweep,
            list_runs(sweep, settings=settings, trials=trials, seed=seed),
            size=size,
            seed=seed,
        )
    ]
    store.note(batch_size=size)
    return run_jobs(batches, store, engine, address, progress, order=_in_order)


def run_jobs(
    jobs: Sequence[J],
    store: Store,
    engine: str,
    address: str | None,
    progress: Progress | None,
    order: Callable[[dict[str, Column], Sequence[J]], dict[str, Column]] = lambda columns, _: (
        columns
    ),
) -> dict[str, Column]:
    """Run every job whose part the store lacks; return all rows and leave them in rows.parquet."""
    _run_missing(jobs, store, engine, address, progress)
    columns = order(store.load(jobs), jobs)
    write_parquet(columns, store.folder / "rows.parquet")
    store.note(rows=sum(job.count for job in jobs), finished=True)
    return columns


def _in_order(columns: dict[str, Column], batches: Sequence[Batch]) -> dict[str, Column]:
    """The order of the sweeps, their cells, settings and trials, however they were batched."""
    rank = {name: i for i, name in enumerate(dict.fromkeys(b.sweep.name for b in batches))}
    algorithm = np.array([rank[str(name)] for name in columns["algorithm"]])
    order = np.lexsort((columns["trial"], columns["setting"], columns["cell"], algorithm))
    return {name: values[order] for name, values in columns.items()}


def split_runs(runs: int) -> tuple[int, int]:
    """Runs per cell -> (settings, trials)."""
    if runs < 1 or (runs > MOST_SETTINGS and runs % MOST_SETTINGS):
        raise SettingsError(
            f"runs is {runs}", expected=f"up to {MOST_SETTINGS}, or a multiple of it"
        )
    return min(runs, MOST_SETTINGS), max(1, runs // MOST_SETTINGS)


def _run_missing(
    jobs: Sequence[J], store: Store, engine: str, address: str | None, progress: Progress | None
) -> None:
    missing = [job for job in jobs if not store.has(job)]
    total = sum(job.count for job in jobs)
    finished = total - sum(job.count for job in missing)

    def done(job: J, columns: dict[str, Column]) -> None:
        nonlocal finished
        store.save(job, columns)
        finished += job.count
        if progress is not None:
            progress("runs", finished, total)

    if progress is not None:
        progress("runs", finished, total)
    _start(engine, address, missing, done)


def _start(name: str, address: str | None, jobs: Sequence[J], done: Done[J]) -> None:
    if name == "local":
        run_local(jobs, done)
    elif name == "ray":
        run_ray(jobs, done, address=address)
    else:
        raise SettingsError(f"engine is '{name}'", expected="local or ray")
