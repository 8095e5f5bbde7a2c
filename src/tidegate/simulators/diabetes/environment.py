"""The paper's second domain: a patient who drifts from one virtual patient to another and back.

A day is an episode with one decision, the treatment. Episode numbers start at 1, so t = number − 1, and
the patient of episode t is c·first + (1 − c)·second with c = ½(1 + cos(0.003 · speed · t)).
"""

import abc
import dataclasses
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped
from scipy.interpolate import make_interp_spline

from ...arrays import ArrayLike
from ...episodes import EpisodeLog
from ...errors import SettingsError
from ...policies import ContinuousPolicy, DiscretePolicy, GaussianPolicy, SoftmaxPolicy
from .day import DayRecord, DaySettings, Treatment, draw_day, run_day
from .parameters import load_patient
from .patient import Patient, blend
from .truth import PerformanceTable, performance_table

FREQUENCY = 0.003
FIRST, SECOND = "adolescent#003", "adolescent#008"
TREATMENTS = np.array([(23.0, 33.0), (19.0, 26.0), (14.0, 21.0), (9.0, 16.0), (4.0, 11.0)])
SAFE_LOGITS = (0.5, 0.125)  # of the first treatment and of the others
SAFE_MEAN, SAFE_STD = (20.0, 30.0), 2.0
# What a continuous treatment may prescribe, and the grid on which its worth is known.
# Days are simulated at every third of its points; cubic splines in the logarithms fill in the others.
CARB_RATIOS = np.geomspace(2.0, 40.0, 37)
CORRECTION_FACTORS = np.geomspace(5.0, 60.0, 16)
REFINEMENT = 3
QUADRATURE_NODES = 5
CPU_BATCH = 512  # days whose states fit a core's cache together


class DriftingPatient(eqx.Module):
    """Between two patients; the initial state drifts with the parameters."""

    first: Patient
    second: Patient
    speed: float | Array = 1.0

    @classmethod
    def between(cls, first: str, second: str, *, speed: float | Array = 1.0) -> Self:
        """From the names of two virtual patients."""
        return cls(load_patient(first), load_patient(second), speed)

    def weight(self, episode_numbers: Any) -> Float[Array, "..."]:
        """The share c of the first patient."""
        episodes = jnp.asarray(episode_numbers, float) - 1
        return (1 + jnp.cos(FREQUENCY * self.speed * episodes)) / 2

    def at(self, episode_number: Any) -> Patient:
        """Who is treated in this episode."""
        return blend(self.weight(episode_number), self.first, self.second)


class Diabetes(eqx.Module):
    """A drifting patient, treated once a day; what an action prescribes is up to the subclass.

    `performance` needs `truth`, which `with_truth` simulates or reads from the disk.
    """

    patient: DriftingPatient
    settings: DaySettings = eqx.field(default_factory=DaySettings)
    truth: PerformanceTable | None = None

    @property
    def num_actions(self) -> int | None:
        """How many actions there are, or None if they are continuous."""
        return None

    @classmethod
    def at_speed(cls, speed: float | Array, *, truth: PerformanceTable | None = None) -> Self:
        """The published drift; the published speeds are 0 to 3."""
        return cls(DriftingPatient.between(FIRST, SECOND, speed=speed), truth=truth)

    @abc.abstractmethod
    def treated_with(self, actions: Any) -> Float[Array, "n 2"]:
        """The (CR, CF) that these actions prescribe."""

    @abc.abstractmethod
    def draw(self, policy: Any, count: int, key: PRNGKeyArray) -> tuple[Array, Array]:
        """`count` actions of the policy, and their log-probabilities."""

    def days(
        self,
        actions: Shaped[ArrayLike, "n ..."],
        episode_numbers: Float[ArrayLike, " n"],
        key: PRNGKeyArray,
    ) -> DayRecord:
        """A day of each episode under the treatment that its action prescribes."""
        treatments = self.treated_with(actions)
        return simulate_episodes(self.patient, treatments, episode_numbers, key, self.settings)

    def collect(self, policy: Any, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray) -> EpisodeLog:
        """Run the policy for these episodes; the log holds the actions as drawn."""
        action_key, day_key = jax.random.split(key)
        count = episode_numbers.shape[0]
        actions, log_probs = self.draw(policy, count, action_key)
        record = self.days(actions, episode_numbers, day_key)
        return EpisodeLog(
            episode_numbers=episode_numbers,
            actions=actions[:, None],
            behavior_log_probs=log_probs[:, None],
            rewards=record.episode_return[:, None],
            mask=jnp.ones((count, 1), bool),
            num_actions=self.num_actions,
        )

    def _worth(self, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, "n treatments"]:
        """The true worth of every tabulated treatment in these episodes."""
        if self.truth is None:
            raise SettingsError(
                "this world does not know what its treatments are worth.",
                remedy="Use world.with_truth(), which simulates many days once and keeps the result.",
            )
        return self.truth.at(self.patient.weight(episode_numbers))


