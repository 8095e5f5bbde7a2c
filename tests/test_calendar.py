"""Times, spans and numbers in a reader's words."""

import datetime
import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidegate.logs import Columns, TimeUnit, read_log
from tidegate.logs.timeline import MOMENTS
from tidegate.reports.calendar import Clock
from tidegate.reports.numbers import count, figure, lift, signed

START = datetime.datetime(2025, 12, 10, 3)
DAYS = Clock("day", "when", START)
HOURS = Clock("hour", "when", START)
RANKS = Clock(
    "episode",
    "when",
    moments=tuple((1.0 + 100 * i, START + datetime.timedelta(days=i)) for i in range(31)),
)
BRIEF = Clock("episode", "when", moments=((1.0, START), (61.0, START + datetime.timedelta(hours=1))))
EPISODES = Clock()
ROWS = Clock(rows=True)
NUMBERS = Clock("number", "week")


@pytest.mark.parametrize(
    ("clock", "number", "said", "cell"),
    [
        (DAYS, 0.0, "2025-12-10", "2025-12-10"),
        (DAYS, 84.96, "2026-03-05", "2026-03-05"),
        (HOURS, 34.5, "2025-12-11 13:30", "2025-12-11 13:30"),
        (RANKS, 3001.0, "episode 3,001 (2026-01-09)", "2026-01-09"),
        (RANKS, 151.0, "episode 151 (2025-12-11)", "2025-12-11"),
        (RANKS, 3002.0, "episode 3,002", "3,002"),
        (BRIEF, 31.0, "episode 31 (2025-12-10 03:30)", "2025-12-10 03:30"),
        (EPISODES, 40_000.0, "episode 40,000", "40,000"),
        (ROWS, 7.0, "the 7th row", "7"),
        (ROWS, 3001.0, "the 3,001st row", "3,001"),
        (ROWS, 112.0, "the 112th row", "112"),
        (NUMBERS, 84.958333333, "time 84.9583", "84.9583"),
        (DAYS, 1e12, "day 1,000,000,000,000", "1,000,000,000,000"),
    ],
)
def test_a_time_is_a_date_where_there_is_one(clock: Clock, number: float, said: str, cell: str) -> None:
    assert (clock.at(number), clock.cell(number)) == (said, cell)


@pytest.mark.parametrize(
    ("clock", "amount", "said"),
    [
        (DAYS, 7, "7 days"),
        (DAYS, 1, "1 day"),
        (DAYS, 23.44, "23.4 days"),
        (DAYS, 0.2, "5 hours"),
        (HOURS, 0.5, "30 minutes"),
        (HOURS, 168.0, "168 hours"),
        (EPISODES, 23.44, "24 episodes"),
        (EPISODES, 24.0, "24 episodes"),
        (EPISODES, 1, "1 episode"),
        (EPISODES, 4e4, "40,000 episodes"),
        (NUMBERS, 23.444, "23.4 units of time"),
        (NUMBERS, 1.0, "1 unit of time"),
        (DAYS, None, "an unknown number of days"),
    ],
)
def test_a_span_has_a_unit_and_few_digits(clock: Clock, amount: float | None, said: str) -> None:
    assert clock.span(amount) == said


@pytest.mark.parametrize(
    ("clock", "ends", "said"),
    [
        (DAYS, (84.9, 90.9), "the next 7 days (2026-03-05 to 2026-03-11)"),
        (DAYS, (84.9, 84.9), "the next day (2026-03-05)"),
        (HOURS, (10.0, 33.0), "the next 24 hours (2025-12-10 12:00 to 2025-12-11 12:00)"),
        (RANKS, (3002.0, 3501.0), "the next 500 episodes (3,002 to 3,501; the last 500 took 5 days)"),
        (BRIEF, (62.0, 91.0), "the next 30 episodes (62 to 91; the last 30 took 30 minutes)"),
        (RANKS, (3002.0, 9001.0), "the next 6,000 episodes (3,002 to 9,001)"),
        (EPISODES, (3001.0, 3500.0), "the next 500 episodes (3,001 to 3,500)"),
        (NUMBERS, (85.0, 91.0), "the next 7 units of time (85 to 91)"),
        (NUMBERS, (85.0, 85.0), "the next unit of time (85)"),
    ],
)
def test_what_is_forecast_has_its_dates(clock: Clock, ends: tuple[float, float], said: str) -> None:
    assert clock.window(*ends) == said


