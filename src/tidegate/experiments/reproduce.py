"""A study from sweeps to rows, tables and figures, in a folder that remembers how far it got."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from .batches import Batch, cut
from .engines import Done, batch_size, run_local, run_ray
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
    _run_missing(batches, store, engine, address, progress)
    columns = store.load(batches)
    write_parquet(columns, out / "rows.parquet")
    store.note(rows=len(columns["algorithm"]), finished=True)
    return columns


def split_runs(runs: int) -> tuple[int, int]:
    """Runs per cell -> (settings, trials)."""
    if runs < 1 or (runs > MOST_SETTINGS and runs % MOST_SETTINGS):
        raise SettingsError(
            f"runs is {runs}", expected=f"up to {MOST_SETTINGS}, or a multiple of it"
        )
    return min(runs, MOST_SETTINGS), max(1, runs // MOST_SETTINGS)


def _run_missing(
    batches: list[Batch], store: Store, engine: str, address: str | None, progress: Progress | None
) -> None:
    missing = [batch for batch in batches if not store.has(batch)]
    total = sum(len(batch.runs) for batch in batches)
    finished = total - sum(len(batch.runs) for batch in missing)

    def done(batch: Batch, columns: dict[str, Any]) -> None:
        nonlocal finished
        store.save(batch, columns)
        finished += len(batch.runs)
        if progress is not None:
            progress("runs", finished, total)

    if progress is not None:
        progress("runs", finished, total)
    _engine(engine, address)(missing, done)


def _engine(name: str, address: str | None) -> Callable[[list[Batch], Done], None]:
    if name == "local":
        return run_local
    if name == "ray":
        return lambda batches, done: run_ray(batches, done, address=address)
    raise SettingsError(f"engine is '{name}'", expected="local or ray")
