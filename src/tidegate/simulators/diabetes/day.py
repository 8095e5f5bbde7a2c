"""A whole day under a treatment: meals, sensor, pump, patient, and what the day is worth.

A day is a pure function of patient, treatment and draws. Everything random is drawn before the day begins.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...arrays import ArrayLike
from .checks import check_positive
from .meals import DAY_MINUTES, MealPlan, meals_at, usual_meals
from .parameters import load_patient
from .patient import Number, Patient, blood_glucose, not_eating
from .pump import Pump, load_pump
from .risk import reading_risk
from .sensor import Sensor, load_sensor
from .solver import DEFAULT_STEPS, advance, as_arrays

GLUCOSE_RANGE = (10.0, 600.0)  # mg/dL; simglucose ends an episode outside it
RETURN_SCALE, RETURN_SHIFT = 2.0, 26.5


class GlucoseRangeWarning(UserWarning):
    """Glucose left the range for which the model was made."""


class Treatment(eqx.Module):
    """At a meal: grams / CR units, plus (glucose − 140) / CF units if glucose is above 150 mg/dL."""

    carb_ratio: Number  # CR, g/U
    correction_factor: Number  # CF, mg/dL per U

    def __check_init__(self) -> None:
        check_positive("the carbohydrate ratio CR", self.carb_ratio, "g/U")
        check_positive("the correction factor CF", self.correction_factor, "mg/dL per U")

    def bolus(self, meal: Number, glucose: Number) -> Float[Array, "..."]:
        """Units of insulin for a meal in g at a glucose in mg/dL."""
        correction = jnp.where(glucose > 150.0, glucose - 140.0, 0.0) / self.correction_factor
        return jnp.where(meal > 0, meal / self.carb_ratio + correction, 0.0)


class DaySettings(eqx.Module):
    """Devices, meals and accuracy of a day.

    `averaged_readings`: simglucose's environment shows the mean of the readings held during a sample,
    two thirds old and one third new; by default we show the new one. `mixed_units`: see `advance`.
    """

    sensor: Sensor = eqx.field(default_factory=lambda: load_sensor("Dexcom"))
    pump: Pump = eqx.field(default_factory=lambda: load_pump("Insulet"))
    meals: MealPlan = eqx.field(default_factory=usual_meals)
    steps: int = eqx.field(static=True, default=DEFAULT_STEPS)
    mixed_units: bool = eqx.field(static=True, default=False)
    averaged_readings: bool = eqx.field(static=True, default=False)

    @property
    def num_samples(self) -> int:
        """Readings a day: 480 for Dexcom."""
        return DAY_MINUTES // self.sensor.sample_minutes


class DayDraws(eqx.Module):
    """What is random about a day: grams announced in each minute, the sensor's errors from minute 0 on."""

    meals: Float[ArrayLike, " minutes"]
    noise: Float[ArrayLike, " samples+1"]


class DayRecord(eqx.Module):
    """A day sample by sample; glucose and readings are those at the end of a sample."""

    glucose: Float[Array, " samples"]  # mg/dL
    readings: Float[Array, " samples"]  # mg/dL
    meals: Float[Array, " samples"]  # g announced
    boluses: Float[Array, " samples"]  # U
    episode_return: Float[Array, ""]
    out_of_range: Bool[Array, ""]


def draw_day(settings: DaySettings, key: PRNGKeyArray) -> DayDraws:
    """Meals and sensor noise of one day."""
    meal_key, noise_key = jax.random.split(key)
    noise = settings.sensor.noise(noise_key, settings.num_samples + 1)
    return DayDraws(settings.meals.draw(meal_key), noise)


def run_day(patient: Patient, treatment: Treatment, draws: DayDraws, settings: DaySettings) -> DayRecord:
    """The day of one patient. A meal is treated in the sample after its announcement."""
    patient, treatment, draws = as_arrays((patient, treatment, draws))
    sensor, averaged = settings.sensor, settings.averaged_readings
    minutes = sensor.sample_minutes
    reading = sensor.read(blood_glucose(patient.initial, patient.parameters), draws.noise[0])
    first = (
        *(patient.initial, not_eating(patient.initial)),
        *(reading, reading, jnp.zeros_like(draws.noise[0])),
    )

    def sample(carry: Any, inputs: tuple[Array, Array]) -> tuple[Any, Any]:
        state, eating, held, shown, meal = carry
        meals, noise = inputs
        rate = settings.pump.bolus(treatment.bolus(meal, shown) / minutes)
        for announced in meals:
            state, eating = advance(
                state,
                eating,
                patient.parameters,
                announced=announced,
                insulin=rate,
                steps=settings.steps,
                mixed_units=settings.mixed_units,
            )
        glucose = blood_glucose(state, patient.parameters)
        reading = sensor.read(glucose, noise)
        shown = (held * (minutes - 1) + reading) / minutes if averaged else reading
        carry = state, eating, reading, shown, jnp.sum(meals)
        return carry, (glucose, shown, rate * minutes)

    meals = draws.meals.reshape(settings.num_samples, minutes)
    # Recomputed on the way back: a gradient then stores one state per sample, not every stage.
    body = jax.checkpoint(sample, prevent_cse=False)
    _, (glucose, readings, boluses) = jax.lax.scan(body, first, (meals, draws.noise[1:]))
    low, high = GLUCOSE_RANGE
    return DayRecord(
        glucose=glucose,
        readings=readings,
        meals=jnp.sum(meals, axis=1),
        boluses=boluses,
        episode_return=day_return(readings),
        out_of_range=~jnp.all((glucose >= low) & (glucose <= high)),
    )


def day_return(readings: Float[Array, "... samples"]) -> Float[Array, "..."]:
    """2 · (mean reward + 26.5), where the reward of a reading is minus its risk index."""
    return RETURN_SCALE * (RETURN_SHIFT - jnp.mean(reading_risk(readings).total, axis=-1))


def simulate_day(
    patient: str | Patient,
    treatment: Treatment | tuple[float, float],
    *,
    meals: Iterable[tuple[int, float]] | None = None,
    seed: int = 0,
    settings: DaySettings | None = None,
) -> DayRecord:
    """One day from plain values: a patient's name, (CR, CF), and (minute, grams) meals or random ones.

    Warns if glucose leaves the model's range.
    """
    settings = settings or DaySettings()
    patient = load_patient(patient) if isinstance(patient, str) else patient
    treatment = treatment if isinstance(treatment, Treatment) else Treatment(*treatment)
    draws = draw_day(settings, jax.random.key(seed))
    if meals is not None:
        draws = DayDraws(jnp.asarray(meals_at(meals), float), draws.noise)
    record = _compiled_day(patient, treatment, draws, settings)
    warn_out_of_range(record)
    return record


def warn_out_of_range(record: DayRecord) -> None:
    """Warn that some of these days left the range of the model."""
    outside, days = int(jnp.sum(record.out_of_range)), np.size(record.out_of_range)
    if outside:
        low, high = GLUCOSE_RANGE
        found = np.asarray(record.glucose)
        warnings.warn(
            f"glucose left {low:g} to {high:g} mg/dL on {outside} of {days} days (lowest"
            f" {found.min():.3g}, highest {found.max():.3g}): the model does not hold there. Use a higher"
            " CR and CF if it was too low, lower ones if it was too high.",
            GlucoseRangeWarning,
            stacklevel=2,
        )


_compiled_day = eqx.filter_jit(run_day)