class DiscreteDiabetes(Diabetes):
    """An action chooses one of five treatments (CR, CF)."""

    treatments: Float[ArrayLike, "actions 2"] = eqx.field(default_factory=lambda: TREATMENTS.copy())

    @property
    def num_actions(self) -> int:
        return len(self.treatments)

    def with_truth(
        self, *, days: int = 1000, nodes: int = 33, seed: int = 0, cache: str | Path | None = None
    ) -> Self:
        """The same world with a table of the treatments' true worth; see `performance_table`."""
        ends = self.patient.first, self.patient.second
        table = performance_table(
            *ends, self.treatments, self.settings, days=days, nodes=nodes, seed=seed, cache=cache
        )
        return dataclasses.replace(self, truth=table)

    @property
    def safe_policy(self) -> SoftmaxPolicy:
        """Leans to the first treatment, which suits the first patient."""
        logits = np.full(len(self.treatments), SAFE_LOGITS[1])
        logits[0] = SAFE_LOGITS[0]
        return SoftmaxPolicy(logits)

    def treated_with(self, actions: Int[ArrayLike, " n"]) -> Float[Array, "n 2"]:
        return jnp.asarray(self.treatments, float)[jnp.asarray(actions)]

    def draw(self, policy: DiscretePolicy, count: int, key: PRNGKeyArray) -> tuple[Array, Array]:
        log_probs = policy.log_probs()
        actions = jax.random.categorical(key, log_probs, shape=(count,))
        return actions, log_probs[actions]

    def performance(
        self, policy: DiscretePolicy, episode_numbers: Float[ArrayLike, " n"]
    ) -> Float[Array, " n"]:
        """ρ(π, i) up to the table's standard error."""
        # A sum, not a product of matrices: 32-bit throughout on every device.
        return jnp.sum(self._worth(episode_numbers) * jnp.exp(policy.log_probs()), axis=1)


class ContinuousDiabetes(Diabetes):
    """An action is a pair (CR, CF); what lies outside 2 to 40 and 5 to 60 is held at the limit."""

    def with_truth(
        self, *, days: int = 500, nodes: int = 17, seed: int = 0, cache: str | Path | None = None
    ) -> Self:
        """The same world with the true worth of a grid of treatments; see `performance_table`."""
        ends, grid = (self.patient.first, self.patient.second), treatment_grid(REFINEMENT)
        table = performance_table(*ends, grid, self.settings, days=days, nodes=nodes, seed=seed, cache=cache)
        return dataclasses.replace(self, truth=_refined(table))

    @property
    def safe_policy(self) -> GaussianPolicy:
        """Close to what suits the first patient."""
        return GaussianPolicy(np.array(SAFE_MEAN), np.full(2, np.log(SAFE_STD)))

    def treated_with(self, actions: Float[ArrayLike, "n 2"]) -> Float[Array, "n 2"]:
        return _within_limits(jnp.asarray(actions, float))

    def draw(self, policy: ContinuousPolicy, count: int, key: PRNGKeyArray) -> tuple[Array, Array]:
        actions = jax.vmap(policy.sample)(jax.random.split(key, count))
        return actions, policy.log_prob(actions)

    def performance(
        self, policy: ContinuousPolicy, episode_numbers: Float[ArrayLike, " n"]
    ) -> Float[Array, " n"]:
        """ρ(π, i) by Gauss–Hermite quadrature over the policy on the interpolated table."""
        mean, log_std = jnp.split(policy.outputs(), 2)
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        points = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
        chances = np.outer(weights, weights).ravel() / weights.sum() ** 2
        treatments = _within_limits(mean + jnp.exp(log_std) * points)
        worth = self._worth(episode_numbers)
        return jax.vmap(lambda row: jnp.sum(chances * _interpolate(row, treatments)))(worth)


