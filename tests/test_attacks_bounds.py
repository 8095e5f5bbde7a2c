"""Small files that ask for a lot of memory, and settings that ask for a lot of time: each is refused.

What a child process takes is measured: the largest resident set that the kernel saw.
"""

import dataclasses
import functools
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate
from tidegate import EpisodeLog, HeldOutEpisodes, TrainingEpisodes
from tidegate.arrays import Ragged, recurrence
from tidegate.basis import CosineBasis, PolynomialBasis, TimeAxis
from tidegate.checks.backtest import backtest
from tidegate.checks.fitness import check_log
from tidegate.commands import LogFile, PlainSettings, SearchChoices, check, evaluate
from tidegate.episodes import conform, empty_like, grow, joined, split_log
from tidegate.errors import LogError, SettingsError
from tidegate.forecast import ForecastSettings
from tidegate.logs import Columns, read_log
from tidegate.logs.formats import PIECE
from tidegate.logs.memory import FALLBACK, SHARE, VARIABLE, free_memory, in_words, memory_limit
from tidegate.logs.parquet_footer import decoded_size
from tidegate.policies import BehaviorPolicy, LinearPolicy, Policy, RecordedPolicy
from tidegate.presets import multiscale_forecast
from tidegate.returns import (
    control_variate_returns,
    episode_ratios,
    is_returns,
    pdis_returns,
    stopped_ratios,
    weighted_is_returns,
    weighted_pdis_returns,
)
from tidegate.search import SearchSettings, search_candidate
from tidegate.values import LinearValues, RecentMeans, ValueModel

MB = 10**6
# The interpreter, polars and JAX before any log is read, measured at 260 to 310 MB.
IMPORTS = 400 * MB

MEASURED = """
import json, resource, subprocess, sys
run = subprocess.run(sys.argv[1:], capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([run.returncode, run.stdout, run.stderr, peak]))
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a command gave, and the most memory that it took."""

    code: int
    out: str
    errors: str
    peak: int


def run(*arguments: str | Path, stdin: Path | None = None, cwd: Path | None = None) -> Run:
    command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "tidegate", *map(str, arguments)]
    with (stdin or Path("/dev/null")).open("rb") as given:
        done = subprocess.run(
            command, stdin=given, capture_output=True, text=True, check=True, timeout=300, cwd=cwd
        )
    return Run(*json.loads(done.stdout))


def steps(lengths: Any, seed: int = 0) -> pl.DataFrame:
    """Episodes of these lengths with three actions; the candidate prefers the best one."""
    rng, lengths = np.random.default_rng(seed), np.asarray(lengths)
    count = int(lengths.sum())
    actions = rng.integers(0, 3, count)
    return pl.DataFrame(
        {
            "episode": np.repeat(np.arange(1, lengths.size + 1), lengths),
            "step": np.concatenate([np.arange(length) for length in lengths]),
            "action": actions,
            "behavior_prob": np.full(count, 1 / 3),
            "reward": (actions == 0) + rng.normal(size=count),
            "candidate": np.where(actions == 0, 0.36, 0.32),
            "age": rng.normal(size=count),
        }
    )


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 million equal rows in less than a megabyte: 1.6 GB once decoded."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    names = {"episode": 0, "action": 0, "behavior_prob": 0.5, "reward": 1.0}
    table = pa.table({name: np.full(5_000_000, value) for name, value in names.items()})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(table, row_group_size=5_000_000)
    return path


# Files that are small on disk.


def test_a_parquet_file_of_equal_rows_is_refused_before_it_is_decoded(many_rows: Path) -> None:
    assert many_rows.stat().st_size < 2 * MB
    done = run("check", many_rows, "--no-stream", "--memory-limit", "500MB")
    assert done.code == 2
    for part in ("rows.parquet with 50,000,000 rows of 4 columns", "3.2 GB", "500 MB", "--memory-limit"):
        assert part in done.errors
    assert done.peak < IMPORTS


