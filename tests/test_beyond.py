"""Worlds against their closed forms, and the study over them from sweeps to tables."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tidegate import SettingsError, SoftmaxPolicy
from tidegate.cli.app import Part, app
from tidegate.experiments import batches, beyond
from tidegate.experiments.batches import cut, lapse
from tidegate.experiments.beyond import JUMP, WORLDS, beyond_sweeps, coverage_cells, run_beyond
from tidegate.experiments.coverage import CoverageJob, CoverageRow, summarise_coverage
from tidegate.experiments.reproduce import Effort
from tidegate.experiments.studies import DRAWN, figure4
from tidegate.experiments.sweep import Choice, list_runs, resolve
from tidegate.experiments.tables import Estimate, summarise
from tidegate.simulators.drifting import DriftingBandit
from tidegate.simulators.recommender import PERIODS, Recommender

NUMBERS = np.arange(1.0, 2021.0)
RUN = jax.jit(
    lambda world, policy, numbers: (
        world.collect(policy, numbers, jax.random.key(1)),
        world.performance(policy, numbers),
    )
)
MEANS = jax.jit(lambda world: world.expected_rewards(NUMBERS))


@pytest.mark.parametrize("speed", [0, 1, 2, 3])
def test_five_seasonal_arms_are_recosys_to_the_bit(speed: int) -> None:
    bandit, recosys = DriftingBandit.seasonal(PERIODS[speed]), Recommender.at_speed(speed)
    policy = SoftmaxPolicy([1.0, 0.0, 0.5, 0.2, -1.0])
    np.testing.assert_array_equal(bandit.safe_policy.logits, recosys.safe_policy.logits)
    logs = [world.collect(policy, NUMBERS, jax.random.key(1)) for world in (bandit, recosys)]
    assert logs[0].digest() == logs[1].digest()
    np.testing.assert_array_equal(bandit.performance(policy, NUMBERS), recosys.performance(policy, NUMBERS))


def _scales(arms: int) -> list[float]:
    return [1 - 0.8 * i / (arms - 1) for i in range(arms)]


CLOSED_FORMS: dict[str, tuple[DriftingBandit, Callable[[int, int], float]]] = {
    "seasonal": (
        DriftingBandit.seasonal(400.0, 0.5, 10),
        lambda t, i: _scales(10)[i] * math.cos(2 * math.pi * (t / 400 + i / 10)),
    ),
    "linear": (
        DriftingBandit.linear(2_000.0, arms=3),
        lambda t, i: (1 - t / 2_000) * _scales(3)[i] + t / 2_000 * _scales(3)[2 - i],
    ),
    "stopping": (
        DriftingBandit.stopping(1_500.0, 700.0),
        lambda t, i: _scales(5)[i] * math.cos(2 * math.pi * (min(t, 700) / 1_500 + i / 5)),
    ),
    "fixed order": (
        DriftingBandit.fixed_order(1_500.0, arms=20),
        lambda t, i: _scales(20)[i] * (1.5 + math.cos(2 * math.pi * t / 1_500)),
    ),
    "jumping": (
        DriftingBandit.jumping(1_000.0),
        lambda t, i: _scales(5)[i] * math.cos(2 * math.pi * i / 5) * (1 if t < 1_000 else -1),
    ),
}


@pytest.mark.parametrize("name", list(CLOSED_FORMS))
def test_arms_earn_what_their_formula_says(name: str) -> None:
    world, formula = CLOSED_FORMS[name]
    expected = [[formula(t, i) for i in range(world.arms)] for t in range(NUMBERS.size)]
    np.testing.assert_allclose(MEANS(world), expected, atol=1e-12)
    probs = np.arange(1.0, world.arms + 1) / sum(range(1, world.arms + 1))
    log, performance = RUN(world, SoftmaxPolicy.from_probs(probs), NUMBERS)
    np.testing.assert_allclose(performance, np.array(expected) @ probs, atol=1e-12)
    earned = [formula(t, i) for t, i in enumerate(np.asarray(log.actions)[:, 0].tolist())]
    noise = np.asarray(log.rewards)[:, 0] - earned
    assert abs(noise.mean()) < 5 * float(world.noise) / np.sqrt(NUMBERS.size)
    assert noise.std() == pytest.approx(float(world.noise), rel=0.1)


def test_what_each_drift_does_to_the_best_arm() -> None:
    def best(world: DriftingBandit) -> Any:
        """The arms that are best one after another; where all are equal, none is."""
        means = np.asarray(MEANS(world))
        ranked = means[np.ptp(means, axis=1) > 1e-9].argmax(axis=1)
        return ranked[np.insert(np.diff(ranked) != 0, 0, True)].tolist()

    assert best(DriftingBandit.linear()) == [0, 4]
    assert best(DriftingBandit.fixed_order()) == [0]
    assert best(DriftingBandit.jumping()) == [0, 2]
    assert len(best(DriftingBandit.seasonal(200.0))) > 20
    order = np.asarray(MEANS(DriftingBandit.fixed_order())).argsort(axis=1)
    assert np.all(order == order[0])


@pytest.mark.parametrize("arms", [3, 10, 20])
def test_the_safe_policy_stretches_over_any_number_of_arms(arms: int) -> None:
    logits = np.asarray(DriftingBandit.seasonal(1_500.0, arms=arms).safe_policy.logits)
    assert (logits[0], logits[-1], logits.size) == (2.0, 1.0, arms)
    assert np.all(np.diff(logits) <= 0)


def test_bad_worlds() -> None:
    with pytest.raises(SettingsError, match=r"arms is 1"):
        DriftingBandit(arms=1)
    with pytest.raises(SettingsError, match=r"period is 0"):
        DriftingBandit.seasonal(0.0)
    with pytest.raises(SettingsError, match=r"part is 'x'"):
        run_beyond("x", Path(), Effort(1, 0))


def test_sweeps_draw_alike_and_hold_every_world_once() -> None:
    for part in ("recosys", "worlds", "diabetes"):
        for sweep in beyond_sweeps(part):
            assert ("order" in sweep.drawn) == sweep.name.startswith("SPIN")
            for name in ("lookahead", "steps_per_episode"):
                assert sweep.drawn[name] == DRAWN[name]
    worlds = beyond_sweeps("worlds")
    cells = {name: (sweep, cell) for sweep in worlds[::3] for name, cell in sweep.cells.items()}
    assert set(cells) == set(WORLDS)
    for name, (sweep, cell) in cells.items():
        assert resolve(sweep.world)(**sweep.world_fixed, **cell) == WORLDS[name]
        json.dumps(cell, allow_nan=False)
    assert len({(s.name, s.world_fixed["arms"]) for s in worlds}) == len(worlds) == 12
    lookaheads = DRAWN["lookahead"]
    assert isinstance(lookaheads, Choice)
    assert all((JUMP - worlds[0].warmup) % window == 0 for window in lookaheads.values)
    spin, paper = beyond_sweeps("recosys")[1], figure4()[0]
    ours, theirs = (list_runs(s, settings=9, trials=1, seed=0).drawn for s in (spin, paper))
    np.testing.assert_array_equal(ours["order"], theirs["order"])


def test_sweeps_of_one_name_in_other_worlds_are_other_programs() -> None:
    batches = [
        cut(sweep, list_runs(sweep, settings=1, trials=1, seed=0), size=1, seed=0)[0]
        for sweep in (beyond_sweeps(part, [0])[1] for part in ("recosys", "diabetes"))
    ]
    assert batches[0].sweep.name == batches[1].sweep.name
    assert batches[0].program != batches[1].program


def test_the_number_of_arms_is_a_field_of_the_sweep_and_not_part_of_a_name() -> None:
    """Sweeps of one algorithm share its name in the rows; their parts on disk and programs differ."""
    sweeps = [sweep for sweep in beyond_sweeps("worlds") if sweep.name == "SPIN"]
    assert sorted(sweep.world_fixed["arms"] for sweep in sweeps) == [3, 5, 10, 20]
    parts = [
        cut(sweep, list_runs(sweep, settings=1, trials=1, seed=0), size=1, seed=0)[0] for sweep in sweeps
    ]
    assert len({part.name for part in parts}) == len({part.program for part in parts}) == 4
    for sweep in sweeps:
        world = resolve(sweep.world)(**sweep.world_fixed, **next(iter(sweep.cells.values())))
        assert world.expected_rewards(NUMBERS[:2]).shape == (2, sweep.world_fixed["arms"])


def test_the_lapse_is_that_of_a_loop_over_windows() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        unsafe, after = rng.random(12) < 0.7, np.arange(12) >= rng.integers(0, 12)
        expected = 0
        for window in np.flatnonzero(after):
            if not unsafe[window]:
                break
            expected += 1
        assert float(lapse(unsafe, after)) == expected
    assert np.isnan(lapse(unsafe, np.zeros(12, bool)))


def test_a_small_study_from_the_command_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "WORLDS", {"jump": DriftingBandit.jumping(20.0 + 240)})
    # Its own program takes as long to compile as all others here together; it is traced below.
    monkeypatch.setattr(beyond, "MULTISCALE", "tidegate.presets:stationary_run")
    shown: list[tuple[str, int, int]] = []

    def run(seed: int = 10) -> str:
        effort = Effort(1, seed, progress=progress)
        with jax.enable_x64(False):
            return run_beyond("worlds", tmp_path, effort, speeds=[], num_episodes=312)

    def progress(name: str, done: int, total: int) -> None:
        shown.append((name, done, total))

    table, folder = run(), tmp_path / "worlds"
    rows = pl.read_parquet(folder / "rows.parquet")
    assert rows["algorithm"].to_list() == ["Multiscale", "SPIN", "Baseline"]
    for row in rows.iter_rows(named=True):
        assert f"| jump | {row['algorithm']} | 1 | {100 * row['violation_rate']:.2f} |" in table
        assert f"| {row['algorithm']} | 1 | {row['lapse']:.1f} |" in table
        assert row["lapse"] == _lapse_of_curve(row, 312, jump=240)
    assert max(rows["lapse"]) > 0
    assert (tmp_path / "table.md").read_text() == table
    assert json.loads((folder / "manifest.json").read_text())["finished"]
    assert shown[-1] == ("worlds", 3, 3)

    parts = _times(folder / "parts")
    lost = min(parts)
    (folder / "parts" / lost).unlink()
    shown.clear()
    assert run() == table
    assert shown[0] == ("worlds", 2, 3)
    again = _times(folder / "parts")
    assert [name for name in parts if again[name] != parts[name]] == [lost]
    with pytest.raises(SettingsError, match=r"holds a study with other settings"):
        run(seed=11)


def test_the_new_algorithm_fits_the_sweep() -> None:
    sweep = dataclasses.replace(beyond_sweeps("worlds")[0], num_episodes=40)
    (batch,) = cut(sweep, list_runs(sweep, settings=1, trials=1, seed=0), size=99, seed=0)
    found = jax.eval_shape(batches._program(batch), *batches.arguments(batch, batch.runs))
    assert {name: one.shape[0] for name, one in found.items()} == dict.fromkeys(
        ["improvement_over_safe", "violation_rate", "deployment_rate", "curve_performance",
         "curve_safe", "curve_unsafe", "lapse"], len(sweep.cells),
    )  # fmt: skip


def _lapse_of_curve(row: dict[str, Any], episodes: int, jump: int) -> int:
    """Episodes until the first window without violation, from the curve: fewer windows than bins."""
    unsafe, window = row["curve_unsafe"], int(row["lookahead"])
    count = episodes // window
    assert count <= len(unsafe)
    windows = [unsafe[i * len(unsafe) // count] > 0 for i in range(count)]
    return window * [*windows[jump // window :], False].index(False)


def _times(folder: Path) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in folder.iterdir()}


def test_improvement_is_compared_setting_by_setting() -> None:
    rng = np.random.default_rng(0)
    spin = rng.normal(1.0, 0.5, 40)
    columns = {
        "algorithm": np.repeat(["Multiscale", "SPIN"], 40),
        "cell": np.full(80, "w"),
        "setting": np.tile(np.arange(40), 2),
        "trial": np.zeros(80, int),
        "improvement_over_safe": np.concatenate([2 * spin, spin]),
        "violation_rate": np.full(80, 0.05),
        "deployment_rate": np.full(80, 0.5),
    }
    double, one = summarise(columns)
    assert double.ratio is not None
    assert (double.ratio.mean, double.ratio.error) == pytest.approx((2.0, 0.0), abs=1e-12)
    assert one.violation == Estimate(5.0, 0.0)
    columns["improvement_over_safe"][40:] = 0.0
    assert summarise(columns)[0].ratio is None


def test_the_coverage_of_a_standing_world_and_of_one_that_outruns_the_basis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beyond, "WORLDS", {"fast": DriftingBandit.seasonal(30.0)})
    monkeypatch.setattr(beyond, "LOG_LENGTHS", (80,))
    monkeypatch.setattr(beyond, "LOOKAHEADS", (10,))
    table = run_beyond("coverage", tmp_path, Effort(300, 0), speeds=[0])
    rows = pl.read_parquet(tmp_path / "coverage" / "rows.parquet")
    columns = {name: rows[name].to_numpy() for name in rows.columns}
    summaries = summarise_coverage(columns, ["world", "episodes", "lookahead"])
    found = {(one.factors["world"], one.method): one for one in summaries}
    error = math.sqrt(0.95 * 0.05 / 300)
    assert abs(found["speed 0", "SPIN"].coverage - 0.95) < 4 * error
    assert found["speed 0", "Multiscale"].coverage > 0.95 - 4 * error
    assert found["fast", "SPIN"].coverage < 0.8
    starts = rows.filter(pl.col("world") == "fast")["start"].to_numpy()
    assert set(starts) == set(range(30))
    for world in ("speed 0", "fast"):
        multiscale, spin = found[world, "Multiscale"], found[world, "SPIN"]
        assert f"| {world} | 80 | 10 | 300 | {_shown(multiscale)} | {_shown(spin)} |" in table
    oracle = found["fast", "Oracle"]
    assert abs(oracle.coverage - 0.95) < 4 * error
    assert oracle.mean_score < found["fast", "Multiscale"].mean_score < found["fast", "SPIN"].mean_score
    assert _shown(oracle) in table
    standing = next(line for line in table.splitlines() if line.startswith("| speed 0"))
    assert standing.endswith("|  |  |  |"), "a world without a season has no oracle"
    means = np.array([found[world, "Multiscale"].mean_score for world in ("speed 0", "fast")])
    assert f"Mean score over all cells: Multiscale {means.mean():.3g}" in table
    ratio = means[1] / oracle.mean_score
    assert f"{ratio:.2g} times the oracle's in the median, {ratio:.2g} times at most" in table


def _shown(one: CoverageRow) -> str:
    return f"{100 * one.coverage:.1f} ± {100 * one.error:.1f} | {one.median_width:.3g} | {one.mean_score:.3g}"


def test_cells_of_the_coverage_study() -> None:
    cells = coverage_cells()
    assert len(cells) == (4 + len(WORLDS) - 1) * 2 * 3
    assert len({CoverageJob(cell, 1, 0).name for cell in cells}) == len(cells)
    assert {cell.name: cell.cycle for cell in cells}["period 400, noise 0.5"] == pytest.approx(400)
    with pytest.raises(SettingsError, match=r"runs is 0"):
        CoverageJob(cells[0], 0, 0)


def test_the_command_names_the_parts() -> None:
    assert [part.value for part in Part] == [*beyond.PARTS, "all"]
    result = CliRunner().invoke(app, ["reproduce", "beyond", "--part", "moon"])
    assert result.exit_code == 2
    assert "moon" in result.output
