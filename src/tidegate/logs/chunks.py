"""Checked rows of Parquet files, a chunk at a time, cut so that no episode is split."""

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ..arrays import Values
from ..door import (
    check_episode_order,
    check_finite,
    check_log_probs,
    check_single_steps,
    check_steps,
)
from ..errors import LogError
from .cells import floats, is_text, numbers, require_filled
from .columns import Columns
from .formats import Format, format_of, reading
from .parts import require_parts
from .places import Places
from .sources import Source, source_paths
from .specs import PolicySpec, SpecKind, ratio_log, require_spec
from .timeline import row_times


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Steps in order: what per-episode returns need, and the places of the rows for messages."""

    ids: Values
    steps: Values | None
    times: Values | None
    rewards: Values
    log_ratios: tuple[Values, ...]
    places: Places

    @property
    def size(self) -> int:
        return int(self.ids.size)

    def take(self, rows: slice) -> "Rows":
        """Some of the rows."""
        return Rows(
            self.ids[rows],
            None if self.steps is None else self.steps[rows],
            None if self.times is None else self.times[rows],
            self.rewards[rows],
            tuple(one[rows] for one in self.log_ratios),
            self.places.take(rows),
        )


def whole_episodes(
    source: Source, columns: Columns, specs: Sequence[PolicySpec], chunk_rows: int
) -> Iterator[tuple[Rows, Values]]:
    """Rows of whole episodes, and where each episode starts among them."""
    carried: Rows | None = None
    last = -np.inf
    for chunk in _ahead(_chunks(source, columns, specs, chunk_rows)):
        rows = chunk if carried is None else _joined(carried, chunk)
        starts = _starts(rows.ids)
        carried = rows.take(slice(int(starts[-1]), None))
        if starts.size > 1:
            whole = rows.take(slice(0, int(starts[-1])))
            last = _check(whole, starts[:-1], columns, last)
            yield whole, starts[:-1]
    if carried is None:
        raise LogError("the log has no rows.", expected="at least one episode with one step")
    first = np.zeros(1, np.int64)
    _check(carried, first, columns, last)
    yield carried, first


def _check(rows: Rows, starts: Values, columns: Columns, last: float) -> float:
    """The door's rules on order and steps; returns the last episode's number."""
    ids = rows.ids
    if columns.time is None:
        if float(ids[0]) <= last:
            raise LogError(
                f"episode {ids[0]:g} comes after episode {last:g}.",
                where=f"{rows.places(0)}, column '{columns.episode}'",
                expected="rows sorted by episode, each episode in one run of rows",
                remedy="Sort the file by episode and step, or read it whole with read_log.",
            )
        check_episode_order(ids.astype(np.float64), starts, str(columns.episode), rows.places)
    if rows.steps is None:
        lengths = np.diff(np.append(starts, rows.size))
        check_single_steps(starts, lengths, ids, rows.places)
    else:
        check_steps(rows.steps, starts, ids, str(columns.step), rows.places)
    return float(ids[-1])


def _chunks(
    source: Source, columns: Columns, specs: Sequence[PolicySpec], chunk_rows: int
) -> Iterator[Rows]:
    paths = source_paths(source)
    heights = [_height(path) for path in paths]
    firsts = np.concatenate([[0], np.cumsum(heights)])
    parts, starts = tuple(path.name for path in paths), tuple(int(one) for one in firsts[:-1])
    for path, height, first in zip(paths, heights, starts, strict=True):
        names = _names(path, columns, specs)
        for offset in range(0, height, chunk_rows):
            with reading(path.name, Format.PARQUET):
                frame = pl.scan_parquet(path).select(names).slice(offset, chunk_rows).collect()
            rows = np.arange(first + offset, first + offset + frame.height)
            yield _rows(frame, columns, specs, Places(parts, starts, rows))


def _ahead(chunks: Iterator[Rows]) -> Iterator[Rows]:
    """Read and check the next chunk while the present one is used."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, chunks, None)
        while (chunk := waiting.result()) is not None:
            waiting = pool.submit(next, chunks, None)
            yield chunk


