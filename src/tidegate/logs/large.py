"""A log that is too large to be held: its episodes are known, their steps are read when they are needed.

A sample of the episodes is held as a log of its own. All of them are reduced as they are read: what every
policy would have earned in them, and how likely they would have been (`measuring`).
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from ..arrays import Flags, Floats, Integers, in_double
from ..door import MAX_ACTION
from ..measured import MeasuredLog
from ..policies import Policy
from ..serving.features import Feature
from .columns import Columns, TimeUnit
from .encoding import features_of
from .engines import Engine
from .formats import Format, format_of, reading
from .frames import MINARI
from .index import EpisodeIndex, index_of
from .keys import episode_keys
from .memory import MemoryLimit, give_back
from .parts import action_labels, require_parts
from .pieces import POSITION
from .reading import LoadedLog, checked_log, misplaced_caveat, notes_on
from .reducing import Blocks, Outline, Reduction, assembled, sampled_places, share_of_sample
from .rows import CHUNK_ROWS, LogRows, Part, open_rows
from .sources import Source, source_paths
from .specs import PolicySpec, SpecKind, resolve_policy
from .stages import Stage, silent
from .table import Table, is_text
from .timeline import TimeMeaning, axis_numbers, holds_timestamps

HELD_STEPS = 500_000  # a log of more is not held
INDEX_BYTES = 32  # of an episode
LEAST_ROW_BYTES = 8  # of text


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """What is the same for all tables of a log: how they are read, and where their episodes lie in time."""

    columns: Columns
    features: tuple[Feature, ...]
    index: EpisodeIndex
    numbers: Floats
    limit: MemoryLimit

    def episodes(self, table: Table) -> tuple[LoadedLog, Integers]:
        """The whole episodes of a table as a log, with their places in time."""
        loaded = checked_log(table, self.columns, self.limit, features=self.features)
        lengths = loaded.log.lengths
        firsts = loaded.table.take(np.cumsum(lengths) - lengths)
        ranks = self.index.ranks(episode_keys(firsts, self.columns))
        log = dataclasses.replace(loaded.log, episode_numbers=self.numbers[ranks])
        return dataclasses.replace(loaded, log=log), ranks


@dataclasses.dataclass(frozen=True, eq=False)
class PartReduction:
    """All that it takes to reduce a part of a log."""

    reading: Reading
    specs: tuple[PolicySpec | None, ...]
    task: Reduction

    @in_double
    def __call__(self, part: Part) -> Blocks:
        found: Blocks = []
        for table in part.tables(chunk_rows=CHUNK_ROWS):
            loaded, ranks = self.reading.episodes(table)
            for spec in self.specs:
                if spec is not None:
                    loaded = resolve_policy(spec, loaded)[1]
            found += self.task.measured(loaded.log, ranks)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class LargeLog:
    """The episodes of a log that is read again and again; `sample` holds some of them."""

    rows: LogRows
    engine: Engine
    reading: Reading
    meaning: TimeMeaning
    names: tuple[str, ...]
    outline: Outline
    sample: LoadedLog

    def gather(self, ranks: Integers) -> LoadedLog:
        """The episodes at these places in time, as a log that is held."""
        return gathered(self.rows, self.engine, self.reading, self.names, ranks)

    def measured(
        self, task: Reduction, specs: tuple[PolicySpec | None, ...], policies: tuple[Policy, ...]
    ) -> MeasuredLog:
        """Every episode, reduced; `policies` are `known` to what comes out."""
        reduce = PartReduction(self.reading, specs, task)
        parts = self.engine.map(reduce, self.rows.parts(self._needed(specs)))
        found = assembled(self.outline, task, policies, parts)
        give_back()
        return found

    def _needed(self, specs: tuple[PolicySpec | None, ...]) -> list[str]:
        """The columns that these policies and the log itself need; functions and files may look at any."""
        given = [spec for spec in specs if spec is not None]
        if any(spec.kind in (SpecKind.PYTHON, SpecKind.POLICY) for spec in given):
            return list(self.names)
        needed = {*self.reading.columns.parts, *(spec.name for spec in given)}
        return [name for name in self.names if name in needed]


def large_log(
    source: Source,
    columns: Columns,
    format: Format | None,
    limit: MemoryLimit,
    engine: Engine,
    *,
    scratch: Path | None = None,
    stage: Stage = silent,
    always: bool = False,
) -> LargeLog | None:
    """A log of many steps, with its episodes in the order of time; None if it can be held."""
    if not always and _surely_small(source):
        return None
    with contextlib.ExitStack() as opened:
        rows = opened.enter_context(
            open_rows(
                source, columns, format=format, limit=limit, scratch=scratch, engine=engine, stage=stage
            )
        )
        if not always and rows.num_rows <= HELD_STEPS:
            return None
        large = _known(rows, columns, limit, engine, stage)
        weakref.finalize(large, opened.pop_all().close)  # until then the rows can be read again
        return large


def _known(rows: LogRows, columns: Columns, limit: MemoryLimit, engine: Engine, stage: Stage) -> LargeLog:
    """One pass over the rows, which tells the episodes and brings a sample of them."""
    empty, names = rows.pieces.empty, tuple(rows.schema)
    require_parts(empty, columns)
    stage(f"finding the episodes in {rows.num_rows:,} rows")
    share = share_of_sample(rows.num_rows)
    index, chosen = index_of(rows, columns, engine, names=names, share=share)
    give_back()
    limit = limit.beside(index.num_episodes * INDEX_BYTES)
    dated = columns.time is not None and holds_timestamps(empty, columns)
    if columns.time is None:
        numbers, meaning = index.times, TimeMeaning(TimeUnit.EPISODE, None)
    else:
        numbers, meaning = axis_numbers(index.times, columns, dated=dated)
    reading, notes = (
        Reading(*settled(rows, columns), index, numbers, limit),
        notes_on(numbers, empty, columns),
    )
    sampled = sampled_places(index.keys, share)
    outline = Outline(numbers, index.times, index.steps, sampled)
    caveats: tuple[str, ...] = ()
    if index.misplaced.size and not columns.confirmed_order:
        places = rows.pieces.places(pl.Series(index.misplaced))
        caveats = (misplaced_caveat(places.several(np.arange(index.misplaced.size)), columns),)
    held = joined(chosen, reading) if chosen else gathered(rows, engine, reading, names, sampled)
    sample = dataclasses.replace(
        held,
        log=outline.laid_out(held.log),
        columns=columns,
        time=meaning,
        began=index.times[sampled],
        notes=tuple(notes),
        caveats=caveats,
    )
    return LargeLog(rows, engine, reading, meaning, names, outline, sample)


def _surely_small(source: Source) -> bool:
    """Whether nobody needs to count: standard input, a dataset, a short frame, or small files of text."""
    if hasattr(source, "__len__") and not isinstance(source, str | list | tuple):
        return len(source) <= HELD_STEPS
    if not isinstance(source, str | list | tuple) and not hasattr(source, "__fspath__"):
        return False
    if source == "-" or (isinstance(source, str) and source.startswith(MINARI)):
        return True
    if isinstance(source, str | Path) and (Path(source).is_dir() or "://" in str(source)):
        return False
    paths = source_paths(source)
    plain = all(format_of(one) is not Format.PARQUET and one.suffix != ".gz" for one in paths)
    return plain and sum(one.stat().st_size for one in paths) <= HELD_STEPS * LEAST_ROW_BYTES


def settled(rows: LogRows, columns: Columns) -> tuple[Columns, tuple[Feature, ...]]:
    """The mapping with the actions of the whole log, and the features with their categories."""
    features = tuple(one for name in columns.features for one in features_of(distinct(rows, name), [name]))
    if columns.propensity.continuous:
        return columns, features
    acted = distinct(rows, str(columns.action))
    labels = action_labels(acted, columns)
    if labels:
        return dataclasses.replace(columns, actions=labels), features
    if columns.num_actions is not None:
        return columns, features
    highest = acted.floats(str(columns.action)).max(initial=0.0)
    count = int(min(np.nan_to_num(highest), MAX_ACTION)) + 1
    return dataclasses.replace(columns, num_actions=count), features


def distinct(rows: LogRows, name: str) -> Table:
    """The values of a column, each with the first row that holds it; of numbers, the highest is enough."""
    text = is_text(rows.pieces.empty.frame[name])
    found = []
    for piece in rows.pieces.all:
        scan = piece.scan([name], rows.schema, piece.first, piece.first + piece.span).drop_nulls()
        some = scan.group_by(name).agg(pl.col(POSITION).min()) if text else scan.top_k(1, by=name)
        with reading(piece.name or rows.name, piece.format):
            found.append(some.collect(engine="streaming").select(POSITION, name))
    frame = pl.concat(found).sort(POSITION).unique(name, keep="first", maintain_order=True)
    return rows.pieces.table(frame)


def gathered(
    rows: LogRows, engine: Engine, reading: Reading, names: Sequence[str], ranks: Integers
) -> LoadedLog:
    """The episodes at these places in time, in memory."""
    wanted = np.zeros(reading.numbers.size, bool)
    wanted[ranks] = True
    parts = engine.map(partial(_chosen, reading, wanted), rows.parts(names))
    return joined([one for part in parts for one in part], reading)


def joined(tables: Sequence[Table], reading: Reading) -> LoadedLog:
    """Tables of whole episodes as one log."""
    positions = np.concatenate([one.places.rows for one in tables])
    frame = pl.concat([one.frame for one in tables])
    places = dataclasses.replace(tables[0].places, rows=positions)
    return reading.episodes(Table(frame, places, tables[0].name))[0]


def _chosen(reading: Reading, wanted: Flags, part: Part) -> list[Table]:
    found = []
    for table in part.tables(chunk_rows=CHUNK_ROWS):
        kept = wanted[reading.index.ranks(episode_keys(table, reading.columns))]
        if kept.any():
            found.append(table.take(np.flatnonzero(kept)))
    return found
