"""A log that is not held: read in parts, and reduced to episodes, it gives what it gives when it is held."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest

import tidegate
from tidegate import commands
from tidegate.commands.opening import LogFile, open_log, silent
from tidegate.episodes import EpisodeLog, HeldOutEpisodes
from tidegate.errors import TidegateError
from tidegate.forecast import ForecastSettings, cross_fitted_returns, estimated_returns
from tidegate.logs import Columns, TimeUnit, read_log, reducing
from tidegate.policies import Policy
from tidegate.presets import multiscale_forecast
from tidegate.returns import episode_ratios, observed_returns, stopped_ratios
from tidegate.safety import safety_test

SETTINGS: dict[str, Any] = {"lookahead": 40, "confirmed_order": True}
EPISODES = 900


def log_of(episodes: int = EPISODES, longest: int = 4, seed: int = 0) -> pl.DataFrame:
    """Episodes of one to `longest` steps, whose context says which of three actions is good."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, episodes)
    episode = np.repeat(np.arange(1, episodes + 1), lengths)
    rows = episode.size
    step = np.arange(rows) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    context, action = rng.normal(size=rows).round(3), rng.integers(0, 3, rows)
    good = (context > 0).astype(int)
    return pl.DataFrame(
        {
            "episode": episode,
            "step": step,
            "action": action,
            "behavior_prob": np.full(rows, 1 / 3),
            "new_prob": np.where(action == good, 0.6, 0.2),
            "old_prob": np.where(action == 2, 0.5, 0.25),
            "reward": 0.4 * (action == good) + 0.1 * rng.normal(size=rows) + 0.2 * np.sin(episode / 150),
            "complaints": rng.poisson(0.1, rows),
            "context": context,
            "began": np.array("2026-01-01", "datetime64[ms]")
            + (episode * 3_600_000).astype("timedelta64[ms]"),
        }
    )


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return log_of()


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks, so that episodes share them with different ones."""
    monkeypatch.setattr("tidegate.logs.measuring.BLOCK_CELLS", 256)


def content(record: Any) -> dict[str, Any]:
    """A record without the name of the log, and what depends on when it was written."""
    plain: dict[str, Any] = json.loads(json.dumps(record.to_dict()))
    for name in ("record_hash", "sha256", "decided_at", "expires_at", "headline"):
        plain.pop(name, None)
    plain["provenance"].pop("source")
    return plain


def numbers(plain: Any) -> list[float]:
    """All numbers of a record, in order."""
    if isinstance(plain, dict):
        return [number for name in sorted(plain) for number in numbers(plain[name])]
    if isinstance(plain, list):
        return [number for one in plain for number in numbers(one)]
    return [float(plain)] if isinstance(plain, float | int) and not isinstance(plain, bool) else []


def cut(frame: pl.DataFrame, folder: Path, files: int, seed: int | None) -> list[str]:
    """The log in so many files, in order or shuffled."""
    rows = frame if seed is None else frame.sample(fraction=1.0, shuffle=True, seed=seed)
    size = -(-rows.height // files)
    names = [str(folder / f"part{number}.parquet") for number in range(files)]
    for number, name in enumerate(names):
        rows.slice(number * size, size).write_parquet(name)
    return names


def both(command: Callable[..., Any], frame: Any, **asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is found in a log that is held, and in the same log read in parts."""
    held, streamed = (content(command(frame, **asked, stream=stream)) for stream in (False, True))
    return held, streamed


@pytest.mark.parametrize("longest", [1, 4])
def test_a_streamed_log_gives_the_record_of_the_same_log_held(longest: int, no_room: None) -> None:
    asked: dict[str, Any] = {
        "candidate": "column:new_prob", "safe": "column:old_prob", "guardrails": ["complaints:0.1"],
        "candidate_from": "elsewhere", "dates": 2, "reward_range": (-2.0, 12.0), **SETTINGS,
    }  # fmt: skip
    held, streamed = both(commands.gate, log_of(longest=longest), **asked)
    assert streamed == held


