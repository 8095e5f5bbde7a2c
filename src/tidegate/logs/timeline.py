"""When did each episode happen, and in what order? Episode numbers, ranks, or hours and days.

The trend is a function of the episodes' numbers, and the lookahead counts in their unit:

- no time column: the numbers in the episode column as they stand; gaps count as time that passed;
- `TimeUnit.EPISODE`: 1, 2, 3, … in the order of time, ties in the order of the episodes' numbers;
  how long an episode took to come does not matter, and the lookahead is a number of episodes;
- `TimeUnit.HOUR`, `DAY`: the time since the first episode, fractions and ties included; the lookahead
  is a number of hours or days, and the forecast is the mean return of an episode, averaged evenly
  over the ends of these hours or days, however many episodes each of them brings;
- `TimeUnit.NUMBER`: the same, with the column's own numbers.

The time of an episode is that of its earliest row. A time that could be read in two ways is refused.
"""

import contextlib
import dataclasses

import numpy as np
import polars as pl

from ..arrays import Flags, Floats, Integers, Values
from ..door import check_finite, episode_starts
from ..errors import LogError
from .columns import Columns, TimeUnit
from .formats import PARSER_ERRORS
from .keys import episode_keys, episode_numbers
from .table import Places, Table, is_text
from .time_numbers import SECONDS, require_unix_seconds

YEAR_FIRST = r"^\d{4}\D"
MOMENTS = 200  # at most so many episodes of a ranked log are dated


