"""Answers of simglucose 0.2.11 for `test_diabetes_peer.py`; run by the Python of its own environment.

Usage: python simglucose_peer.py REQUEST.npz ANSWER.npz, or python simglucose_peer.py time DAYS, which
prints seconds per day of the environment as shipped and of the bare patient. simglucose registers itself
with gym when it is imported; an empty module in gym's place is all that this needs.
"""

import sys
import time
import types
import warnings
from collections import namedtuple
from datetime import datetime
from typing import Any

import numpy as np

warnings.simplefilter("ignore")
for name in ("gym", "gym.envs", "gym.envs.registration"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["gym.envs.registration"].register = lambda **_: None  # type: ignore[attr-defined]

import pandas as pd  # noqa: E402
from simglucose.actuator.pump import InsulinPump  # noqa: E402
from simglucose.analysis.risk import risk_index  # noqa: E402
from simglucose.patient import t1dpatient  # noqa: E402
from simglucose.sensor.cgm import CGMSensor  # noqa: E402
from simglucose.sensor.noise_gen import CGMNoise  # noqa: E402
from simglucose.simulation.env import T1DSimEnv  # noqa: E402
from simglucose.simulation.scenario import Action as Meal  # noqa: E402
from simglucose.simulation.scenario_gen import RandomScenario  # noqa: E402

Dose = namedtuple("Dose", ["basal", "bolus"])


def quick_patient(patient_id: int) -> Any:
    """A patient whose parameters are plain attributes: the same numbers, some ten times as fast."""
    patient = t1dpatient.T1DPatient.withID(patient_id)
    patient._params = types.SimpleNamespace(**patient._params.to_dict())
    return patient


def path(patient_id: int, meals: Any, insulin: Any, **integrator: float) -> Any:
    """States before each minute, and after the last."""
    patient = quick_patient(patient_id)
    if integrator:
        solver = patient._odesolver
        solver.set_integrator("dopri5", **integrator).set_initial_value(patient.state, 0)
    states = [patient.state]
    for grams, rate in zip(meals, insulin, strict=True):
        patient.step(t1dpatient.Action(CHO=float(grams), insulin=float(rate)))
        states.append(patient.state)
    return states


def trajectories(request: Any) -> dict[str, Any]:
    """Patients under given meals and insulin, as shipped and with the integrator's tolerance lowered."""
    days = list(zip(request["patient_ids"], request["meals"], request["insulin"], strict=True))
    tight = {"rtol": 1e-10, "atol": 1e-10, "nsteps": 5000}
    return {
        "states": np.array([path(int(i), meals, insulin) for i, meals, insulin in days]),
        "tight_states": np.array([path(int(i), m, u, **tight) for i, m, u in days]),
    }


class GivenScenario:
    """Meals by the minute of a day that starts at midnight."""

    start_time = datetime(2026, 1, 1)

    def __init__(self, meals: Any) -> None:
        self.meals = meals

    def get_action(self, now: datetime) -> Any:
        minute = int((now - self.start_time).total_seconds() // 60)
        return Meal(meal=float(self.meals[minute]))

    def reset(self) -> None:
        """There is nothing to draw anew."""


def environment(request: Any) -> dict[str, Any]:
    """A day of the whole environment with the noise of the request and the meal bolus of the paper."""
    (ratio, factor), patient_id = request["treatment"], int(request["environment_patient"])
    sensor = CGMSensor.withName("Dexcom", seed=0)
    env = T1DSimEnv(
        quick_patient(patient_id),
        sensor,
        InsulinPump.withName("Insulet"),
        GivenScenario(request["environment_meals"]),
    )
    # What is measured twice at minute 0 gets the same error twice.
    sensor._noise_generator = iter(request["environment_noise"])
    sensor._last_CGM = env.patient.observation.Gsub + next(sensor._noise_generator)
    shown, meal, glucose, readings = sensor._last_CGM, 0.0, [], []
    for _ in range(480):
        units = meal / ratio + (shown > 150) * (shown - 140) / factor if meal > 0 else 0.0
        step = env.step(Dose(basal=0.0, bolus=units / 3))
        shown, meal = step.observation.CGM, 3 * step.info["meal"]
        glucose.append(env.patient.observation.Gsub)
        readings.append(shown)
    return {"environment_glucose": np.array(glucose), "environment_readings": np.array(readings)}


def noise(request: Any) -> dict[str, Any]:
    """Sensor errors for many seeds, for each sensor."""
    names, count = ["Dexcom", "GuardianRT", "Navigator"], int(request["noise_count"])
    found = {}
    for name in names:
        params = CGMSensor.withName(name)._params.to_dict()
        rows = []
        for seed in range(int(request["noise_seeds"])):
            generator = CGMNoise(params, seed=seed)
            rows.append([next(generator) for _ in range(count)])
        found[f"noise_{name}"] = np.array(rows)
    return found


def pumps(request: Any) -> dict[str, Any]:
    """What each pump delivers."""
    found = {}
    for name in ("Insulet", "Cozmo"):
        pump = InsulinPump.withName(name)
        found[f"bolus_{name}"] = np.array([pump.bolus(rate) for rate in request["rates"]])
        found[f"basal_{name}"] = np.array([pump.basal(rate) for rate in request["rates"]])
    return found


def risks(request: Any) -> dict[str, Any]:
    """(LBGI, HBGI, risk index) of single readings."""
    return {"risks": np.array([risk_index([bg], 1) for bg in request["glucose"]])}


def tables(_: Any) -> dict[str, Any]:
    """The parameter table, column by column."""
    frame = pd.read_csv(t1dpatient.PATIENT_PARA_FILE)
    names = frame.pop("Name").to_numpy(str)
    columns = {f"column_{name}": frame[name].to_numpy(float) for name in frame.columns}
    return {"names": names, **columns}


def seconds_per_day(days: int) -> tuple[float, float]:
    """The whole environment as shipped; the patient alone with parameters outside pandas."""
    env = T1DSimEnv(
        t1dpatient.T1DPatient.withName("adolescent#003"),
        CGMSensor.withName("Dexcom", seed=0),
        InsulinPump.withName("Insulet"),
        RandomScenario(GivenScenario.start_time, seed=0),
    )
    env.reset()
    start = time.perf_counter()
    for _ in range(480 * days):
        env.step(Dose(basal=0.01, bolus=0.0))
    middle = time.perf_counter()
    patient = quick_patient(3)
    bare = time.perf_counter()
    for _ in range(1440 * days):
        patient.step(t1dpatient.Action(CHO=0.0, insulin=0.01))
    return (middle - start) / days, (time.perf_counter() - bare) / days


if __name__ == "__main__":
    if sys.argv[1] == "time":
        print(*seconds_per_day(int(sys.argv[2])))
        sys.exit()
    asked = dict(np.load(sys.argv[1]))
    answer: dict[str, Any] = {}
    for part in (trajectories, environment, noise, pumps, risks, tables):
        answer.update(part(asked))
    np.savez(sys.argv[2], **answer)