def test_how_a_log_is_cut_and_read_changes_no_bit(frame: pl.DataFrame, tmp_path: Path, no_room: None) -> None:
    asked: dict[str, Any] = {"candidate": "column:new_prob", "guardrails": ["complaints:0.1"], **SETTINGS}
    whole = content(commands.gate(frame, **asked, stream=True, workers=1))
    for files, seed, workers in ((1, None, 1), (7, None, 2), (40, None, 8), (1, 1, 2), (7, 2, 8)):
        parts = cut(frame, tmp_path, files, seed)
        again = content(commands.gate(parts, **asked, stream=True, workers=workers))
        assert again["test_data_hash"] == whole["test_data_hash"]
        assert again == whole, (files, seed, workers)


def test_episodes_out_of_order_are_a_caveat_until_that_is_confirmed(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    files = cut(frame, tmp_path, 3, seed=4)
    record = commands.gate(files, candidate="column:new_prob", lookahead=40, stream=True)
    assert not record.deploys
    assert "do not come in the order of their numbers" in record.caveats[0]
    assert "part0.parquet, row " in record.caveats[0]


def policy_file(folder: Path) -> str:
    """A policy that looks at the context and lists all actions."""
    weights = np.array([[-1.0, 1.0, 0.0]])
    path = folder / "linear.json"
    tidegate.save_policy(tidegate.LinearPolicy(weights, np.zeros(3)), path)
    return f"policy:{path}"


@pytest.mark.parametrize("preset", ["multiscale", "paper"])
def test_policies_that_list_their_actions_are_measured_alike(
    frame: pl.DataFrame, tmp_path: Path, preset: str, no_room: None
) -> None:
    asked: dict[str, Any] = {
        "candidate": policy_file(tmp_path), "safe": "column:old_prob", "features": "context",
        "candidate_from": "elsewhere", "preset": preset, "discount": 0.9, **SETTINGS,
    }  # fmt: skip
    held, streamed = both(commands.gate, frame, **asked)
    assert streamed == held
    files = cut(frame, tmp_path, 7, seed=2)
    assert content(commands.gate(files, **asked, workers=2, stream=True)) == held


def test_calendar_time_is_that_of_the_log_held(frame: pl.DataFrame, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "candidate": "column:new_prob", "time": "began", "time_unit": "hour", "lookahead": "2d",
        "candidate_from": "before:2026-01-15",
    }  # fmt: skip
    held, streamed = both(commands.gate, frame, **asked)
    assert streamed == held
    shuffled = cut(frame, tmp_path, 5, seed=3)
    assert content(commands.gate(shuffled, **asked, stream=True)) == streamed


def test_a_sample_stands_for_the_log_where_a_model_is_fitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a quarter of the steps, the values are a little worse, and nothing else changes."""
    frame = log_of(episodes=3000)
    asked: dict[str, Any] = {"candidate": "column:new_prob", "safe": "column:old_prob", **SETTINGS}
    held = commands.gate(frame, **asked, stream=False)
    monkeypatch.setattr(reducing, "SAMPLE_STEPS", frame.height // 4)
    found = commands.gate(frame, **asked, stream=True)
    assert content(commands.gate(frame, **asked, stream=False)) == content(found)
    assert any("was fitted to" in note for note in found.provenance.notes)
    ratio = found.advantage.standard_error / held.advantage.standard_error
    assert 0.9 < ratio < 1.1
    assert abs(found.advantage.point - held.advantage.point) < 0.3 * held.advantage.standard_error
    again = commands.gate(cut(frame, tmp_path, 4, seed=9), **asked, stream=True, workers=2)
    assert content(again) == content(found)


@pytest.mark.parametrize("command", ["check", "evaluate", "backtest", "plan"])
def test_every_command_reads_a_log_in_parts(
    command: str, frame: pl.DataFrame, tmp_path: Path, no_room: None
) -> None:
    role = "policy" if command in ("check", "evaluate") else "candidate"
    asked: dict[str, Any] = {role: "column:new_prob", **SETTINGS}
    function: Callable[..., Any] = getattr(commands, command)
    streamed = content(function(frame, **asked, stream=True))
    assert content(function(cut(frame, tmp_path, 6, seed=5), **asked, stream=True, workers=2)) == streamed
    assert content(function(frame, **asked, stream=False)) == streamed


def test_what_improve_finds_in_a_large_log_is_tested_on_the_rest(frame: pl.DataFrame, tmp_path: Path) -> None:
    from tidegate.commands import improvement

    asked: dict[str, Any] = {"features": "context", "steps": 30, "search_memory": "1MB", **SETTINGS}
    found = commands.improve(frame, **asked, stream=True)
    assert found.to_dict()["search"]["search_memory"] == "1MB"
    assert content(commands.improve(frame, **asked, stream=False)) == content(found)
    assert found.training.num_training < 0.4 * EPISODES
    assert any("as many as it can hold in 1 MB" in note for note in found.gate.provenance.notes)
    assert found.gate.decision.candidate.num_episodes == EPISODES - found.training.num_training
    path = tmp_path / "found.json"
    improvement.save_improvement(found, path)
    gated = commands.gate(
        cut(frame, tmp_path, 3, seed=6),
        candidate=f"policy:{path}",
        features="context",
        **SETTINGS,
        stream=True,
    )
    assert gated.training is not None
    assert content(gated)["advantage"] == content(found)["advantage"]


def test_a_search_holds_as_many_steps_as_it_is_given_room_for(frame: pl.DataFrame) -> None:
    from tidegate.commands.improvement import searched_share

    opened = open_log(LogFile(frame, stream=True))
    shares = [searched_share(opened, 0.5, room) for room in (10**5, 10**6, 2 * 10**6, 10**7)]
    bytes_a_step = 500 + 3 * 500
    assert shares == [*(room / bytes_a_step / frame.height for room in (10**5, 10**6, 2 * 10**6)), 0.5]


def test_a_search_that_the_log_leaves_no_memory_for_is_refused(frame: pl.DataFrame) -> None:
    asked: dict[str, Any] = {"features": "context", "train_fraction": 0.95, "draws": 50, **SETTINGS}
    with pytest.raises(TidegateError, match=r"a search on 2,\d{3} steps would take about 4.*`search_memory`"):
        commands.improve(frame, **asked, memory_limit="4MB", stream=True)


@pytest.mark.parametrize("sample_steps", [10**9, 1500], ids=["all steps", "a sample"])
def test_what_improve_finds_in_unequal_episodes_does_not_depend_on_how_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_steps: int
) -> None:
    """The training part may lack the longest episodes, and has the layout of the whole log all the same."""
    monkeypatch.setattr(reducing, "SAMPLE_STEPS", sample_steps)
    asked: dict[str, Any] = {"features": "context", "steps": 10, **SETTINGS}
    held, streamed = both(commands.improve, unequal(), **asked)
    assert streamed == held
    again = commands.improve(cut(unequal(), tmp_path, 4, seed=2), **asked, stream=True, workers=2)
    assert content(again) == held


@pytest.mark.parametrize("asked", [{"workers": 2}, {"engine": "ray"}], ids=["workers", "ray"])
def test_whoever_says_who_reads_the_parts_gets_a_log_in_parts(
    asked: dict[str, Any], frame: pl.DataFrame, tmp_path: Path
) -> None:
    """However short it is; and where it cannot be in parts, is told so."""
    assert LogFile(frame, **asked).asking_for_parts == next(iter(asked))
    with pytest.raises(TidegateError, match=r"the log is to be held.*Leave out `\w+` or `stream=False`"):
        LogFile(frame, **asked, stream=False)
    with pytest.raises(TidegateError, match=r"all steps.*cannot be streamed. Leave out `\w+`"):
        commands.watch(frame, safe="column:old_prob", **asked)
    with pytest.raises(TidegateError, match=r"an EpisodeLog .*cannot be streamed"):
        open_log(LogFile(read_log(frame).log, **asked))
    with pytest.raises(TidegateError, match=r"standard input .* not in parts"):
        open_log(LogFile("-", **asked))


def test_workers_read_a_short_log(frame: pl.DataFrame) -> None:
    assert open_log(LogFile(frame)).large is None
    assert open_log(LogFile(frame, workers=2)).large is not None


def test_verify_replays_a_streamed_decision(frame: pl.DataFrame, tmp_path: Path) -> None:
    from tidegate.commands.verification import Outcome, verify

    record = commands.gate(frame, candidate="column:new_prob", **SETTINGS, stream=True)
    files = cut(frame, tmp_path, 3, seed=7)
    assert verify(record.to_dict(), files).outcome is Outcome.IDENTICAL
    other = frame.with_columns(reward=pl.col("reward") + 0.1)
    assert verify(record.to_dict(), other).outcome in (Outcome.OTHER_LOG, Outcome.DIFFERENT)


def unequal() -> pl.DataFrame:
    """Many short episodes and a few very long ones."""
    short, long = log_of(episodes=600, longest=1), log_of(episodes=3, longest=3000, seed=8)
    return pl.concat([short, long.with_columns(pl.col("episode") + 600)])


def test_episodes_of_very_unequal_length_are_read_alike(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "candidate": policy_file(tmp_path), "safe": "column:old_prob", "features": "context",
        "candidate_from": "elsewhere", **SETTINGS,
    }  # fmt: skip
    held, streamed = both(commands.gate, unequal(), **asked)
    assert streamed == held
    again = commands.gate(cut(unequal(), tmp_path, 4, seed=2), **asked, stream=True, workers=3)
    assert content(again) == held


@pytest.mark.parametrize(
    ("frame", "discount"),
    [
        pytest.param(log_of(episodes=150), 1.0, id="grid"),
        pytest.param(log_of(episodes=150), 0.0, id="grid, first step alone"),
        pytest.param(unequal(), 0.9, id="ragged, discounted"),
        pytest.param(log_of(episodes=150), 0.9, id="grid, discounted", marks=pytest.mark.verify),
        pytest.param(unequal(), 1.0, id="ragged", marks=pytest.mark.verify),
        pytest.param(unequal(), 0.0, id="ragged, first step alone", marks=pytest.mark.verify),
    ],
)
def test_a_reduced_log_holds_what_the_library_finds(frame: pl.DataFrame, discount: float) -> None:
    """Returns, ratios and stopped ratios of both kinds of policies; the values are cross-fitted."""
    columns = Columns(features=("context",), outcomes=("complaints",), confirmed_order=True)
    settings = multiscale_forecast(ForecastSettings(40, discount=discount))
    linear = tidegate.LinearPolicy(np.array([[-1.0, 1.0, 0.0]]), np.zeros(3))
    opened = open_log(LogFile(frame, columns, stream=False))
    recorded, opened = opened.policy("column:new_prob")
    log = opened.log
    known, reduced = opened.reduced((linear, "column:new_prob"), (linear, recorded), settings, silent)
    with jax.enable_x64(True):
        for policy, measured in zip((linear, recorded), known, strict=True):
            pairs = [
                (estimated_returns(settings, measured, reduced.log), cross_fitted(settings, log, policy)),
                (episode_ratios(measured, reduced.log), episode_ratios(policy, log)),
                (stopped_ratios(measured, reduced.log), stopped_ratios(policy, log, discount)),
                (
                    estimated_returns(settings, measured, reduced.log.with_outcome("complaints")),
                    cross_fitted(settings, log.with_outcome("complaints"), policy),
                ),
                (reduced.log.rewards[:, 0], observed_returns(log, discount)),
            ]
            for found, expected in pairs:
                np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
        tested = safety_test(known[0], known[1], HeldOutEpisodes(reduced.log), settings)
        plain = safety_test(linear, recorded, HeldOutEpisodes(log), settings)
        assert tested.advantage.lower == pytest.approx(plain.advantage.lower, rel=1e-6)
        assert tested.advantage.p_value == pytest.approx(plain.advantage.p_value, rel=1e-5)


def cross_fitted(settings: ForecastSettings, log: EpisodeLog, policy: Policy) -> Any:
    return cross_fitted_returns(settings, log, policy)[0]


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_episodes_of_one_time_come_in_one_order(unit: TimeUnit, frame: pl.DataFrame, tmp_path: Path) -> None:
    """Whatever they are called, and wherever their rows lie."""
    scale = 3600.0 if unit in (TimeUnit.HOUR, TimeUnit.DAY) else 1.0
    named = frame.with_columns(
        name="visit " + pl.col("episode").cast(pl.String), hour=1.7e9 + scale * (pl.col("episode") // 20)
    )
    columns = Columns(episode="name", time="hour", time_unit=unit)
    held, streamed = both(commands.gate, named, candidate="column:new_prob", lookahead=5, columns=columns)
    assert streamed == held
    shuffled = named.sample(fraction=1.0, shuffle=True, seed=1)
    again = commands.gate(shuffled, candidate="column:new_prob", lookahead=5, columns=columns, stream=False)
    assert content(again)["advantage"] == held["advantage"]
    assert read_log(shuffled, columns).log.digest() == read_log(named, columns).log.digest()


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("behavior_prob", -0.5, "behavior probability is -0.5"),
        ("new_prob", 2.0, "column:new_prob probability is 2"),
        ("reward", float("nan"), "reward is nan"),
        ("complaints", None, "column 'complaints' has 1 missing value"),
        ("action", -3, "action is -3"),
    ],
)
def test_a_wrong_number_in_the_middle_is_named_by_file_and_row(
    column: str, value: Any, sentence: str, frame: pl.DataFrame, tmp_path: Path
) -> None:
    row = 777
    wrong = frame.with_row_index("at").with_columns(
        pl.when(pl.col("at") == row).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)
    )
    files = cut(wrong.drop("at").with_columns(pl.col(column).cast(pl.Float64)), tmp_path, 5, None)
    size = -(-frame.height // 5)
    with pytest.raises(TidegateError) as refused:
        commands.gate(
            files, candidate="column:new_prob", guardrails=["complaints:0.1"], **SETTINGS, stream=True
        )
    told = str(refused.value)
    assert sentence in told
    assert f"part{row // size}.parquet, row {row % size + 1}" in told


def with_holes(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns that nobody maps, with cells that nobody filled: of names, of numbers, of truth values."""
    row = pl.int_range(pl.len())
    return frame.with_columns(
        page=pl.when(row % 7 < 5).then(pl.concat_str(pl.lit("page "), row % 3)),
        load=pl.when(row % 5 > 0).then(row % 11 / 4),
        member=pl.when(row % 3 > 0).then(row % 2 == 0),
        later=pl.when(row > 1500).then(row % 13),
        returns=pl.when(row % 4 > 0).then(1.0),
    )


def by_load(states: pl.DataFrame) -> Any:
    """A policy that looks at cells of which some are empty."""
    good = (states["load"].fill_null(0.0) > 1) & (states["page"].fill_null("page 0") == "page 1")
    return np.where(good.to_numpy()[:, None], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4])


