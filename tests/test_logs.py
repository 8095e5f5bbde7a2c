"""Every format gives the same log, every part can be mapped, and every mistake is named with its row."""

import dataclasses
import gzip
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

from tidegate import (
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    LinearPolicy,
    LogError,
    PolicyError,
    Propensity,
    SettingsError,
    Verdict,
    forecast_performance,
    pdis_returns,
    safety_test,
    save_policy,
)
from tidegate.logs import (
    Columns,
    Propensities,
    TimeUnit,
    estimate_propensities,
    load_columns,
    override_columns,
    parse_spec,
    read_log,
    resolve_policy,
    without_panic_text,
)
from tidegate.logs.formats import SAMPLE
from tidegate.policies import lists_actions
from tidegate.record import plain

STEPS = {
    "episode": [3, 3, 7, 8, 8, 8],
    "step": [0, 1, 0, 0, 1, 2],
    "action": [0, 1, 1, 0, 0, 1],
    "behavior_prob": [0.5, 0.25, 1.0, 0.5, 0.5, 0.1],
    "reward": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "x": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "new_prob": [0.5, 0.0, 1.0, 0.5, 0.5, 0.9],
    "ratio": [1.0, 0.0, 1.0, 1.0, 1.0, 9.0],
    "time": [
        "2024-01-01 00:00:00", "2024-01-01 00:00:30", "2024-01-02 12:00:00",
        "2024-01-02 12:00:00", "2024-01-02 12:30:00", "2024-01-02 13:00:00",
    ],
}  # fmt: skip
FRAME = pl.DataFrame(STEPS)
WITH_X = Columns(features=("x",))


def one_step(count: int, seed: int = 0, **columns: Any) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "episode": np.arange(1, count + 1),
            "action": rng.integers(0, 2, count),
            "behavior_prob": np.full(count, 0.5),
            "reward": rng.normal(size=count),
            **columns,
        }
    )


def written(folder: Path) -> list[Any]:
    """The same rows in every shape that a user may bring."""
    FRAME.write_parquet(folder / "a.parquet")
    FRAME.write_csv(folder / "a.csv")
    FRAME.write_csv(folder / "a.tsv", separator="\t")
    FRAME.write_csv(folder / "semicolons.csv", separator=";")
    FRAME.write_ndjson(folder / "a.jsonl")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    (folder / "no_suffix").write_bytes((folder / "a.jsonl").read_bytes())
    (folder / "mark.csv").write_bytes(b"\xef\xbb\xbf" + (folder / "a.csv").read_bytes())
    (folder / "blank.csv").write_bytes((folder / "a.csv").read_bytes() + b"\n\n")
    FRAME[:2].write_csv(folder / "part-1.csv")
    FRAME[2:].write_parquet(folder / "part-2.parquet")
    files: list[Any] = [str(path) for path in folder.iterdir() if path.is_file() and "part" not in path.name]
    frames = [FRAME, FRAME.lazy(), pd.DataFrame(STEPS), FRAME.to_arrow()]
    parts = [folder / "part-2.parquet", folder / "part-1.csv"]
    return [*files, *frames, str(folder / "part-*"), parts]


def test_every_format_gives_the_same_log(tmp_path: Path) -> None:
    expected = EpisodeLog.from_frame(FRAME, states=["x"]).digest()
    sources = written(tmp_path)
    assert len(sources) >= 15
    for source in sources:
        assert read_log(source, WITH_X).log.digest() == expected, source


def test_every_row_of_a_csv_file_has_a_say_in_its_types(tmp_path: Path) -> None:
    count, early = SAMPLE + 2, [None] * SAMPLE
    frame = one_step(count, reward=[1.0] * (count - 1) + [0.5])
    expected = read_log(frame).log.digest()
    whole = frame.with_columns(pl.col("reward").cast(pl.String).str.replace(r"\.0$", ""))
    whole.write_csv(tmp_path / "late_fraction.csv")
    assert read_log(tmp_path / "late_fraction.csv").log.digest() == expected
    frame.with_columns(late=pl.Series([*early, 2**60, 2**60 + 1])).write_csv(tmp_path / "late.csv")
    loaded = read_log(tmp_path / "late.csv")
    assert loaded.log.digest() == expected
    assert loaded.table.frame["late"][-2:].to_list() == [2**60, 2**60 + 1]
    late_text = frame.with_columns(late=pl.Series(["1"] * SAMPLE + ["a", "b"]))
    late_text.write_csv(tmp_path / "late_text.csv")
    assert read_log(tmp_path / "late_text.csv").log.digest() == expected


