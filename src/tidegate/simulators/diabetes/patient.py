"""The type-1 patient: 13 states, their differential equations, and the bookkeeping of a meal.

The model is the UVA/Padova simulator of 2008 in the form that simglucose 0.2.11 gives it. Every field is
an array of its own, so that a batch of patients compiles to loops over plain vectors.
`docs/explanation/diabetes.md` maps the names to the symbols of the literature.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...arrays import map_leaves

PMOL_PER_UNIT = 6000.0
EATING_RATE = 5.0  # g/min

Number: TypeAlias = Any  # a float or an array of any batch shape


class Digestion(eqx.Module):
    """Sugar on its way to the blood. It drives the rest of the body and is not affected by it."""

    stomach_solid: Number  # mg
    stomach_liquid: Number  # mg
    gut: Number  # mg

    @property
    def stomach(self) -> Number:
        """What the stomach holds, in mg."""
        return self.stomach_solid + self.stomach_liquid


class Metabolism(eqx.Module):
    """Glucose and insulin in the body."""

    plasma_glucose: Number  # mg/kg
    tissue_glucose: Number  # mg/kg
    plasma_insulin: Number  # pmol/kg
    insulin_action: Number  # pmol/L above basal, on the uptake of glucose
    delayed_insulin_1: Number  # pmol/L
    delayed_insulin_2: Number  # pmol/L, acts on the liver's production of glucose
    liver_insulin: Number  # pmol/kg
    subcutaneous_insulin_1: Number  # pmol/kg, as injected
    subcutaneous_insulin_2: Number  # pmol/kg, dissociated
    subcutaneous_glucose: Number  # mg/kg


class PatientState(eqx.Module):
    """The 13 states; `jax.tree.leaves` lists them in simglucose's order x0 … x12."""

    digestion: Digestion
    metabolism: Metabolism


class PatientParameters(eqx.Module):
    """What distinguishes one patient from another."""

    body_weight: Number  # BW, kg
    basal_insulin: Number  # Ib, pmol/L
    basal_infusion: Number  # u2ss, pmol/kg/min: keeps the patient at basal
    gut_absorption: Number  # kabs, 1/min
    emptying_max: Number  # kmax, 1/min
    emptying_min: Number  # kmin, 1/min
    emptying_slows_at: Number  # b, share of the meal
    emptying_recovers_at: Number  # d, share of the meal
    bioavailability: Number  # f
    glucose_volume: Number  # Vg, dL/kg
    insulin_volume: Number  # Vi, L/kg
    plasma_to_tissue: Number  # k1, 1/min
    tissue_to_plasma: Number  # k2, 1/min
    brain_uptake: Number  # Fsnc, mg/kg/min
    uptake_basal: Number  # Vm0, mg/kg/min
    uptake_by_insulin: Number  # Vmx, mg/kg/min per pmol/L
    uptake_half_saturation: Number  # Km0, mg/kg
    production_max: Number  # kp1, mg/kg/min
    production_by_glucose: Number  # kp2, 1/min
    production_by_insulin: Number  # kp3, mg/kg/min per pmol/L
    renal_rate: Number  # ke1, 1/min
    renal_threshold: Number  # ke2, mg/kg
    action_rate: Number  # p2u, 1/min
    delay_rate: Number  # ki, 1/min
    liver_to_plasma: Number  # m1, 1/min
    plasma_to_liver: Number  # m2, 1/min
    liver_clearance: Number  # m30, 1/min
    plasma_clearance: Number  # m4, 1/min
    insulin_dissociation: Number  # kd, 1/min
    absorption_1: Number  # ka1, 1/min
    absorption_2: Number  # ka2, 1/min
    sensor_site_rate: Number  # ksc, 1/min


class Patient(eqx.Module):
    """Parameters and the state in which a day begins."""

    parameters: PatientParameters
    initial: PatientState

    @property
    def basal_rate(self) -> Number:
        """The infusion in U/min that keeps the patient at basal."""
        p = self.parameters
        return p.basal_infusion * p.body_weight / PMOL_PER_UNIT


class Eating(eqx.Module):
    """The meal in progress: what is announced but not eaten, and what the stomach held at its start."""

    planned: Number  # g still to be eaten
    rate: Number  # g/min in the last minute
    stomach_at_start: Number  # mg
    eaten: Number  # g since the start


def blend(weight: Number, first: Patient, second: Patient) -> Patient:
    """weight · first + (1 − weight) · second, in every parameter and in the initial state."""
    return map_leaves(lambda a, b: weight * a + (1 - weight) * b, first, second)


def blood_glucose(state: PatientState, parameters: PatientParameters) -> Float[Array, "..."]:
    """Glucose under the skin in mg/dL: what a sensor measures, before noise."""
    return jnp.asarray(state.metabolism.subcutaneous_glucose / parameters.glucose_volume)


def not_eating(state: PatientState) -> Eating:
    """The bookkeeping of a patient who has not eaten yet."""
    stomach = jnp.asarray(state.digestion.stomach)
    zero = jnp.zeros_like(stomach)
    return Eating(planned=zero, rate=zero, stomach_at_start=stomach, eaten=zero)