def test_an_endless_episode_is_refused_while_it_is_streamed(many_rows: Path) -> None:
    arguments = ("evaluate", many_rows, "--policy", "behavior", "--stream", "--memory-limit", "400MB")
    done = run(*arguments)
    assert done.code == 2
    assert "rows.parquet, row" in done.errors
    assert "an episode of more than" in done.errors
    assert done.peak < IMPORTS + 400 * MB


def test_a_stream_of_too_many_episodes_is_stopped(tmp_path: Path) -> None:
    frame = steps(np.ones(1_000_000, int))
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"a forecast from 1,000,000 episodes would take about 500 MB"):
        evaluate(LogFile(tmp_path / "log.parquet", memory_limit="480MB"), policy="behavior", stream=True)


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz", "bomb.parquet.gz", "bomb.gz"])
def test_a_gzip_bomb_is_unpacked_up_to_the_limit(tmp_path: Path, name: str) -> None:
    with gzip.open(tmp_path / name, "wb", compresslevel=9) as file:
        for _ in range(256):
            file.write(bytes(2**20))
    assert (tmp_path / name).stat().st_size < MB
    if name != "bomb.csv.gz":
        with pytest.raises(LogError, match=rf"{name} \(.* packed\) has more than .*reading was stopped"):
            read_log(tmp_path / name, memory_limit="20MB")
        return
    done = run("check", tmp_path / name, "--memory-limit", "50MB")
    assert done.code == 2
    assert "a row of bomb.csv.gz would take about" in done.errors
    assert "at most 50 MB" in done.errors
    assert "--memory-limit" in done.errors
    assert done.peak < IMPORTS


def test_standard_input_without_end_is_read_up_to_the_limit() -> None:
    done = run("check", "-", "--memory-limit", "50MB", stdin=Path("/dev/zero"))
    assert done.code == 2
    assert "standard input has more than 25.2 MB" in done.errors
    assert done.peak < IMPORTS


def test_short_rows_below_a_wide_header_count_as_wide_rows(tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(5_000))
    (tmp_path / "wide.csv").write_text(header + "\n" + "1\n" * 20_000)
    with pytest.raises(LogError, match=r"wide.csv with 20,000 rows of 5,000 columns would take about 3.2 GB"):
        read_log(tmp_path / "wide.csv", memory_limit="1GB")


def test_a_new_key_in_every_line_is_a_column_of_every_row(tmp_path: Path) -> None:
    (tmp_path / "wide.jsonl").write_text("".join(f'{{"k{i}": 1}}\n' for i in range(4_000)))
    with pytest.raises(LogError, match=r"wide.jsonl with 4,000 rows of 4,000 columns"):
        read_log(tmp_path / "wide.jsonl", memory_limit="200MB")


