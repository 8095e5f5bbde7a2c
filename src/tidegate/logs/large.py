"""A log that is too large to be held: its episodes are known, their steps are read when they are needed.

A sample of the episodes is held as a log of its own. All of them are reduced as they are read: what every
policy would have earned in them, and how likely they would have been (`measuring`).
"""

import contextlib
import dataclasses
import hashlib
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..arrays import ArrayLike, Flags, Floats, Integers, in_double, room_for
from ..door import MAX_ACTION, MAX_PADDING
from ..episodes import Estimates, MeasuredLog, training_flags
from ..forecast import ForecastSettings, has_contexts
from ..policies import MeasuredPolicy, ObservedPolicy, Policy
from ..serving.features import Feature
from .columns import Columns, TimeUnit
from .encoding import features_of
from .engines import Engine
from .formats import Format, format_of, reading
from .index import EpisodeIndex, episode_keys, index_of
from .measuring import (
    REWARD,
    MeasuredBlock,
    Predictors,
    blocks_of,
    fit_predictors,
    measure_block,
    sample_folds,
)
from .memory import MemoryLimit
from .parts import action_labels, require_parts
from .pieces import POSITION
from .reading import LoadedLog, checked_log, misplaced_caveat
from .rows import CHUNK_ROWS, LogRows, Part, open_rows
from .sources import Source, source_paths
from .specs import PolicySpec, SpecKind, resolve_policy
from .stages import Stage, silent
from .table import Places, Table, is_text
from .timeline import TimeMeaning, axis_numbers, holds_timestamps

