"""Streaming gives what the log in memory gives, to the bit whatever the size of the chunks."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest

from tidegate import (
    ForecastSettings,
    LogError,
    SettingsError,
    forecast_performance,
    pdis_returns,
)
from tidegate.forecast import forecast_returns
from tidegate.logs import (
    Columns,
    StreamedReturns,
    TimeUnit,
    read_log,
    resolve_policy,
    stream_returns,
)
from tidegate.returns import effective_sample_size, episode_ratios, stopped_ratios

SPECS = ["column:new_prob", "ratio:ratio", "behavior"]


def steps(episodes: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, episodes)
    lengths[episodes // 2] = 70
    rows = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    behavior, new = rng.uniform(0.1, 1.0, (2, rows))
    new[rng.random(rows) < 0.02] = 0.0
    return pl.DataFrame(
        {
            "episode": np.repeat(np.arange(episodes) * 3 + 5, lengths),
            "step": np.arange(rows) - np.repeat(starts, lengths),
            "action": rng.integers(0, 2, rows),
            "behavior_prob": behavior,
            "reward": rng.normal(size=rows),
            "new_prob": new,
            "ratio": new / behavior,
            "name": [f"visit {i}" for i in np.repeat(rng.permutation(episodes), lengths)],
            "hour": np.repeat(rng.integers(0, 50, episodes), lengths).astype(float),
        }
    )


FRAME = steps(120)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FRAME.write_parquet(tmp_path / "log.parquet", row_group_size=100)
    return tmp_path / "log.parquet"


def arrays(streamed: StreamedReturns) -> list[Any]:
    sums = [[one.returns, one.ratios, one.stopped_ratios] for one in streamed.policies]
    return [streamed.episode_numbers, streamed.lengths, *(a for three in sums for a in three)]


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
def test_streaming_equals_memory(path: Path, discount: float) -> None:
    streamed = stream_returns(path, SPECS, discount=discount, chunk_rows=37)
    loaded = read_log(path)
    np.testing.assert_array_equal(streamed.episode_numbers, loaded.log.episode_numbers)
    np.testing.assert_array_equal(streamed.lengths, np.asarray(loaded.log.mask).sum(axis=1))
    assert streamed.num_steps == FRAME.height
    for one in streamed.policies:
        policy, loaded = resolve_policy(one.spec, loaded)
        with jax.enable_x64(True):
            pairs: list[tuple[Any, Any]] = [
                (one.returns, pdis_returns(policy, loaded.log, discount)),
                (one.ratios, episode_ratios(policy, loaded.log)),
                (one.stopped_ratios, stopped_ratios(policy, loaded.log, discount)),
                (
                    effective_sample_size(one.ratios),
                    effective_sample_size(episode_ratios(policy, loaded.log)),
                ),
            ]
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk_rows", [1, 2, 7, 100, 350, FRAME.height, 10**6])
def test_chunks_leave_no_trace(path: Path, chunk_rows: int) -> None:
    whole = arrays(stream_returns(path, SPECS, discount=0.95))
    cut = arrays(stream_returns(path, SPECS, discount=0.95, chunk_rows=chunk_rows))
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(one, other)


def test_episodes_run_on_from_file_to_file(path: Path, tmp_path: Path) -> None:
    FRAME[:111].write_parquet(tmp_path / "part-1.parquet")
    FRAME[111:112].write_parquet(tmp_path / "part-2.parquet")
    FRAME[112:].write_parquet(tmp_path / "part-3.parquet")
    parts = stream_returns(str(tmp_path / "part-*.parquet"), SPECS)
    for one, other in zip(arrays(stream_returns(path, SPECS)), arrays(parts), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_time_orders_the_episodes(path: Path, unit: TimeUnit) -> None:
    if unit in (TimeUnit.HOUR, TimeUnit.DAY):
        path = path.with_name("unix.parquet")
        FRAME.with_columns(hour=1.7e9 + 3600 * pl.col("hour")).write_parquet(path)
    columns = Columns(episode="name", time="hour", time_unit=unit)
    streamed = stream_returns(path, ["column:new_prob"], columns, chunk_rows=50)
    policy, loaded = resolve_policy("column:new_prob", read_log(path, columns))
    np.testing.assert_array_equal(streamed.episode_numbers, loaded.log.episode_numbers)
    assert streamed.time == loaded.time
    with jax.enable_x64(True):
        expected = pdis_returns(policy, loaded.log)
        np.testing.assert_allclose(streamed.policies[0].returns, expected, rtol=1e-12, atol=1e-12)


def test_the_forecast_from_returns_is_the_forecast_of_the_policy(path: Path) -> None:
    settings = ForecastSettings(lookahead=20)
    policy, loaded = resolve_policy("column:new_prob", read_log(path))
    direct = forecast_performance(policy, loaded.log, settings, seed=3)
    streamed = stream_returns(path, ["column:new_prob"])
    one = streamed.policies[0]
    forecast = forecast_returns(one.returns, streamed.episode_numbers, settings, ratios=one.ratios, seed=3)
    for name in ("point", "lower", "upper", "standard_error", "effective_sample_size"):
        np.testing.assert_allclose(getattr(forecast, name), getattr(direct, name), rtol=1e-9)
    np.testing.assert_array_equal(forecast.forecast_times, direct.forecast_times)
    other = forecast_returns(one.returns, streamed.episode_numbers, settings, seed=4)
    assert other.lower != forecast.lower
    assert other.effective_sample_size == streamed.num_episodes
    with pytest.raises(LogError, match=r"returns have shape \(0,\)"):
        forecast_returns([], [], settings)


def _broken(**columns: Any) -> pl.DataFrame:
    return FRAME.with_columns(**columns)


def _at(name: str, row: int, value: float) -> pl.DataFrame:
    values = FRAME[name].cast(pl.Float64).to_numpy().copy()
    values[row] = value
    return _broken(**{name: pl.Series(values)})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (_at("reward", 230, np.nan), r"log.parquet, row 231: reward is nan"),
        (_at("behavior_prob", 230, 0.0), r"log.parquet, row 231: behavior probability is 0"),
        (_at("new_prob", 230, 1.5), r"log.parquet, row 231: column:new_prob probability is 1.5"),
        (_at("step", 100, 40), r"log.parquet, row 101, column 'step': step 40"),
        (_at("episode", 300, 1), r"row 301, column 'episode': episode 1 comes after"),
        (_at("episode", 300, np.nan), r"row 301: column 'episode' is nan"),
        (FRAME.drop("step"), r"no step column to order them"),
        (FRAME.drop("new_prob"), r"no column 'new_prob'"),
        (FRAME.drop("behavior_prob"), r"no column 'behavior_prob' of propensities"),
        (FRAME[:0], r"no rows"),
        (FRAME.with_columns(reward=pl.lit("x")), r"row 1; .*column 'reward' holds 'x'"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [60, 10**6])
def test_errors_name_the_row(frame: pl.DataFrame, message: str, chunk_rows: int, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(LogError, match=message):
        stream_returns(tmp_path / "log.parquet", ["column:new_prob"], chunk_rows=chunk_rows)


def test_what_cannot_be_streamed(path: Path, tmp_path: Path) -> None:
    for spec in ("policy:p.json", "python:m:f"):
        with pytest.raises(SettingsError, match=r"cannot be streamed"):
            stream_returns(path, [spec])
    with pytest.raises(SettingsError, match=r"no policy"):
        stream_returns(path, [])
    with pytest.raises(SettingsError, match=r"discount is 2"):
        stream_returns(path, SPECS, discount=2)
    with pytest.raises(SettingsError, match=r"chunk_rows is 0"):
        stream_returns(path, SPECS, chunk_rows=0)
    with pytest.raises(LogError, match=r"needs propensities"):
        stream_returns(path, ["column:new_prob"], Columns(behavior_prob=None))
    FRAME.write_csv(tmp_path / "log.csv")
    with pytest.raises(LogError, match=r"log.csv cannot be streamed.*sink_parquet"):
        stream_returns(tmp_path / "log.csv", SPECS)
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:500])
    with pytest.raises(LogError, match=r"cut.parquet cannot be read as Parquet"):
        stream_returns(tmp_path / "cut.parquet", SPECS)
    firsts = FRAME.filter(pl.col("step") == 0)
    pl.concat([firsts, firsts[:1]]).write_parquet(tmp_path / "mixed.parquet")
    with pytest.raises(LogError, match=r"are not next to each other"):
        stream_returns(tmp_path / "mixed.parquet", SPECS, Columns(episode="name", time="hour"))


def test_one_step_rows_and_ratios_alone(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"action": [0, 1, 0], "reward": [1.0, 2.0, 3.0], "w": [1.0, 0.5, 2.0], "t": [3, 1, 2]}
    )
    frame.write_parquet(tmp_path / "log.parquet")
    columns = Columns(episode=None, behavior_prob=None, time="t")
    streamed = stream_returns(tmp_path / "log.parquet", ["ratio:w"], columns, chunk_rows=2)
    np.testing.assert_allclose(streamed.policies[0].returns, [1.0, 6.0, 1.0])
