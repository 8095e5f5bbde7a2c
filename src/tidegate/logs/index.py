"""Which episodes a log holds, when each began and how long it is: a few numbers an episode."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ..arrays import Floats, Integers, Values, given_room
from ..door import episode_starts
from ..errors import LogError
from .columns import Columns
from .keys import episode_keys, episode_numbers
from .memory import MemoryLimit
from .reducing import in_sample
from .table import Table
from .time_numbers import LAST, require_unix_seconds
from .timeline import counted_in_seconds, row_steps, row_times

if TYPE_CHECKING:
    from .engines import Engine
    from .rows import LogRows, Part

EPISODE_BYTES = 60  # of an index while it is sorted
WORKING_COPIES = 12  # of a table: joined, checked, as numbers, and the next one meanwhile


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeIndex:
    """The episodes of a log in the order of time, those of the same time in the order of their keys.

    A key is the episode's own whole number, or a 64-bit hash of what else it is called: among a hundred
    million names, two share a hash with a probability of 0.0003, and their steps then contradict each other.
    `misplaced` are the positions at which episodes begin after one with a higher number, where the numbers
    alone tell the order.
    """

    keys: Integers
    times: Floats
    steps: Integers
    misplaced: Integers

    @property
    def num_episodes(self) -> int:
        return int(self.keys.size)

    @property
    def num_steps(self) -> int:
        return int(self.steps.sum(dtype=np.int64))

    def ranks(self, keys: Integers) -> Integers:
        """The places in time of the episodes with these keys."""
        first = self._found(keys[:1])
        there = int(first[0]) + np.arange(keys.size)
        if there[-1] < self.keys.size and np.array_equal(self.keys[there[0] : there[-1] + 1], keys):
            return there
        return self._found(keys)

    def _found(self, keys: Integers) -> Integers:
        order = self._by_key
        if order is None:
            return np.asarray(np.searchsorted(self.keys, keys))
        return np.asarray(order[np.searchsorted(self.keys, keys, sorter=order)])

    @functools.cached_property
    def _by_key(self) -> Integers | None:
        """The order of the keys; None if they rise with time."""
        rising = bool(np.all(self.keys[1:] > self.keys[:-1]))
        return None if rising else np.argsort(self.keys, kind="stable")


@dataclasses.dataclass(frozen=True)
class Found:
    """Key, time, length and first position of each episode in a table of whole ones, and some of them."""

    keys: Integers
    times: Floats
    lengths: Integers
    firsts: Integers
    beyond: list[tuple[float, int]]
    chosen: Table | None


@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """The episodes of a part, and the rows of a `share` of them."""

    columns: Columns
    share: float

    def __call__(self, part: "Part") -> list[Found]:
        return [self._found(table) for table in part.tables()]

    def _found(self, table: Table) -> Found:
        keys = episode_keys(table, self.columns)
        starts = episode_starts(keys)
        lengths = np.diff(np.append(starts, keys.size))
        if self.columns.time is not None:
            times = np.minimum.reduceat(row_times(table, self.columns), starts)
        elif self.columns.episode is None:
            times = keys[starts].astype(np.float64)
        else:
            times = episode_numbers(table, self.columns.episode)[starts].astype(np.float64)
        wanted = np.repeat(in_sample(keys[starts], self.share), lengths)
        return Found(
            keys[starts],
            times,
            lengths,
            np.minimum.reduceat(table.places.rows, starts),
            _beyond(table, self.columns),
            table.take(np.flatnonzero(wanted)) if wanted.any() else None,
        )


def index_of(
    rows: "LogRows", columns: Columns, engine: "Engine", *, names: Sequence[str] = (), share: float = 0.0
) -> tuple[EpisodeIndex, list[Table]]:
    """One pass over the log: which episodes it has, and these columns of a share of them."""
    found, episodes, parts = list[Found](), 0, rows.parts([*names, *identifying(columns, rows.schema)])
    for one in itertools.chain.from_iterable(engine.map(Finding(columns, share), parts)):
        found.append(one)
        episodes += one.keys.size
        rows.limit.require(episodes * EPISODE_BYTES, f"the index of more than {episodes:,} episodes")
    keys, times, lengths, firsts = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("keys", "times", "lengths", "firsts")
    )
    if columns.time is not None and counted_in_seconds(rows.pieces.empty, columns):
        _require_seconds(rows, columns, times, firsts, [late for one in found for late in one.beyond])
    order, misplaced = np.lexsort((keys, times)), np.arange(0)
    if columns.time is None and columns.episode is not None:
        misplaced = _misplaced(times, firsts)
    times, lengths = (given_room(one[order]) for one in (times, lengths))  # as the reduced log holds them
    index = EpisodeIndex(keys[order], times, lengths, misplaced)
    if columns.time is None:
        _require_apart(index, str(columns.episode))
    return index, [one.chosen for one in found if one.chosen is not None]


def identifying(columns: Columns, schema: pl.Schema) -> list[str]:
    """The columns that tell which episode and step a row is, and when it happened."""
    step = columns.step if columns.step in schema else None
    return [name for name in (columns.episode, step, columns.time) if name is not None]


def in_step_order(table: Table, keys: Integers, columns: Columns) -> Table:
    """Rows of whole episodes, each episode's sorted by step, if they are not so already."""
    steps = row_steps(table, columns)
    if steps is None:
        return table
    within = keys[1:] == keys[:-1]
    if not np.any(within & (steps[1:] < steps[:-1])):
        return table
    return table.take(step_order(np.cumsum(np.append(0, ~within)), steps))