def test_unknown_propensities_are_not_checked() -> None:
    """Unknown propensities have no kind: whatever the policies' columns hold, the log can be read."""
    unknown = Columns(behavior_prob=None, propensity=Propensity.LOG_PROBABILITY)
    loaded = read_log(FRAME.drop("behavior_prob"), unknown)
    assert np.isnan(np.asarray(loaded.log.behavior_log_probs)[0, 0])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "gzip"])
def test_standard_input(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written(tmp_path)
    name = "a.csv.gz" if kind == "gzip" else f"a.{kind}"
    content = (tmp_path / name).read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert read_log("-").log.num_episodes == 3
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    wrong = "csv" if kind == "parquet" else "parquet"
    with pytest.raises(LogError, match="standard input"):
        read_log("-", format=wrong)
    with pytest.raises(SettingsError, match="format is 'excel'"):
        read_log(tmp_path / "a.csv", format="excel")


def test_rows_in_any_order_are_sorted_and_keep_their_numbers() -> None:
    shuffled = FRAME[[4, 0, 5, 2, 1, 3]]
    loaded = read_log(shuffled, WITH_X)
    assert loaded.log.digest() == read_log(FRAME, WITH_X).log.digest()
    assert read_log(FRAME).notes == ()
    broken = shuffled.with_columns(behavior_prob=pl.Series([0.5, 0.5, 2.0, 1.0, 0.25, 0.5]))
    with pytest.raises(LogError, match=r"^row 2: behavior probability is 2"):
        read_log(broken)


def test_frame_and_log_stay_aligned() -> None:
    loaded = read_log(FRAME[::-1], WITH_X)
    rewards = loaded.table.frame["reward"].to_numpy()
    np.testing.assert_array_equal(loaded.grid(rewards), loaded.log.rewards)
    assert loaded.table.places(4) == "row 1"
    assert loaded.states.columns == ["x"]
    assert read_log(FRAME).states.columns == ["x", "new_prob", "ratio", "time"]


def test_columns_from_toml_and_flags(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(
        'reward = "gewinn€"\nfeatures = ["x"]\nstep = ""\ntime = "when"\ntime_unit = "hour"\n'
        'propensity = "log-probability"\nactions = ["tea", "milk"]\n'
    )
    columns = load_columns(path)
    assert columns == Columns(
        reward="gewinn€",
        features=("x",),
        step=None,
        time="when",
        time_unit=TimeUnit.HOUR,
        propensity=Propensity.LOG_PROBABILITY,
        actions=("tea", "milk"),
    )
    path.write_text('[columns]\nepisode = "visit"\n')
    assert load_columns(path) == Columns(episode="visit")
    flags = {"features": "x, y", "episode": "", "time_unit": "day", "time": "t", "reward": None}
    assert override_columns(Columns(reward="r"), flags) == Columns(
        episode=None, features=("x", "y"), time="t", time_unit=TimeUnit.DAY, reward="r"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('rewards = "x"', r"columns has no 'rewards'.*Did you mean 'reward'"),
        ('reward = ""', r"reward is empty"),
        ("reward = 3", r"reward is 3"),
        ('features = "x" \nfeatures = "y"', r"not TOML"),
        ("features = [1]", r"features is \[1\]"),
        ('features = ["x", "x"]', r"twice"),
        ('time_unit = "week"', r"time_unit is 'week'.*hour"),
        ('time_unit = "hour"', r"no time column"),
        ("num_actions = 0", r"num_actions is 0"),
        ("columns = 3", r"expected|Expected a table"),
        ('features = ["x"]\nstate = "s"', r"both features and a state"),
        ('reward = "action"', r"plays two parts"),
        ('action = ["a", "b"]', r"2 columns.*density"),
    ],
)
def test_bad_mappings(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_columns(path)


def test_a_mapping_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*none.toml"):
        load_columns(tmp_path / "none.toml")


def test_mapped_and_unicode_columns() -> None:
    names = {"episode": "Besuch", "reward": "gewinn€", "action": "行動", "behavior_prob": "p"}
    columns = Columns(**names)  # type: ignore[arg-type]
    log = read_log(FRAME.rename(names), columns).log
    assert log.digest() == read_log(FRAME).log.digest()


def test_every_row_an_episode() -> None:
    frame = one_step(5).drop("episode")
    loaded = read_log(frame, Columns(episode=None))
    np.testing.assert_array_equal(loaded.log.episode_numbers, [1, 2, 3, 4, 5])
    assert loaded.notes == ()
    assert "although" in read_log(FRAME, Columns(episode=None)).notes[0]
    with pytest.raises(LogError, match=r"no column 'episode'.*leave it empty"):
        read_log(frame)


def test_named_actions() -> None:
    frame = one_step(4, action=["tea", "milk", "tea", "tea"])
    loaded = read_log(frame)
    assert loaded.labels == ("milk", "tea")
    np.testing.assert_array_equal(loaded.log.actions[:, 0], [1, 0, 1, 1])
    given = read_log(frame, Columns(actions=("water", "tea", "milk")))
    np.testing.assert_array_equal(given.log.actions[:, 0], [1, 2, 1, 1])
    assert given.log.num_actions == 3
    with pytest.raises(LogError, match=r"row 1, column 'action': action 'milk' is not in"):
        read_log(frame, Columns(actions=("tea",)))
    with pytest.raises(SettingsError, match=r"num_actions is 5"):
        read_log(frame, Columns(num_actions=5))
    mixed = one_step(4, action=["0", "1", "x", "1"])
    with pytest.raises(LogError, match=r"row 2: column 'action' mixes numbers with names such as 'x'"):
        read_log(mixed)
    numbered = one_step(3, action=[30, 10, 30])
    by_number = read_log(numbered, Columns(actions=(10, 20, 30)))
    np.testing.assert_array_equal(by_number.log.actions[:, 0], [2, 0, 2])


def test_states_and_continuous_actions() -> None:
    tabular = read_log(FRAME.with_columns(s=pl.col("step") % 2), Columns(state="s"))
    assert tabular.log.states is not None
    assert np.issubdtype(np.asarray(tabular.log.states).dtype, np.integer)
    doses = one_step(4, u=[0.1, 0.2, 0.3, 0.4], v=[1.0, 1.1, 1.2, 1.3], d=[0.5, 1.5, 2.0, 0.1])
    shared = {"action": ("u", "v"), "behavior_prob": "d"}
    log = read_log(doses, Columns(propensity=Propensity.DENSITY, **shared)).log  # type: ignore[arg-type]
    assert log.actions.shape == (4, 1, 2)
    assert log.num_actions is None
    logs = doses.with_columns(pl.col("d").log())
    again = read_log(logs, Columns(propensity=Propensity.LOG_DENSITY, **shared)).log  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.behavior_log_probs, log.behavior_log_probs)
    bad = doses.with_columns(d=0.0)
    with pytest.raises(LogError, match=r"row 0: behavior density is 0.*\(0, ∞\)"):
        read_log(bad, Columns(propensity=Propensity.DENSITY, **shared))  # type: ignore[arg-type]


# Time.


@pytest.mark.parametrize("form", ["text", "zoned", "datetime", "unix", "pandas"])
def test_timestamps_by_hour_rank_and_day(form: str, tmp_path: Path) -> None:
    moment = pl.col("time").str.to_datetime()
    zoned = moment.dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    frame: Any = {
        "text": FRAME,
        "zoned": FRAME.with_columns(time=zoned.dt.to_string("%+")),
        "datetime": FRAME.with_columns(time=moment),
        "unix": FRAME.with_columns(time=moment.dt.epoch("s")),
        "pandas": pd.DataFrame(STEPS).assign(time=pd.to_datetime(STEPS["time"], utc=True)),
    }[form]
    hours = read_log(frame, Columns(time="time", time_unit=TimeUnit.HOUR))
    np.testing.assert_allclose(hours.log.episode_numbers, [0, 36, 36])
    assert "hours since 2024-01-01 00:00:00 UTC" in str(hours.time)
    days = read_log(frame, Columns(time="time", time_unit=TimeUnit.DAY))
    np.testing.assert_allclose(days.log.episode_numbers, [0, 1.5, 1.5])
    ranks = read_log(frame, Columns(time="time"))
    np.testing.assert_array_equal(ranks.log.episode_numbers, [1, 2, 3])


def test_episodes_are_ordered_by_time_whatever_they_are_called() -> None:
    frame = FRAME.with_columns(
        episode=pl.Series(["b", "b", "c", "a", "a", "a"]),
        time=pl.Series([20, 25, 5, 10, 11, 12]),
    )
    loaded = read_log(frame[::-1], Columns(time="time", time_unit=TimeUnit.NUMBER))
    np.testing.assert_array_equal(loaded.log.episode_numbers, [5, 10, 20])
    np.testing.assert_array_equal(loaded.log.rewards[1], [4, 5, 6])
    with pytest.raises(LogError, match=r"do not tell their order in time.*Name a time column"):
        read_log(frame)


def test_tied_times_forecast_like_any_other() -> None:
    frame = one_step(60, hour=np.arange(60) // 3)
    columns = Columns(time="hour", time_unit=TimeUnit.NUMBER)
    policy, loaded = resolve_policy("behavior", read_log(frame, columns))
    forecast = forecast_performance(policy, loaded.log, ForecastSettings(lookahead=5))
    assert np.isfinite([forecast.lower, forecast.upper]).all()
    np.testing.assert_array_equal(forecast.forecast_times, [20, 21, 22, 23, 24])


@pytest.mark.parametrize(
    ("time", "unit", "message"),
    [
        (["2024-01-01", "soon"], TimeUnit.DAY, r"row 1: column 'when' holds 'soon'.*ISO 8601"),
        ([1.7e12, 1.7e12], TimeUnit.DAY, r"reaches 1.7e\+12.*milliseconds"),
        ([1.0, np.nan], TimeUnit.EPISODE, r"row 1: column 'when' is nan"),
        ([1.0, None], TimeUnit.HOUR, r"row 1: column 'when' has 1 missing value\."),
        (["a", "b"], TimeUnit.NUMBER, r"row 0; row 1: column 'when' holds 'a'"),
    ],
)
def test_bad_times(time: list[Any], unit: TimeUnit, message: str) -> None:
    frame = one_step(2, when=pl.Series(time, strict=False))
    with pytest.raises(LogError, match=message):
        read_log(frame, Columns(time="when", time_unit=unit))


# Policies.


def test_specs_of_recorded_policies_agree_with_the_door() -> None:
    direct = EpisodeLog.from_frame(FRAME, recorded={"new": "new_prob"})
    by_column, loaded = resolve_policy("column:new_prob", read_log(FRAME))
    by_ratio, loaded = resolve_policy("ratio:ratio", loaded)
    behavior, loaded = resolve_policy("behavior", loaded)
    np.testing.assert_array_equal(loaded.log.recorded["column:new_prob"], direct.recorded["new"])
    with jax.enable_x64(True):
        expected = np.asarray(pdis_returns(by_column, loaded.log, 0.9))
        np.testing.assert_allclose(pdis_returns(by_ratio, loaded.log, 0.9), expected, rtol=1e-12)
        np.testing.assert_array_equal(pdis_returns(behavior, loaded.log), [3, 3, 15])


def test_ratios_need_no_propensities() -> None:
    loaded = read_log(FRAME.drop("behavior_prob"), Columns(behavior_prob=None))
    assert loaded.propensities is Propensities.ABSENT
    assert np.isnan(np.asarray(loaded.log.behavior_log_probs)[0, 0])
    known, full = resolve_policy("column:new_prob", read_log(FRAME))
    policy, loaded = resolve_policy("ratio:ratio", loaded)
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            pdis_returns(policy, loaded.log), pdis_returns(known, full.log), rtol=1e-12
        )
    for spec in ("column:new_prob", "policy:p.json", "python:json:loads"):
        with pytest.raises(LogError, match=r"needs propensities.*estimate_propensities"):
            resolve_policy(spec, loaded)


def test_a_saved_policy_over_features(tmp_path: Path) -> None:
    policy = LinearPolicy([[0.0, 1.0]], [0.0, 0.0])
    save_policy(policy, tmp_path / "p.json")
    loaded = read_log(FRAME, WITH_X)
    found, same = resolve_policy(f"policy:{tmp_path / 'p.json'}", loaded)
    assert same is loaded
    assert found.digest() == policy.digest()
    with pytest.raises(PolicyError, match=r"needs states"):
        resolve_policy(f"policy:{tmp_path / 'p.json'}", read_log(FRAME))
    wide = read_log(FRAME, Columns(features=("x", "new_prob")))
    with pytest.raises(PolicyError, match=r"does not fit the log.*\(2,\)"):
        resolve_policy(f"policy:{tmp_path / 'p.json'}", wide)
    with pytest.raises(PolicyError, match=r"cannot read a policy"):
        resolve_policy(f"policy:{tmp_path / 'none.json'}", loaded)


RULES = """
import numpy as np

constant = 3

def lean(states):
    p = 1 / (1 + np.exp(-states["x"].to_numpy()))
    return np.stack([1 - p, p], axis=1)

def sums_to_two(states):
    return np.ones((states.height, 2))

def has_nan(states):
    return np.where(states["x"].to_numpy()[:, None] > 0.35, np.nan, 0.5) * np.ones(2)

def narrow(states):
    return np.ones((states.height, 1))

def fails(states):
    return states["no such column"]

def words(states):
    return [["a", "b"]] * states.height
"""


def test_a_function_as_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidegate_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    loaded = read_log(FRAME, WITH_X)
    policy, loaded = resolve_policy("python:tidegate_rules:lean", loaded)
    with jax.enable_x64(True):
        linear = LinearPolicy([[0.0, 1.0]], [0.0, 0.0]).logged_log_probs(loaded.log)
        recorded = policy.logged_log_probs(loaded.log)
        mask = np.asarray(loaded.log.mask)
        np.testing.assert_allclose(np.asarray(recorded)[mask], np.asarray(linear)[mask], rtol=1e-12)
        listed = policy.action_log_probs(loaded.log)
        assert listed is not None
        p = 1 / (1 + np.exp(-FRAME["x"].to_numpy()))
        np.testing.assert_allclose(np.asarray(listed)[mask], np.log(np.stack([1 - p, p], axis=1)))
    for name, message in {
        "sums_to_two": r"row 0; row 1; row 2 \(and 3 more\).*sum to 1",
        "has_nan": r"row 3; row 4; row 5: .*nan",
        "narrow": r"shape \(6, 1\).*\(6, 2\)",
        "fails": r"failed: .*no such column",
        "words": r"did not return an array of numbers",
        "constant": r"'constant' of 'tidegate_rules' is of type int, not a function",
        "missing": r"cannot import 'missing'",
    }.items():
        with pytest.raises(PolicyError, match=message):
            resolve_policy(f"python:tidegate_rules:{name}", loaded)
    with pytest.raises(PolicyError, match=r"cannot import"):
        resolve_policy("python:no_such_module:f", loaded)


def test_of_very_many_actions_only_the_logged_is_kept_and_tables_must_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidegate_even.py").write_text(
        "import numpy as np\n"
        "def many(states): return np.full((states.height, 101), 1 / 101)\n"
        "def few(states): return np.full((states.height, 100), 1 / 100)\n"
    )
    monkeypatch.chdir(tmp_path)
    for count, name in ((101, "many"), (100, "few")):
        policy, loaded = resolve_policy(
            f"python:tidegate_even:{name}", read_log(FRAME, {"num_actions": count})
        )
        assert lists_actions(policy, loaded.log) is (name == "few")
        probs = np.exp(policy.logged_log_probs(loaded.log))[np.asarray(loaded.log.mask)]
        np.testing.assert_allclose(probs, 1 / count, rtol=1e-6)
    small = read_log(FRAME, {"num_actions": 100}, memory_limit="12KB")
    with pytest.raises(LogError, match=r"probabilities of 100 actions at each of 9 steps.*column:NAME"):
        resolve_policy("python:tidegate_even:few", small)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("new_prob", SettingsError, r"does not name a policy.*column:NAME"),
        ("colunm:new_prob", SettingsError, r"Did you mean 'column'"),
        ("column:", SettingsError, r"does not name"),
        ("behavior:x", SettingsError, r"does not name"),
        ("column:new_porb", LogError, r"no column 'new_porb'.*Did you mean 'new_prob'"),
        ("column:large", LogError, r"row 1: column:large probability is 2 \(and 4 more: row 2"),
        ("column:time", LogError, r"row 0; row 1; row 2 \(and 3 more\).*not a number"),
        ("ratio:negative", LogError, r"row 0: ratio:negative is -1.*0 or more"),
    ],
)
def test_bad_specs(spec: str, error: type[Exception], message: str) -> None:
    negative, large = pl.Series([-1.0, 1, 1, 1, 1, 1]), pl.Series([1.0, 2, 3, 4, 5, 6])
    loaded = read_log(FRAME.with_columns(negative=negative, large=large))
    with pytest.raises(error, match=message):
        resolve_policy(spec, loaded)


