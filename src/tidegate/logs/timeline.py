"""When did each episode happen, and in what order? Episode numbers, ranks, or hours and days.

The trend is a function of the episodes' numbers, and the lookahead counts in their unit:

- no time column: the numbers in the episode column as they stand; gaps count as time that passed;
- `TimeUnit.EPISODE`: 1, 2, 3, … in the order of time, ties in the order of rows; how long an episode
  took to come does not matter, and the lookahead is a number of episodes;
- `TimeUnit.HOUR`, `DAY`: the time since the first episode, fractions and ties included; the lookahead
  is a number of hours or days, and the forecast is the mean return of an episode, averaged evenly
  over the ends of these hours or days, however many episodes each of them brings;
- `TimeUnit.NUMBER`: the same, with the column's own numbers.

The time of an episode is that of its earliest row.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..arrays import Values
from ..errors import LogError
from .cells import floats, is_text, numbers, require_filled
from .columns import Columns, TimeUnit
from .places import Places

SECONDS = {TimeUnit.HOUR: 3600.0, TimeUnit.DAY: 86400.0}
# Unix time in seconds stays below this until the year 5138; in milliseconds it passed it in 1973.
MAX_UNIX = 1e11


@dataclasses.dataclass(frozen=True)
class TimeMeaning:
    """What the numbers on the time axis are; `origin` is the timestamp of number 0, if there is one."""

    unit: TimeUnit
    column: str | None
    origin: str | None = None

    def __str__(self) -> str:
        if self.column is None:
            return "time is the episode number; the lookahead counts episode numbers"
        if self.unit is TimeUnit.EPISODE:
            return (
                f"time is the rank of an episode by '{self.column}'; the lookahead counts episodes"
            )
        if self.unit is TimeUnit.NUMBER:
            return f"time is '{self.column}' as it stands; the lookahead counts its units"
        return (
            f"time is in {self.unit.value}s since {self.origin} ('{self.column}'); the lookahead "
            f"counts {self.unit.value}s, each with the same weight"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Timeline:
    """The rows in order, where each episode begins in that order, and its number on the time axis."""

    order: npt.NDArray[np.int64] | None  # None: the rows are in order already
    starts: npt.NDArray[np.int64]
    episode_numbers: npt.NDArray[np.float64]
    meaning: TimeMeaning


def timeline(frame: pl.DataFrame, columns: Columns, places: Places) -> Timeline:
    """Sort the rows by episode and step, and place the episodes on the time axis."""
    ids = _ids(frame, columns, places)
    steps = _steps(frame, columns, places)
    if columns.time is None:
        return _by_number(ids, steps, columns, places)
    times = row_times(frame, columns, places)
    return _by_time(ids, steps, times, columns)


def _ids(frame: pl.DataFrame, columns: Columns, places: Places) -> Values:
    """A number per row that tells episodes apart: the episode number, or a code of its name."""
    if columns.episode is None:
        return np.arange(1, frame.height + 1)
    if columns.time is None:
        return _episode_numbers(frame, columns.episode, places)
    column = frame[columns.episode]
    require_filled(column, columns.episode, places)
    try:
        return column.rank("dense").to_numpy()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _no_id(columns.episode, column) from error


def _episode_numbers(frame: pl.DataFrame, name: str, places: Places) -> Values:
    column = frame[name]
    if is_text(column) or column.dtype.is_temporal():
        try:
            return numbers(frame, name, places)
        except LogError as error:
            raise LogError(
                f"the episodes are told apart by {column.dtype}, which has no place in time: "
                f"{error.what}",
                where=error.where,
                expected="episode numbers that grow with time, or a time column",
                remedy="Name a time column: episodes are then ordered by it, whatever they are called.",
            ) from error
    return numbers(frame, name, places)


def _no_id(name: str, column: pl.Series) -> LogError:
    return LogError(
        f"column '{name}' holds {column.dtype}.", expected="a number or a name for each episode"
    )


def _steps(frame: pl.DataFrame, columns: Columns, places: Places) -> Values | None:
    if columns.step is None or columns.step not in frame.columns:
        return None
    return numbers(frame, columns.step, places)


def _by_number(ids: Values, steps: Values | None, columns: Columns, places: Places) -> Timeline:
    order = _order(ids, steps)
    ids = ids if order is None else ids[order]
    starts = _starts(ids)
    as_floats = ids.astype(np.float64)
    if _starts(as_floats).size < starts.size:
        raise LogError(
            f"the numbers in column '{columns.episode}' are too large to tell episodes apart.",
            expected="episode numbers below 2^53",
            remedy="Number the episodes from 1, or name a time column.",
        )
    return Timeline(order, starts, as_floats[starts], TimeMeaning(TimeUnit.EPISODE, None))


def _by_time(
    ids: Values, steps: Values | None, times: npt.NDArray[np.float64], columns: Columns
) -> Timeline:
    rows = pl.DataFrame({"id": ids, "time": times}).with_row_index("row")
    first = pl.col("time").min().over("id"), pl.col("row").min().over("id")
    began, first_row = (one.to_numpy() for one in rows.select(began=first[0], row=first[1]))
    order = _order(began, first_row, steps)
    if order is not None:
        began, first_row = began[order], first_row[order]
    starts = _starts(first_row)
    numbers, meaning = axis_numbers(began[starts], columns)
    return Timeline(order, starts, numbers, meaning)


def axis_numbers(
    times: npt.NDArray[np.float64], columns: Columns
) -> tuple[npt.NDArray[np.float64], TimeMeaning]:
    """The numbers of episodes that began at these times, given in order."""
    unit = columns.time_unit
    if unit is TimeUnit.EPISODE:
        return np.arange(1.0, times.size + 1), TimeMeaning(unit, columns.time)
    if unit is TimeUnit.NUMBER:
        return times, TimeMeaning(unit, columns.time)
    origin = str(np.datetime64(round(float(times[0]) * 1e6), "us").astype("datetime64[s]"))
    return (times - times[0]) / SECONDS[unit], TimeMeaning(unit, columns.time, origin)


def row_times(frame: pl.DataFrame, columns: Columns, places: Places) -> npt.NDArray[np.float64]:
    """The time of each row: seconds since 1970 for hours and days, else anything that orders."""
    name = str(columns.time)
    column = frame[name]
    if column.dtype == pl.Null or is_text(column) or column.dtype.is_temporal():
        if columns.time_unit is TimeUnit.NUMBER:
            return _finite(floats(frame, name, places), name, places)
        return _seconds(column, name, places)
    times = _finite(floats(frame, name, places), name, places)
    if columns.time_unit in SECONDS and np.abs(times).max(initial=0.0) > MAX_UNIX:
        raise LogError(
            f"column '{name}' reaches {np.abs(times).max():g}.",
            expected="timestamps, or Unix time in seconds",
            remedy="Divide milliseconds by 1,000, or set the time unit to 'number' if the column "
            "counts something else.",
        )
    return times


def _finite(times: Values, name: str, places: Places) -> Values:
    bad = np.flatnonzero(~np.isfinite(times))
    if bad.size:
        raise LogError(
            f"column '{name}' is {times[bad[0]]:g}.",
            where=places.several(bad),
            expected="a finite time",
        )
    return times


def _seconds(column: pl.Series, name: str, places: Places) -> npt.NDArray[np.float64]:
    """Timestamps as seconds since 1970; without a zone they are taken as UTC."""
    require_filled(column, name, places)
    if is_text(column):
        column = _parsed_times(column.cast(pl.String), name, places)
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    if not isinstance(column.dtype, pl.Datetime):
        raise LogError(f"column '{name}' holds {column.dtype}.", expected="dates or timestamps")
    return np.asarray(column.dt.epoch("us").to_numpy()) / 1e6


def _parsed_times(column: pl.Series, name: str, places: Places) -> pl.Series:
    parsed = [_try_times(column, pattern) for pattern in ("%+", None)]
    best = min(parsed, key=lambda one: one.null_count())
    bad = np.flatnonzero(best.is_null().to_numpy())
    if bad.size == 0:
        return best
    as_numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
    raise LogError(
        f"column '{name}' holds {column[int(bad[0])]!r}, which is not a timestamp.",
        where=places.several(bad),
        expected="ISO 8601, as in 2024-05-31 13:45:00 or 2024-05-31T13:45:00Z",
        remedy="" if as_numbers.null_count() else "Numbers in quotes are text: unquote them.",
    )


def _try_times(column: pl.Series, pattern: str | None) -> pl.Series:
    empty = pl.Series(column.name, [None] * len(column), pl.Datetime("us"))
    try:
        parsed = column.str.strip_chars().str.to_datetime(
            pattern, strict=False, time_unit="us", ambiguous="earliest"
        )
        return parsed.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return empty


def _order(*keys: Any) -> npt.NDArray[np.int64] | None:
    """The stable order of the rows by these keys, the first one leading; None if they are sorted."""
    present = [key for key in keys if key is not None]
    if _sorted(present):
        return None
    return np.lexsort(present[::-1])


def _sorted(keys: list[Values]) -> bool:
    tied = np.ones(max(keys[0].size - 1, 0), bool)
    for key in keys:
        if np.any(tied & ~(key[1:] >= key[:-1])):
            return False
        tied &= key[1:] == key[:-1]
    return True


def _starts(ids: Values) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