def _height(path: Path) -> int:
    if format_of(path) not in (Format.PARQUET, None):
        raise LogError(
            f"{path.name} cannot be streamed.",
            expected="Parquet",
            remedy="Convert it, as in polars.scan_csv(…).sink_parquet(…), or read it with read_log.",
        )
    with reading(path.name, Format.PARQUET):
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def _names(path: Path, columns: Columns, specs: Sequence[PolicySpec]) -> list[str]:
    """The columns that are needed, all of which the file has."""
    with reading(path.name, Format.PARQUET):
        empty = pl.scan_parquet(path).head(0).collect()
    require_parts(empty, columns)
    for spec in specs:
        require_spec(spec, empty)
    step = columns.step if columns.step in empty.columns else None
    parts = (columns.episode, step, columns.reward, columns.behavior_prob, columns.time)
    recorded = (spec.name for spec in specs)
    return list(dict.fromkeys(name for name in (*parts, *recorded) if name))


def _rows(
    frame: pl.DataFrame, columns: Columns, specs: Sequence[PolicySpec], places: Places
) -> Rows:
    def where(index: tuple[int, ...]) -> str:
        return places(index[0])

    used = np.ones(frame.height, bool)
    rewards = floats(frame, columns.reward, places)
    check_finite(rewards, used, "reward", where)
    behavior = np.zeros(frame.height)
    if columns.behavior_prob is not None:
        values = floats(frame, columns.behavior_prob, places)
        behavior = check_log_probs(values, used, columns.propensity, "behavior", where)

    def log_ratios(spec: PolicySpec) -> Values:
        if spec.kind is SpecKind.BEHAVIOR:
            return np.zeros(frame.height)
        values = floats(frame, spec.name, places)
        if spec.kind is SpecKind.RATIO:
            return ratio_log(values, spec, places)
        logs = check_log_probs(
            values, used, columns.propensity, str(spec), where, zero_allowed=True
        )
        return np.asarray(logs - behavior)

    return Rows(
        ids=_ids(frame, columns, places),
        steps=_steps(frame, columns, places),
        times=None if columns.time is None else row_times(frame, columns, places),
        rewards=rewards,
        log_ratios=tuple(log_ratios(spec) for spec in specs),
        places=places,
    )


def _steps(frame: pl.DataFrame, columns: Columns, places: Places) -> Values | None:
    if columns.step is None or columns.step not in frame.columns:
        return None
    steps = floats(frame, columns.step, places)
    _require_finite(steps, columns.step, places)
    return steps


def _require_finite(values: Values, name: str, places: Places) -> None:
    used = np.ones(values.size, bool)
    check_finite(values, used, f"column '{name}'", lambda index: places(index[0]))


def _ids(frame: pl.DataFrame, columns: Columns, places: Places) -> Values:
    """What tells episodes apart: their numbers, or with a time column a hash of their names."""
    if columns.episode is None:
        return places.rows + 1
    column = frame[columns.episode]
    if columns.time is not None and is_text(column):
        require_filled(column, columns.episode, places)
        return np.asarray(column.cast(pl.String).hash().to_numpy())
    ids = numbers(frame, columns.episode, places)
    _require_finite(ids, columns.episode, places)
    return ids


def _joined(first: Rows, second: Rows) -> Rows:
    def pair(a: Values | None, b: Values | None) -> Values | None:
        return None if a is None or b is None else np.concatenate([a, b])

    rows = np.concatenate([first.places.rows, second.places.rows])
    pairs = zip(first.log_ratios, second.log_ratios, strict=True)
    return Rows(
        ids=np.concatenate([first.ids, second.ids]),
        steps=pair(first.steps, second.steps),
        times=pair(first.times, second.times),
        rewards=np.concatenate([first.rewards, second.rewards]),
        log_ratios=tuple(np.concatenate(both) for both in pairs),
        places=dataclasses.replace(second.places, rows=rows),
    )


def _starts(ids: Values) -> Values:
    return np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