def test_spec_text_survives() -> None:
    for text in ("behavior", "column:a:b", "python:m.n:f", "policy:C:/x.json"):
        assert str(parse_spec(text)) == text


def test_from_file_to_decision(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 400)
    frame = one_step(400, action=action, reward=action + 0.1 * rng.normal(size=400), new=0.1 + 0.8 * action)
    frame.write_csv(tmp_path / "log.csv")
    loaded = read_log(tmp_path / "log.csv")
    candidate, loaded = resolve_policy("column:new", loaded)
    safe, loaded = resolve_policy("behavior", loaded)
    settings = ForecastSettings(lookahead=10)
    decision = safety_test(candidate, safe, HeldOutEpisodes(loaded.log), settings)
    assert decision.verdict is Verdict.DEPLOY
    assert plain(decision)["data_hash"] == loaded.log.digest()


# Propensities.


def logistic_log(count: int, seed: int = 0) -> tuple[pl.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 3.0, (count, 2))
    logits = x @ np.array([[0.0, 0.4, -0.3], [0.0, -0.2, 0.5]]) + [0.0, 0.5, -1.0]
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    action = (rng.random(count)[:, None] > np.cumsum(probs, axis=1)).sum(axis=1)
    frame = one_step(count, action=action, a=x[:, 0], b=x[:, 1]).drop("behavior_prob")
    return frame, probs[np.arange(count), action]