def eat(eating: Eating, digestion: Digestion, announced: Number) -> Eating:
    """One minute at the table: at most 5 g of what was announced; after a pause a new meal begins."""
    planned = eating.planned + announced
    rate = jnp.minimum(planned, EATING_RATE)
    begins = (rate > 0) & (eating.rate <= 0)
    return Eating(
        planned=planned - rate,
        rate=rate,
        stomach_at_start=jnp.where(begins, digestion.stomach, eating.stomach_at_start),
        eaten=jnp.where(begins, 0.0, eating.eaten) + rate,
    )


class Emptying(eqx.Module):
    """How the stomach empties during one meal: fast when full, slower, fast again when almost empty.

    Without a meal all four curve fields are zero, and the rate is at its maximum.
    """

    fastest: Number  # 1/min
    half_range: Number  # 1/min
    full_slope: Number  # 1/mg
    full_offset: Number
    empty_slope: Number  # 1/mg
    empty_offset: Number

    @classmethod
    def of_meal(cls, meal: Number, parameters: PatientParameters) -> "Emptying":
        """For a meal of this size in mg, counting what the stomach already held."""
        p = parameters
        has_meal = meal > 0
        size = jnp.where(has_meal, meal, 1.0)
        steep_full = jnp.where(has_meal, 2.5 / (1 - p.emptying_slows_at), 0.0)
        return cls(
            fastest=p.emptying_max,
            half_range=(p.emptying_max - p.emptying_min) / 2,
            full_slope=steep_full / size,
            full_offset=steep_full * p.emptying_slows_at,
            empty_slope=jnp.where(has_meal, 2.5 / p.emptying_recovers_at, 0.0) / size,
            empty_offset=jnp.where(has_meal, 2.5, 0.0),
        )

    def rate(self, stomach: Number) -> Number:
        """In 1/min, for this content of the stomach in mg."""
        full = jnp.tanh(self.full_slope * stomach - self.full_offset)
        not_empty = jnp.tanh(self.empty_slope * stomach - self.empty_offset)
        return self.fastest + self.half_range * (full - not_empty)


def digestion_slope(
    digestion: Digestion, parameters: PatientParameters, emptying: Emptying, *, eaten: Number
) -> Digestion:
    """d(digestion)/d(minute), with `eaten` in g/min."""
    x, p = digestion, parameters
    ground = p.emptying_max * x.stomach_solid
    emptied = emptying.rate(x.stomach) * x.stomach_liquid
    return Digestion(
        stomach_solid=1000.0 * eaten - ground,
        stomach_liquid=ground - emptied,
        gut=emptied - p.gut_absorption * x.gut,
    )


def metabolism_slope(
    metabolism: Metabolism, parameters: PatientParameters, *, absorbed: Number, insulin: Number
) -> Metabolism:
    """d(metabolism)/d(minute); sugar `absorbed` from the gut in mg/min, `insulin` in U/min.

    Amounts of glucose that have fallen below zero stay where they are. The model says the same of
    insulin, where it never happens: no compartment of insulin gives more than it holds.
    """
    x, p = metabolism, parameters
    # Reciprocals of parameters: a compiler moves them out of the loop over minutes.
    per_weight, per_volume = 1 / p.body_weight, 1 / p.insulin_volume
    appearance = (p.bioavailability * per_weight) * absorbed
    production = jnp.maximum(
        p.production_max
        - p.production_by_glucose * x.plasma_glucose
        - p.production_by_insulin * x.delayed_insulin_2,
        0.0,
    )
    excretion = p.renal_rate * jnp.maximum(x.plasma_glucose - p.renal_threshold, 0.0)
    to_tissue = p.plasma_to_tissue * x.plasma_glucose - p.tissue_to_plasma * x.tissue_glucose
    capacity = p.uptake_basal + p.uptake_by_insulin * x.insulin_action
    uptake = capacity * x.tissue_glucose / (p.uptake_half_saturation + x.tissue_glucose)
    concentration = x.plasma_insulin * per_volume
    to_liver = p.plasma_to_liver * x.plasma_insulin
    from_liver = p.liver_to_plasma * x.liver_insulin
    from_depot_1 = p.absorption_1 * x.subcutaneous_insulin_1
    from_depot_2 = p.absorption_2 * x.subcutaneous_insulin_2
    dissociation = p.insulin_dissociation * x.subcutaneous_insulin_1
    infusion = (PMOL_PER_UNIT * per_weight) * insulin
    return Metabolism(
        plasma_glucose=_held(
            x.plasma_glucose, production + appearance - p.brain_uptake - excretion - to_tissue
        ),
        tissue_glucose=_held(x.tissue_glucose, to_tissue - uptake),
        plasma_insulin=from_liver
        + from_depot_1
        + from_depot_2
        - to_liver
        - p.plasma_clearance * x.plasma_insulin,
        insulin_action=p.action_rate * (concentration - p.basal_insulin - x.insulin_action),
        delayed_insulin_1=p.delay_rate * (concentration - x.delayed_insulin_1),
        delayed_insulin_2=p.delay_rate * (x.delayed_insulin_1 - x.delayed_insulin_2),
        liver_insulin=to_liver - from_liver - p.liver_clearance * x.liver_insulin,
        subcutaneous_insulin_1=infusion - from_depot_1 - dissociation,
        subcutaneous_insulin_2=dissociation - from_depot_2,
        subcutaneous_glucose=_held(
            x.subcutaneous_glucose, p.sensor_site_rate * (x.plasma_glucose - x.subcutaneous_glucose)
        ),
    )


def _held(amount: Number, slope: Number) -> Number:
    return jnp.where(amount >= 0, slope, 0.0)