def treatment_grid(every: int = 1) -> Float[np.ndarray, "grid 2"]:
    """(CR, CF) at every n-th point of the grid, n = `every`."""
    axes = CARB_RATIOS[::every], CORRECTION_FACTORS[::every]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def _refined(table: PerformanceTable) -> PerformanceTable:
    """From the simulated points to the whole grid, and to more mixing weights."""
    shape = (-1, *(len(axis[::REFINEMENT]) for axis in (CARB_RATIOS, CORRECTION_FACTORS)))

    def fill(values: ArrayLike, order: int) -> Float[np.ndarray, "nodes grid"]:
        filled = np.asarray(values).reshape(shape)
        for axis, size in enumerate(filled.shape):
            fine = np.linspace(0, size - 1, REFINEMENT * (size - 1) + 1)
            spline = make_interp_spline(np.arange(size), filled, k=min(order, size - 1), axis=axis)
            filled = spline(fine)
        return filled.reshape(filled.shape[0], -1)

    return PerformanceTable(
        means=fill(table.means, 3),
        standard_errors=fill(table.standard_errors, 1),
        out_of_range=fill(table.out_of_range, 1),
        treatments=treatment_grid(),
    )


def simulate_episodes(
    patient: DriftingPatient,
    treatments: Float[Array, "n 2"],
    episode_numbers: Float[ArrayLike, " n"],
    key: PRNGKeyArray,
    settings: DaySettings,
) -> DayRecord:
    """One day of each episode under its (CR, CF)."""

    def day(treatment: Array, number: Array, key: PRNGKeyArray) -> DayRecord:
        draws = draw_day(settings, key)
        return run_day(patient.at(number), Treatment(*treatment), draws, settings)

    keys = jax.random.split(key, episode_numbers.shape[0])
    inputs = treatments, jnp.asarray(episode_numbers, float), keys
    if jax.default_backend() != "cpu":
        record: DayRecord = jax.vmap(day)(*inputs)
    else:
        record = jax.lax.map(lambda one: day(*one), inputs, batch_size=CPU_BATCH)
    return record


def _within_limits(treatments: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
    lowest = np.array([CARB_RATIOS[0], CORRECTION_FACTORS[0]])
    highest = np.array([CARB_RATIOS[-1], CORRECTION_FACTORS[-1]])
    return jnp.clip(treatments, lowest, highest)


def _interpolate(worth: Float[Array, " grid"], treatments: Float[Array, "n 2"]) -> Array:
    """Linear in log CR and log CF between the treatments of the grid."""
    axes = CARB_RATIOS, CORRECTION_FACTORS
    places = [
        (jnp.log(treatments[:, i]) - np.log(axis[0])) / np.log(axis[1] / axis[0])
        for i, axis in enumerate(axes)
    ]
    grid = worth.reshape(CARB_RATIOS.size, CORRECTION_FACTORS.size)
    found: Array = jax.scipy.ndimage.map_coordinates(grid, places, order=1, mode="nearest")
    return found
