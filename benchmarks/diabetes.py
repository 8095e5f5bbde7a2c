"""How many patient-days a second, and which solver? Run by `make diabetes`.

Peers, in the same run: simglucose 0.2.11 (its environment as shipped, and its bare patient with parameters
outside pandas) and diffrax's solvers on the same equations at equal accuracy. `--gpu` times our days alone.
"""

import argparse
import os
import platform
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidegate.simulators.diabetes import (
    DiscreteDiabetes,
    load_patient,
    patient_names,
    simulate_minutes,
    usual_treatment,
)
from tidegate.simulators.diabetes.meals import meals_at
from tidegate.simulators.diabetes.patient import (
    Emptying,
    Patient,
    PatientState,
    blood_glucose,
    digestion_slope,
    eat,
    metabolism_slope,
    not_eating,
)
from tidegate.simulators.diabetes.solver import as_arrays

ROOT = Path(__file__).parent.parent
PEER = os.environ.get("TIDEGATE_SIMGLUCOSE_PYTHON", str(ROOT / ".venv-simglucose/bin/python"))
DAYS = 1024
TRUTH_STEPS = 64


def best(function: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(function())  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
    return min(times[1:])


def whole_days(days: int, threads: int, repeats: int) -> float:
    """Days a second with meals, sensor, pump, risk and return; the batch is cut over the threads."""
    world, share = DiscreteDiabetes.at_speed(1.0), days // threads
    run = jax.jit(lambda actions, numbers, key: world.days(actions, numbers, key).episode_return)
    numbers = np.arange(1.0, days + 1) % 2000
    actions = jnp.arange(share) % 5
    batches = [
        (actions, jnp.asarray(numbers[i * share :][:share], float), jax.random.key(i)) for i in range(threads)
    ]
    program = run.lower(*batches[0]).compile()
    with ThreadPoolExecutor(threads) as pool:
        return days / best(lambda: list(pool.map(lambda b: program(*b), batches)), repeats)


def test_days(count: int) -> tuple[Patient, Any, Any]:
    """All thirty patients with their own treatment: main meals, a snack, boluses over three minutes."""
    rng = np.random.default_rng(1)
    patients, meals, insulin = [], [], []
    for i in range(count):
        name = patient_names()[i % 30]
        patient = load_patient(name)
        plan = [(420, 45), (720, 70), (1080, 80), (1290, 10)]
        grams = meals_at([(t + int(rng.integers(-60, 60)), g + int(rng.integers(-5, 20))) for t, g in plan])
        rate = np.full(1440, patient.basal_rate)
        for minute in np.flatnonzero(grams):
            rate[minute : minute + 3] += grams[minute] / usual_treatment(name)[0] / 3
        patients.append(patient)
        meals.append(grams)
        insulin.append(rate)
    stacked: Patient = jax.tree.map(lambda *leaves: np.stack(leaves), *patients)
    return stacked, np.array(meals), np.array(insulin)


def by_diffrax(solver: Any, substeps: int) -> Callable[..., Any]:
    """The same day, all 13 states in one system, by fixed steps of a diffrax solver."""
    import diffrax

    def slope(_: Any, state: PatientState, args: Any) -> PatientState:
        p, emptying, eaten, insulin = args
        absorbed = p.gut_absorption * state.digestion.gut
        return PatientState(
            digestion_slope(state.digestion, p, emptying, eaten=eaten),
            metabolism_slope(state.metabolism, p, absorbed=absorbed, insulin=insulin),
        )

    term = diffrax.ODETerm(slope)

    def day(patient: Patient, meals: Any, insulin: Any) -> Any:
        patient = as_arrays(patient)
        p = patient.parameters

        def minute(carry: Any, inputs: Any) -> Any:
            state, eating = carry
            eating = eat(eating, state.digestion, inputs[0])
            meal = eating.stomach_at_start + 1000.0 * eating.eaten
            args = p, Emptying.of_meal(meal, p), eating.rate, inputs[1]
            solution = diffrax.diffeqsolve(
                term,
                solver,
                0.0,
                1.0,
                1.0 / substeps,
                state,
                args,
                stepsize_controller=diffrax.ConstantStepSize(),
                max_steps=substeps + 1,
                throw=False,
            )
            state = jax.tree.map(lambda leaf: leaf[0], solution.ys)
            return (state, eating), blood_glucose(state, p)

        first = patient.initial, not_eating(patient.initial)
        _, glucose = jax.lax.scan(minute, first, as_arrays((meals, insulin)))
        return glucose

    return day


def by_hand(steps: int) -> Callable[..., Any]:
    return lambda p, m, i: simulate_minutes(p, m, i, steps=steps).glucose[1:]


def compare_solvers() -> None:
    import diffrax

    rivals: dict[str, Callable[..., Any]] = {
        "ours, 2 steps a minute": by_hand(2),
        "diffrax Dopri5, 6 steps": by_diffrax(diffrax.Dopri5(), 6),
        "diffrax Tsit5, 6 steps": by_diffrax(diffrax.Tsit5(), 6),
        "diffrax Bosh3, 8 steps": by_diffrax(diffrax.Bosh3(), 8),
        "diffrax Heun, 48 steps": by_diffrax(diffrax.Heun(), 48),
    }
    print(f"\nthe patient alone, {DAYS} days of 30 patients in one call")
    print("| solver | largest error, mg/dL (64-bit) | s (32-bit) | ratio |\n|---|---|---|---|")
    with jax.enable_x64(True):
        truth = np.asarray(jax.jit(jax.vmap(by_hand(TRUTH_STEPS)))(*test_days(90)))
        errors = {
            name: np.abs(np.asarray(jax.jit(jax.vmap(day))(*test_days(90))) - truth).max()
            for name, day in rivals.items()
        }
    patients, meals, insulin = test_days(DAYS)
    inputs = as_arrays(patients), jnp.asarray(meals, float), jnp.asarray(insulin, float)
    programs = {name: jax.jit(jax.vmap(day)).lower(*inputs).compile() for name, day in rivals.items()}
    # Turn and turn about, so that another load on the machine meets all of them.
    rounds = [
        {name: best(lambda run=run: run(*inputs), 1) for name, run in programs.items()}  # type: ignore[misc]
        for _ in range(4)
    ]
    seconds = {name: min(one[name] for one in rounds) for name in rivals}
    ours = seconds["ours, 2 steps a minute"]
    for name in rivals:
        print(f"| {name} | {errors[name]:.1e} | {seconds[name]:.3f} | {seconds[name] / ours:.1f} |")


def compare_simglucose(rate: float) -> None:
    command = [PEER, str(ROOT / "tests/simglucose_peer.py"), "time", "1"]
    environment = {**os.environ, "MPLBACKEND": "agg"}
    answers = [
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        for _ in range(2)
    ]
    shipped, bare = np.min([[float(s) for s in answer.split()] for answer in answers], axis=0)
    print("\n| simglucose 0.2.11 | s a day | our days a second, as a multiple |\n|---|---|---|")
    print(f"| environment as shipped | {shipped:.2f} | {rate * shipped:,.0f} x |")
    print(f"| bare patient, no pandas | {bare:.2f} | {rate * bare:,.0f} x |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="time our days on the GPU, nothing else")
    if parser.parse_args().gpu:
        for days in (1_024, 16_384, 131_072):
            print(f"{jax.devices()[0].device_kind}: {days} days {whole_days(days, 1, 3):,.0f} a second")
        return
    cores = os.cpu_count() or 1
    print(f"{platform.processor() or platform.machine()}, {cores} cores, JAX {jax.__version__}")
    print(f"\nwhole days, batch of {DAYS}\n\n| | days a second |\n|---|---|")
    rate = whole_days(DAYS, cores, 6)
    print(f"| 32-bit, cut over {cores} threads | {rate:,.0f} |")
    print(f"| 32-bit, one call | {whole_days(DAYS, 1, 6):,.0f} |")
    with jax.enable_x64(True):
        print(f"| 64-bit, one call | {whole_days(DAYS, 1, 3):,.0f} |", flush=True)
    compare_simglucose(rate)
    compare_solvers()


if __name__ == "__main__":
    main()
