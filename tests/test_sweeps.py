"""Sweeps as data, batches as programs, studies that go on where they were."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest

from tidegate import SettingsError, simulate
from tidegate.experiments import batches
from tidegate.experiments.batches import cut
from tidegate.experiments.domains import Domain
from tidegate.experiments.engines import batch_size
from tidegate.experiments.reproduce import Effort, run_study, split_runs
from tidegate.experiments.store import Store
from tidegate.experiments.studies import diabetes_world, figure4, table1
from tidegate.experiments.sweep import (
    Choice,
    LogUniform,
    Sweep,
    Uniform,
    list_runs,
    load_sweep,
    resolve,
)
from tidegate.experiments.tables import PUBLISHED, Estimate, markdown, summarise
from tidegate.presets import paper_run
from tidegate.simulators.recommender import Recommender

DEFINITION = """
name = "tiny"
num_episodes = 48
warmup = 12

[fixed]
train_fraction = 0.5

[cells]
slow = {frequency = 0.001, noise = 0.05}
noisy = {frequency = 0.001, noise = 0.5}

[drawn]
lookahead = {choice = [4, 8]}
order = {choice = [1, 2]}
steps_per_episode = {uniform = [1.0, 2.0]}
entropy_weight = {loguniform = [0.01, 0.1]}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Sweep:
    (tmp_path / "tiny.toml").write_text(DEFINITION)
    return load_sweep(tmp_path / "tiny.toml")


