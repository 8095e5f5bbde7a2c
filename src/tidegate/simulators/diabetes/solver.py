"""One minute of the patient by fixed steps, and whole trajectories from given inputs.

Digestion does not depend on the blood, and a meal switches it sharply, so it takes finer steps. The
metabolism then takes one classical Runge–Kutta step over the same time. Its sugar comes from a parabola
through the absorption rates at both ends that delivers what the gut lost in between, to the milligram.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...arrays import ArrayLike, map_leaves
from .checks import check_not_negative
from .patient import (
    Digestion,
    Eating,
    Emptying,
    Metabolism,
    Number,
    Patient,
    PatientParameters,
    PatientState,
    blood_glucose,
    digestion_slope,
    eat,
    metabolism_slope,
    not_eating,
)

DEFAULT_STEPS = 2
DIGESTION_SUBSTEPS = 4
MAX_UNROLLED = 4

T = TypeVar("T")


class Trajectory(eqx.Module):
    """States before each minute and after the last one; glucose in mg/dL."""

    states: PatientState
    eating: Eating
    glucose: Float[Array, " minutes"]


def simulate_minutes(
    patient: Patient,
    meals: Float[ArrayLike, " minutes"],
    insulin: Float[ArrayLike, " minutes"],
    *,
    steps: int = DEFAULT_STEPS,
    mixed_units: bool = False,
) -> Trajectory:
    """The patient under given inputs: grams announced in each minute, U/min of insulin throughout it."""
    check_not_negative("meals", meals, "grams")
    check_not_negative("insulin", insulin, "U/min")
    patient = as_arrays(patient)
    first = patient.initial, not_eating(patient.initial)

    def minute(carry: Any, inputs: Any) -> tuple[Any, Any]:
        state, eating = carry
        after = advance(
            state,
            eating,
            patient.parameters,
            announced=inputs[0],
            insulin=inputs[1],
            steps=steps,
            mixed_units=mixed_units,
        )
        return after, after

    inputs = as_arrays((meals, insulin))
    _, later = jax.lax.scan(minute, first, inputs)
    states, eating = map_leaves(lambda a, b: jnp.concatenate([a[None], b]), first, later)
    return Trajectory(states, eating, blood_glucose(states, patient.parameters))


def advance(
    state: PatientState,
    eating: Eating,
    parameters: PatientParameters,
    *,
    announced: Number,
    insulin: Number,
    steps: int = DEFAULT_STEPS,
    mixed_units: bool = False,
) -> tuple[PatientState, Eating]:
    """One minute: `announced` grams are added to the plate, `insulin` U/min flow throughout.

    `mixed_units` reproduces simglucose before the correction of its issue 41: there the size of the meal
    was the stomach's content in mg plus the grams eaten, which keeps gastric emptying near its maximum.
    """
    eating = eat(eating, state.digestion, announced)
    meal = eating.stomach_at_start + (1.0 if mixed_units else 1000.0) * eating.eaten
    emptying = Emptying.of_meal(meal, parameters)
    length = 1.0 / steps

    def step(state: PatientState) -> PatientState:
        digestion, absorbed = digest(state.digestion, parameters, emptying, eating.rate, length)
        before = parameters.gut_absorption * state.digestion.gut
        after = parameters.gut_absorption * digestion.gut
        middle = (6 * absorbed / length - before - after) / 4
        return PatientState(
            digestion,
            metabolise(state.metabolism, parameters, (before, middle, after), insulin, length),
        )

    return _repeat(steps, step, state), eating


def as_arrays(tree: T) -> T:
    """Every leaf as a JAX array in the precision in force."""
    return map_leaves(lambda leaf: jnp.asarray(leaf, float), tree)


def _repeat(times: int, step: Callable[[T], T], state: T) -> T:
    """A short loop is written out for a GPU, where each turn of a loop costs a launch.

    XLA for CPUs fuses into one output at a time, and would compute shared values again for each.
    """
    if jax.default_backend() != "cpu" and times <= MAX_UNROLLED:
        for _ in range(times):
            state = step(state)
        return state
    looped: T = jax.lax.fori_loop(0, times, lambda _, state: step(state), state)
    return looped


def digest(
    digestion: Digestion,
    parameters: PatientParameters,
    emptying: Emptying,
    eaten: Number,
    length: float,
) -> tuple[Digestion, Number]:
    """Digestion after `length` minutes, and the mg that the gut gave to the blood meanwhile."""

    def slope(now: tuple[Digestion, Number]) -> tuple[Digestion, Number]:
        return (
            digestion_slope(now[0], parameters, emptying, eaten=eaten),
            parameters.gut_absorption * now[0].gut,
        )

    def substep(now: tuple[Digestion, Number]) -> tuple[Digestion, Number]:
        return _three_eighths(slope, now, length / DIGESTION_SUBSTEPS)

    start = digestion, jnp.zeros_like(digestion.gut)
    return _repeat(DIGESTION_SUBSTEPS, substep, start)


def _three_eighths(slope: Callable[[T], T], x: T, h: float) -> T:
    """Kutta's second method of order 4: four distinct looks at a sharp switch, not three."""
    k1 = slope(x)
    k2 = slope(map_leaves(lambda x, a: x + h / 3 * a, x, k1))
    k3 = slope(map_leaves(lambda x, a, b: x + h * (b - a / 3), x, k1, k2))
    k4 = slope(map_leaves(lambda x, a, b, c: x + h * (a - b + c), x, k1, k2, k3))
    return map_leaves(lambda x, a, b, c, d: x + h / 8 * (a + 3 * (b + c) + d), x, k1, k2, k3, k4)


def metabolise(
    x: Metabolism,
    parameters: PatientParameters,
    absorbed: tuple[Number, Number, Number],
    insulin: Number,
    h: float,
) -> Metabolism:
    """The classical step of order 4, with absorption at its beginning, middle and end."""

    def slope(x: Metabolism, absorbed: Number) -> Metabolism:
        return metabolism_slope(x, parameters, absorbed=absorbed, insulin=insulin)

    def moved(by: Metabolism, length: float) -> Metabolism:
        return map_leaves(lambda x, k: x + length * k, x, by)

    before, middle, after = absorbed
    k1 = slope(x, before)
    k2 = slope(moved(k1, h / 2), middle)
    k3 = slope(moved(k2, h / 2), middle)
    k4 = slope(moved(k3, h), after)
    return map_leaves(lambda x, a, b, c, d: x + h / 6 * (a + 2 * (b + c) + d), x, k1, k2, k3, k4)
