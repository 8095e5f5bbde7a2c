"""Numbers that may be times: read as Unix seconds only where nothing else is plausible."""

import numpy as np
import polars as pl

from ..arrays import Floats
from ..errors import LogError
from .columns import TimeUnit
from .table import Places

SECONDS = {TimeUnit.HOUR: 3600.0, TimeUnit.DAY: 86400.0}
FIRST_YEAR, LAST_YEAR = 1990, 2100
FIRST, LAST = (float(np.datetime64(f"{year}-01-01", "s").astype(int)) for year in (FIRST_YEAR, LAST_YEAR))
_FINER = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
# What is put before and after the digits of a date to make YYYYMMDDhhmmss of it.
_PADDING = (("", "0" * 6), ("", "0" * 4), ("20", "00"), ("", "00"), ("20", ""), ("", ""))
_EXACT = 2.0**53
SAMPLE = 100
SPELLED_BY_CHANCE = float(np.datetime64("2030-01-01", "s").astype(int))


def moment_text(seconds: float) -> str:
    """Seconds since 1970 as a date, with the time of day if it is not midnight."""
    moment = str(np.datetime64(round(seconds), "s"))
    return moment.removesuffix("T00:00:00")


def calendar_moment(times: Floats) -> float | None:
    """The first of these numbers as seconds since 1970, if the digits of all of them spell dates."""
    if times.size > SAMPLE and calendar_moment(times[:SAMPLE]) is None:
        return None
    if not (times.size and np.all((times == np.round(times)) & (times > 0) & (times < _EXACT))):
        return None
    digits = pl.Series(times).cast(pl.Int64).cast(pl.String)
    for before, after in _PADDING:
        if digits.str.len_chars().eq(14 - len(before + after)).all():
            moments = (before + digits + after).str.to_datetime("%Y%m%d%H%M%S", strict=False)
            if moments.dt.year().is_between(FIRST_YEAR, LAST_YEAR - 1).fill_null(False).all():
                return float(moments.dt.epoch("s")[0])
    return None


def require_unix_seconds(times: Floats, name: str, unit: TimeUnit, places: Places) -> None:
    """The column can only be Unix time in seconds; otherwise the error shows how else it may be read."""
    outside = ~((times >= FIRST) & (times < LAST))
    date = calendar_moment(times)
    if not outside.any() and (date is None or _by_chance(times)):
        return
    if date is not None:
        what, remedy = _dates(times[0], date)
    elif outside.all():
        what, remedy = _finer(times) or _small(times, unit)
    else:
        what, remedy = (
            f"holds {times[outside][0]:.15g}, which is {_unix(times[outside][0])}.",
            "Repair these rows.",
        )
    raise LogError(
        f"column '{name}' {what}",
        where="" if outside.all() or date is not None else places.several(np.flatnonzero(outside)),
        expected="timestamps, or Unix time in seconds from 1990 to 2099",
        remedy=remedy,
    )


def _by_chance(times: Floats) -> bool:
    """Whether a few real Unix times happen to spell dates: one in 200 does, and three hardly ever do."""
    return bool(times.max() < SPELLED_BY_CHANCE) and np.unique(times).size < 3


def _dates(number: float, date: float) -> tuple[str, str]:
    return (
        f"holds numbers that may be dates: {number:.15g} is {moment_text(date)} as a date, {_unix(number)}.",
        "Write dates as 2026-03-01; if these count something else, set the time unit to 'number'.",
    )


def _finer(times: Floats) -> tuple[str, str] | None:
    low, high = float(times.min()), float(times.max())
    for name, factor in _FINER.items():
        if FIRST * factor <= low and high < LAST * factor:
            what = f"reaches {high:g}, which is {moment_text(high / factor)} in Unix {name}."
            return what, f"Divide {name} by {factor:,.0f}."
    return None


def _small(times: Floats, unit: TimeUnit) -> tuple[str, str]:
    low, high = float(times.min()), float(times.max())
    return (
        f"runs from {low:.15g} to {high:.15g}: that would be {_length(high - low)} as Unix time, or "
        f"{unit.value}s as they stand.",
        f"If the column counts {unit.value}s, say so with `time_unit='number'`; otherwise write timestamps "
        "as 2026-03-01 13:45:00.",
    )


def _unix(number: float) -> str:
    """A number as Unix seconds, whatever its size."""
    return f"{moment_text(number)} as Unix seconds" if abs(number) < 1e11 else "too large for Unix seconds"


def _length(seconds: float) -> str:
    for unit in (TimeUnit.DAY, TimeUnit.HOUR):
        if seconds >= 2 * SECONDS[unit]:
            return f"{seconds / SECONDS[unit]:.3g} {unit.value}s"
    return f"{seconds:.4g} second{'s' * (seconds != 1)}"
