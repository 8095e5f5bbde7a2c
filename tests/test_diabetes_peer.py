"""Parity with simglucose 0.2.11 itself, which runs in an environment of its own (`make unit` builds it)."""

import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tidegate.simulators.diabetes import (
    DaySettings,
    Treatment,
    load_patient,
    patient_names,
    simulate_minutes,
    usual_treatment,
)
from tidegate.simulators.diabetes.day import DayDraws, run_day
from tidegate.simulators.diabetes.meals import usual_meals
from tidegate.simulators.diabetes.patient import Patient
from tidegate.simulators.diabetes.pump import PUMPS
from tidegate.simulators.diabetes.risk import reading_risk
from tidegate.simulators.diabetes.sensor import SENSORS

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("TIDEGATE_SIMGLUCOSE_PYTHON", HERE.parent / ".venv-simglucose/bin/python"))
PATIENTS, SEEDS, READINGS = 10, 400, 120

SYMBOLS = {
    "body_weight": "BW",
    "basal_insulin": "Ib",
    "basal_infusion": "u2ss",
    "gut_absorption": "kabs",
    "emptying_max": "kmax",
    "emptying_min": "kmin",
    "emptying_slows_at": "b",
    "emptying_recovers_at": "d",
    "bioavailability": "f",
    "glucose_volume": "Vg",
    "insulin_volume": "Vi",
    "plasma_to_tissue": "k1",
    "tissue_to_plasma": "k2",
    "brain_uptake": "Fsnc",
    "uptake_basal": "Vm0",
    "uptake_by_insulin": "Vmx",
    "uptake_half_saturation": "Km0",
    "production_max": "kp1",
    "production_by_glucose": "kp2",
    "production_by_insulin": "kp3",
    "renal_rate": "ke1",
    "renal_threshold": "ke2",
    "action_rate": "p2u",
    "delay_rate": "ki",
    "liver_to_plasma": "m1",
    "plasma_to_liver": "m2",
    "liver_clearance": "m30",
    "plasma_clearance": "m4",
    "insulin_dissociation": "kd",
    "absorption_1": "ka1",
    "absorption_2": "ka2",
    "sensor_site_rate": "ksc",
}


def stacked(patients: list[Patient]) -> Patient:
    tree: Patient = jax.tree.map(lambda *leaves: np.stack(leaves), *patients)
    return tree


@pytest.fixture(scope="module")
def request_arrays() -> dict[str, Any]:
    """Ten random patients, each with its own random meals, boluses and multiple of the basal rate."""
    rng = np.random.default_rng(20)
    ids = np.sort(rng.choice(np.arange(1, 31), PATIENTS, replace=False))
    names = [patient_names()[i - 1] for i in ids]
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(3), PATIENTS)
        meals = np.asarray(jax.vmap(usual_meals().draw)(keys))
    insulin = np.zeros_like(meals)
    for row, name in enumerate(names):
        insulin[row] = rng.uniform(0.5, 1.5) * load_patient(name).basal_rate
        for minute in np.flatnonzero(meals[row]):
            dose = meals[row, minute] / (usual_treatment(name)[0] * rng.uniform(1.0, 2.0))
            insulin[row, minute : minute + 3] += dose / 3
    return {
        "patient_ids": ids,
        "meals": meals,
        "insulin": insulin,
        "environment_patient": np.array(3),
        "environment_meals": meals[0],
        "environment_noise": rng.normal(0, 8, 481),
        "treatment": np.array([19.0, 26.0]),
        "noise_seeds": np.array(SEEDS),
        "noise_count": np.array(READINGS),
        "rates": np.concatenate([[0.0, 20.0, 29.99999, 31.0, 80.0], rng.uniform(0, 5, 200)]),
        "glucose": np.array([20.0, 39.0, 70.0, 100.0, 112.5, 180.0, 250.0, 600.0]),
    }


@pytest.fixture(scope="module")
def answer(request_arrays: dict[str, Any], tmp_path_factory: Any) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip(f"simglucose is not installed: there is no {PYTHON.name} in its environment")
    folder = tmp_path_factory.mktemp("simglucose")
    np.savez(folder / "request.npz", **request_arrays)
    command = [PYTHON, HERE / "simglucose_peer.py", folder / "request.npz", folder / "answer.npz"]
    subprocess.run(command, check=True, env={**os.environ, "MPLBACKEND": "agg"}, timeout=300)
    return dict(np.load(folder / "answer.npz"))


