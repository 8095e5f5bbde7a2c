"""When, and for how long, in a reader's words: dates instead of numbers on a time axis.

Everything is said from the plain values of a record's provenance, so that pages, terminal and sentences
say the same. Moments are in UTC.
"""

import contextlib
import dataclasses
import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from .numbers import count, figure

Moment = datetime.datetime
UNITS = {"hour": datetime.timedelta(hours=1), "day": datetime.timedelta(days=1)}
SMALLER = {"day": ("hour", 24), "hour": ("minute", 60)}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONDAY = Moment(1970, 1, 5)
SHORT = datetime.timedelta(days=3)  # a log of less time has its episodes dated to the minute
STEPS = tuple(datetime.timedelta(hours=hours) for hours in (1, 2, 3, 6, 12, 24, 48, 7 * 24, 14 * 24))
MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120)


@dataclasses.dataclass(frozen=True)
class Clock:
    """What the numbers on a record's time axis mean.

    `origin` is the moment of number 0, for hours and days, and `last` that of the last episode. `moments`
    are those of some episodes, where these are counted in the order of timestamps. `rows` says that each
    row of the log is an episode.
    """

    unit: str = "episode"
    column: str | None = None
    origin: Moment | None = None
    last: Moment | None = None
    moments: tuple[tuple[float, Moment], ...] = ()
    rows: bool = False

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Self:
        """The clock of a record, from its provenance in plain values."""
        columns, moments = provenance["columns"], provenance.get("moments") or ()
        ends = (provenance.get(name) for name in ("time_origin", "time_last"))
        origin, last = (None if one is None else Moment.fromisoformat(one) for one in ends)
        return cls(
            unit=provenance["time_unit"],
            column=columns.get("time") or None,
            origin=origin,
            last=last,
            moments=tuple((float(number), Moment.fromisoformat(text)) for number, text in moments),
            rows=not columns.get("episode") and not columns.get("time"),
        )

    @property
    def dated(self) -> bool:
        """Whether past times are known as dates."""
        return self.origin is not None or bool(self.moments)

    @property
    def units(self) -> str:
        """What a span of time and the lookahead count."""
        return "units of time" if self.unit == "number" else f"{self.unit}s"

    @property
    def axis(self) -> str:
        """What a time axis shows, once `ticks` has labelled it."""
        if self.dated:
            return "date (UTC)"
        return {"number": self.column or "time", "episode": "row" if self.rows else "episode"}.get(
            self.unit, f"{self.units} since the first episode"
        )

    @property
    def first(self) -> Moment | None:
        """When the log begins, if that is known."""
        return self.moments[0][1] if self.moments else self.origin

    @property
    def period(self) -> str | None:
        """From when to when the log reaches, as in "2025-12-10 to 2026-03-04", if that is known."""
        if self.first is None or self.last is None:
            return None
        return " to ".join(dict.fromkeys(map(self._written, (self.first, self.last))))

    def growth(self, share: float) -> str | None:
        """How long the log takes to grow by this share of its length, at its own pace, if that is known."""
        if self.first is None or self.last is None:
            return None
        with contextlib.suppress(OverflowError):
            return _length((self.last - self.first) * share)
        return None

    def moment(self, number: float) -> Moment | None:
        """The moment of a number on the time axis, if it is known."""
        try:
            if self.origin is not None:
                return self.origin + float(number) * UNITS[self.unit]
            if not self.moments or not self.moments[0][0] <= number <= self.moments[-1][0]:
                return None
            numbers, seconds = self._knots
            return MONDAY + datetime.timedelta(seconds=float(np.interp(number, numbers, seconds)))
        except (OverflowError, ValueError):
            return None

    def at(self, number: float) -> str:
        """A time within a sentence: 2026-03-04, 2026-03-04 13:00, or episode 3,001 (2026-03-04)."""
        moment, said = self.moment(number), _time_figure(number)
        if self.origin is not None and moment is not None:
            return self._written(moment)
        if self.unit in UNITS:
            return f"{self.unit} {said}"
        if self.rows:
            return f"the {said}{_ending(round(number))} row"
        name = "time" if self.unit == "number" else "episode"
        return f"{name} {said}" if moment is None else f"{name} {said} ({self._written(moment)})"

    def episode(self, number: float) -> str:
        """An episode by its time, within a sentence: the episode of 2026-03-04 13:25, or episode 3,001."""
        moment = None if self.origin is None else self.moment(number)
        if moment is not None:
            return f"the episode of {moment:%Y-%m-%d %H:%M}"
        return f"the episode at {self.at(number)}" if self.unit == "number" else self.at(number)

    def cell(self, number: float) -> str:
        """A time in a table: the date if it is known, else the number."""
        moment = self.moment(number)
        return _time_figure(number) if moment is None else self._written(moment)

    def span(self, amount: float | None) -> str:
        """A length of time: 7 days, 1.5 hours, 24 episodes."""
        if amount is None:
            return f"an unknown number of {self.units}"
        if self.unit == "episode":
            return count(math.ceil(amount - 1e-9), "episode")  # so many reach into the span
        if self.unit == "number":
            return f"{figure(amount, 3)} {'unit' if amount == 1 else 'units'} of time"
        name, parts = SMALLER[self.unit]
        small = 0 < amount < 1
        return count(round(amount * parts), name) if small else count(round(amount, 1), self.unit)

    def window(self, first: float, last: float) -> str:
        """What is forecast, from its first to its last time: the next 7 days (2026-03-05 to 2026-03-11)."""
        ahead = last - first + 1
        unit = "unit of time" if self.unit == "number" else self.unit
        start = f"the next {unit if ahead == 1 else self.span(ahead)}"
        # An hour is named by its beginning too, a day is a date.
        begin = self.cell(first - 1 if self.unit == "hour" else first)
        ends = dict.fromkeys((begin, self.cell(last)))
        return f"{start} ({' to '.join(ends)}{self._pace(first, ahead)})"

    def ticks(self, low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
        """Where a time axis has dates, and what they are; none if times are not known as dates."""
        if self.moments:
            low, high = max(low, self.moments[0][0]), min(high, self.moments[-1][0])
        first, last = self.moment(low), self.moment(high)
        if first is None or last is None or not first < last:
            return []
        moments = next(
            (found for found in _calendar_grids(first, last, most) if len(found) <= most), [first, last]
        )
        return list(zip(map(self._number, moments), _labels(moments), strict=True))

    @property
    def _knots(self) -> tuple[list[float], list[float]]:
        return [n for n, _ in self.moments], [(m - MONDAY).total_seconds() for _, m in self.moments]

    def _number(self, moment: Moment) -> float:
        if self.origin is not None:
            return (moment - self.origin) / UNITS[self.unit]
        numbers, seconds = self._knots
        return float(np.interp((moment - MONDAY).total_seconds(), seconds, numbers))

    def _written(self, moment: Moment) -> str:
        brief = bool(self.moments) and self.moments[-1][1] - self.moments[0][1] < SHORT
        return f"{moment:%Y-%m-%d %H:%M}" if self.unit == "hour" or brief else f"{moment:%Y-%m-%d}"

    def _pace(self, first: float, ahead: float) -> str:
        """How long as many episodes took, at the end of the log."""
        if not self.moments:
            return ""
        before, last = self.moment(first - 1 - ahead), self.moment(first - 1)
        if before is None or last is None:
            return ""
        return f"; the last {figure(ahead)} took {_length(last - before)}"


def _time_figure(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1e6 else f"{number:,.6g}"


def _ending(number: int) -> str:
    """Of an ordinal, as in 21st and 11th."""
    return "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _length(length: datetime.timedelta) -> str:
    for name, unit in (("day", 86400), ("hour", 3600), ("minute", 60)):
        amount = length.total_seconds() / unit
        if amount >= 2:
            return count(round(amount), name)
    return count(round(length.total_seconds()), "second")


def _calendar_grids(first: Moment, last: Moment, most: int) -> Iterator[list[Moment]]:
    """Moments between these two that a calendar marks, finely at first."""
    for step in STEPS:
        start = MONDAY + -(-(first - MONDAY) // step) * step
        if (last - start) // step < 2 * most:
            yield [start + i * step for i in range((last - start) // step + 1)]
    starts = [
        Moment(one // 12, one % 12 + 1, 1)
        for one in range(12 * first.year + first.month - 1, 12 * last.year + last.month)
    ]
    for months in MONTH_STEPS:
        yield [
            one for one in starts if (12 * one.year + one.month - 1) % months == 0 and first <= one <= last
        ]


def _labels(moments: list[Moment]) -> Iterator[str]:
    """Day and month, the time of day if one needs it, and the year below wherever a new one begins."""
    timed, year = any(one.hour or one.minute for one in moments), 0
    for one in moments:
        label = f"{one.day} {MONTHS[one.month - 1]}" + (f" {one:%H:%M}" if timed else "")
        yield label if one.year == year else f"{label}\n{one.year}"
        year = one.year