def test_an_axis_has_the_dates_of_a_calendar() -> None:
    mondays = [
        (11.875, "22 Dec\n2025"), (25.875, "5 Jan\n2026"), (39.875, "19 Jan"), (53.875, "2 Feb"),
        (67.875, "16 Feb"), (81.875, "2 Mar"),
    ]  # fmt: skip
    assert DAYS.ticks(0, 95) == mondays
    assert DAYS.ticks(0, 400)[:2] == [(21.875, "1 Jan\n2026"), (111.875, "1 Apr")]
    assert HOURS.ticks(0, 11, most=4)[:2] == [(0.0, "10 Dec 03:00\n2025"), (3.0, "10 Dec 06:00")]
    assert RANKS.ticks(-10, 3500)[:2] == [(488.5, "15 Dec\n2025"), (1188.5, "22 Dec")]
    assert all(len(DAYS.ticks(0, 1.7**n)) <= 6 for n in range(1, 16))
    assert EPISODES.ticks(0, 100) == NUMBERS.ticks(0, 100) == DAYS.ticks(5, 5) == []
    axes = [clock.axis for clock in (DAYS, RANKS, EPISODES, ROWS, NUMBERS)]
    assert axes == ["date (UTC)", "date (UTC)", "episode", "row", "week"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (4e4, "40,000"), (0.42131, "0.4213"), (1234.5, "1,234"), (-0.0, "0"), (12.0, "12"), (1e-7, "1e-07"),
        (2.5e20, "2.5e+20"), (None, "not known"), (math.inf, "not known"), (math.nan, "not known"),
    ],
)  # fmt: skip
def test_a_number_is_written_out(value: float | None, said: str) -> None:
    assert figure(value) == said


def test_changes_and_counts() -> None:
    assert [signed(one) for one in (0.013, -2.0, 0.0, None)] == ["+0.013", "-2", "+0", "not known"]
    assert [count(one, "episode") for one in (0, 1, 40_000)] == ["0 episodes", "1 episode", "40,000 episodes"]


@pytest.mark.parametrize(
    ("advantage", "point", "lower", "upper", "said"),
    [
        (0.013, 0.42, 0.40, 0.44, "+3.1 % over the safe policy's 0.42"),
        (-0.013, 0.42, 0.40, 0.44, "-3.1 % over the safe policy's 0.42"),
        (0.013, -0.42, -0.44, -0.40, "+3.1 % of the size of the safe policy's -0.42"),
        (50.0, 4.0, 3.0, 5.0, "+1,250 % over the safe policy's 4"),
        (0.144, 0.139, 0.13, 0.15, "+104 % over the safe policy's 0.139"),
        (0.0996, 0.1, 0.09, 0.11, "+100 % over the safe policy's 0.1"),
        (0.013, 0.42, -0.1, 0.9, None),
        (0.013, 0.0, 0.0, 0.0, None),
        (None, 0.42, 0.40, 0.44, None),
        (0.013, 0.42, None, None, None),
    ],
)
def test_a_lift_is_a_share_of_something(
    advantage: Any, point: Any, lower: Any, upper: Any, said: str | None
) -> None:
    assert lift(advantage, {"point": point, "lower": lower, "upper": upper}) == said


def _log(count: int, **columns: Any) -> pl.DataFrame:
    parts = {"action": [0, 1] * (count // 2), "behavior_prob": [0.5] * count, "reward": [1.0] * count}
    return pl.DataFrame({**parts, **columns})


def test_ranked_timestamps_are_kept_for_a_few_hundred_episodes() -> None:
    count = 3000
    times = pl.datetime_range(START, START + datetime.timedelta(minutes=count - 1), "1m", eager=True)
    meaning = read_log(_log(count, when=times), Columns(episode=None, time="when")).time
    numbers, moments = zip(*meaning.moments, strict=True)
    assert (len(numbers), numbers[0], numbers[-1]) == (MOMENTS, 1.0, 3000.0)
    assert (moments[0], moments[-1]) == ("2025-12-10T03:00:00", "2025-12-12T04:59:00")
    clock = Clock.of({"columns": {"time": "when"}, "time_unit": "episode", "moments": meaning.moments})
    for number in (1, 17, 1234, 3000):
        minutes = (clock.moment(number) - START) / datetime.timedelta(minutes=1)  # type: ignore[operator]
        assert minutes == pytest.approx(number - 1)
    few = read_log(_log(4, when=times[:4]), Columns(episode=None, time="when")).time
    assert [number for number, _ in few.moments] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("unit", [TimeUnit.EPISODE, TimeUnit.NUMBER])
def test_numbers_are_not_taken_for_moments(unit: TimeUnit) -> None:
    columns = Columns(episode=None, time="t", time_unit=unit)
    meaning = read_log(_log(6, t=np.arange(6) + 1.8e9), columns).time
    assert (meaning.moments, meaning.origin) == ((), None)