def test_empty_cells_that_nobody_maps_change_no_bit(
    frame: pl.DataFrame, tmp_path: Path, no_room: None
) -> None:
    """Wherever they lie: a file of the log may hold nothing but them in some column."""
    holes = with_holes(frame)
    asked: dict[str, Any] = {"candidate": "column:new_prob", "guardrails": ["complaints:0.1"], **SETTINGS}
    shuffled = cut(holes, tmp_path, 6, 4)
    held = content(commands.gate(holes, **asked, stream=False))
    assert content(commands.gate(shuffled, **asked, workers=2)) == held
    asked = {"policy": "column:new_prob", "columns": {"outcomes": "complaints"}, **SETTINGS}
    held, streamed = both(commands.check, holes, **asked)
    assert streamed == held
    ordered = cut(holes, tmp_path, 6, None)
    first = pl.read_parquet(ordered[0])
    assert first["later"].null_count() == first.height
    first.with_columns(later=None).write_parquet(ordered[0])  # a column of no type at all
    for stream in (False, True):
        assert content(commands.check(ordered, **asked, stream=stream)) == held


@pytest.mark.parametrize("write", ["write_csv", "write_ndjson"])
def test_empty_cells_of_text_are_those_of_the_table(write: str, frame: pl.DataFrame, tmp_path: Path) -> None:
    holes = with_holes(frame.drop("began"))
    getattr(holes, write)(tmp_path / "log.txt")
    asked: dict[str, Any] = {"policy": "column:new_prob", **SETTINGS}
    held = content(commands.check(holes, **asked, stream=False))
    for stream in (False, True):
        assert content(commands.check(tmp_path / "log.txt", **asked, stream=stream)) == held