def test_estimated_propensities_recover_a_logistic_policy_and_are_calibrated() -> None:
    frame, truth = logistic_log(20_000)
    loaded = read_log(frame, Columns(behavior_prob=None, features=("a", "b")))
    estimated = estimate_propensities(loaded)
    found = np.exp(np.asarray(estimated.log.behavior_log_probs))[:, 0]
    assert np.abs(found - truth).mean() < 0.01
    assert estimated.propensities is Propensities.ESTIMATED
    assert "not guaranteed" in estimated.propensities.value
    calibration = estimated.calibration
    assert calibration is not None
    assert calibration.error < 0.02
    assert calibration.log_loss < 0.9 * calibration.base_log_loss
    assert calibration.num_held_out == 5000
    assert "predicted  observed" in str(calibration)
    again = estimate_propensities(loaded)
    assert again.log.digest() == estimated.log.digest()
    assert again.calibration == calibration
    assert estimate_propensities(loaded, seed=1).calibration != calibration


def test_frequencies_without_features_and_by_state() -> None:
    frame = one_step(100, action=[0, 0, 0, 1] * 25).drop("behavior_prob")
    estimated = estimate_propensities(read_log(frame, Columns(behavior_prob=None)))
    probs = np.exp(np.asarray(estimated.log.behavior_log_probs))[:4, 0]
    np.testing.assert_allclose(probs, [0.75, 0.75, 0.75, 0.25], atol=0.01)
    assert estimated.calibration is not None
    assert estimated.calibration.method == "action frequencies"
    by_state = frame.with_columns(s=pl.Series([0, 0, 1, 1] * 25))
    columns = Columns(behavior_prob=None, state="s")
    found = estimate_propensities(read_log(by_state, columns), penalty=0.01)
    assert np.exp(np.asarray(found.log.behavior_log_probs))[0, 0] > 0.95


