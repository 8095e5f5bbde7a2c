"""A lookahead in numbers or as a length of time, counted in the unit of the log's time."""

import datetime
from typing import Any

import polars as pl
import pytest

from tidegate import commands as wf
from tidegate.commands.lookaheads import as_units, in_units_of, length_of
from tidegate.commands.opening import open_log
from tidegate.errors import SettingsError
from tidegate.logs import Columns, TimeMeaning, TimeUnit

DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
START = datetime.datetime(2026, 1, 1)
FRAME = pl.DataFrame(
    {
        "when": [START + i * 6 * HOUR for i in range(40)],
        "week": [i / 28 for i in range(40)],
        "action": [0, 1] * 20,
        "behavior_prob": [0.5] * 40,
        "reward": [float(i % 3) for i in range(40)],
    }
)


def resolved(lookahead: Any, **columns: Any) -> tuple[int, str]:
    """The lookahead as a number, and the unit that it is in."""
    settings = wf.PlainSettings(lookahead=lookahead)
    file = wf.LogFile(FRAME, Columns(episode=None, step=None, **columns))
    loaded = open_log(in_units_of(file, settings.lookahead)).loaded
    found = settings.over(loaded.log.span, loaded.time).lookahead
    assert isinstance(found, int)
    return found, loaded.time.unit.value


@pytest.mark.parametrize(
    ("lookahead", "columns", "expected"),
    [
        ("7d", {"time": "when", "time_unit": "day"}, (7, "day")),
        ("2w", {"time": "when", "time_unit": "day"}, (14, "day")),
        ("48h", {"time": "when", "time_unit": "day"}, (2, "day")),
        ("7d", {"time": "when", "time_unit": "hour"}, (168, "hour")),
        (2 * DAY, {"time": "when", "time_unit": "hour"}, (48, "hour")),
        (7, {"time": "when", "time_unit": "hour"}, (7, "hour")),
        # Without a unit, the length gives it; without a length, time is the rank.
        ("7d", {"time": "when"}, (7, "day")),
        ("12h", {"time": "when"}, (12, "hour")),
        (DAY, {"time": "when"}, (1, "day")),
        (12 * HOUR, {"time": "when"}, (12, "hour")),
        (7, {"time": "when"}, (7, "episode")),
        (7, {}, (7, "episode")),
        (7, {"time": "week", "time_unit": "number"}, (7, "number")),
    ],
)
def test_a_length_of_time_is_counted_in_the_logs_unit(
    lookahead: Any, columns: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert resolved(lookahead, **columns) == expected


@pytest.mark.parametrize(
    ("lookahead", "columns", "message"),
    [
        (
            "7d",
            {},
            "lookahead is 7d, and no column says when an episode was. Expected a number, as in "
            "`lookahead=7`. Name the column of its timestamps: `time='…'`.",
        ),
        (
            "7d",
            {"time": "week", "time_unit": "number"},
            "lookahead is 7d, and time is 'week' as it stands. Expected a number, as in `lookahead=7`. "
            "If the column holds timestamps, count in days: `time_unit='day'`.",
        ),
        (
            "12h",
            {"time": "when", "time_unit": "day"},
            "lookahead is 12h, and time is counted in days. Expected whole days. Count time in hours: "
            "`time_unit='hour'`.",
        ),
        (
            "90m",
            {"time": "when"},
            "lookahead is '90m'. Expected whole hours, as in 12h, 7d or 2w.",
        ),
        (
            "a week",
            {"time": "when"},
            "lookahead is 'a week'. Expected a whole number, or a length of time as in 12h, 7d or 2w.",
        ),
        ("0d", {"time": "when"}, "lookahead is '0d'. Expected whole hours, as in 12h, 7d or 2w."),
        (-DAY, {"time": "when"}, "lookahead is datetime.timedelta(days=-1). Expected whole hours, as in"),
        ("999999d", {"time": "when", "time_unit": "hour"}, "lookahead is 23999976. Expected a whole number"),
    ],
)
def test_a_length_that_cannot_be_counted_says_what_to_do(
    lookahead: Any, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        resolved(lookahead, **columns)
    assert message in str(refused.value)


def test_a_log_that_was_opened_in_ranks_stays_so() -> None:
    opened = open_log(wf.LogFile(FRAME, Columns(episode=None, time="when")))
    assert in_units_of(opened, DAY) is opened
    with pytest.raises(SettingsError, match=r"time is the rank of an episode by 'when'.*`time_unit='day'`"):
        as_units("every", length_of("every", "7d"), opened.loaded.time)


def test_numbers_need_no_calendar() -> None:
    assert as_units("every", length_of("every", 3), TimeMeaning(TimeUnit.EPISODE, None)) == 3