def test_a_policy_that_looks_at_empty_cells_is_measured_alike(frame: pl.DataFrame, tmp_path: Path) -> None:
    holes = with_holes(frame)
    asked: dict[str, Any] = {"policy": "python:tests.test_large:by_load", **SETTINGS}
    held = content(commands.evaluate(holes, **asked, stream=False))
    assert content(commands.evaluate(cut(holes, tmp_path, 6, 4), **asked, workers=2)) == held


@pytest.mark.parametrize("column", ["page", "load", "action"])
def test_an_empty_cell_in_a_part_of_the_log_is_named(
    column: str, frame: pl.DataFrame, tmp_path: Path
) -> None:
    """Also where the column holds names, which are numbered over the whole log."""
    rows = pl.int_range(pl.len())
    named = frame.with_columns(
        page=pl.lit("home"), load=1.0, action=pl.concat_str(pl.lit("arm "), "action")
    ).with_columns(pl.when(rows != 700).then(pl.col(column)).alias(column))
    files = cut(named, tmp_path, 3, None)
    asked: dict[str, Any] = {"candidate": "column:new_prob", "features": "page,load", **SETTINGS}
    for stream in (False, True):
        with pytest.raises(TidegateError) as refused:
            commands.gate(files, **asked, stream=stream)
        assert f"part0.parquet, row 701: column '{column}' has 1 missing value" in str(refused.value)