def test_estimates_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(LogError, match=r"no column 'behavior_prob' of propensities.*not?"):
        read_log(FRAME.drop("behavior_prob"))
    with pytest.raises(LogError, match=r"Did you mean 'propensity_score'"):
        read_log(FRAME.rename({"behavior_prob": "propensity_score"}))
    doses = read_log(one_step(4, action=[0.1, 0.2, 0.3, 0.4]), Columns(propensity=Propensity.DENSITY))
    with pytest.raises(SettingsError, match=r"continuous"):
        estimate_propensities(doses)
    with pytest.raises(LogError, match=r"too few episodes \(1\) to fit"):
        estimate_propensities(read_log(one_step(1)))
    with pytest.raises(SettingsError, match=r"held_out_fraction is 1"):
        estimate_propensities(read_log(one_step(9)), held_out_fraction=1.0)


# Minari.


def minari_like(**infos: Any) -> Any:
    def episode(length: int) -> Any:
        return SimpleNamespace(
            rewards=np.ones(length),
            actions=np.arange(length) % 2,
            observations=np.arange(2.0 * (length + 1)).reshape(-1, 2),
            # As minari 0.5.4 stores them: the info of `reset`, then one of each step.
            infos={name: np.append(0.0, np.full(length, value)) for name, value in infos.items()},
        )

    return SimpleNamespace(iterate_episodes=lambda: iter([episode(2), episode(3)]))


