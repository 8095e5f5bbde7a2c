"""Checked rows of Parquet files, a chunk at a time, cut so that no episode is split."""

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ..arrays import Floats, Integers, Values
from ..door import (
    check_counts,
    check_episode_order,
    check_finite,
    check_log_probs,
    episode_starts,
)
from ..errors import LogError
from .columns import Columns
from .formats import Format, format_of, reading
from .memory import MemoryLimit
from .parts import require_parts
from .sources import Source, source_paths, stacked
from .specs import PolicySpec, SpecKind, column_logs, require_spec
from .table import Places, Table, is_text
from .timeline import episode_numbers, require_one_reading, row_steps, row_times

WORKING_COPIES = 8  # of the columns of a chunk: joined, checked, as numbers, and the next one meanwhile


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The steps of whole episodes in order, and the rows at which the episodes start."""

    ids: Values
    starts: Integers
    times: Floats
    rewards: Floats
    log_ratios: tuple[Floats, ...]


def whole_episodes(
    source: Source, columns: Columns, specs: Sequence[PolicySpec], chunk_rows: int, limit: MemoryLimit
) -> Iterator[Rows]:
    """Rows of whole episodes; the next ones are read and checked while the present ones are used."""
    chunks = _whole_episodes(source, columns, specs, chunk_rows, limit)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, chunks, None)
        while (rows := waiting.result()) is not None:
            waiting = pool.submit(next, chunks, None)
            yield rows


def _whole_episodes(
    source: Source, columns: Columns, specs: Sequence[PolicySpec], chunk_rows: int, limit: MemoryLimit
) -> Iterator[Rows]:
    carried: Table | None = None
    last = -np.inf
    for chunk in _tables(source, columns, specs, chunk_rows):
        table = chunk if carried is None else _joined(carried, chunk)
        require_one_reading(table, columns)  # of many rows together: a few may spell dates by chance
        ids = _ids(table, columns)
        _require_room(table, ids, limit)
        cut = int(episode_starts(ids)[-1])
        carried = table.take(slice(cut, None))
        if cut:
            yield _checked(table.take(slice(0, cut)), ids[:cut], columns, specs, last)
            last = float(ids[cut - 1])
    if carried is None:
        raise LogError("the log has no rows.", expected="at least one episode with one step")
    yield _checked(carried, _ids(carried, columns), columns, specs, last)


def _require_room(table: Table, ids: Values, limit: MemoryLimit) -> None:
    """An episode is computed as a whole, so the longest one must fit."""
    limit.require(
        WORKING_COPIES * table.frame.estimated_size(),
        f"an episode of more than {ids.size - int(episode_starts(ids)[-1]):,} steps",
        where=table.places(ids.size - 1),
        remedy="split the episode",
    )


def _checked(table: Table, ids: Values, columns: Columns, specs: Sequence[PolicySpec], last: float) -> Rows:
    """The numbers of a table that follows the episode `last`, checked by the door's rules."""
    places, starts = table.places, episode_starts(ids)
    rewards = table.floats(columns.reward)
    check_finite(rewards, "reward", places)
    behavior = np.zeros(rewards.size)
    if columns.behavior_prob is not None:
        values = table.floats(columns.behavior_prob)
        behavior = check_log_probs(values, columns.propensity, "behavior", places)

    def log_ratios(spec: PolicySpec) -> Floats:
        if spec.kind is SpecKind.BEHAVIOR:
            return np.zeros(rewards.size)
        logs = column_logs(spec, table, columns.propensity)
        return logs if spec.kind is SpecKind.RATIO else logs - behavior

    ratios = tuple(log_ratios(spec) for spec in specs)
    check_finite(ids, f"column '{columns.episode}'", places)
    times = np.zeros(ids.size) if columns.time is None else row_times(table, columns)
    if columns.time is None:
        firsts = ids[starts].astype(np.float64)
        check_episode_order(firsts, str(columns.episode), lambda i: places(int(starts[i])), last)
    check_counts(row_steps(table, columns), starts, ids, str(columns.step), places)
    return Rows(ids, starts, times, rewards, ratios)


def _tables(
    source: Source, columns: Columns, specs: Sequence[PolicySpec], chunk_rows: int
) -> Iterator[Table]:
    paths = source_paths(source)
    heights = [_height(path) for path in paths]
    files = tuple(path.name for path in paths)
    firsts = tuple(int(one) for one in np.cumsum([0, *heights[:-1]]))
    for path, height, first in zip(paths, heights, firsts, strict=True):
        with reading(path.name, Format.PARQUET):
            empty = pl.scan_parquet(path).head(0).collect()
        names = _names(Table(empty, Places(files, firsts, np.arange(0)), path.name), columns, specs)
        for offset in range(0, height, chunk_rows):
            with reading(path.name, Format.PARQUET):
                frame = pl.scan_parquet(path).select(names).slice(offset, chunk_rows).collect()
            rows = np.arange(first + offset, first + offset + frame.height)
            yield Table(frame, Places(files, firsts, rows), path.name)


def _height(path: Path) -> int:
    if format_of(path) not in (Format.PARQUET, None):
        raise LogError(
            f"{path.name} cannot be streamed.",
            expected="Parquet",
            remedy="Convert it, as in polars.scan_csv(…).sink_parquet(…), or read it whole (`stream=False`).",
        )
    with reading(path.name, Format.PARQUET):
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def _names(empty: Table, columns: Columns, specs: Sequence[PolicySpec]) -> list[str]:
    """The columns that are needed, all of which the file has."""
    require_parts(empty, columns)
    for spec in specs:
        require_spec(spec, empty, columns)
    step = columns.step if columns.step in empty.frame.columns else None
    parts = (columns.episode, step, columns.reward, columns.behavior_prob, columns.time)
    recorded = (spec.name for spec in specs)
    return list(dict.fromkeys(name for name in (*parts, *recorded) if name))


def _ids(table: Table, columns: Columns) -> Values:
    """What identifies the episodes: their numbers, or with a time column a hash of their names."""
    if columns.episode is None:
        return table.places.rows + 1
    column = table.frame[columns.episode]
    if columns.time is None or not is_text(column):
        return episode_numbers(table, columns.episode)
    table.require_filled(column)
    return np.asarray(column.cast(pl.String).hash().to_numpy())


def _joined(first: Table, second: Table) -> Table:
    frame = stacked([first.frame, second.frame], [first.name, second.name])
    rows = np.concatenate([first.places.rows, second.places.rows])
    return Table(frame, dataclasses.replace(second.places, rows=rows), second.name)