HELD_STEPS = 500_000  # a log of more is not held
SAMPLE_STEPS = 250_000
INDEX_BYTES = 32  # of an episode
LEAST_ROW_BYTES = 8  # of text
SAMPLED = (
    "The log is too large to be held: what a step is worth was fitted to {sampled:,} of its {count:,} "
    "episodes, and findings about single steps are about these."
)
UNEQUAL = (
    "Episodes are of very unequal length, so no model of the rewards takes noise out of the estimates: the "
    "intervals are wider."
)


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
class Reduction:
    """All that it takes to reduce a part of a log: one argument for whichever process does it."""

    reading: Reading
    names: tuple[str, ...]
    specs: tuple[PolicySpec | None, ...]
    policies: tuple[Policy, ...]
    settings: ForecastSettings
    predictors: Predictors | None
    rooms: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class LargeLog:
    """The episodes of a log that is read again and again; `sample` holds some of them, those at `ranks`."""

    rows: LogRows
    engine: Engine
    reading: Reading
    meaning: TimeMeaning
    names: tuple[str, ...]
    sample: LoadedLog
    ranks: Integers

    @property
    def num_episodes(self) -> int:
        return int(self.reading.numbers.size)

    @property
    def num_steps(self) -> int:
        return int(self.reading.index.steps.sum(dtype=np.int64))

    @property
    def span(self) -> tuple[float, float]:
        return float(self.reading.numbers[0]), float(self.reading.numbers[-1])

    @property
    def began(self) -> Floats:
        """When each episode began, as the log counts time."""
        return self.reading.index.times

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about a log that is not held."""
        sampled, count = self.sample.log.num_episodes, self.num_episodes
        held = () if sampled == count else (SAMPLED.format(sampled=sampled, count=count),)
        return held if len(self.rooms) == 1 else (*held, UNEQUAL)

    @property
    def rooms(self) -> tuple[int, ...]:
        """The numbers of steps that episodes have room for; one, unless they are very unequal."""
        return rooms_for(self.reading.index.steps)

    def digest(self) -> str:
        """SHA-256 of when the episodes were, how long they are, and of the sample."""
        index = self.reading.index
        sha = hashlib.sha256(f"tidegate-large-1 {self.sample.log.digest()}".encode())
        for array in (index.keys, self.reading.numbers, index.steps):
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def gather(self, ranks: Integers) -> LoadedLog:
        """The episodes at these places in time, as a log that is held."""
        return gathered(self.rows, self.engine, self.reading, self.names, ranks)

    @in_double
    def measured(
        self,
        settings: ForecastSettings,
        policies: tuple[Policy, ...],
        specs: tuple[PolicySpec | None, ...],
        sample: LoadedLog,
    ) -> tuple[tuple[Policy, ...], MeasuredLog]:
        """Every episode reduced, and the policies as that log knows them; the `sample` knows them, too."""
        predictors = None
        if settings.value_model is not None and len(self.rooms) == 1:
            folds = sample_folds(sample.log, self.ranks % 2 == 1, self.rooms[0])
            predictors = fit_predictors(settings.for_any_terms, policies, folds)
        task = Reduction(
            self.reading, self.names, specs, policies, settings.for_any_terms, predictors, self.rooms
        )
        parts = self.engine.map(partial(reduce_part, task), self.rows.parts(self.names))
        known = tuple(_known(one, spec) for one, spec in zip(policies, specs, strict=True))
        return known, assembled(self, known, sample, parts)


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
    opened = contextlib.ExitStack()
    rows = opened.enter_context(
        open_rows(source, columns, format=format, limit=limit, scratch=scratch, engine=engine, stage=stage)
    )
    if not always and rows.num_rows <= HELD_STEPS:
        opened.close()
        return None
    empty = Table(pl.DataFrame(schema=rows.schema), Places((), (), np.arange(0)), rows.name)
    require_parts(empty, columns)
    stage(f"finding the episodes in {rows.num_rows:,} rows")
    index = index_of(rows, columns)
    limit = limit.beside(index.num_episodes * INDEX_BYTES)
    dated = columns.time is not None and holds_timestamps(empty, columns)
    if columns.time is None:
        numbers, meaning = index.times, TimeMeaning(TimeUnit.EPISODE, None)
    else:
        numbers, meaning = axis_numbers(index.times, columns, dated=dated)
    columns, features = settled(rows, empty, columns)
    reading, names = Reading(columns, features, index, numbers, limit), tuple(rows.schema)
    ranks = sample_ranks(index.steps, SAMPLE_STEPS)
    stage("reading a sample of the log")
    caveats: tuple[str, ...] = ()
    if index.misplaced.size and not columns.confirmed_order:
        places = rows.pieces.places(pl.Series(index.misplaced))
        caveats = (misplaced_caveat(places.several(np.arange(index.misplaced.size)), columns),)
    held = gathered(rows, engine, reading, names, ranks)
    sample = dataclasses.replace(held, time=meaning, notes=(), caveats=caveats)
    large = LargeLog(rows, engine, reading, meaning, names, sample, ranks)
    weakref.finalize(large, opened.close)
    return large


def _surely_small(source: Source) -> bool:
    """Whether nobody needs to count: standard input, a short frame, or small files of text."""
    if hasattr(source, "__len__") and not isinstance(source, str | list | tuple):
        return len(source) <= HELD_STEPS
    if not isinstance(source, str | list | tuple) and not hasattr(source, "__fspath__"):
        return False
    if source == "-":
        return True
    if isinstance(source, str | Path) and (Path(source).is_dir() or "://" in str(source)):
        return False
    paths = source_paths(source)
    plain = all(format_of(one) is not Format.PARQUET and one.suffix != ".gz" for one in paths)
    return plain and sum(one.stat().st_size for one in paths) <= HELD_STEPS * LEAST_ROW_BYTES


def settled(rows: LogRows, empty: Table, columns: Columns) -> tuple[Columns, tuple[Feature, ...]]:
    """The mapping with the actions of the whole log, and the features with their categories."""
    features = tuple(
        one for name in columns.features for one in features_of(distinct(rows, empty, name), [name])
    )
    if columns.propensity.continuous:
        return columns, features
    acted = distinct(rows, empty, str(columns.action))
    labels = action_labels(acted, columns)
    if labels:
        return dataclasses.replace(columns, actions=labels), features
    if columns.num_actions is not None:
        return columns, features
    highest = acted.floats(str(columns.action)).max(initial=0.0)
    count = int(min(np.nan_to_num(highest), MAX_ACTION)) + 1
    return dataclasses.replace(columns, num_actions=count), features


def distinct(rows: LogRows, empty: Table, name: str) -> Table:
    """The values of a column, each with the first row that holds it; of numbers, the highest is enough."""
    text = is_text(empty.frame[name])
    found = []
    for piece in rows.pieces.all:
        scan = piece.scan([name], rows.schema, piece.first, piece.first + piece.span).drop_nulls()
        some = scan.group_by(name).agg(pl.col(POSITION).min()) if text else scan.top_k(1, by=name)
        with reading(piece.name, piece.format):
            found.append(some.collect(engine="streaming").select(POSITION, name))
    frame = pl.concat(found).sort(POSITION).unique(name, keep="first", maintain_order=True)
    return rows.pieces.table(frame)


def rooms_for(lengths: Integers) -> tuple[int, ...]:
    """Room for the longest episode, or for several lengths if most would leave most of that empty."""
    longest = int(lengths.max())
    if longest * lengths.size <= MAX_PADDING * int(lengths.sum(dtype=np.int64)):
        return (longest,)
    return tuple(sorted({room_for(int(one)) for one in np.unique(lengths)}))


def sample_ranks(lengths: Integers, most_steps: int) -> Integers:
    """Episodes spread evenly over time, with about so many steps in all."""
    share = min(1.0, most_steps / int(lengths.sum(dtype=np.int64)))
    return np.flatnonzero(training_flags(lengths.size, max(1, int(lengths.size * share))))


def gathered(
    rows: LogRows, engine: Engine, reading: Reading, names: Sequence[str], ranks: Integers
) -> LoadedLog:
    """The episodes at these places in time, in memory."""
    wanted = np.zeros(reading.numbers.size, bool)
    wanted[ranks] = True
    found = [one for part in engine.map(partial(_chosen, reading, wanted), rows.parts(names)) for one in part]
    positions = np.concatenate([one.places.rows for one in found])
    frame = pl.concat([one.frame for one in found])
    table = Table(frame, dataclasses.replace(found[0].places, rows=positions), rows.name)
    return reading.episodes(table)[0]


def _chosen(reading: Reading, wanted: Flags, part: Part) -> list[Table]:
    found = []
    for table in part.tables(chunk_rows=CHUNK_ROWS):
        kept = wanted[reading.index.ranks(episode_keys(table, reading.columns))]
        if kept.any():
            found.append(table.take(np.flatnonzero(kept)))
    return found


@in_double
def reduce_part(task: Reduction, part: Part) -> list[tuple[Integers, MeasuredBlock]]:
    """The places in time of the part's episodes, and what was found about them."""
    found = []
    for table in part.tables(chunk_rows=CHUNK_ROWS):
        loaded, ranks = task.reading.episodes(table)
        for spec in task.specs:
            if spec is not None:
                loaded = resolve_policy(spec, loaded)[1]
        for block, rows in blocks_of(loaded.log, task.rooms):
            odd = np.zeros(block.capacity, bool)
            odd[: rows.size] = ranks[rows] % 2 == 1
            measured = measure_block(task.settings, task.policies, task.predictors, block, odd)
            found.append((ranks[rows], measured))
    return found