def test_minari_datasets() -> None:
    columns = Columns(features=("observation_0", "observation_1"))
    loaded = read_log(minari_like(behavior_prob=0.5), columns)
    assert loaded.log.num_episodes == 2
    np.testing.assert_array_equal(np.asarray(loaded.log.mask).sum(axis=1), [2, 3])
    with pytest.raises(LogError, match=r"no column 'behavior_prob' of propensities"):
        read_log(minari_like(), columns)
    with pytest.raises(LogError, match=r"no episodes"):
        read_log(SimpleNamespace(iterate_episodes=lambda: iter([])))
    with pytest.raises(LogError, match=r"pip install 'tidegate\[minari\]'|Minari cannot load"):
        read_log("minari:no/such-dataset-v0")


# Errors of sources.


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a.csv is empty"),
        ("a.csv", b"episode,action,behavior_prob,reward\n", r"a.csv has no rows"),
        ("a.csv", b"episode,reward\n1,2,3\n", r"a.csv, row 1: the row has 3 fields.*2, as in"),
        ("a.csv", b"episode,reward\n1,\xff\n", r"a.csv, line 2: byte 0xff is not UTF-8"),
        ("a.csv", b'episode,reward\n"1,2\n', r"a.csv, line 2: the file is not CSV"),
        ("a.csv", b"reward,reward\n1,2\n", r"no column 'episode'"),
        ("a.jsonl", b'{"episode": 1}\n{"epis\n', r"a.jsonl, row 2: the line is not JSON"),
        ("a.jsonl", b'{"episode": 1}\n[1, 2]\n', r"a.jsonl, row 2: the line holds list"),
        ("a.parquet", b"PAR1 and so on", r"a.parquet cannot be read as Parquet"),
        ("a.csv.gz", b"\x1f\x8b\x08 damaged", r"a.csv.gz is damaged"),
    ],
)
def test_damaged_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LogError, match=message):
        read_log(path)


