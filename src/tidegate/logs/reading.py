"""From a user's table to a log that has passed the door, together with where it came from."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ..arrays import Floats, Integers, Ragged, Values
from ..door import Steps, check_rows, episode_starts, to_grid, unpadded
from ..episodes import EpisodeLog
from ..errors import LogError
from ..inputs import member
from ..serving.features import Feature
from .columns import Columns, TimeUnit, columns_of
from .encoding import features_of
from .formats import COPIES, PART, Format
from .memory import MemoryLimit
from .memory import memory_limit as resolve_limit
from .parts import action_labels, read_steps, require_parts
from .pieces import batches
from .sources import Source, read_table
from .surveying import survey
from .table import Table
from .time_numbers import calendar_moment, moment_text
from .timeline import Timeline, TimeMeaning, timeline
from .urls import is_url

if TYPE_CHECKING:
    from .propensities import Calibration

PART_ROWS = 500_000  # that are read together
ACTION_BYTES = 100  # of counts, shares and parameters for each action
LOG_COPIES = 3  # as it was read, split, and on the device


class Propensities(enum.Enum):
    """Where the probabilities of the logged actions come from: what a verdict must say about them."""

    LOGGED = "propensities as logged"
    ESTIMATED = "propensities estimated: not guaranteed"
    ABSENT = "propensities unknown: only importance ratios can be used"


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedLog:
    """A checked log and its source.

    `table` holds all columns of the source, its rows sorted by episode and step as in the log: row r
    of the table is the r-th filled step of `log`, episode after episode. `labels` are the names of the
    actions 0, 1, …, if the source has names, and `features` the columns that the states are made
    of. `notes` are sentences for the user, `caveats` those without which a verdict must not be read. `limit`
    is how much memory may be used for all that follows. `began` says when each episode began: seconds since
    1970 for timestamps, else the column's own numbers.
    """

    log: EpisodeLog
    table: Table
    columns: Columns
    time: TimeMeaning
    began: Floats
    labels: tuple[str, ...] = ()
    features: tuple[Feature, ...] = ()
    propensities: Propensities = Propensities.LOGGED
    calibration: "Calibration | None" = None
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    limit: MemoryLimit = dataclasses.field(default_factory=resolve_limit)

    @property
    def source(self) -> str:
        """What the user calls the table."""
        return self.table.name

    def grid(self, values: Values) -> Values:
        """Values per row of the table as (episodes, steps), zero at the unused steps."""
        return to_grid(values, np.asarray(self.log.mask))

    def taken(self, rows: Integers) -> "LoadedLog":
        """The episodes in these rows of the log, with their rows of the table."""
        if rows.size == self.log.capacity:
            return self
        lengths = self.log.lengths
        chosen = Ragged.of(lengths[rows], 1)
        steps = (np.cumsum(lengths) - lengths)[rows][chosen.rows] + chosen.steps
        log, table = self.log.take(rows), self.table.take(steps)
        return dataclasses.replace(self, log=log, table=table, began=self.began[rows])

    @property
    def states(self) -> pl.DataFrame:
        """What a policy may look at: the mapped features, else every column without another part."""
        columns, frame = self.columns, self.table.frame
        if columns.features or columns.state:
            return frame.select(columns.features or (str(columns.state),))
        return frame.drop(columns.parts, strict=False)


def read_log(
    source: Source,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    format: Format | str | None = None,
    memory_limit: int | str | None = None,
) -> LoadedLog:
    """Read and check a log: a path, folder, glob or URL, a list of these, `-`, a frame, or a Minari dataset.

    Rows may come in any order; they are sorted by episode (or time) and step. The file's name tells
    the format (`.parquet`, `.csv`, `.tsv`, `.jsonl`, each also with `.gz`), else its first bytes do;
    `format` overrides both. A log that would take more memory than the limit (bytes, or text as in
    "4GB"; by default `TIDEGATE_MEMORY_LIMIT`, else half of what is free) is refused before it is read.
    Raises `LogError` or `SettingsError`, and nothing else.
    """
    columns, limit = columns_of(columns), resolve_limit(memory_limit)
    format = None if format is None else member("the format", Format, format)
    listed = source if isinstance(source, list | tuple) else [source]
    stored = any(is_url(one) or (isinstance(one, str | Path) and Path(one).is_dir()) for one in listed)
    table = (_gathered if stored else read_table)(source, format, limit)
    return checked_log(table, columns, limit)


def _gathered(source: Source, format: Format | None, limit: MemoryLimit) -> Table:
    """All files of a folder or a URL as one table."""
    pieces = survey(source, format, limit)
    frames, rows = [pl.DataFrame(schema=pieces.schema)], [np.arange(0)]
    for part in batches(pieces, pieces.schema.names(), 0, pieces.span, PART_ROWS):
        frames.append(part.frame)
        rows.append(part.places.rows)
        needed = COPIES * sum(frame.estimated_size() for frame in frames)
        limit.require(needed, f"{pieces.name} with {pieces.rows:,} rows", remedy=PART)
    return Table(pl.concat(frames), pieces.places(pl.Series(np.concatenate(rows))), pieces.name)


def checked_log(
    table: Table, columns: Columns, limit: MemoryLimit, *, features: tuple[Feature, ...] | None = None
) -> LoadedLog:
    """A table that was read already as a log, checked in the same way.

    Of a part of a log, the categories of the `features` are those of the whole.
    """
    limit = limit.beside(int(table.frame.estimated_size()))
    if table.frame.height == 0:
        raise LogError(
            f"{table.name} has no rows.",
            expected="at least one episode with one step",
            remedy="Check the query or the file that produced it.",
        )
    require_parts(table, columns)
    line = timeline(table, columns)
    caveats = tuple(_caveats(line, table, columns))
    notes = tuple(notes_on(line.episode_numbers, table, columns))
    if line.order is not None:
        table = table.take(line.order)
    labels = action_labels(table, columns)
    features = features_of(table, columns.features) if features is None else features
    steps = read_steps(table, columns, labels, features)
    _require_layout(steps, line.episodes, limit)
    fields = check_rows(
        steps,
        line.episodes,
        line.steps,
        (columns.episode or "episode", str(columns.step)),
        columns.propensity,
        len(labels) or columns.num_actions,
        table.places,
        ragged=True,
    )
    if fields["num_actions"] is not None:
        limit.require(
            fields["num_actions"] * ACTION_BYTES,
            f"{table.name}, whose actions are numbered up to {fields['num_actions'] - 1:,},",
            remedy="number the actions from 0 without gaps",
        )
    return LoadedLog(
        log=EpisodeLog(**{**fields, "episode_numbers": line.episode_numbers}),
        table=table,
        columns=columns,
        time=line.meaning,
        began=line.began,
        labels=labels,
        features=features,
        propensities=Propensities.ABSENT if columns.behavior_prob is None else Propensities.LOGGED,
        notes=notes,
        caveats=caveats,
        limit=limit,
    )


def _require_layout(steps: Steps, episodes: Values, limit: MemoryLimit) -> None:
    """The arrays of the log fit: each episode has the room of the longest, unless they are too unequal."""
    lengths = np.diff(np.append(episode_starts(episodes), episodes.size))
    cells = int(lengths.sum() if unpadded(lengths) else lengths.size * lengths.max())
    limit.require(
        cells * steps.step_bytes * LOG_COPIES,
        f"{lengths.size:,} episodes with room for {cells:,} steps",
        remedy="read a part of the log",
    )


def _caveats(line: Timeline, table: Table, columns: Columns) -> Iterator[str]:
    if line.misplaced.size and not columns.confirmed_order:
        yield misplaced_caveat(table.places.several(line.misplaced), columns)


def misplaced_caveat(where: str, columns: Columns) -> str:
    """What must be said where episodes do not come in the order of their numbers."""
    return (
        f"The episodes do not come in the order of their numbers in column '{columns.episode}' ({where}), "
        "so the numbers may be names that say nothing about time. Name a time column, or confirm that the "
        "numbers grow with time (`confirmed_order=True`)."
    )


def notes_on(numbers: Floats, table: Table, columns: Columns) -> Iterator[str]:
    """What a user should know about how episodes and their times were read; of the table, the columns."""
    if columns.episode is None and columns.step in table.frame.columns:
        yield f"Every row counts as an episode, although there is a column '{columns.step}'."
    as_numbers = columns.time is None or columns.time_unit is TimeUnit.NUMBER
    date = calendar_moment(numbers) if as_numbers else None
    if date is not None:
        yield (
            f"The times may be dates ({numbers[0]:.15g} could be {moment_text(date)}), and count as numbers, "
            "which jump from month to month. To count days, write them as 2026-03-01 in a time column."
        )