@dataclasses.dataclass(frozen=True)
class TimeMeaning:
    """What the numbers on the time axis are; `origin` is the timestamp of number 0, if there is one.

    `last` is when the last episode began, if that is known. Where timestamps are ranked, `moments` are
    those of the first and the last episode, and of some between.
    """

    unit: TimeUnit
    column: str | None
    origin: str | None = None
    last: str | None = None
    moments: tuple[tuple[float, str], ...] = ()

    def __str__(self) -> str:
        if self.column is None:
            return "time is the episode number; the lookahead counts episode numbers"
        if self.unit is TimeUnit.EPISODE:
            return f"time is the rank of an episode by '{self.column}'; the lookahead counts episodes"
        if self.unit is TimeUnit.NUMBER:
            return f"time is '{self.column}' as it stands; the lookahead counts its units"
        origin = str(self.origin).replace("T", " ")
        return (
            f"time is in {self.unit.value}s since {origin} UTC ('{self.column}'); "
            f"the lookahead counts {self.unit.value}s, each with the same weight"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Timeline:
    """The rows in order: the episode of each, its step, and the episodes' numbers on the time axis.

    `began` says when each episode began: seconds since 1970 for timestamps, else the column's own numbers.

    `misplaced` are the rows, as they came, of episodes that begin after one with a higher number, where
    the numbers alone tell the order.
    """

    order: Integers | None  # None: the rows are in order already
    episodes: Floats
    steps: Values | None
    episode_numbers: Floats
    began: Floats
    meaning: TimeMeaning
    misplaced: Integers


def timeline(table: Table, columns: Columns) -> Timeline:
    """Sort the rows by episode and step, and place the episodes on the time axis."""
    ids = _ids(table, columns)
    steps = row_steps(table, columns)
    keys = [ids]
    if columns.time is not None:
        require_one_reading(table, columns)
        # Episodes that began at the same time come in the order of their keys, wherever their rows lie.
        keys = [_beginnings(ids, row_times(table, columns)), episode_keys(table, columns)]
    order = _order(*keys, steps)
    numbered = columns.time is None and columns.episode is not None
    misplaced = _misplaced(ids) if numbered and order is not None else np.arange(0)
    if order is not None:
        keys = [key[order] for key in keys]
        steps = None if steps is None else steps[order]
    starts = episode_starts(keys[-1])
    if columns.time is None:
        episodes = keys[0].astype(np.float64)
        if episode_starts(episodes).size < starts.size:
            raise LogError(
                f"the numbers in column '{columns.episode}' are too large to tell episodes apart.",
                expected="episode numbers below 2^53",
                remedy="Number the episodes from 1, or name a time column.",
            )
        numbers = began = episodes[starts]
        meaning = TimeMeaning(TimeUnit.EPISODE, None)
    else:
        lengths = np.diff(np.append(starts, ids.size))
        episodes = np.repeat(np.arange(1.0, starts.size + 1), lengths)
        began = keys[0][starts]
        numbers, meaning = axis_numbers(began, columns, dated=holds_timestamps(table, columns))
    return Timeline(order, episodes, steps, numbers, began, meaning, misplaced)


def _misplaced(ids: Values) -> Integers:
    """The first rows of episodes that begin after an episode with a higher number."""
    firsts = np.sort(np.unique(ids, return_index=True)[1])
    return np.asarray(firsts[ids[firsts] < np.maximum.accumulate(ids[firsts])])


def _ids(table: Table, columns: Columns) -> Values:
    """A number per row that identifies the episode: its own number, or the rank of its name."""
    if columns.episode is None:
        return np.arange(1, table.frame.height + 1)
    if columns.time is None:
        return episode_numbers(table, columns.episode)
    column = table.frame[columns.episode]
    table.require_filled(column)
    try:
        return column.rank("dense").to_numpy()
    except PARSER_ERRORS as error:
        raise LogError(
            f"column '{columns.episode}' holds {column.dtype}.",
            expected="a number or a name for each episode",
        ) from error


def row_steps(table: Table, columns: Columns) -> Values | None:
    """The step of each row, if the log has a step column."""
    if columns.step is None or columns.step not in table.frame.columns:
        return None
    return table.numbers(columns.step)


def _beginnings(ids: Integers, times: Floats) -> Floats:
    """For each row, when its episode began."""
    began = np.full(ids.max() + 1, np.inf)
    np.minimum.at(began, ids, times)
    return began[ids]


def axis_numbers(times: Floats, columns: Columns, *, dated: bool = False) -> tuple[Floats, TimeMeaning]:
    """The numbers of episodes that began at these times, given in order; `dated` ones are timestamps."""
    unit = columns.time_unit
    if unit is TimeUnit.EPISODE:
        moments = _some_moments(times) if dated else ()
        last = moments[-1][1] if moments else None
        return np.arange(1.0, times.size + 1), TimeMeaning(unit, columns.time, None, last, moments)
    if unit is TimeUnit.NUMBER:
        return times, TimeMeaning(unit, columns.time)
    meaning = TimeMeaning(unit, columns.time, _iso(times[0]), _iso(times[-1]))
    return (times - times[0]) / SECONDS[unit], meaning


def _iso(seconds: float) -> str:
    """Seconds since 1970 as a timestamp, to the second."""
    return str(np.datetime64(round(float(seconds) * 1e6), "us").astype("datetime64[s]"))


def _some_moments(times: Floats) -> tuple[tuple[float, str], ...]:
    rows = np.unique(np.linspace(0, times.size - 1, MOMENTS).round().astype(int))
    return tuple((float(row + 1), _iso(times[row])) for row in rows)


def row_times(table: Table, columns: Columns) -> Floats:
    """The time of each row: seconds since 1970 for hours and days, else any numbers that tell the order."""
    name = str(columns.time)
    if holds_timestamps(table, columns):
        return _seconds(table, name)
    times = table.floats(name)
    check_finite(times, f"column '{name}'", table.places)
    return times


def require_one_reading(table: Table, columns: Columns) -> None:
    """Hours and days are counted from timestamps, or from numbers that can only be Unix seconds."""
    if counted_in_seconds(table, columns):
        times = row_times(table, columns)
        require_unix_seconds(times, str(columns.time), columns.time_unit, table.places)


def counted_in_seconds(table: Table, columns: Columns) -> bool:
    """Whether times are numbers from which hours or days are counted."""
    return columns.time is not None and columns.time_unit in SECONDS and not holds_timestamps(table, columns)


def holds_timestamps(table: Table, columns: Columns) -> bool:
    """Whether the time column is to be read as dates and times of day, not as numbers."""
    column = table.frame[str(columns.time)]
    timed = column.dtype == pl.Null or is_text(column) or column.dtype.is_temporal()
    return timed and columns.time_unit is not TimeUnit.NUMBER


def _seconds(table: Table, name: str) -> Floats:
    """Timestamps as seconds since 1970; without a zone they are taken as UTC."""
    column = table.frame[name]
    table.require_filled(column)
    if is_text(column):
        column = _parsed_times(column.cast(pl.String), table.places)
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    if not isinstance(column.dtype, pl.Datetime):
        raise LogError(f"column '{name}' holds {column.dtype}.", expected="dates or timestamps")
    return np.asarray(column.dt.epoch("us").to_numpy()) / 1e6


def _parsed_times(column: pl.Series, places: Places) -> pl.Series:
    text = column.str.strip_chars()
    best = _parsed_moments(text)
    bad = np.flatnonzero(best.is_null().to_numpy())
    if bad.size:
        as_numbers = text.cast(pl.Float64, strict=False)
        raise LogError(
            f"column '{column.name}' holds {column[int(bad[0])]!r}, which is not a timestamp.",
            where=places.several(bad),
            expected="ISO 8601, as in 2024-05-31 13:45:00 or 2024-05-31T13:45:00Z",
            remedy="" if as_numbers.null_count() else "Numbers in quotes are text: unquote them.",
        )
    unclear = np.flatnonzero(~_year_first(text))
    if unclear.size:
        row = int(unclear[0])
        raise LogError(
            f"column '{column.name}' holds {column[row]!r}, in which the day or the month may come first: "
            f"{best[row]:%Y-%m-%d} if it is the day.",
            where=places.several(unclear),
            expected="the year first, as in 2024-05-31",
            remedy="Write dates in ISO 8601.",
        )
    return best


def moment(text: str) -> float | None:
    """A date or timestamp with the year first as seconds since 1970, in UTC if it names no zone."""
    one = pl.Series([text.strip()])
    parsed = _parsed_moments(one).dt.epoch("us")[0]
    return float(parsed) / 1e6 if parsed is not None and _year_first(one).all() else None


def _year_first(text: pl.Series) -> Flags:
    return np.asarray(text.str.contains(YEAR_FIRST).to_numpy())


def _parsed_moments(text: pl.Series) -> pl.Series:
    """Text as timestamps in UTC, null where it is none."""
    parsed = []
    for pattern in ("%+", None):
        with contextlib.suppress(*PARSER_ERRORS):
            times = text.str.to_datetime(pattern, strict=False, time_unit="us", ambiguous="earliest")
            parsed.append(times.dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    unread = pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, len(text))
    return min(parsed, key=pl.Series.null_count, default=unread)


def _order(*keys: Values | None) -> Integers | None:
    """The stable order of the rows by these keys, the first one leading; None if they are sorted."""
    given = [key for key in keys if key is not None]
    return None if _sorted(given) else np.lexsort(given[::-1])


def _sorted(keys: list[Values]) -> bool:
    """Whether the rows are in order already, which takes far less time to see than to sort them."""
    tied = np.ones(max(keys[0].size - 1, 0), bool)
    for key in keys:
        before, after = key[:-1], key[1:]
        if not np.all(~tied | (before <= after)):
            return False
        tied &= before == after
    return True