def test_deep_json_and_one_giant_line_are_errors_with_a_place(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text('{"a":' + "[" * 10**6 + "]" * 10**6 + "}\n")
    with pytest.raises(LogError, match=r"deep.jsonl, row 1"):
        read_log(tmp_path / "deep.jsonl")
    (tmp_path / "line.csv").write_bytes(b"x" * 40 * MB)
    with pytest.raises(LogError, match=r"line.csv"):
        read_log(tmp_path / "line.csv", memory_limit="100MB")


def test_the_second_file_finds_less_room_than_the_first(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        steps(np.ones(20_000, int)).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(LogError, match=r"b.parquet .* beside the .* already in use"):
        read_log(str(tmp_path / "*.parquet"), memory_limit="4MB")


def test_an_action_with_a_huge_number_is_refused(tmp_path: Path) -> None:
    frame = steps(np.ones(50, int)).with_columns(action=pl.col("action") + 2 * 10**9)
    with pytest.raises(LogError, match=r"actions are numbered up to 2,000,000,00\d, would take about 200 GB"):
        read_log(frame, memory_limit="1GB")


def test_one_hot_states_of_estimated_propensities_are_bounded() -> None:
    frame = steps(np.ones(5_000, int)).with_columns(cell=pl.int_range(5_000))
    file = LogFile(frame, Columns(state="cell"), estimate_propensities=True, memory_limit="100MB")
    with pytest.raises(LogError, match=r"5,000 steps with 5,003 actions, features and states"):
        check(file)


def test_what_no_estimate_foresaw_is_stopped_with_a_sentence(tmp_path: Path) -> None:
    steps(np.ones(200, int)).write_parquet(tmp_path / "log.parquet")
    (tmp_path / "greedy.py").write_text(
        "import time, numpy\n"
        "def policy(states):\n"
        "    kept = []\n"
        "    for _ in range(60):\n"
        "        kept.append(numpy.ones(12_500_000))\n"
        "        time.sleep(0.05)\n"
        "    return numpy.full((states.height, 3), 1 / 3)\n"
    )
    arguments = ("check", "log.parquet", "--policy", "python:greedy:policy", "--memory-limit", "100MB")
    done = run(*arguments, cwd=tmp_path)
    assert done.code == 2
    assert "nothing was decided, because the process has grown to" in done.errors
    assert done.peak < 2.5e9  # of the 6 GB that the function asks for


# The limit.


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4 * 10**9), ("1.5 GiB", 3 * 2**29), ("500mb", 5 * 10**8), (7, 7)]
)
def test_a_limit_is_a_number_of_bytes_or_has_a_unit(text: str | int, size: int) -> None:
    assert memory_limit(text).total == size


@pytest.mark.parametrize("text", ["4XB", "GB", "-1", "0", "", "1e9", "nan"])
def test_a_limit_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="memory limit is"):
        memory_limit(text)


def test_the_limit_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1MB")
    frame = steps(np.ones(20_000, int))
    with pytest.raises(LogError, match=VARIABLE):
        read_log(frame)
    assert read_log(frame, memory_limit="1GB").log.num_episodes == 20_000
    monkeypatch.setenv(VARIABLE, "lots")
    with pytest.raises(SettingsError, match=f"{VARIABLE} is 'lots'"):
        memory_limit()


def machine(root: Path, groups: str, **files: str) -> int:
    """Free memory on a machine with 8 GB available and these files about control groups."""
    for name, text in {
        "proc/meminfo": "MemAvailable:  8000000 kB\n",
        "proc/self/cgroup": groups,
        **files,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return free_memory(root)


def test_free_memory_is_that_of_the_machine_or_of_its_control_group(tmp_path: Path) -> None:
    second = {
        "sys/fs/cgroup/a/memory.max": "3000\n",
        "sys/fs/cgroup/a/memory.current": "1000\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "900\n",
    }
    first = {
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "5000\n",
        "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "4000\n",
    }
    assert machine(tmp_path / "plain", "0::/\n") == 8_000_000 * 1024
    assert machine(tmp_path / "second", "0::/a/b\n", **second) == 2_000
    assert machine(tmp_path / "first", "4:cpu,memory:/x\n0::/\n", **first) == 1_000
    assert SHARE * free_memory(tmp_path / "nowhere") == FALLBACK


def test_sizes_are_written_as_people_read_them() -> None:
    assert [in_words(size) for size in (12, 4_200_000, 32e9)] == ["12 bytes", "4.2 MB", "32 GB"]


def test_the_footer_tells_the_decoded_size(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"number": range(1_000), "text": ["a long note " * 20] * 1_000, "list": [[1, 2, 3]] * 1_000}
    )
    frame.write_parquet(tmp_path / "log.parquet", row_group_size=100)
    size = decoded_size((tmp_path / "log.parquet").read_bytes())
    assert size is not None
    assert (size.rows, size.columns) == (1_000, 3)
    assert 1_000 * (8 + 16 + 24) <= size.bytes < 1_000 * 400


@pytest.mark.parametrize("footer", [b"", b"\xff" * 50, b"\x19\xf7" + b"\xff" * 8 + b"\x0f", b"\x1c" * 5_000])
def test_a_footer_that_is_no_record_is_left_to_the_parser(footer: bytes) -> None:
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    assert decoded_size(content) is None
    with pytest.raises(LogError, match="cannot be read as Parquet"):
        read_log_bytes(content)