def assembled(
    large: LargeLog,
    policies: tuple[Policy, ...],
    sample: LoadedLog,
    parts: Iterable[list[tuple[Integers, MeasuredBlock]]],
) -> MeasuredLog:
    """What was found about all episodes, in the order of time."""
    count = large.num_episodes
    names = {place: one.name for place, one in enumerate(policies) if isinstance(one, MeasuredPolicy)}
    several, filled = large.rooms != (1,), np.zeros(count, bool)
    store: dict[Any, Floats] = {}

    def put(key: Any, ranks: Integers, values: Any) -> None:
        store.setdefault(key, np.empty(count))[ranks] = np.asarray(values)[: ranks.size]

    for part in parts:
        for ranks, block in part:
            filled[ranks] = True
            for place, name in names.items():
                put(("ratio", name), ranks, block.ratios[place])
                if several:
                    put(("stopped", name), ranks, block.stopped[place])
            for outcome, returns in block.returns.items():
                put(("observed", outcome), ranks, block.observed[outcome])
                for place, name in names.items():
                    put(("return", outcome, name), ranks, returns[place])
                for place, gap in enumerate(block.gaps.get(outcome, ())):
                    put(("gap", outcome, place), ranks, gap)
    assert filled.all(), "an episode was not read"
    others = sample.log.outcomes

    def gaps(outcome: str) -> tuple[ArrayLike, ...]:
        return tuple(store[key] for key in (("gap", outcome, 0), ("gap", outcome, 1)) if key in store)

    def returns_of(outcome: str) -> dict[str, ArrayLike]:
        return {name: store["return", outcome, name] for name in names.values()}

    return MeasuredLog(
        episode_numbers=large.reading.numbers,
        actions=np.zeros((count, 1), np.int8),
        behavior_log_probs=np.zeros((count, 1)),
        rewards=store["observed", REWARD][:, None],
        mask=np.ones((count, 1), bool),
        recorded={name: store["ratio", name][:, None] for name in names.values()},
        outcomes={name: store["observed", name][:, None] for name in others},
        sizes=large.reading.index.steps,
        stopped={name: store["stopped", name] for name in names.values()} if several else {},
        returns=returns_of(REWARD),
        gaps=gaps(REWARD),
        others={name: Estimates(returns_of(name), gaps(name)) for name in others},
        has_contexts=bool(has_contexts(sample.log)),
    )


def _known(policy: Policy, spec: PolicySpec | None) -> Policy:
    """The policy as the measured log knows it; what the logging policy would have earned is what was seen."""
    if spec is not None and spec.kind is SpecKind.BEHAVIOR:
        return ObservedPolicy(policy.digest())
    digest = policy.digest()
    return MeasuredPolicy(digest if spec is None else str(spec), digest)
