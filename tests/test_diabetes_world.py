"""Devices, days and the drifting world."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import GaussianPolicy, SettingsError, SoftmaxPolicy
from tidegate.drivers import World
from tidegate.simulators.diabetes import (
    TREATMENTS,
    ContinuousDiabetes,
    DaySettings,
    DiscreteDiabetes,
    DriftingPatient,
    Treatment,
    load_patient,
    simulate_day,
)
from tidegate.simulators.diabetes.day import (
    DayDraws,
    GlucoseRangeWarning,
    day_return,
    draw_day,
    run_day,
)
from tidegate.simulators.diabetes.environment import treatment_grid
from tidegate.simulators.diabetes.meals import usual_meals
from tidegate.simulators.diabetes.pump import PUMPS, Pump, load_pump
from tidegate.simulators.diabetes.risk import reading_risk, risk_index
from tidegate.simulators.diabetes.sensor import SENSORS, load_sensor
from tidegate.simulators.diabetes.truth import PerformanceTable, performance_table

SETTINGS = DaySettings()
compiled_day = eqx.filter_jit(run_day)


def test_risk_by_hand() -> None:
    for glucose in (40.0, 70.0, 112.517, 180.0, 400.0):
        f = 1.509 * (np.log(glucose) ** 1.084 - 5.381)
        risk = reading_risk(glucose)
        assert float(risk.total) == pytest.approx(10 * f**2, rel=1e-12)
        assert (float(risk.low) > 0) == (f < 0)
        assert (float(risk.high) > 0) == (f > 0)
    # The scale is symmetric: 20 mg/dL and 600 mg/dL both have risk 100.
    assert float(reading_risk(20.0).low) == pytest.approx(100, rel=0.01)
    assert float(reading_risk(600.0).high) == pytest.approx(100, rel=0.01)


def test_indices_are_means_over_all_readings() -> None:
    readings = jnp.array([50.0, 60.0, 200.0, 300.0])
    each, series = reading_risk(readings), risk_index(readings)
    assert float(series.low) == pytest.approx(float(each.low[:2].sum()) / 4)
    assert float(series.high) == pytest.approx(float(each.high[2:].sum()) / 4)
    assert float(series.total) == pytest.approx(float(series.low + series.high))
    assert float(day_return(readings)) == pytest.approx(2 * (26.5 - float(series.total)))


def test_risk_is_finite_with_finite_slopes_everywhere() -> None:
    for glucose in (-5.0, 0.0, 1.0, 112.517, 1e4):
        value, slope = jax.value_and_grad(lambda g: reading_risk(g).total)(glucose)
        assert np.isfinite(value)
        assert np.isfinite(slope)


@pytest.mark.parametrize("name", ["Insulet", "Cozmo"])
def test_pump_rounds_to_its_increment_and_keeps_its_limits(name: str) -> None:
    pump, step = PUMPS[name], 0.05 / 6000
    rates = np.random.default_rng(0).uniform(0, 10, 100)
    delivered = np.asarray(pump.bolus(rates))
    np.testing.assert_allclose(delivered / step, np.round(rates / step), rtol=1e-12)
    assert np.abs(delivered - rates).max() <= step / 2 + 1e-15
    assert float(pump.bolus(1e3)) == {"Insulet": 30.0, "Cozmo": 75.0}[name]
    assert float(pump.basal(1e3)) == {"Insulet": 30.0, "Cozmo": 35.0}[name]
    assert float(pump.bolus(-1.0)) == 0.0
    assert float(jax.grad(pump.bolus)(1.23456789)) == 1.0
    assert float(jax.grad(pump.bolus)(1e3)) == 0.0


def test_sensor_noise_at_the_knots_has_the_moments_of_johnsons_curve() -> None:
    sensor = SENSORS["Dexcom"]
    keys = jax.random.split(jax.random.key(0), 40_000)
    noise = np.asarray(jax.jit(jax.vmap(lambda key: sensor.noise(key, 250)))(keys))
    last = noise[:, 249]  # 750 minutes: knot 50
    spread = 0.7 / np.sqrt(1 - 0.7**2)
    normal = spread * np.random.default_rng(0).standard_normal(2_000_000)
    expected = -5.47 + 15.9574 * np.sinh((normal + 0.5444) / 1.6898)
    assert last.mean() == pytest.approx(expected.mean(), abs=4 * last.std() / 200)
    assert last.std() == pytest.approx(expected.std(), rel=0.02)
    knots = np.corrcoef(noise[:, 244], last)[0, 1]
    assert knots == pytest.approx(0.7, abs=0.02)


def test_readings_stay_in_the_sensors_range() -> None:
    for name, low in (("Dexcom", 39.0), ("GuardianRT", 39.0), ("Navigator", 32.0)):
        read = np.asarray(SENSORS[name].read(np.array([5.0, 100.0, 900.0]), 1.0))
        np.testing.assert_array_equal(read, [low, 101.0, 600.0])


def test_random_meals_follow_the_published_plan() -> None:
    plan, count = usual_meals(), 5_000
    keys = jax.random.split(jax.random.key(0), count)
    days = np.asarray(jax.jit(jax.vmap(plan.draw))(keys))
    assert days.shape == (count, 1440)
    assert np.all(days == np.round(days))
    assert days.min() == 0
    lunch = days[:, 601:840]
    assert (lunch.sum(axis=1) > 0).mean() == pytest.approx(0.95, abs=0.015)
    minute = (lunch.argmax(axis=1) + 601)[lunch.sum(axis=1) > 0]
    assert minute.mean() == pytest.approx(720, abs=4)
    assert minute.std() == pytest.approx(60 * stats.truncnorm.std(-2, 2), rel=0.04)
    assert lunch.sum(axis=1)[lunch.sum(axis=1) > 0].mean() == pytest.approx(70, abs=0.7)
    snack = days[:, 1201:1380]
    assert (snack.sum(axis=1) > 0).mean() == pytest.approx(0.3 * stats.norm.cdf(1.9), abs=0.03)
    assert days[:, :300].sum() + days[:, 1381:].sum() == 0


def test_a_bolus_is_delivered_in_the_sample_after_the_meal() -> None:
    day = simulate_day("adolescent#003", (23.0, 33.0), meals=[(421, 46.0)], seed=3)
    sample = 421 // 3
    assert day.glucose.shape == (480,)
    assert float(day.meals[sample]) == 46.0
    treated = np.flatnonzero(np.asarray(day.boluses))
    np.testing.assert_array_equal(treated, [sample + 1])
    reading = float(day.readings[sample])
    correction = (reading - 140.0) / 33.0 if reading > 150 else 0.0
    assert float(day.boluses[sample + 1]) == pytest.approx(2.0 + correction, abs=3e-5)


def test_treatment_by_hand() -> None:
    treatment = Treatment(10.0, 20.0)
    assert float(treatment.bolus(50.0, 150.0)) == 5.0
    assert float(treatment.bolus(50.0, 180.0)) == 7.0
    assert float(treatment.bolus(0.0, 180.0)) == 0.0


def test_days_of_a_batch_are_the_days_one_by_one() -> None:
    patient = load_patient("adolescent#003")
    keys = jax.random.split(jax.random.key(5), 3)
    batch = jax.jit(jax.vmap(lambda k: draw_day(SETTINGS, k)))(keys)
    ratios = jnp.array([8.0, 15.0, 30.0])
    together = jax.jit(jax.vmap(lambda d, cr: run_day(patient, Treatment(cr, 30.0), d, SETTINGS)))(
        batch, ratios
    )
    for i in range(3):
        draws = draw_day(SETTINGS, keys[i])
        np.testing.assert_allclose(draws.noise, batch.noise[i], rtol=1e-9)
        alone = compiled_day(patient, Treatment(ratios[i], jnp.array(30.0)), draws, SETTINGS)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-9, atol=1e-9)


def test_a_seed_fixes_the_day() -> None:
    days = [simulate_day("adult#003", (9.0, 18.0), seed=seed) for seed in (1, 1, 2)]
    assert eqx.tree_equal(days[0], days[1])
    assert float(days[0].episode_return) != float(days[2].episode_return)


def test_32_bit_days_agree_with_64_bit_days() -> None:
    patient, treatment = load_patient("adolescent#003"), Treatment(19.0, 26.0)
    draws = draw_day(SETTINGS, jax.random.key(2))
    wide = compiled_day(patient, treatment, draws, SETTINGS)
    narrow_draws = DayDraws(np.asarray(draws.meals), np.asarray(draws.noise))
    with jax.enable_x64(False):
        narrow = compiled_day(patient, treatment, narrow_draws, SETTINGS)
        assert narrow.glucose.dtype == jnp.float32
    assert np.abs(np.asarray(narrow.glucose) - np.asarray(wide.glucose)).max() < 0.02
    assert float(narrow.episode_return) == pytest.approx(float(wide.episode_return), abs=1e-3)


def test_gradient_of_a_return_matches_finite_differences() -> None:
    """With a pump that hardly rounds; the published one passes the same gradient through."""
    patient = load_patient("adolescent#008")
    draws = draw_day(SETTINGS, jax.random.key(4))
    smooth = dataclasses.replace(SETTINGS, pump=Pump(30.0, 30.0, bolus_increment=1e-8))
    smooth, usual = jax.tree.map(jnp.asarray, (smooth, SETTINGS))

    def worth(ratios: Any, settings: DaySettings) -> Any:
        return run_day(patient, Treatment(ratios[0], ratios[1]), draws, settings).episode_return

    at, step = jnp.array([9.0, 16.0]), 1e-4
    value, slope = jax.jit(worth), jax.jit(jax.grad(worth))
    numeric = [
        (value(at.at[i].add(step), smooth) - value(at.at[i].add(-step), smooth)) / (2 * step)
        for i in range(2)
    ]
    np.testing.assert_allclose(slope(at, smooth), numeric, rtol=1e-4)
    np.testing.assert_allclose(slope(at, usual), numeric, rtol=1e-3)


def test_leaving_the_models_range_is_reported() -> None:
    with pytest.warns(GlucoseRangeWarning, match=r"left 10 to 600 mg/dL on 1 of 1 days"):
        day = simulate_day("adolescent#003", (2.0, 5.0), seed=0)
    assert bool(day.out_of_range)
    assert np.isfinite(day.episode_return)


@pytest.mark.parametrize(
    ("treatment", "message"),
    [
        ((0.0, 30.0), r"the carbohydrate ratio CR is 0\. Expected finite g/U, above zero"),
        ((-3.0, 30.0), r"CR is -3"),
        ((20.0, 0.0), r"the correction factor CF is 0"),
        ((20.0, np.nan), r"CF is nan"),
    ],
)
def test_bad_treatments(treatment: tuple[float, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        simulate_day("adolescent#003", treatment)


def test_unknown_devices() -> None:
    with pytest.raises(SettingsError, match=r"no sensor 'Libre'\. Expected one of \['Dexcom'"):
        load_sensor("Libre")
    with pytest.raises(SettingsError, match=r"no pump 'Tandem'"):
        load_pump("Tandem")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("cache")
    return folder


@pytest.fixture
def world(cache: Path) -> DiscreteDiabetes:
    return DiscreteDiabetes.at_speed(1.0).with_truth(days=100, nodes=3, cache=cache)


def test_worth_of_the_treatments_as_an_independent_draft_had_it(world: DiscreteDiabetes) -> None:
    """Rough figures of another program with Gaussian reading noise, 64 days."""
    assert world.truth is not None
    expected = [[3, 8, 14, 23, 37], [24, 29, 35, 42, 21], [19, 22, 19, 0, -9]]
    assert np.abs(world.truth.means - np.array(expected)).max() < 3
    assert world.truth.out_of_range[2, 4] > 0.9  # the last treatment is far too strong for #003
    assert world.truth.out_of_range[0].max() == 0


def test_drift_starts_at_the_first_patient_and_turns_at_the_second() -> None:
    drift = DriftingPatient.between("adult#001", "child#002", speed=2.0)
    numbers = np.array([1.0, 1 + np.pi / 0.006, 1 + np.pi / 0.012])
    np.testing.assert_allclose(drift.weight(numbers), [1.0, 0.0, 0.5], atol=1e-12)
    for mine, expected in zip(
        jax.tree.leaves(drift.at(1.0)), jax.tree.leaves(load_patient("adult#001")), strict=True
    ):
        assert float(mine) == pytest.approx(float(expected))
    still = dataclasses.replace(drift, speed=0.0)
    np.testing.assert_array_equal(still.weight(numbers), 1.0)


def test_performance_is_the_mixture_of_the_table(world: DiscreteDiabetes) -> None:
    assert world.truth is not None
    policy = SoftmaxPolicy([0.3, 0.0, -0.2, 1.0, 0.5])
    numbers = np.array([1.0, 1 + np.pi / 0.006])  # c = 1 and c = 1/2
    probs = np.exp(np.asarray(policy.log_probs()))
    found = world.performance(policy, numbers)
    np.testing.assert_allclose(found, world.truth.means[[2, 1]] @ probs, rtol=1e-9)
    speeds = jnp.array([0.0, 1.0, 2.5])

    def at_speed(speed: Any) -> Any:
        return DiscreteDiabetes.at_speed(speed, truth=world.truth).performance(policy, numbers)

    np.testing.assert_allclose(jax.jit(jax.vmap(at_speed))(speeds)[1], found, rtol=1e-9)


def test_collected_returns_average_to_the_performance(world: DiscreteDiabetes) -> None:
    still: World = dataclasses.replace(world, patient=dataclasses.replace(world.patient, speed=0.0))
    numbers = np.arange(1.0, 401.0)
    run = eqx.filter_jit(lambda w, k: w.collect(w.safe_policy, numbers, k))
    log = run(still, jax.random.key(0))
    assert log.num_actions == 5
    assert eqx.tree_equal(log, run(still, jax.random.key(0)))
    rewards = np.asarray(log.rewards)[:, 0]
    truth = float(still.performance(still.safe_policy, numbers)[0])
    table_error = float(np.max(world.truth.standard_errors)) if world.truth else 0.0
    error = np.hypot(rewards.std() / np.sqrt(rewards.size), table_error)
    assert abs(rewards.mean() - truth) < 4 * error
    probs = np.exp(np.asarray(world.safe_policy.log_probs()))
    actions = np.asarray(log.actions)[:, 0]
    np.testing.assert_allclose(np.exp(log.behavior_log_probs[:, 0]), probs[actions])


def test_a_table_is_kept_and_a_damaged_one_is_made_again(cache: Path, tmp_path: Path) -> None:
    first, second = load_patient("adolescent#003"), load_patient("adolescent#008")

    def table(seed: int) -> PerformanceTable:
        return performance_table(first, second, TREATMENTS[:2], days=4, nodes=2, seed=seed, cache=tmp_path)

    made = table(0)
    (file,) = tmp_path.iterdir()
    stamp = file.stat().st_mtime_ns
    assert eqx.tree_equal(made, table(0))
    assert file.stat().st_mtime_ns == stamp
    file.write_bytes(file.read_bytes()[:100])
    assert eqx.tree_equal(made, table(0))
    assert not np.array_equal(made.means, table(1).means)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_world_without_truth_says_how_to_get_it() -> None:
    world = DiscreteDiabetes.at_speed(1.0)
    with pytest.raises(SettingsError, match=r"with_truth"):
        world.performance(world.safe_policy, np.array([1.0]))


def test_continuous_world_draws_holds_and_values_treatments() -> None:
    world = ContinuousDiabetes.at_speed(1.0)
    numbers = np.arange(1.0, 9.0)
    run = eqx.filter_jit(lambda p, k: world.collect(p, numbers, k))
    log = run(world.safe_policy, jax.random.key(1))
    assert log.num_actions is None
    assert log.actions.shape == (8, 1, 2)
    logged = world.safe_policy.logged_log_probs(log)
    np.testing.assert_allclose(logged, log.behavior_log_probs, rtol=1e-9)
    reckless = GaussianPolicy([-5.0, -5.0], [0.0, 0.0])
    assert np.all(np.isfinite(run(reckless, jax.random.key(1)).rewards))


def test_continuous_performance_integrates_over_the_policy() -> None:
    """With a worth that is linear in log CR and log CF, the answer is known by quadrature."""
    grid = treatment_grid()
    worth = np.log(grid) @ np.array([3.0, -2.0])
    zeros = np.zeros((2, len(grid)))
    table = PerformanceTable(np.stack([worth, worth + 1]), zeros, zeros, grid)
    world = ContinuousDiabetes.at_speed(0.0, truth=table)
    found = world.performance(world.safe_policy, np.array([1.0, 5.0]))
    rng = np.random.default_rng(0).normal(size=(1_000_000, 2))
    expected = np.mean(np.log(np.array([20.0, 30.0]) + 2 * rng) @ np.array([3.0, -2.0])) + 1
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_continuous_truth_keeps_what_was_simulated(cache: Path) -> None:
    world = ContinuousDiabetes.at_speed(0.0).with_truth(days=2, nodes=2, cache=cache)
    first, second = world.patient.first, world.patient.second
    coarse = performance_table(first, second, treatment_grid(3), days=2, nodes=2, cache=cache)
    assert world.truth is not None
    assert world.truth.means.shape == (4, len(treatment_grid()))
    fine = world.truth.means.reshape(4, 37, 16)[::3, ::3, ::3].reshape(2, -1)
    np.testing.assert_allclose(fine, coarse.means, atol=1e-9)
