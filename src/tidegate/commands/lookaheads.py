"""How far to look ahead: a number of units of the time axis, or a length of time, as in 7d.

A length of time needs time in hours or days. Where a time column is named without a unit, the length itself
gives it: 12h is in hours, 7d and 2w are in days.
"""

import dataclasses
import datetime
from typing import Any

from ..errors import SettingsError
from ..inputs import duration, shown, whole
from ..logs import TimeMeaning, TimeUnit
from .opening import Log, OpenLog, log_file

Length = int | datetime.timedelta

MAX_LOOKAHEAD = 1_000_000
UNITS = {TimeUnit.HOUR: datetime.timedelta(hours=1), TimeUnit.DAY: datetime.timedelta(days=1)}


def length_of(name: str, value: Any) -> Length:
    """What a user gives: a whole number, or a length of whole hours."""
    found = duration(value)
    if found is not None:
        if not found or found < UNITS[TimeUnit.HOUR] or found % UNITS[TimeUnit.HOUR]:
            raise SettingsError(f"{name} is {shown(value)}.", expected="whole hours, as in 12h, 7d or 2w")
        return found
    if isinstance(value, str):
        raise SettingsError(
            f"{name} is {shown(value)}.", expected="a whole number, or a length of time as in 12h, 7d or 2w"
        )
    return whole(name, value, 1, MAX_LOOKAHEAD)


def in_units_of(log: Log, length: Length | None) -> Log:
    """The log, with its time in the unit of this length, where a time column is named and no unit."""
    if not isinstance(length, datetime.timedelta) or isinstance(log, OpenLog):
        return log
    file = log_file(log)
    if file.columns.time is None or file.columns.time_unit is not TimeUnit.EPISODE:
        return log
    unit = TimeUnit.HOUR if length % UNITS[TimeUnit.DAY] else TimeUnit.DAY
    return dataclasses.replace(file, columns=dataclasses.replace(file.columns, time_unit=unit))


def as_units(name: str, length: Length, time: TimeMeaning) -> int:
    """The length in units of the time axis."""
    if isinstance(length, int):
        return length
    said = f"{name} is {_written(length)}"
    if time.unit not in UNITS:
        raise _no_calendar(said, name, time)
    if length % UNITS[time.unit]:
        raise SettingsError(
            f"{said}, and time is counted in days.",
            expected="whole days",
            remedy="Count time in hours: `time_unit='hour'`.",
        )
    return whole(name, length // UNITS[time.unit], 1, MAX_LOOKAHEAD)


def _no_calendar(said: str, name: str, time: TimeMeaning) -> SettingsError:
    if time.column is None:
        what, remedy = "no column says when an episode was", "Name the column of its timestamps: `time='…'`."
    elif time.unit is TimeUnit.NUMBER:
        what = f"time is '{time.column}' as it stands"
        remedy = "If the column holds timestamps, count in days: `time_unit='day'`."
    else:
        what = f"time is the rank of an episode by '{time.column}'"
        remedy = "Count in days instead: `time_unit='day'`."
    return SettingsError(f"{said}, and {what}.", expected=f"a number, as in `{name}=7`", remedy=remedy)


def _written(length: datetime.timedelta) -> str:
    hours = length // UNITS[TimeUnit.HOUR]
    return f"{hours}h" if hours % 24 else f"{hours // 24}d"
