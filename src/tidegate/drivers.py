"""Two ways to drive `spin_step`: live, a window at a time, and scanned through a simulated world."""

from pathlib import Path
from typing import Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .episodes import EpisodeLog, pad_steps, training_count
from .loop import (
    SpinSettings,
    SpinState,
    doubled_capacity,
    initial_state,
    make_room,
    observe,
    spin_step,
    state_axis,
)
from .policies import ParametricPolicy, Policy
from .precision import in_double
from .records import Decision
from .safety import decision_record

INITIAL_CAPACITY = 256

_jit_step = eqx.filter_jit(spin_step)
_jit_observe = eqx.filter_jit(observe)


class LiveLoop:
    """SPIN on your own windows of episodes: `policy` acts, `step` decides who acts next.

    A loop that is saved after a window and loaded again decides as if it had never stopped.
    """

    def __init__(
        self,
        settings: SpinSettings,
        safe_policy: ParametricPolicy,
        *,
        seed: int = 0,
        capacity: int = INITIAL_CAPACITY,
    ) -> None:
        self.settings, self.safe_policy, self.seed = settings, safe_policy, seed
        self.capacity = capacity
        self.state: SpinState | None = None
        self.windows = 0

    @property
    @in_double
    def policy(self) -> ParametricPolicy:
        """The policy to run until the next call of `step`."""
        chosen = self.safe_policy if self.state is None else self.state.policy
        plain: ParametricPolicy = jax.tree.map(np.asarray, chosen)
        return plain

    @in_double
    def observe(self, window: EpisodeLog) -> None:
        """Remember warm-up episodes without a search or a test."""
        state, window = self._prepared(window)
        self.state = _jit_observe(self.settings, state, window, self._next_key())

    @in_double
    def step(self, window: EpisodeLog) -> Decision:
        """Take in the episodes that `policy` just produced, and decide."""
        state, window = self._prepared(window)
        self.state, outcome = _jit_step(self.settings, state, window, self._next_key())
        return decision_record(
            self.settings.forecast,
            self.state.search.policy,
            self.state.safe_policy,
            self.state.held_out,
            state_axis(self.settings, self.state),
            outcome,
            self.seed,
        )

    @in_double
    def save(self, path: str | Path) -> None:
        """Write the state between two windows."""
        if self.state is None:
            raise ValueError("there is nothing to save before the first window")
        log = self.state.training.log
        header = np.array([self.windows, self.seed, log.capacity, self.state.held_out.log.capacity])
        eqx.tree_serialise_leaves(path, (header, self.state))

    @classmethod
    @in_double
    def load(
        cls,
        path: str | Path,
        settings: SpinSettings,
        safe_policy: ParametricPolicy,
        window: EpisodeLog,
    ) -> Self:
        """Go on from a saved state; `window` shows the shape of an episode, as in `step`."""
        with Path(path).open("rb") as file:
            windows, seed, train, held_out = (int(v) for v in np.load(file))
        loop = cls(settings, safe_policy, seed=seed)
        like = initial_state(settings, safe_policy, window, 1)
        like = make_room(like, train, held_out)
        _, loop.state = eqx.tree_deserialise_leaves(path, (np.zeros(4, int), like))
        loop.windows = windows
        return loop

    def _prepared(self, window: EpisodeLog) -> tuple[SpinState, EpisodeLog]:
        if self.state is None:
            self.state = initial_state(self.settings, self.safe_policy, window, self.capacity)
        window = pad_steps(window, self.state.training.log.mask.shape[1])
        train = training_count(window.capacity, self.settings.train_fraction)
        return make_room(
            self.state,
            int(self.state.num_train) + train,
            int(self.state.num_held_out) + window.capacity - train,
        ), window

    def _next_key(self) -> PRNGKeyArray:
        key = jax.random.fold_in(jax.random.key(self.seed), self.windows)
        self.windows += 1
        return key


class World(Protocol):
    """A simulated world whose truth is known."""

    @property
    def safe_policy(self) -> ParametricPolicy: ...

    def collect(
        self, policy: Policy, episode_numbers: Float[Array, " n"], key: PRNGKeyArray
    ) -> EpisodeLog: ...

    def performance(
        self, policy: Policy, episode_numbers: Float[Array, " n"]
    ) -> Float[Array, " n"]: ...