def step_order(episodes: Integers, steps: Values | None) -> Integers:
    """What sorts rows by episode and step, those of the same step in the order in which they come."""
    codes, count = _codes(episodes)
    if steps is not None:
        within, count = _codes(steps)
        codes = codes * count + within
    order = np.argsort(codes)  # a stable sort takes five times as long, and ties alone need it
    ordered = codes[order]
    tied = np.any(ordered[1:] == ordered[:-1])
    return np.argsort(codes, kind="stable") if tied else order


def _codes(values: Values) -> tuple[Integers, int]:
    """Whole numbers from 0 below a count, in the order of the values; two of them fit into 64 bits."""
    lowest = values.min()
    if values.dtype.kind == "i" and int(values.max()) - int(lowest) < 2**31:
        codes = values - lowest
    else:
        codes = np.unique(values, return_inverse=True)[1]
    return codes, int(codes.max()) + 1


def whole_episodes(
    tables: Iterator[Table], columns: Columns, limit: MemoryLimit
) -> Iterator[tuple[Table, Integers]]:
    """The same rows, cut between episodes: an episode that may go on is carried over to the next table."""
    carried: Table | None = None
    for chunk in tables:
        table = chunk if carried is None else _joined(carried, chunk)
        keys = episode_keys(table, columns)
        cut = int(episode_starts(keys)[-1])
        limit.require(
            WORKING_COPIES * table.frame.estimated_size(),
            f"an episode of more than {keys.size - cut:,} steps",
            where=table.places(keys.size - 1),
            remedy="split the episode",
        )
        carried = table.take(slice(cut, None))
        if cut:
            yield table.take(slice(0, cut)), keys[:cut]
    if carried is not None:
        yield carried, episode_keys(carried, columns)


def _joined(first: Table, second: Table) -> Table:
    rows = np.concatenate([first.places.rows, second.places.rows])
    frame = pl.concat([first.frame, second.frame], rechunk=True)
    return Table(frame, dataclasses.replace(second.places, rows=rows), second.name)


def _beyond(table: Table, columns: Columns) -> list[tuple[float, int]]:
    """The first time of a table that is too late for Unix seconds, and where: no beginning tells of it."""
    if not counted_in_seconds(table, columns):
        return []
    times = row_times(table, columns)
    return [(float(times[row]), int(table.places.rows[row])) for row in np.flatnonzero(times >= LAST)[:1]]


def _require_seconds(
    rows: "LogRows", columns: Columns, times: Floats, firsts: Integers, beyond: list[tuple[float, int]]
) -> None:
    """All times, told by when episodes began, can only be Unix seconds."""
    more = [one for one in beyond if one[1] not in firsts]
    times = np.concatenate([times, [time for time, _ in more]])
    positions = np.concatenate([firsts, np.array([place for _, place in more], np.int64)])
    order = np.argsort(positions, kind="stable")
    places = rows.pieces.places(pl.Series(positions[order]))
    require_unix_seconds(times[order], str(columns.time), columns.time_unit, places)


def _misplaced(numbers: Floats, firsts: Integers) -> Integers:
    order = np.argsort(firsts, kind="stable")
    came = numbers[order]
    return np.asarray(firsts[order][came < np.maximum.accumulate(came)])


def _require_apart(index: EpisodeIndex, name: str) -> None:
    if np.any(index.times[1:] == index.times[:-1]):
        raise LogError(
            f"the numbers in column '{name}' are too large to tell episodes apart.",
            expected="episode numbers below 2^53",
            remedy="Number the episodes from 1, or name a time column.",
        )