@pytest.mark.parametrize(
    ("steps", "solution", "tolerance"), [(2, "states", 1e-3), (16, "tight_states", 1e-5)]
)
def test_ten_random_patients_over_a_day(
    request_arrays: dict[str, Any],
    answer: dict[str, Any],
    steps: int,
    solution: str,
    tolerance: float,
) -> None:
    """As shipped, the peer's integrator errs by up to 6e-5 mg/dL here, so 1e-5 needs a tighter one."""
    theirs = answer[solution]
    patients = [load_patient(patient_names()[i - 1]) for i in request_arrays["patient_ids"]]
    run = jax.jit(jax.vmap(lambda p, m, i: simulate_minutes(p, m, i, steps=steps)))
    ours = run(stacked(patients), request_arrays["meals"], request_arrays["insulin"])
    volume = np.array([p.parameters.glucose_volume for p in patients])[:, None]
    assert np.abs(ours.glucose - theirs[:, :, 12] / volume).max() < tolerance
    for mine, peer in zip(jax.tree.leaves(ours.states), np.moveaxis(theirs, 2, 0), strict=True):
        np.testing.assert_allclose(mine, peer, atol=2e-4 * np.abs(peer).max() + 1e-9)


def test_a_day_of_the_whole_environment(request_arrays: dict[str, Any], answer: dict[str, Any]) -> None:
    settings = DaySettings(averaged_readings=True)
    draws = DayDraws(request_arrays["environment_meals"], request_arrays["environment_noise"])
    treatment = Treatment(*request_arrays["treatment"])
    day = jax.jit(lambda: run_day(load_patient("adolescent#003"), treatment, draws, settings))()
    np.testing.assert_allclose(day.glucose, answer["environment_glucose"], atol=1e-3)
    np.testing.assert_allclose(day.readings, answer["environment_readings"], atol=1e-3)
    assert float(day.boluses.sum()) > 5


@pytest.mark.parametrize("name", ["Dexcom", "GuardianRT", "Navigator"])
def test_sensor_noise_has_the_same_moments(answer: dict[str, Any], name: str) -> None:
    keys = jax.random.split(jax.random.key(1), 20_000)
    ours = np.asarray(jax.jit(jax.vmap(lambda k: SENSORS[name].noise(k, READINGS)))(keys))
    theirs = answer[f"noise_{name}"]

    def moments(noise: Any) -> Any:
        """Mean, standard deviation and autocorrelation at lag 1 and over 15 minutes, by seed."""
        centred = noise - ours.mean()
        lag = 15 // SENSORS[name].sample_minutes
        covariances = [(centred * centred).mean(axis=1)]
        covariances += [(centred[:, j:] * centred[:, :-j]).mean(axis=1) for j in (1, lag)]
        return np.stack([noise.mean(axis=1), *covariances])

    mine, peer = moments(ours), moments(theirs)
    error = peer.std(axis=1) / np.sqrt(SEEDS)
    assert np.all(np.abs(mine.mean(axis=1) - peer.mean(axis=1)) < 4.5 * error)
    correlation = mine.mean(axis=1)[2] / mine.mean(axis=1)[1]
    assert correlation == pytest.approx(peer.mean(axis=1)[2] / peer.mean(axis=1)[1], abs=0.01)


@pytest.mark.parametrize("name", ["Insulet", "Cozmo"])
def test_pumps_round_and_limit_alike(
    request_arrays: dict[str, Any], answer: dict[str, Any], name: str
) -> None:
    rates = request_arrays["rates"]
    np.testing.assert_allclose(PUMPS[name].bolus(rates), answer[f"bolus_{name}"], atol=1e-14)
    np.testing.assert_allclose(PUMPS[name].basal(rates), answer[f"basal_{name}"], atol=1e-14)


def test_risk_of_single_readings(request_arrays: dict[str, Any], answer: dict[str, Any]) -> None:
    ours = np.stack(reading_risk(request_arrays["glucose"]), axis=1)
    np.testing.assert_allclose(ours, answer["risks"], rtol=1e-12)


def test_every_figure_of_every_patient(answer: dict[str, Any]) -> None:
    assert patient_names() == tuple(answer["names"])
    for row, name in enumerate(patient_names()):
        patient = load_patient(name)
        for field, symbol in SYMBOLS.items():
            assert getattr(patient.parameters, field) == answer[f"column_{symbol}"][row]
        initial = [answer[f"column_x0_{i:2d}"][row] for i in range(1, 14)]
        assert jax.tree.leaves(patient.initial) == initial
