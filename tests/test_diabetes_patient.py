"""The patient: parity, closed forms, conservation, order of convergence, gradients."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import SettingsError
from tidegate.simulators.diabetes import (
    load_patient,
    patient_names,
    simulate_minutes,
    usual_treatment,
)
from tidegate.simulators.diabetes.meals import meals_at
from tidegate.simulators.diabetes.patient import (
    Digestion,
    Emptying,
    Patient,
    blend,
    digestion_slope,
    metabolism_slope,
)
from tidegate.simulators.diabetes.solver import digest

# `shipped`: simglucose 0.2.11, scipy's dopri5 at its default tolerance, a state before each minute.
# `tight`: the same right-hand side by scipy's DOP853 at 1e-11. Meals of 45, 70 and 80 g at minutes 420,
# 720 and 1080; in that minute grams/CR units flow on top of the basal rate.
REFERENCE = dict(np.load(Path(__file__).parent / "data/diabetes_reference.npz"))
ALL = [load_patient(name) for name in patient_names()]


def everyone() -> Patient:
    tree: Patient = jax.tree.map(lambda *leaves: np.stack(leaves), *ALL)
    return tree


def reference_day(number: str, steps: int) -> Any:
    patient, insulin = load_patient(f"adolescent#{number}"), REFERENCE[f"insulin_{number}"]
    return jax.jit(lambda: simulate_minutes(patient, REFERENCE["meals"], insulin, steps=steps))()


@pytest.mark.parametrize("number", ["003", "008"])
def test_parity_with_simglucose_at_every_minute(number: str) -> None:
    shipped, tight = REFERENCE[f"shipped_{number}"], REFERENCE[f"tight_{number}"]
    usual, fine = (np.asarray(reference_day(number, steps).glucose) for steps in (2, 16))
    assert np.abs(usual - shipped).max() < 1e-3
    assert np.abs(fine[:-1] - tight).max() < 1e-6
    # For #008 the reference itself errs by 1.5e-5.
    assert np.abs(fine - shipped).max() < 1e-5 + np.abs(shipped[:-1] - tight).max()


def test_bookkeeping_of_meals_matches_simglucose() -> None:
    eating = reference_day("008", 2).eating
    np.testing.assert_allclose(eating.stomach_at_start[1:], REFERENCE["stomach_at_start_008"])
    np.testing.assert_array_equal(eating.eaten[1:], REFERENCE["eaten_008"])


def test_thirty_patients_are_at_rest_on_their_basal_rate() -> None:
    patients = everyone()
    slope = metabolism_slope(
        patients.initial.metabolism, patients.parameters, absorbed=0.0, insulin=patients.basal_rate
    )
    for rate in jax.tree.leaves(slope):
        assert np.abs(rate).max() < 1e-6
    without = Emptying.of_meal(jnp.zeros(30), patients.parameters)
    rest = digestion_slope(patients.initial.digestion, patients.parameters, without, eaten=0.0)
    assert all(np.abs(rate).max() == 0 for rate in jax.tree.leaves(rest))
    zeros = np.zeros((30, 300))
    rates = np.repeat(patients.basal_rate[:, None], 300, axis=1)
    glucose = jax.jit(jax.vmap(simulate_minutes))(patients, zeros, rates).glucose
    assert np.ptp(np.asarray(glucose), axis=1).max() < 1e-4


def test_emptying_is_fast_full_slow_between_fast_at_the_end() -> None:
    p = load_patient("adolescent#003").parameters
    meal = Emptying.of_meal(60_000.0, p)
    low, high = p.emptying_min, p.emptying_max
    tanh = np.tanh
    for share in (0.0, 0.1, 0.3, 0.5642, 0.9, 1.0):
        full = tanh(2.5 / (1 - p.emptying_slows_at) * (share - p.emptying_slows_at))
        empty = tanh(2.5 / p.emptying_recovers_at * (share - p.emptying_recovers_at))
        expected = low + (high - low) / 2 * (full - empty + 2)
        assert float(meal.rate(share * 60_000.0)) == pytest.approx(expected, rel=1e-12)
    assert float(Emptying.of_meal(0.0, p).rate(0.0)) == pytest.approx(high)


def test_no_milligram_of_a_meal_is_lost() -> None:
    p = load_patient("child#007").parameters
    before = Digestion(*(jnp.asarray(mg) for mg in (12_000.0, 20_000.0, 3_000.0)))
    after, absorbed = digest(before, p, Emptying.of_meal(40_000.0, p), jnp.asarray(5.0), 0.5)
    held = [sum(jax.tree.leaves(digestion)) for digestion in (before, after)]
    assert float(held[0] + 2500.0) == pytest.approx(float(held[1] + absorbed), rel=1e-14)


def test_meals_are_eaten_at_five_grams_a_minute() -> None:
    patient = load_patient("adult#004")
    meals = meals_at([(10, 12.5), (11, 10.0), (100, 4.0)])
    eating = simulate_minutes(patient, meals[:110], np.zeros(110)).eating
    eaten = np.asarray(eating.rate)[1:]
    np.testing.assert_allclose(eaten[10:16], [5.0, 5.0, 5.0, 5.0, 2.5, 0.0])
    assert eaten.sum() == pytest.approx(26.5)
    assert float(eating.eaten[16]) == pytest.approx(22.5)
    assert float(eating.eaten[101]) == pytest.approx(4.0)


def test_the_solver_is_of_order_four_between_meals() -> None:
    patient, minutes = load_patient("adult#001"), 120
    insulin = np.full(minutes, patient.basal_rate)
    insulin[5] += 3.0

    def glucose(steps: int) -> Any:
        run = jax.jit(lambda: simulate_minutes(patient, np.zeros(minutes), insulin, steps=steps))
        return np.asarray(run().states.metabolism.plasma_insulin)

    exact = glucose(32)
    errors = [np.abs(glucose(steps) - exact).max() for steps in (1, 2, 4)]
    assert errors[0] / errors[1] > 12
    assert errors[1] / errors[2] > 12


def test_grams_added_to_milligrams_empty_the_stomach_faster() -> None:
    patient = load_patient("adolescent#003")
    meals = meals_at([(10, 80.0)])[:180]
    insulin = np.full(180, patient.basal_rate)
    corrected, mixed = (
        simulate_minutes(patient, meals, insulin, mixed_units=flag).states.digestion for flag in (False, True)
    )
    p = patient.parameters
    ratio = np.asarray(mixed.stomach_liquid[120] / mixed.stomach_liquid[119])
    fastest = np.asarray(mixed.stomach_solid[119] / mixed.stomach_liquid[119]) * p.emptying_max
    assert np.log(ratio) == pytest.approx(fastest - p.emptying_max, rel=0.1)
    assert float(corrected.stomach[120]) > 2 * float(mixed.stomach[120])


def test_gradients_of_a_trajectory_match_finite_differences() -> None:
    patient = load_patient("adolescent#008")
    meals = meals_at([(20, 60.0), (90, 8.0)])[:240]

    @jax.jit
    def last_glucose(log_scales: Any, dose: Any) -> Any:
        leaves, structure = jax.tree.flatten(patient.parameters)
        scaled = [leaf * jnp.exp(s) for leaf, s in zip(leaves, log_scales, strict=True)]
        changed = Patient(jax.tree.unflatten(structure, scaled), patient.initial)
        insulin = jnp.zeros(240).at[20:23].set(dose)
        return jnp.mean(simulate_minutes(changed, meals, insulin).glucose)

    size = len(jax.tree.leaves(patient.parameters))
    at, dose, step = jnp.zeros(size), 2.0, 1e-5
    slopes, dose_slope = jax.jit(jax.grad(last_glucose, argnums=(0, 1)))(at, dose)
    numeric = [
        (last_glucose(at.at[i].set(step), dose) - last_glucose(at.at[i].set(-step), dose))
        for i in range(size)
    ]
    np.testing.assert_allclose(slopes, np.array(numeric) / (2 * step), rtol=1e-4, atol=1e-5)
    numeric_dose = (last_glucose(at, dose + step) - last_glucose(at, dose - step)) / (2 * step)
    assert float(dose_slope) == pytest.approx(float(numeric_dose), rel=1e-6)
    assert float(dose_slope) < 0


def test_gradients_are_finite_before_the_first_meal() -> None:
    patient = load_patient("adult#001")

    def glucose(patient: Patient) -> Any:
        return jnp.sum(simulate_minutes(patient, np.zeros(5), np.zeros(5)).glucose)

    assert all(np.isfinite(g).all() for g in jax.tree.leaves(jax.grad(glucose)(patient)))


def test_blending_interpolates_parameters_and_initial_state() -> None:
    first, second = load_patient("adolescent#003"), load_patient("adolescent#008")
    half = blend(0.25, first, second)
    for a, b, c in zip(*map(jax.tree.leaves, (first, second, half)), strict=True):
        assert c == pytest.approx(0.25 * a + 0.75 * b)


def test_thirty_names_and_their_usual_treatments() -> None:
    assert len(patient_names()) == 30
    assert patient_names()[0] == "adolescent#001"
    assert usual_treatment("adolescent#003") == (23.0, 33.5259913553)


def test_unknown_patient_names_the_close_ones() -> None:
    with pytest.raises(SettingsError, match=r"no patient 'adult#1'.*adult#0"):
        load_patient("adult#1")


@pytest.mark.parametrize(
    ("meals", "insulin", "message"),
    [
        ([0.0, -1.0], [0.0, 0.0], r"position \(1,\): meals is -1\. Expected finite grams"),
        ([0.0, 1.0], [0.0, -0.5], r"insulin is -0.5"),
        ([0.0, np.nan], [0.0, 0.0], r"meals is nan"),
        ([0.0, 1.0], [np.inf, 0.0], r"insulin is inf"),
    ],
)
def test_bad_inputs(meals: Any, insulin: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        simulate_minutes(load_patient("adult#001"), np.array(meals), np.array(insulin))


@pytest.mark.parametrize("meal", [(1440, 10.0), (-1, 10.0), (10.5, 3.0), (10, -3.0)])
def test_bad_meals(meal: Any) -> None:
    with pytest.raises(SettingsError, match=r"meal"):
        meals_at([meal])
