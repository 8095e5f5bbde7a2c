"""A tiny stream through the study, beside sums done by hand; files that are no streams."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tidegate import LogError, SettingsError
from tidegate.experiments.coverage import interval_score
from tidegate.experiments.stream_files import Stream, load_stream, save_stream
from tidegate.experiments.stream_tables import stream_tables
from tidegate.experiments.streams import (
    DEFAULT_CELLS,
    StreamCell,
    StreamGate,
    draw_log,
    naive_deploys,
    stream_dates,
    stream_gate,
    stream_gates,
)

ROWS, CELL = 320, StreamCell(100, 5)


def tiny_stream(**changes: Any) -> Stream:
    """The first action is right in 3 rows of 4; one policy likes it, another does not."""
    right = np.arange(ROWS) % 4 != 0
    likes = np.array([0.5, 0.9, 0.2])[:, None].repeat(ROWS, axis=1)
    stream = Stream(
        name="tiny",
        rewards=np.stack([right, ~right], axis=1).astype(float),
        policies=np.stack([likes, 1 - likes], axis=2),
        names=("safe", "good", "bad"),
        start=20,
    )
    return dataclasses.replace(stream, **changes)


def content_of(stream: Stream) -> dict[str, Any]:
    return {field.name: getattr(stream, field.name) for field in dataclasses.fields(stream)}


def test_the_truth_of_a_row_is_a_sum_by_hand() -> None:
    date = 201  # the future: rows 201 to 205, of which row 204 alone rewards the second action
    row = stream_gate(tiny_stream(), CELL, date, which=1)
    by_hand = (4 * 0.9 + 1 * 0.1) / 5
    assert row.value == pytest.approx(by_hand)
    assert row.advantage == pytest.approx(by_hand - 0.5)
    assert (row.stream, row.candidate, row.episodes, row.lookahead, row.date) == (
        "tiny",
        "good",
        100,
        5,
        date,
    )
    missed = max(row.lower - by_hand, 0, by_hand - row.upper)
    assert row.score == pytest.approx(row.upper - row.lower + 40 * missed)
    assert row.covers is (missed == 0)


def test_the_study_asks_every_candidate_at_every_date() -> None:
    stream = tiny_stream()
    rows = list(stream_gates([stream], [CELL], dates=2))
    assert [(row.date, row.candidate) for row in rows] == [
        (date, name) for date in (120, 315) for name in ("good", "bad")
    ]
    assert rows[0] == stream_gate(stream, CELL, 120, which=1)
    assert all(row.naive == (row.candidate == "good") for row in rows)
    assert all(row.default == (row.reason == "BETTER") for row in rows)
    assert all(row.paper == (row.paper_reason == "BETTER") for row in rows)
    assert not any(row.default or row.paper for row in rows if row.candidate == "bad")
    table = stream_tables(rows)
    assert "| all | paired z-test | 4 | 2 | 0.0 ± 0.0 of 2 | 0.0 ± 0.0 of 2 | 100.0 ± 0.0 of 2 |" in table
    assert "| 100:5 | 4 |" in table


def test_a_log_is_drawn_with_the_safe_probabilities_and_pays_what_the_stream_says() -> None:
    stream = tiny_stream()
    stream.policies[0] = [0.3, 0.7]
    log = draw_log(stream, slice(20, 320), 1, np.random.default_rng(0))
    actions = log["action"].to_numpy()
    assert actions.mean() == pytest.approx(0.7, abs=4 * np.sqrt(0.21 / 300))
    np.testing.assert_array_equal(log["behavior_prob"], np.where(actions == 1, 0.7, 0.3))
    np.testing.assert_allclose(log["new_prob"], np.where(actions == 1, 0.1, 0.9))
    np.testing.assert_array_equal(log["reward"], (np.arange(20, 320) % 4 == 0) == actions)


def test_the_z_test_is_that_of_a_textbook() -> None:
    """Against another program: SciPy's one-sample t-test, whose quantile at n = 2,000 is the normal's."""
    rng = np.random.default_rng(1)
    for lift in (0.0, 0.02, 0.04, 0.2):
        ratios, rewards = rng.choice([0.5, 1.5], 2_000), rng.random(2_000)
        rewards += lift * ratios
        log = pl.DataFrame({"behavior_prob": np.full(2_000, 0.5), "new_prob": ratios / 2, "reward": rewards})
        earlier = [rewards[:20].mean(), *(rewards[:i].mean() for i in range(1, 2_000))]
        p = stats.ttest_1samp((ratios - 1) * (rewards - earlier), 0, alternative="greater").pvalue
        assert naive_deploys(log) == (p < 0.05)


def test_dates_leave_a_whole_log_behind_and_a_whole_future_ahead() -> None:
    stream = tiny_stream()
    assert list(stream_dates(stream, CELL, 1)) == [120]
    dates = stream_dates(stream, StreamCell(100, 40), 50)
    assert (dates[0], dates.step, len(dates)) == (120, 40, 5)
    assert dates[-1] + 40 <= ROWS
    assert not stream_dates(stream, StreamCell(300, 1), 3)
    with pytest.raises(SettingsError, match="dates"):
        stream_dates(stream, CELL, 0)


def test_an_interval_score_is_the_width_and_forty_times_the_miss() -> None:
    assert interval_score(0.2, 0.5, 0.3, 0.05) == pytest.approx(0.3)
    assert interval_score(0.2, 0.5, 0.6, 0.05) == pytest.approx(0.3 + 40 * 0.1)
    assert interval_score(0.2, 0.5, 0.1, 0.05) == pytest.approx(0.3 + 40 * 0.1)


def test_tables_count_by_hand() -> None:
    row = StreamGate(
        "a", "x", 100, 5, 200, 0.6, 0.1, 0.5, 0.7, 0.2, True, False, True, "BETTER", "NOT_BETTER"
    )
    wrong = dataclasses.replace(row, date=300, advantage=-0.1, value=0.4, score=4.2)
    unknown = dataclasses.replace(
        row, stream="b", date=400, lower=np.nan, upper=np.nan, score=np.nan, default=False
    )
    table = stream_tables([row, wrong, unknown])
    assert "| all | default | 3 | 2 | 100.0 of 1 | 50.0 ± 50.0 of 2 | 50.0 ± 50.0 of 2 |" in table
    assert "| all | preset paper | 3 | 0 | 0.0 of 1 | of 0 | 0.0 ± 0.0 of 2 |" in table
    assert "| all | 2 | 50.0 ± 50.0 of 2 | 0.200 | 2.200 ± 2.000 |" in table
    assert "| b | default | 1 | 0 | of 0 | of 0 | 0.0 of 1 |" in table
    assert "| b | 1 |" not in table


def test_gates_of_one_date_are_one_piece_of_evidence() -> None:
    """Ten equal gates at each of two dates: the error is that of two numbers, 0 and 100."""
    row = StreamGate(
        "a", "x", 100, 5, 200, 0.6, 0.1, 0.5, 0.7, 0.2, True, False, True, "BETTER", "NOT_BETTER"
    )
    later = dataclasses.replace(row, date=300, default=False)
    table = stream_tables([row] * 10 + [later] * 10)
    assert "| all | default | 20 | 10 | of 0 | 0.0 of 10 | 50.0 ± 50.0 of 20 |" in table


def test_cells_in_words() -> None:
    assert StreamCell.parse("1000:50") == StreamCell(1_000, 50)
    assert [str(cell) for cell in DEFAULT_CELLS][:2] == ["300:50", "1000:50"]
    assert len(DEFAULT_CELLS) == 7
    for wrong in ("1000", "1000:", "a:b", "1:2:3"):
        with pytest.raises(SettingsError, match="is not a cell"):
            StreamCell.parse(wrong)
    with pytest.raises(SettingsError, match="lookahead"):
        StreamCell.parse("100:0")


def test_a_stream_comes_back_from_its_file(tmp_path: Path) -> None:
    stream = tiny_stream()
    save_stream(tmp_path / "tiny.npz", stream, season=4)
    back = load_stream(tmp_path / "tiny.npz")
    assert (back.name, back.names, back.start) == (stream.name, stream.names, stream.start)
    np.testing.assert_array_equal(back.rewards, stream.rewards)
    np.testing.assert_allclose(back.policies, stream.policies, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": np.zeros(ROWS)}, "rewards have 1 axes"),
        ({"rewards": np.full((ROWS, 2), np.nan)}, "rewards have gaps"),
        ({"rewards": np.zeros((ROWS - 1, 2))}, r"shape \(3, 320, 2\)"),
        ({"policies": np.full((3, ROWS, 2), 0.6)}, "no probabilities"),
        ({"policies": np.full((3, ROWS, 2), np.nan)}, "no probabilities"),
        ({"names": ("safe", "good", "good")}, "all different"),
        ({"start": ROWS + 1}, "start is 321"),
        ({"start": "soon"}, "not numbers"),
        ({"rewards": np.array([["a", "b"]] * ROWS)}, "not numbers"),
    ],
)
def test_a_malformed_stream_is_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "tiny.npz", **{**content_of(tiny_stream()), **changes})
    with pytest.raises(LogError, match=message) as caught:
        load_stream(tmp_path / "tiny.npz")
    assert "tiny" in str(caught.value)


def test_files_that_are_no_streams_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.npz"
    with pytest.raises(LogError, match="No such file"):
        load_stream(path)
    np.savez(path, rewards=np.zeros((2, 2)), names=["safe", "new"])
    with pytest.raises(LogError, match="no policies and no start"):
        load_stream(path)
    np.savez(path, rewards=np.array([None, "pickled"], dtype=object))
    with pytest.raises(LogError, match="not a stream"):
        load_stream(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    path.write_bytes((tmp_path / "one.npy").read_bytes())
    with pytest.raises(LogError, match="not a stream"):
        load_stream(path)
    for junk in (b"", b"PK\x03\x04 and no more", b"text"):
        path.write_bytes(junk)
        with pytest.raises(LogError, match="not a stream"):
            load_stream(path)