def test_the_bad_cell_of_a_file_is_named(tmp_path: Path) -> None:
    lines = one_step(6).write_csv().splitlines()
    lines[4] = "4,1,0.5,abc"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(LogError, match=r"a.csv, row 4: column 'reward' holds 'abc'"):
        read_log(tmp_path / "a.csv")
    lines[4] = "4,1,0.5"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(LogError, match=r"a.csv, row 4: column 'reward' has 1 missing value\."):
        read_log(tmp_path / "a.csv")
    records = [*one_step(3).rows(named=True), {"episode": 4, "action": [1]}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(one) for one in records))
    with pytest.raises(LogError, match=r"a.jsonl, row 4: column 'action'"):
        read_log(tmp_path / "a.jsonl")


def test_the_bad_row_of_the_second_file_is_named(tmp_path: Path) -> None:
    one_step(3).write_parquet(tmp_path / "1.parquet")
    second = one_step(3).with_columns(pl.col("episode") + 3, reward=pl.Series([1.0, np.nan, np.inf]))
    second.write_parquet(tmp_path / "2.parquet")
    with pytest.raises(LogError, match=r"^2.parquet, row 2: reward is nan \(and 1 more: 2.parquet, row 3"):
        read_log(str(tmp_path / "*.parquet"))
    second.drop("reward").write_parquet(tmp_path / "2.parquet")
    with pytest.raises(
        LogError, match=r"2.parquet does not have the same columns as 1.parquet: \['reward'\]"
    ):
        read_log([tmp_path / "1.parquet", tmp_path / "2.parquet"])


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no file .*none.csv"):
        read_log(tmp_path / "none.csv")
    with pytest.raises(LogError, match=r"the folder .* holds no log"):
        read_log(tmp_path)
    with pytest.raises(LogError, match=r"from int"):
        read_log(3)
    with pytest.raises(LogError, match=r"no file was named"):
        read_log([])
    twice = pd.DataFrame([[1, 2]], columns=["reward", "reward"])
    with pytest.raises(LogError, match=r"two columns named 'reward'"):
        read_log(twice)


