"""Times that could be read in two ways, and episode numbers that may be no times, never pass in silence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.test_cli_logs import CANDIDATE, PAPER_FLAGS, Shell, shell  # noqa: F401
from tests.test_commands import EPISODES, LOG, gate
from tidegate import LogError, SettingsError
from tidegate import commands as wf
from tidegate.commands.opening import LogFile, open_log
from tidegate.commands.provenance import columns_from, plain_columns
from tidegate.logs import Columns, TimeUnit, load_columns, read_log

DAY = Columns(time="when", time_unit=TimeUnit.DAY)
UNIX = 1_700_000_000


def timed(times: Any) -> pl.DataFrame:
    values = pl.Series("when", times)
    count = len(values)
    return pl.DataFrame(
        {"episode": range(count), "action": 0, "behavior_prob": 0.5, "reward": 1.0, "new_prob": 0.5}
    ).with_columns(values)


TWO_READINGS = [
    (range(86), r"from 0 to 85: that would be 85 seconds as Unix time, or days.*`time_unit='number'`"),
    ([45000.5, 45001], r"from 45000.5 to 45001: that would be 0.5 seconds"),
    ([-3, 4], r"7 seconds as Unix time"),
    (
        [20260301, 20260302],
        r"20260301 is 2026-03-01 as a date, 1970-08-23T11:51:41 as Unix seconds.*2026-03-01",
    ),
    ([2026030112, 2026030113], r"2026030112 is 2026-03-01T12:00:00 as a date, 2034-03-15"),
    ([1401011200, 1401021330, 1402281459], r"1401011200 is 2014-01-01T12:00:00 as a date, 2014-05-25"),
    ([202603011200, 202603011300], r"is 2026-03-01T12:00:00 as a date, too large for Unix seconds"),
    ([UNIX * 1e3, UNIX * 1e3 + 1], r"1.7e\+12, which is 2023-11-14T22:13:20 in Unix milliseconds.*1,000"),
    ([UNIX * 10**6], r"2023-11-14T22:13:20 in Unix microseconds.*1,000,000"),
    ([1e30, 2.0], r"from 2 to 1e\+30"),
    ([UNIX, 0, UNIX + 5], r"holds 0, which is 1970-01-01 as Unix seconds.*Repair these rows"),
    (["03/04/2026", "05/04/2026"], r"'03/04/2026', in which the day or the month may come first: 2026-04-03"),
    (["13.04.2026", "05.04.2026"], r"the year first"),
]


@pytest.mark.parametrize(("times", "message"), TWO_READINGS)
@pytest.mark.parametrize(
    "read",
    [lambda path: read_log(path, DAY), lambda path: open_log(LogFile(path, DAY, stream=True))],
    ids=["whole", "streamed"],
)
def test_times_with_two_readings_are_refused(
    times: Any, message: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = tmp_path / "log.parquet"
    timed(times).write_parquet(path)
    with pytest.raises(LogError, match=message):
        read(path)


@pytest.mark.parametrize("unit", [TimeUnit.HOUR, TimeUnit.DAY])
def test_a_stray_time_is_named_by_its_row(unit: TimeUnit) -> None:
    with pytest.raises(LogError, match=r"^row 1: column 'when' holds 0"):
        read_log(timed([UNIX, 0, UNIX + 5]), Columns(time="when", time_unit=unit))


def test_unix_seconds_are_read_as_such(tmp_path: Path) -> None:
    """Also a last chunk of one row whose digits happen to spell a date."""
    times = [UNIX, UNIX + 86400, 1_701_011_200]
    frame = timed(times)
    days = read_log(frame, DAY).log.episode_numbers
    np.testing.assert_allclose(days, (np.array(times) - UNIX) / 86400)
    frame.write_parquet(tmp_path / "log.parquet")
    streamed = open_log(LogFile(tmp_path / "log.parquet", DAY, stream=True))
    np.testing.assert_array_equal(streamed.log.episode_numbers, days)


def test_numbers_tell_an_order_without_being_seconds() -> None:
    ranks = read_log(timed([3, 1, 2]), Columns(time="when"))
    np.testing.assert_array_equal(ranks.log.episode_numbers, [1, 2, 3])
    counted = read_log(timed([0, 1, 85]), Columns(time="when", time_unit=TimeUnit.NUMBER))
    np.testing.assert_array_equal(counted.log.episode_numbers, [0, 1, 85])
    assert counted.notes == ()
    dates = read_log(timed([20260131, 20260201]), Columns(time="when", time_unit=TimeUnit.NUMBER))
    assert "20260131 could be 2026-01-31" in dates.notes[0]


def test_the_attack_ends_in_exit_code_2(shell: Shell) -> None:  # noqa: F811
    LOG.with_columns(day=pl.col("episode") * 86 // EPISODES).write_csv("days.csv")
    times = ["--time", "day", "--time-unit", "day"]
    result = shell("gate", "days.csv", *CANDIDATE, *PAPER_FLAGS, *times)
    assert result.code == 2
    assert "seconds as Unix time, or days as they stand" in result.err
    assert json.loads(Path("decision.json").read_text())["status"] == "error"


# Ties.


def test_several_episodes_of_one_date(tmp_path: Path) -> None:
    frame = timed([f"2026-03-0{1 + i // 4}" for i in range(12)]).with_columns(reward=np.arange(12.0))
    shuffled = frame[[8, 0, 4, 1, 5, 9, 2, 3, 6, 10, 7, 11]]
    shuffled.write_parquet(tmp_path / "log.parquet")
    for unit, numbers in ((TimeUnit.DAY, np.repeat([0, 1, 2], 4)), (TimeUnit.EPISODE, np.arange(1, 13))):
        columns = Columns(time="when", time_unit=unit)
        log = read_log(shuffled, columns).log
        np.testing.assert_array_equal(log.episode_numbers, numbers)
        # Ties come in the order of the episodes' numbers, wherever their rows lie: here that of the rewards.
        np.testing.assert_array_equal(log.rewards[:, 0], np.arange(12.0))
        streamed = open_log(LogFile(tmp_path / "log.parquet", columns, stream=True)).log
        np.testing.assert_array_equal(streamed.episode_numbers, numbers)
        np.testing.assert_array_equal(streamed.rewards[:, 0], np.arange(12.0))


# The order of the rows.


def shuffled(seed: int = 0) -> pl.DataFrame:
    return LOG[np.random.default_rng(seed).permutation(EPISODES)]


def test_rows_out_of_order_are_a_caveat_that_names_them() -> None:
    swapped = LOG[[0, 1, 3, 2, *range(4, EPISODES)]]
    loaded = read_log(swapped)
    assert len(loaded.caveats) == 1
    assert "(row 3)" in loaded.caveats[0]
    assert "`confirmed_order=True`" in loaded.caveats[0]
    assert "Name a time column" in loaded.caveats[0]


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (LOG, Columns()),
        (shuffled(), Columns(confirmed_order=True)),
        (shuffled(), Columns(episode=None, step=None)),
        (shuffled().with_columns(when=pl.col("episode")), Columns(time="when")),
        # Steps of several episodes may alternate, and each episode's steps come in any order.
        (LOG.with_columns(episode=pl.Series([1, 2] * (EPISODES // 2)), step=pl.row_index() // 2), Columns()),
    ],
)
def test_an_order_that_is_known_needs_no_caveat(frame: pl.DataFrame, columns: Columns) -> None:
    assert read_log(frame, columns).caveats == ()


def test_the_caveat_reaches_every_record() -> None:
    record = gate(shuffled())
    assert any("do not come in the order of their numbers" in one for one in record.caveats)
    assert record.to_dict()["guaranteed"] is False
    confirmed = gate(wf.LogFile(shuffled(), Columns(confirmed_order=True)))
    assert confirmed.caveats == gate().caveats
    assert record.provenance.caveats[0] in wf.evaluate(shuffled(), policy="behavior").caveats


def test_the_order_is_confirmed_by_a_flag_or_in_a_file(shell: Shell) -> None:  # noqa: F811
    shuffled().write_csv("shuffled.csv")
    plain = shell("check", "shuffled.csv", *PAPER_FLAGS)
    assert "BEWARE: The episodes do not come in the order" in " ".join(plain.out.split())
    assert "BEWARE" not in shell("check", "shuffled.csv", *PAPER_FLAGS, "--confirm-order").out
    Path("columns.toml").write_text("confirmed_order = true\n")
    columns = load_columns("columns.toml")
    assert columns == Columns(confirmed_order=True)
    assert columns_from(plain_columns(columns)) == columns
    Path("columns.toml").write_text('confirmed_order = "yes"\n')
    with pytest.raises(SettingsError, match="True or False"):
        load_columns("columns.toml")