def read_log_bytes(content: bytes) -> None:
    from tidegate.logs.formats import parse

    parse(content, "log.parquet", None, memory_limit("1GB"))


def test_text_is_checked_piece_by_piece(tmp_path: Path) -> None:
    text = ("ab\n" * PIECE).encode()
    (tmp_path / "bad.csv").write_bytes(text + b"caf\xe9\n")
    with pytest.raises(LogError, match=rf"line {PIECE + 1}: byte 0xe9 is not UTF-8"):
        read_log(tmp_path / "bad.csv")
    letters = b"x" * (PIECE - 1) + "é".encode() + b"\n1\n"  # the letter lies on both sides of the cut
    (tmp_path / "good.csv").write_bytes(letters)
    with pytest.raises(LogError, match="there is no column 'episode'"):
        read_log(tmp_path / "good.csv")


# Settings.


@pytest.mark.parametrize("draws", [0, 100_001, 10**12])
def test_draws_are_bounded(draws: int) -> None:
    with pytest.raises(SettingsError, match=r"draws is .* Expected a whole number from 1 to 100,000"):
        PlainSettings(draws=draws)


def test_a_bootstrap_that_does_not_fit_names_the_draws() -> None:
    file = LogFile(steps(np.ones(2_000, int)), memory_limit="100MB")
    with pytest.raises(LogError, match=r"a bootstrap of 50,000 draws would take about 1 GB .* lower `draws`"):
        check(file, settings=PlainSettings(draws=50_000))


def test_predictions_for_many_actions_name_the_actions(tmp_path: Path) -> None:
    frame = steps(np.ones(2_000, int))
    file = LogFile(frame, Columns(features=("age",), num_actions=1_000), memory_limit="100MB")
    policy = LinearPolicy(np.zeros((1, 1_000)), np.zeros(1_000))
    tidegate.save_policy(policy, tmp_path / "policy.json")
    with pytest.raises(LogError, match=r"each of 1,000 actions at each of 2,000 steps .*column:NAME"):
        check(file, policy=f"policy:{tmp_path / 'policy.json'}")


@pytest.mark.parametrize("wrong", [{"hidden": 1_001}, {"steps": 10**9}, {"steps": -1}])
def test_searches_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=rf"{next(iter(wrong))} is .* Expected a whole number"):
        SearchChoices(**wrong)


@pytest.mark.parametrize(("dates", "every"), [(1_001, 1), (10**15, 1), (0, 1), (2, 10**30)])
def test_backtests_are_bounded(dates: int, every: int) -> None:
    log = read_log(steps(np.ones(100, int))).log
    with pytest.raises(SettingsError, match=r"(dates|every) is .* Expected a whole number from 1 to"):
        backtest(BehaviorPolicy(), None, log, ForecastSettings(5), dates=dates, every=every)


@pytest.mark.parametrize("order", [15, 16, 100])
def test_a_hundred_waves_are_waves_and_a_short_program(order: int) -> None:
    with jax.enable_x64(True):
        axis, times = TimeAxis.over((1.0, 50.0), 10), np.arange(1.0, 51.0)
        basis = CosineBasis(order)
        expected = np.cos(np.pi * np.outer(np.asarray(axis.normalise(times)), np.arange(order + 1)))
        np.testing.assert_allclose(basis.design_matrix(times, axis), expected, atol=1e-9)
        program = jax.make_jaxpr(lambda at: PolynomialBasis(order).design_matrix(at, axis))(times)
        assert len(program.eqns) < 80  # written out, a hundred columns are three hundred


# Episodes of unequal length.


def ragged(log: EpisodeLog) -> EpisodeLog:
    """The same episodes without padding."""
    mask = np.asarray(log.mask)
    flat = {
        name: jax.tree.map(lambda leaf: np.asarray(leaf)[mask], getattr(log, name))
        for name in ("actions", "behavior_log_probs", "rewards", "mask", "states", "recorded", "outcomes")
    }
    return dataclasses.replace(log, **flat, layout=Ragged.of(log.lengths, log.num_steps))


