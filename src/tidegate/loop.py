"""One turn of SPIN: collect -> split -> search -> test -> deploy or keep. Pure.

The same `spin_step` is called live once per window, scanned in a simulation, and vmapped in a sweep.
"""

import abc
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .arrays import map_leaves, replace_at
from .basis import TimeAxis
from .comparison import Comparison, Terms
from .episodes import (
    EpisodeLog,
    HeldOutEpisodes,
    TrainingEpisodes,
    empty_like,
    grow,
    insert,
    split_rows,
    training_count,
)
from .errors import SettingsError
from .forecast import ForecastSettings
from .inputs import flag, instance, none_or, number
from .policies import ParametricPolicy
from .safety import compare_policies
from .search import SearchSettings, SearchState, begin_search, continue_search


class Spending(eqx.Module):
    """A rule that shares out α among the tests of a sequence.

    The levels sum to at most `alpha` whatever the number of tests, unless the rule says otherwise.
    """

    alpha: float = eqx.field(static=True, converter=partial(number, "alpha", above=0, below=1))

    @abc.abstractmethod
    def level(self, test: Any) -> Float[Array, "..."]:
        """The level of the test with this number, counted from 1; at level 0 a test cannot deploy."""


class SpinSettings(eqx.Module):
    """Everything that defines a SPIN loop.

    `warm_start` continues from the previous candidate with Adam's moments, as the authors' scripts do;
    otherwise each search starts from the safe policy. `test_candidates=False` deploys every candidate
    untested: for ablations only. `spending` says how much of α each test may use, so that the chance of
    any wrong deployment is at most α; without it, every test uses all of α.
    """

    forecast: ForecastSettings = eqx.field(converter=partial(instance, "forecast", ForecastSettings))
    search: SearchSettings = eqx.field(converter=partial(instance, "search", SearchSettings))
    train_fraction: float = eqx.field(
        static=True, default=0.5, converter=partial(number, "train_fraction", low=0, high=1)
    )
    warm_start: bool = eqx.field(static=True, default=True, converter=partial(flag, "warm_start"))
    test_candidates: bool = eqx.field(static=True, default=True, converter=partial(flag, "test_candidates"))
    spending: Spending | None = eqx.field(
        default=None, converter=partial(none_or, partial(instance, "spending", Spending))
    )

    def __check_init__(self) -> None:
        if self.spending is not None and not self.forecast.test.has_p_value:
            raise SettingsError(
                "an error budget needs a test that can be held to any level",
                expected="Paired(…) or Multiscale()",
            )
        if self.forecast.exact:
            raise SettingsError(
                "a loop cannot enumerate all sign vectors of a growing log",
                expected="exact=False",
            )


class SpinState(eqx.Module):
    """What a loop remembers between windows."""

    training: TrainingEpisodes
    held_out: HeldOutEpisodes
    num_train: Int[Array, ""]
    num_held_out: Int[Array, ""]
    first_episode: Float[Array, ""]
    last_episode: Float[Array, ""]
    overflowed: Bool[Array, ""]
    num_tests: Int[Array, ""]
    safe_policy: ParametricPolicy
    search: SearchState
    deployed: Bool[Array, ""]

    @property
    def policy(self) -> ParametricPolicy:
        """The policy in force: the candidate that passed its test, or the safe one."""
        return map_leaves(
            lambda new, old: jnp.where(self.deployed, new, old),
            self.search.policy,
            self.safe_policy,
        )


def initial_state(
    settings: SpinSettings, safe_policy: ParametricPolicy, window: EpisodeLog, capacity: int
) -> SpinState:
    """No episodes yet, room for `capacity` in each split; `window` only shows the shapes."""
    safe_policy = map_leaves(jnp.asarray, safe_policy)
    # Two empty logs, not one: donated or updated buffers must not be shared.
    return SpinState(
        training=TrainingEpisodes(empty_like(window, capacity)),
        held_out=HeldOutEpisodes(empty_like(window, capacity)),
        num_train=jnp.zeros((), int),
        num_held_out=jnp.zeros((), int),
        first_episode=jnp.full((), jnp.inf, float),
        last_episode=jnp.full((), -jnp.inf, float),
        overflowed=jnp.zeros((), bool),
        num_tests=jnp.zeros((), int),
        safe_policy=safe_policy,
        search=begin_search(settings.search, safe_policy),
        deployed=jnp.zeros((), bool),
    )