class History(eqx.Module):
    """One row per window: who ran, what it was truly worth, and what the test then said."""

    deployed: Bool[Array, " w"]
    performance: Float[Array, " w"]
    safe_performance: Float[Array, " w"]
    reason: Int[Array, " w"]
    candidate_lower: Float[Array, " w"]
    safe_upper: Float[Array, " w"]

    @property
    def improvement_over_safe(self) -> Float[Array, ""]:
        """Mean over executed episodes of J(policy in force) − J(safe)."""
        return jnp.mean(self.performance - self.safe_performance)

    @property
    def violation_rate(self) -> Float[Array, ""]:
        """Share of executed episodes in windows where a candidate ran and was truly worse."""
        return jnp.mean(self.deployed & (self.performance < self.safe_performance))

    @property
    def deployment_rate(self) -> Float[Array, ""]:
        return jnp.mean(self.deployed)


def simulate(
    world: World,
    settings: SpinSettings,
    key: PRNGKeyArray,
    *,
    num_episodes: int,
    window: int,
    warmup: int = 20,
    capacity: int = INITIAL_CAPACITY,
) -> History:
    """A whole run as a pure function of its key: jit it, vmap it, map it.

    `warmup` episodes of the safe policy are observed; then windows are executed one after another,
    with one search and one test after each. Capacity doubles in static stages as the log grows.
    """
    warm_key, key = jax.random.split(key)
    observe_key, collect_key = jax.random.split(warm_key)
    first = world.collect(world.safe_policy, _numbers(0, warmup), collect_key)
    state = initial_state(settings, world.safe_policy, first, capacity)
    state = observe(settings, state, first, observe_key)
    histories = []
    for start, stop, train, held_out in _stages(settings, num_episodes, window, warmup, capacity):
        state = make_room(state, train, held_out)

        def turn(state: SpinState, index: Array) -> tuple[SpinState, History]:
            return _turn(world, settings, state, index, key, window, warmup)

        state, history = jax.lax.scan(turn, state, jnp.arange(start, stop))
        histories.append(history)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *histories)


def _turn(
    world: World,
    settings: SpinSettings,
    state: SpinState,
    index: Array,
    key: PRNGKeyArray,
    window: int,
    warmup: int,
) -> tuple[SpinState, History]:
    collect_key, step_key = jax.random.split(jax.random.fold_in(key, index))
    numbers = _numbers(warmup + index * window, window)
    policy, deployed = state.policy, state.deployed
    episodes = world.collect(policy, numbers, collect_key)
    state, outcome = spin_step(settings, state, episodes, step_key)
    return state, History(
        deployed=deployed,
        performance=jnp.mean(world.performance(policy, numbers)),
        safe_performance=jnp.mean(world.performance(world.safe_policy, numbers)),
        reason=outcome.reason,
        candidate_lower=outcome.candidate_bound.lower,
        safe_upper=outcome.safe_bound.upper,
    )


def _stages(
    settings: SpinSettings, num_episodes: int, window: int, warmup: int, capacity: int
) -> list[tuple[int, int, int, int]]:
    """(first window, end, training rows, test rows) for each static size of the log."""
    num_windows = num_episodes // window
    per_window = training_count(window, settings.train_fraction)
    warm = training_count(warmup, settings.train_fraction)

    def rows(windows: int) -> tuple[int, int]:
        train = warm + windows * per_window
        held_out = warmup + windows * window - train
        return doubled_capacity(capacity, train), doubled_capacity(capacity, held_out)

    stages: list[tuple[int, int, int, int]] = []
    for index in range(num_windows):
        size = rows(index + 1)
        if stages and stages[-1][2:] == size:
            stages[-1] = (stages[-1][0], index + 1, *size)
        else:
            stages.append((index, index + 1, *size))
    return stages


def _numbers(after: Array | int, count: int) -> Float[Array, " n"]:
    """Episode numbers start at 1, as in the paper."""
    return (after + jnp.arange(1, count + 1)).astype(float)