def test_panics_of_the_parser_stay_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with without_panic_text():
        os.write(2, b"a warning\n")
    with without_panic_text():
        os.write(2, b"thread 'x' panicked at y\n")
    assert capfd.readouterr().err == "a warning\n"


def test_large_episode_numbers_are_not_merged(tmp_path: Path) -> None:
    frame = one_step(2, episode=[2**60, 2**60 + 1])
    with pytest.raises(LogError, match=r"too large to tell episodes apart"):
        read_log(frame)
    # NaN is no JSON for polars, so these lines go the slow way, which must keep all digits too.
    lines = [json.dumps({**one, "t": 1, "z": np.nan}) for one in frame.rows(named=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read_log(tmp_path / "a.jsonl", Columns(time="t")).log.num_episodes == 2
    by_time = read_log(frame.with_columns(t=pl.Series([1, 2])), Columns(time="t"))
    assert by_time.log.num_episodes == 2


def test_a_loaded_log_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_log(FRAME).labels = ("x",)  # type: ignore[misc]


HARM = FRAME.with_columns(harm=pl.Series([0, 1, 0, 2, 0, 3]), late=pl.Series([0.5] * 6))


def test_outcome_columns_are_read_in_every_format(tmp_path: Path) -> None:
    expected = EpisodeLog.from_frame(HARM, outcomes={"harm": "harm", "late": "late"}).digest()
    HARM.write_parquet(tmp_path / "a.parquet")
    HARM.sample(fraction=1, shuffle=True, seed=0).write_csv(tmp_path / "a.csv")
    HARM.write_ndjson(tmp_path / "a.jsonl")
    columns = Columns(outcomes=("harm", "late"))
    for source in (HARM, HARM.to_pandas(), *map(str, tmp_path.iterdir())):
        loaded = read_log(source, columns)
        assert loaded.log.digest() == expected
        assert not {"harm", "late"} & set(loaded.states.columns)
    assert read_log(HARM).log.digest() == read_log(FRAME).log.digest()
    assert resolve_policy("column:new_prob", loaded)[1].log.outcomes.keys() == {"harm", "late"}


def test_the_reward_and_features_may_be_outcomes_too() -> None:
    log = read_log(HARM, Columns(features=("x",), outcomes=("reward", "x"))).log
    np.testing.assert_array_equal(log.outcomes["reward"], log.rewards)
    assert log.states is not None
    np.testing.assert_array_equal(log.outcomes["x"], log.states[..., 0])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([0, 1, None, 2, None, 3], r"row 2; row 4: column 'harm' has 2 missing values"),
        ([0.0, 1.0, np.nan, 2.0, 0.0, 3.0], r"row 2: outcome 'harm' is nan.*finite"),
        (["0", "1", "none", "2", "0", "3"], r"row 2: column 'harm' holds 'none', which is not"),
    ],
)
def test_bad_outcome_cells_are_named_with_their_rows(cells: list[Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        read_log(FRAME.with_columns(harm=pl.Series(cells)), Columns(outcomes=("harm",)))


def test_rows_of_a_file_count_from_one_for_outcomes_too(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    HARM.with_columns(harm=pl.Series([0, 1, None, 2, 0, 3]))[::-1].write_csv(path)
    with pytest.raises(LogError, match=r"log.csv, row 4: column 'harm' has 1 missing value\."):
        read_log(path, Columns(outcomes=("harm",)))


def test_outcomes_in_a_mapping_file_and_mistakes(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('outcomes = ["harm", "late"]')
    assert load_columns(tmp_path / "map.toml").outcomes == ("harm", "late")
    assert override_columns(Columns(), {"outcomes": "harm, late"}).outcomes == ("harm", "late")
    with pytest.raises(LogError, match=r"no column 'harn'. Did you mean 'harm'\?.*A guardrail"):
        read_log(HARM, Columns(outcomes=("harn",)))
    with pytest.raises(SettingsError, match="outcomes lists a name twice"):
        Columns(outcomes=("harm", "harm"))