def observe(settings: SpinSettings, state: SpinState, window: EpisodeLog, key: PRNGKeyArray) -> SpinState:
    """Split new episodes at random between training and test, and remember them."""
    count = training_count(window.capacity, settings.train_fraction)
    train, held_out = (window.take(rows) for rows in split_rows(key, window.capacity, count))
    num_train = state.num_train + train.capacity
    num_held_out = state.num_held_out + held_out.capacity
    overflow = (num_train > state.training.log.capacity) | (num_held_out > state.held_out.log.capacity)
    return replace_at(
        lambda s: (
            s.training.log, s.held_out.log, s.num_train, s.num_held_out, s.first_episode,
            s.last_episode, s.overflowed,
        ),
        state,
        (
            insert(state.training.log, train, state.num_train),
            insert(state.held_out.log, held_out, state.num_held_out),
            num_train,
            num_held_out,
            jnp.minimum(state.first_episode, jnp.min(jnp.asarray(window.episode_numbers))),
            jnp.maximum(state.last_episode, jnp.max(jnp.asarray(window.episode_numbers))),
            state.overflowed | overflow,
        ),
    )  # fmt: skip


def spin_step(
    settings: SpinSettings,
    state: SpinState,
    window: EpisodeLog,
    key: PRNGKeyArray,
    sign_key: PRNGKeyArray,
) -> tuple[SpinState, Comparison]:
    """Take in a window of episodes; search, test, and decide which policy runs the next one.

    `key` splits the window; `sign_key` draws the bootstrap's multipliers. A sweep that maps over runs
    but not over `sign_key` shares the multipliers, and its products with them become matrix products.
    """
    search_key, test_key = jax.random.split(sign_key)
    state = observe(settings, state, window, key)
    axis = state_axis(settings, state)
    start = state.search if settings.warm_start else begin_search(settings.search, state.safe_policy)
    forecast = settings.forecast
    found = continue_search(
        settings.search,
        forecast,
        start,
        state.training,
        axis,
        forecast.multipliers(search_key, settings.search.draws),
        state.safe_policy,
    )
    outcome = compare_policies(
        forecast,
        found.policy,
        state.safe_policy,
        state.held_out,
        Terms(
            axis,
            forecast.multipliers(test_key, forecast.draws),
            forecast.alpha,
            None if settings.spending is None else settings.spending.level(state.num_tests + 1),
        ),
        training=state.training,
        log_full=state.overflowed,
    )
    deployed = outcome.deploys if settings.test_candidates else jnp.ones((), bool)
    state = replace_at(
        lambda s: (s.search, s.deployed, s.num_tests), state, (found, deployed, state.num_tests + 1)
    )
    return state, outcome


def state_axis(settings: SpinSettings, state: SpinState) -> TimeAxis:
    """The time axis of the whole log, shared by search and test."""
    return TimeAxis(state.first_episode - 1, state.last_episode, settings.forecast.lookahead)


def make_room(state: SpinState, needed_train: int, needed_held_out: int) -> SpinState:
    """Double the capacity of each split until it holds what is needed."""
    return replace_at(
        lambda s: (s.training.log, s.held_out.log),
        state,
        (_doubled(state.training.log, needed_train), _doubled(state.held_out.log, needed_held_out)),
    )


def _doubled(log: EpisodeLog, needed: Any) -> EpisodeLog:
    capacity = doubled_capacity(log.capacity, needed)
    return log if capacity == log.capacity else grow(log, capacity)


def doubled_capacity(capacity: int, needed: int) -> int:
    """The first capacity · 2ʲ that is large enough."""
    while capacity < needed:
        capacity *= 2
    return capacity