def test_a_sweep_is_read_from_toml(tiny: Sweep) -> None:
    assert tiny.drawn["lookahead"] == Choice((4, 8))
    assert tiny.drawn["steps_per_episode"] == Uniform(1.0, 2.0)
    assert tiny.drawn["entropy_weight"] == LogUniform(0.01, 0.1)
    assert list(tiny.cells) == ["slow", "noisy"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("loguniform", "gaussian"), r"drawn from .*gaussian"),
        (("choice = [4, 8]", "uniform = [4.0, 8.0]"), r"fixes array shapes"),
        (("name = ", "nonsense = 1\nname = "), r"the sweep has no 'nonsense'"),
        (("name = ", "warmups = 1\nname = "), r"no 'warmups'\. Did you mean 'warmup'"),
        (("num_episodes = 48", "num_episodes = 2.5"), r"num_episodes is 2\.5"),
        (("loguniform = [0.01,", "loguniform = [0.0,"), r"the lower end is 0\.0"),
        (("lookahead = {choice = [4, 8]}", ""), r"says nothing of the lookahead"),
        (("[cells]", "[cells"), r"cannot read a sweep"),
        (("name = ", "length = 'order_of_magnitude'\nname = "), r"length is 'order_of_magnitude'"),
        (("name = ", "jump = 'frequencies'\nname = "), r"cell 'slow': jump is 'frequencies'"),
    ],
)
def test_a_malformed_sweep(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(DEFINITION.replace(*change))
    with pytest.raises(SettingsError, match=message):
        load_sweep(tmp_path / "bad.toml")


def test_every_run_is_listed_once_and_drawn_from_its_range(tiny: Sweep) -> None:
    runs = list_runs(tiny, settings=200, trials=2, seed=0)
    identities = set(zip(runs.cell.tolist(), runs.setting.tolist(), runs.trial.tolist(), strict=True))
    assert len(runs) == len(identities) == 2 * 200 * 2
    assert set(runs.drawn["lookahead"].tolist()) == {4, 8}
    weight = runs.drawn["entropy_weight"]
    assert 0.01 <= weight.min() < weight.max() <= 0.1
    again = list_runs(tiny, settings=200, trials=2, seed=0)
    np.testing.assert_array_equal(weight, again.drawn["entropy_weight"])
    other = list_runs(tiny, settings=200, trials=2, seed=1)
    assert np.any(weight != other.drawn["entropy_weight"])


def test_batches_partition_the_runs_by_shape(tiny: Sweep) -> None:
    runs = list_runs(tiny, settings=50, trials=1, seed=0)
    parts = cut(tiny, runs, size=16, seed=0)
    assert sum(len(batch.runs) for batch in parts) == len(runs)
    assert len({batch.name for batch in parts}) == len(parts)
    for batch in parts:
        assert len(set(batch.runs.drawn["lookahead"].tolist())) == 1
        assert len(batch.runs) <= batch.size <= 16
    assert len({batch.program for batch in parts}) == 2


def test_runs_are_sorted_by_the_field_that_the_sweep_names(tiny: Sweep) -> None:
    runs = list_runs(tiny, settings=50, trials=1, seed=0)
    by_weight = dataclasses.replace(tiny, length="entropy_weight")
    for sweep, is_sorted in ((tiny, False), (by_weight, True)):
        for lookahead in (4, 8):
            parts = [b for b in cut(sweep, runs, size=16, seed=0) if b.shape[0][1] == lookahead]
            weight = np.concatenate([batch.runs.drawn["entropy_weight"] for batch in parts])
            assert bool(np.all(np.diff(weight) >= 0)) == is_sorted
    assert all(sweep.length == "steps_per_episode" for sweep in table1())


class Described(Recommender):
    """A world that happens to have a field called `jump`."""

    jump: float = 3.0


def test_only_the_sweep_says_whether_a_world_jumps(tiny: Sweep) -> None:
    here = dataclasses.replace(tiny, world=f"{__name__}:Described", num_episodes=16)
    cells = {name: {**cell, "jump": 20.0} for name, cell in tiny.cells.items()}
    for sweep, has_lapse in (
        (here, False),
        (dataclasses.replace(here, cells=cells), False),
        (dataclasses.replace(here, cells=cells, jump="jump"), True),
    ):
        (batch, *_) = cut(sweep, list_runs(sweep, settings=1, trials=1, seed=0), size=2, seed=0)
        found = jax.eval_shape(batches._program(batch), *batches.arguments(batch, batch.runs))
        assert ("lapse" in found) == has_lapse


def test_table_1_is_six_sweeps() -> None:
    assert [sweep.name for sweep in table1()] == list(PUBLISHED)
    assert [sweep.name for sweep in figure4()] == ["SPIN 50-50", "Stationary"]


def test_the_second_domain_has_the_same_rows_in_its_own_world() -> None:
    for one, other in zip(table1(), table1(domain=Domain.DIABETES), strict=True):
        assert (one.name, one.fixed, one.algorithm) == (other.name, other.fixed, other.algorithm)
        assert other.cells["3"] == {"speed": 3.0}
        assert other.drawn["entropy_weight"] == LogUniform(1e-2, 1.0)
        assert resolve(other.world) is diabetes_world


def test_runs_per_cell() -> None:
    assert split_runs(200) == (200, 1)
    assert split_runs(10_000) == (1_000, 10)
    with pytest.raises(SettingsError, match=r"runs is 1500"):
        split_runs(1_500)
    assert 1 <= batch_size() <= 12_000


def test_rows_do_not_depend_on_the_batch_size_and_a_study_goes_on(tiny: Sweep, tmp_path: Path) -> None:
    with jax.enable_x64(False):
        first = run_study([tiny], tmp_path / "a", Effort(6, 3), size=12)
        small = run_study([tiny], tmp_path / "b", Effort(6, 3), size=5)
        parts = sorted((tmp_path / "b" / "parts").iterdir())
        parts[0].unlink()
        (tmp_path / "b" / "rows.parquet").unlink()
        resumed = run_study([tiny], tmp_path / "b", Effort(6, 3), size=99)
    assert len(first["cell"]) == 12
    for name, values in first.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(small[name], values, atol=1e-4)
        else:
            np.testing.assert_array_equal(small[name], values)
        np.testing.assert_array_equal(resumed[name], small[name])
    frame = pl.read_parquet(tmp_path / "b" / "rows.parquet")
    assert frame.height == 12
    assert {"algorithm", "cell", "order", "violation_rate"} <= set(frame.columns)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert (manifest["batch_size"], manifest["finished"], manifest["rows"]) == (5, True, 12)
    with pytest.raises(SettingsError, match=r"holds a study with other settings"):
        Store(tmp_path / "b", {"something": "else"})
    assert "| tiny | slow | 6 |" in markdown(summarise(first))
    assert "paper" not in markdown(summarise(first), published=False)


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_study_goes_on_from_the_command_line(tmp_path: Path, blow: signal.Signals) -> None:
    (tmp_path / "tiny.toml").write_text(DEFINITION)
    command = [sys.executable, "-m", "tidegate", "reproduce", "sweep", "tiny.toml", "--runs", "6"]
    command += ["--seed", "3", "--out", "study", "--device", "cpu"]
    environment = {**os.environ, "NO_COLOR": "1"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    parts = tmp_path / "study" / "parts"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (parts.is_dir() and any(parts.glob("*0.npz"))):
        time.sleep(0.02)
    process.send_signal(blow)
    process.wait(60)
    done = {part.name: part.stat().st_mtime_ns for part in parts.glob("*.npz")}
    assert done
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "| tiny | noisy | 6 |" in result.stdout
    kept = {part.name: part.stat().st_mtime_ns for part in parts.glob("*.npz") if part.name in done}
    assert kept == done
    for name in ("rows.parquet", "table.md", "violation.svg", "violation.png", "manifest.json"):
        assert (tmp_path / "study" / name).stat().st_size > 0


def test_estimates() -> None:
    estimate = Estimate.of(np.array([1.0, 2.0, 3.0]), np.arange(3))
    assert estimate.mean == 2.0
    assert estimate.error == pytest.approx(1 / np.sqrt(3))
    repeated = Estimate.of(np.array([1.0, 2.0, 3.0] * 4), np.array([0, 1, 2] * 4))
    assert repeated == estimate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1", "--speeds", "7"], "speeds are '7'"),
        (["table1", "--device", "abacus"], "device is 'abacus'"),
        (["sweep"], "needs the TOML file"),
        (["table1", "--runs", "1500"], "runs is 1500"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate", "reproduce", *arguments]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_world_from_scratch_in_the_docs(tmp_path: Path) -> None:
    """Its three blocks, as they stand: the module and the sweep in one folder, then the command."""
    page = (Path(__file__).parents[1] / "docs/explanation/experiments/sweeps.md").read_text()
    section = page.split("## A world from scratch")[1]
    module, sweep, command = re.findall(r"```(?:python|toml|sh)\n(.*?)```", section, re.DOTALL)
    (tmp_path / "my_world.py").write_text(module)
    (tmp_path / "arms.toml").write_text(sweep)
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "| two arms | rising | 8 |" in result.stdout
    rows = pl.read_parquet(tmp_path / "out" / "arms" / "rows.parquet")
    still, rising = (
        rows.filter(pl.col("cell") == one)["curve_safe"].to_list() for one in ("still", "rising")
    )
    np.testing.assert_allclose(still[0], 0.7 * 0.5 + 0.3 * 0.2, rtol=1e-5)
    assert np.all(np.diff(rising[0]) > 0)


class Untraceable(Recommender):
    """It asks for the value of what it is given."""

    def performance(self, policy: Any, episode_numbers: Any) -> Any:
        if episode_numbers[0] > 10:
            return super().performance(policy, episode_numbers)
        return super().performance(policy, episode_numbers)


class InNumPy(Recommender):
    """It computes with NumPy."""

    def collect(self, policy: Any, episode_numbers: Any, key: Any) -> Any:
        log = super().collect(policy, np.asarray(episode_numbers), key)
        return log


class Silent:
    """It cannot be run."""

    safe_policy = None


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (
            Untraceable,
            r"test_sweeps\.py, line \d+: Untraceable\.performance cannot be traced: .*Attempted bool",
        ),
        (InNumPy, r"test_sweeps\.py, line \d+: InNumPy\.collect cannot be traced: .*numpy\.ndarray"),
        (Silent, r"Silent has no 'collect'\. Expected a world with safe_policy, collect\("),
    ],
)
def test_a_world_that_cannot_be_traced(world: Any, message: str) -> None:
    settings = paper_run(lookahead=4, order=1, steps_per_episode=1.0, entropy_weight=0.1, train_fraction=0.5)
    with pytest.raises(SettingsError, match=message) as refused:
        simulate(world(), settings, jax.random.key(0), jax.random.key(1), num_episodes=16, window=4)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_sweep_of_a_world_that_cannot_be_built_from_traced_fields(tiny: Sweep) -> None:
    sweep = dataclasses.replace(tiny, world=f"{__name__}:choosy")
    (batch, *_) = cut(sweep, list_runs(sweep, settings=1, trials=1, seed=0), size=2, seed=0)
    with pytest.raises(SettingsError, match=r"test_sweeps\.py, line \d+: .*:choosy with .* cannot be traced"):
        batch.run()


def choosy(frequency: Any, noise: Any) -> Recommender:
    return Recommender(frequency=float(frequency), noise=noise)


def test_a_world_is_looked_for_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worlds_of_mine.py").write_text("from tidegate.simulators.recommender import Recommender\n")
    with pytest.raises(
        SettingsError, match=r"cannot import 'Recommender' from 'worlds_of_mine'.*Run from the f"
    ):
        resolve("worlds_of_mine:Recommender")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert resolve("worlds_of_mine:Recommender") is Recommender
    assert sys.path == before
    with pytest.raises(
        SettingsError, match=r"cannot import 'Nobody' from 'worlds_of_mine'.*my_world:TwoArms"
    ):
        resolve("worlds_of_mine:Nobody")