@pytest.mark.parametrize("stream", [False, True])
def test_files_of_one_name_are_told_apart(stream: bool, frame: pl.DataFrame, tmp_path: Path) -> None:
    for number, part in enumerate((frame[:1000], frame[1000:].with_columns(reward=float("nan")))):
        (tmp_path / f"{number}").mkdir()
        part.write_parquet(tmp_path / f"{number}" / "part.parquet")
    with pytest.raises(TidegateError, match=r"1/part.parquet, row 1: reward is nan"):
        commands.gate(f"{tmp_path}/*/part.parquet", candidate="column:new_prob", **SETTINGS, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_types_that_do_not_go_together_are_named_with_their_files(
    stream: bool, frame: pl.DataFrame, tmp_path: Path
) -> None:
    files = cut(frame, tmp_path, 3, None)
    pl.read_parquet(files[2]).with_columns(reward=pl.concat_list("reward")).write_parquet(files[2])
    sentence = r"'reward' is Float64 in part0.parquet, and List\(Float64\) in part2.parquet"
    with pytest.raises(TidegateError, match=sentence):
        commands.gate(files, candidate="column:new_prob", **SETTINGS, stream=stream)


@pytest.mark.parametrize("seed", [None, 3], ids=["in order", "scattered"])
def test_a_step_that_two_files_hold_is_named_by_file_and_row(
    seed: int | None, frame: pl.DataFrame, tmp_path: Path
) -> None:
    """Nothing is left behind, neither a record nor scratch files."""
    files = cut(frame, tmp_path, 5, seed)
    twice = pl.read_parquet(files[1])[7:8]
    last = pl.read_parquet(files[4])
    pl.concat([last, twice]).write_parquet(files[4])
    asked: dict[str, Any] = {"candidate": "column:new_prob", **SETTINGS, "stream": True, "scratch": tmp_path}
    with pytest.raises(TidegateError) as refused:
        commands.gate(files, **asked, workers=2)
    told = str(refused.value)
    assert f"part4.parquet, row {last.height + 1}, column 'step'" in told
    assert "is duplicated" in told
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(Path(one).name for one in files)