@pytest.fixture(scope="module")
def padded() -> EpisodeLog:
    rng = np.random.default_rng(3)
    n, t = 61, 9
    lengths = rng.integers(1, 4, n)
    lengths[[17, 40]] = 9, 7
    recorded = rng.uniform(0.1, 0.6, (n, t))
    recorded[5, 0] = 0.0
    log = EpisodeLog.from_arrays(
        rng.integers(0, 3, (n, t)),
        rng.normal(size=(n, t)),
        np.full((n, t), 1 / 3),
        mask=np.arange(t) < lengths[:, None],
        states=rng.normal(size=(n, t, 2)),
        recorded={"new": recorded},
        outcomes={"harm": rng.normal(size=(n, t))},
        episode_numbers=np.sort(rng.choice(300, n, replace=False)),
    )
    table = np.log(rng.dirichlet([1, 1, 1], (n, t)))
    return dataclasses.replace(log, recorded={**log.recorded, "table": table * log.mask[..., None]})


LINEAR = LinearPolicy(np.array([[0.5, -0.2, 0.1], [0.0, 0.3, -0.4]]), np.array([0.3, 0.0, 0.0]))
RECORDED = (RecordedPolicy("new"), RecordedPolicy("table"))
POLICIES = pytest.mark.parametrize("policy", [LINEAR, *RECORDED, BehaviorPolicy()], ids=str)


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_a_recurrence_is_the_textbook_loop(count: int) -> None:
    rng = np.random.default_rng(0)
    values, factors = rng.normal(size=(count, 2)), rng.uniform(size=count)
    factors[:: max(1, count // 4)] = 0.0
    values[0] = -np.inf  # forgotten at the next factor of 0
    last, expected = np.zeros(2), []
    for value, factor in zip(values, factors, strict=True):
        last = value + (factor * last if factor else 0.0)
        expected.append(last)
    same(recurrence(jnp.asarray(values), jnp.asarray(factors)), expected)


@POLICIES
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
def test_returns_do_not_depend_on_the_layout(padded: EpisodeLog, policy: Policy, discount: float) -> None:
    unpadded = ragged(padded)
    for estimate in (
        pdis_returns, is_returns, weighted_is_returns, control_variate_returns, stopped_ratios,
    ):  # fmt: skip
        same(estimate(policy, unpadded, discount), estimate(policy, padded, discount))
    same(episode_ratios(policy, unpadded), episode_ratios(policy, padded))
    with pytest.raises(LogError, match="episodes of about the same length"):
        weighted_pdis_returns(policy, unpadded, discount)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("model", "per_action"),
    [
        (LinearValues(), True),
        (RecentMeans(), False),
        pytest.param(LinearValues(), False, marks=pytest.mark.verify),
        pytest.param(RecentMeans(), True, marks=pytest.mark.verify),
    ],
    ids=str,
)
def test_values_do_not_depend_on_the_layout(padded: EpisodeLog, model: ValueModel, per_action: bool) -> None:
    seen, tested = (one.log for one in split_log(padded, seed=1))
    flat_seen, flat_tested = (one.log for one in split_log(ragged(padded), seed=1))
    predict, cross_fit = (
        eqx.filter_jit(functools.partial(how, discount=0.9, per_action=per_action))
        for how in (model.predict, model.cross_fit)
    )
    same(predict(flat_seen, flat_tested), np.asarray(predict(seen, tested))[np.asarray(tested.mask)])
    same(cross_fit(ragged(padded)), np.asarray(cross_fit(padded))[np.asarray(padded.mask)])
    with pytest.raises(LogError, match="very unequal length"):
        model.predict(flat_seen, tested, 0.9, per_action=per_action)


def test_a_ragged_log_is_taken_grown_joined_and_masked_as_a_padded_one(padded: EpisodeLog) -> None:
    unpadded, rows = ragged(padded), np.array([40, 3, 17])
    assert unpadded.digest() == ragged(padded).digest() == padded.digest()
    for change in (
        lambda log: log.take(rows),
        lambda log: log.take(slice(5, 20)),
        lambda log: joined(log.take(rows), log),
        lambda log: log.with_outcome("harm", -1.0),
    ):
        changed: Callable[[EpisodeLog], EpisodeLog] = change
        assert changed(unpadded).digest() == ragged(changed(padded)).digest()
    later = np.asarray(padded.episode_numbers) > 100
    parts = [log.only(later) for log in (unpadded, padded)]
    same(parts[0].lengths, parts[1].lengths)
    same(parts[0].present, later)
    grown = grow(unpadded, unpadded.capacity + 2)
    assert grown.capacity == 63
    assert grown.num_episodes == 61
    assert grown.digest() == unpadded.digest()
    assert grow(unpadded.take(rows[:0]), 1).num_episodes == 0
    with pytest.raises(LogError, match="Split the long episodes"):
        empty_like(unpadded, 3)
    with pytest.raises(LogError, match="Split the long episodes"):
        conform(unpadded, padded)


@pytest.mark.parametrize(
    "policy", [LINEAR, *(pytest.param(one, marks=pytest.mark.verify) for one in RECORDED)], ids=str
)
def test_decisions_do_not_depend_on_the_layout(padded: EpisodeLog, policy: Policy) -> None:
    settings = multiscale_forecast(ForecastSettings(5))
    logs = (padded, ragged(padded))
    one, other = (
        tidegate.safety_test(policy, BehaviorPolicy(), HeldOutEpisodes(log), settings) for log in logs
    )
    assert other.reason is one.reason
    for name in ("point", "lower", "standard_error", "p_value"):
        same(getattr(other.advantage, name), getattr(one.advantage, name))
    checks = [check_log(log, settings, policy) for log in logs]
    assert [str(finding) for finding in checks[1].findings] == [str(f) for f in checks[0].findings]
    past = [backtest(policy, BehaviorPolicy(), log, settings, dates=2) for log in logs]
    same(past[1].candidate.lower, past[0].candidate.lower)


def test_a_search_does_not_depend_on_the_layout(padded: EpisodeLog) -> None:
    settings, start = multiscale_forecast(ForecastSettings(5)), LinearPolicy(np.zeros((2, 3)), np.zeros(3))
    one, other = (
        search_candidate(
            start,
            TrainingEpisodes(log),
            settings,
            SearchSettings(steps=10, natural_gradient=True),
            against=BehaviorPolicy(),
        )
        for log in (padded, ragged(padded))
    )
    assert isinstance(one, LinearPolicy)
    assert isinstance(other, LinearPolicy)
    same(other.weights, one.weights)


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One episode of 100,000 steps beside 20,000 of 1 to 5: 2 billion cells, if it were padded."""
    lengths = np.random.default_rng(1).integers(1, 6, 20_001)
    lengths[777] = 100_000
    path = tmp_path_factory.mktemp("unequal") / "log.parquet"
    steps(lengths).write_parquet(path)
    return path


def test_one_long_episode_beside_many_short_ones_is_not_padded(unequal: Path) -> None:
    log = read_log(unequal, Columns(features=("age",))).log
    assert (log.capacity, log.num_steps, log.mask.shape) == (20_001, 100_000, (int(log.lengths.sum()),))
    size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(log))
    assert size < 20 * MB


@pytest.mark.parametrize(
    "command",
    [("check", "--policy"), ("evaluate", "--policy"), ("gate", "--candidate")],
    ids=lambda one: str(one[0]),
)
def test_commands_decide_on_it_within_the_limit(
    unequal: Path, tmp_path: Path, command: tuple[str, str]
) -> None:
    name, option = command
    done = run(name, unequal, option, "column:candidate", "--memory-limit", "2GB", "--json", cwd=tmp_path)
    assert done.code in (0, 1), done.errors
    assert json.loads(done.out)["provenance"]["num_episodes"] == 20_001
    assert done.peak < 2e9
