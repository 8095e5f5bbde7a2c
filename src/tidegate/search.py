"""Candidate search: gradient ascent on the lower bound of the forecast, plus entropy.

The bound is an order statistic over bootstrap draws. Its gradient goes straight through the sort
(the paper's appendix E): it is the gradient of the one draw that was selected, so each step
differentiates a single row of multipliers.
"""

import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

from .action_table import action_table, coefficients, is_tabular
from .arrays import full_products, in_double, map_leaves
from .basis import TimeAxis
from .bootstrap import (
    GivenMultipliers,
    Multipliers,
    check_draws,
    draw_at_rank,
    forecast_deviations,
    held,
    lower_rank,
    multiplier_row,
    studentized_deviations,
    upper_rank,
)
from .episodes import EpisodeLog, TrainingEpisodes
from .errors import PolicyError, SettingsError
from .forecast import (
    ForecastSettings,
    estimated_returns,
    series_of,
    training_values,
)
from .policies import ParametricPolicy, Policy, SoftmaxPolicy
from .trend import TrendDesign, TrendFit, fit_trend


class Objective(enum.Enum):
    """What the search climbs."""

    PERCENTILE = "lower bound, percentile bootstrap"
    PERCENTILE_T = "lower bound, percentile-t bootstrap"
    NORMAL = "lower bound, normal approximation"
    MEAN = "point forecast"


class SearchSettings(eqx.Module):
    """How to search for the candidate. `alpha` is the tail of the bound that is maximised.

    `entropy_in_returns` gives each step the reward −λ log π(a|s), not differentiated, as the authors'
    scripts do; otherwise λ times the mean entropy is added to the objective, as the paper prints it.
    `average_gradient` divides the gradient by the number of training episodes, which matters only
    relative to Adam's ε.
    """

    steps: int | Array = 100
    learning_rate: float | Array = 0.01
    entropy_weight: float | Array = 0.01
    objective: Objective = eqx.field(static=True, default=Objective.PERCENTILE)
    alpha: float = eqx.field(static=True, default=0.05)
    draws: int = eqx.field(static=True, default=200)
    natural_gradient: bool = eqx.field(static=True, default=False)
    fisher_damping: float = eqx.field(static=True, default=1e-4)
    average_gradient: bool = eqx.field(static=True, default=False)
    entropy_in_returns: bool = eqx.field(static=True, default=False)
    adam_epsilon: float = eqx.field(static=True, default=1e-5)

    def __check_init__(self) -> None:
        if isinstance(self.steps, int) and self.steps < 0:
            raise SettingsError(f"steps is {self.steps}", expected="a count from 0 up")
        if not 0 < self.alpha < 1:
            raise SettingsError(f"alpha is {self.alpha}", expected="a probability between 0 and 1")
        check_draws(self.draws, self.alpha)


class SearchState(eqx.Module):
    """The policy under search and Adam's moments, which are kept from window to window."""

    policy: ParametricPolicy
    moments: optax.OptState


def begin_search(settings: SearchSettings, policy: ParametricPolicy) -> SearchState:
    """Start from this policy with fresh moments."""
    if not isinstance(policy, ParametricPolicy):
        raise PolicyError(
            f"{type(policy).__name__} has no parameters to search over.",
            expected="a softmax, tabular, linear, MLP or Gaussian policy",
        )
    policy = map_leaves(jnp.asarray, policy)
    return SearchState(policy, _adam(settings).init(policy))


@full_products
def search_objective(
    policy: ParametricPolicy,
    settings: SearchSettings,
    forecasting: ForecastSettings,
    log: EpisodeLog,
    design: TrendDesign,
    multipliers: Multipliers,
    values: Float[Array, "n t a"] | None = None,
    rival: Float[Array, " n"] | None = None,
) -> Float[Array, ""]:
    """The number that the search climbs: a bound on the policy's forecast, or on its advantage."""
    rewarded = log
    if settings.entropy_in_returns:
        surprise = -jax.lax.stop_gradient(policy.logged_log_probs(log))
        rewarded = eqx.tree_at(lambda one: one.rewards, log, log.rewards + settings.entropy_weight * surprise)
    returns = estimated_returns(forecasting, policy, rewarded, values)
    fit = fit_trend(design, returns if rival is None else returns - rival)
    bound = straight_through_bound(fit, multipliers, settings.objective, settings.alpha)
    if settings.entropy_in_returns:
        return bound
    return bound + settings.entropy_weight * mean_entropy(policy, log)


def straight_through_bound(
    fit: TrendFit, multipliers: Multipliers, objective: Objective, alpha: float
) -> Float[Array, ""]:
    """The lower bound as a function of the selected draw alone."""
    if objective is Objective.MEAN:
        return fit.point
    if objective is Objective.NORMAL:
        return fit.point - norm.isf(alpha) * _root(fit.variance)
    percentile = objective is Objective.PERCENTILE
    statistics = forecast_deviations if percentile else studentized_deviations
    rank = lower_rank if percentile else upper_rank
    values = jax.lax.stop_gradient(statistics(fit, multipliers))
    selected = draw_at_rank(values, rank(alpha, multipliers.num_draws))
    row = multiplier_row(multipliers, selected, fit.residuals.size)
    value = statistics(fit, GivenMultipliers(row[None], multipliers.unit_square))[0]
    return fit.point + value if percentile else fit.point - value * jnp.sqrt(fit.variance)


def objective_of(
    settings: SearchSettings,
    forecasting: ForecastSettings,
    policy: ParametricPolicy,
    log: EpisodeLog,
    design: TrendDesign,
    multipliers: Multipliers,
    values: Float[Array, "n t a"] | None = None,
    rival: Float[Array, " n"] | None = None,
) -> Callable[[Any], Float[Array, ""]]:
    """`search_objective` as a function of the policy; whatever the steps share is computed once."""
    linear = settings.objective is not Objective.PERCENTILE_T
    if linear and is_tabular(policy, log, forecasting):
        return tabular_objective(settings, policy, log, design, multipliers, values, rival)
    signs = held(multipliers, log.capacity)
    return lambda policy: search_objective(policy, settings, forecasting, log, design, signs, values, rival)


def tabular_objective(
    settings: SearchSettings,
    policy: SoftmaxPolicy,
    log: EpisodeLog,
    design: TrendDesign,
    multipliers: Multipliers,
    values: Float[Array, "n 1 a"] | None = None,
    rival: Float[Array, " n"] | None = None,
) -> Callable[[Any], Float[Array, ""]]:
    """`search_objective` where returns are linear in the action probabilities."""
    table = action_table(policy, log, design, multipliers, values, rival)
    rank = lower_rank(settings.alpha, multipliers.num_draws)

    @full_products
    def objective(policy: SoftmaxPolicy) -> Float[Array, ""]:
        in_returns = settings.entropy_weight if settings.entropy_in_returns else 0.0
        mixture = coefficients(policy, in_returns)
        bound = table.points @ mixture
        if settings.objective is Objective.PERCENTILE:
            values = jax.lax.stop_gradient(table.deviations @ mixture)
            bound += table.deviations[draw_at_rank(values, rank)] @ mixture
        if settings.objective is Objective.NORMAL:
            bound -= norm.isf(settings.alpha) * _root(mixture @ table.covariance @ mixture)
        if settings.entropy_in_returns:
            return bound
        return bound + settings.entropy_weight * policy.entropy()

    return objective


def mean_entropy(policy: ParametricPolicy, log: EpisodeLog) -> Float[Array, ""]:
    """H(π, D): the entropy averaged over the logged steps."""
    entropies = jnp.broadcast_to(policy.entropy(log.states), log.mask.shape)
    return jnp.sum(jnp.where(log.mask, entropies, 0.0)) / jnp.maximum(jnp.sum(log.mask), 1)


def continue_search(
    settings: SearchSettings,
    forecasting: ForecastSettings,
    state: SearchState,
    training: TrainingEpisodes,
    axis: TimeAxis,
    multipliers: Multipliers,
    against: Policy | None = None,
) -> SearchState:
    """`settings.steps` gradient steps; a step whose gradient is not finite is not taken.

    For a test of the difference, the search climbs the bound on the advantage over `against`.
    """
    log = training.log
    others = forecasting.test.rivals(against)
    model = training_values(forecasting, log, state.policy, *others)
    rival = [estimated_returns(forecasting, one, log, model(one)) for one in others]
    values = model(state.policy)
    design = _search_design(forecasting, state.policy, log, values, axis)
    objective = objective_of(settings, forecasting, state.policy, log, design, multipliers, values, *rival)

    def ascend(_: Array, current: SearchState) -> SearchState:
        gradient = jax.grad(objective)(current.policy)
        if settings.average_gradient:
            count = jnp.maximum(jnp.sum(jnp.asarray(log.present)), 1)
            gradient = map_leaves(lambda g: g / count, gradient)
        if settings.natural_gradient:
            gradient = natural_gradient(current.policy, gradient, log, settings.fisher_damping)
        updates, moments = _adam(settings).update(gradient, current.moments)
        policy = map_leaves(
            lambda p, u: p + (settings.learning_rate * u).astype(p.dtype), current.policy, updates
        )
        stepped = SearchState(policy, moments)
        return map_leaves(lambda new, old: jnp.where(_all_finite(policy), new, old), stepped, current)

    found: SearchState = jax.lax.fori_loop(0, settings.steps, ascend, state)
    return found


def _search_design(
    forecasting: ForecastSettings,
    policy: ParametricPolicy,
    log: EpisodeLog,
    values: Float[Array, "n t a"] | None,
    axis: TimeAxis,
) -> TrendDesign:
    """The trend that the search forecasts with: of several models, the one that erred least."""
    series = series_of(log, estimated_returns(forecasting, policy, log, values))
    _, fit = forecasting.test.lead(series, series, axis)
    return fit.design


@full_products
def natural_gradient(
    policy: ParametricPolicy, gradient: ParametricPolicy, log: EpisodeLog, damping: float
) -> ParametricPolicy:
    """(F + damping · I)⁻¹ gradient, with F the Fisher information averaged over the logged states.

    F is a full matrix over all parameters: meant for policies with at most a few thousand.
    """
    parameters, unravel = ravel_pytree(policy)

    def outputs(flat: Array, state: Array | None) -> Array:
        policy_at: ParametricPolicy = unravel(flat)
        return policy_at.outputs(state)

    def factors(state: Array | None) -> tuple[Float[Array, "o p"], Float[Array, "o p"]]:
        """J and FJ, with F the information about the outputs; that about the parameters is JᵀFJ."""
        jacobian = jax.jacrev(outputs)(parameters, state)
        return jacobian, policy.output_fisher(outputs(parameters, state)) @ jacobian

    if log.states is None:
        jacobian, weighted = factors(None)
        fisher = jacobian.T @ weighted
    else:
        states = jnp.asarray(log.states)
        weights = jnp.asarray(log.mask, parameters.dtype).reshape(-1)
        jacobian, weighted = jax.vmap(factors)(states.reshape(-1, *states.shape[log.mask.ndim :]))
        # Summed over steps and outputs at once: no p × p matrix per step.
        total = jnp.einsum("n,nop,noq->pq", weights, jacobian, weighted)
        fisher = total / jnp.maximum(jnp.sum(weights), 1)
    damped = fisher + damping * jnp.eye(parameters.size, dtype=parameters.dtype)
    direction = jax.scipy.linalg.solve(damped, ravel_pytree(gradient)[0], assume_a="pos")
    natural: ParametricPolicy = unravel(direction)
    return natural


@in_double
def search_candidate(
    start: ParametricPolicy,
    training: TrainingEpisodes,
    forecasting: ForecastSettings,
    settings: SearchSettings | None = None,
    *,
    against: Policy | None = None,
    seed: int = 0,
) -> ParametricPolicy:
    """The policy with the highest lower bound on its forecast, found from the training episodes.

    For a test of the difference, with `against` given, it is the bound on the advantage over that policy.
    """
    if not isinstance(training, TrainingEpisodes):
        raise SettingsError(
            f"the search was given {type(training).__name__}",
            expected="TrainingEpisodes, from split_log",
            remedy="A candidate that has seen the test episodes cannot be tested on them.",
        )
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(start)):
        raise PolicyError(
            "the policy to start from has an infinite or undefined parameter.",
            expected="a policy that gives every action some probability",
            remedy="An action of probability zero has no gradient: start from a softer policy.",
        )
    settings = settings or SearchSettings()
    multipliers = forecasting.multipliers(jax.random.key(seed), settings.draws)
    axis = TimeAxis.over(training.span or training.log.span, forecasting.lookahead)
    found = eqx.filter_jit(continue_search)(
        settings,
        forecasting,
        begin_search(settings, start),
        TrainingEpisodes(training.log),  # the axis has the span
        axis,
        multipliers,
        against,
    )
    return map_leaves(jax.device_get, found.policy)


def _root(variance: Float[Array, ""]) -> Float[Array, ""]:
    """√variance, with a finite gradient where it is 0."""
    tiny = np.finfo(variance.dtype).tiny
    return jnp.sqrt(jnp.maximum(variance, tiny))


def _adam(settings: SearchSettings) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=0.9, b2=0.999, eps=settings.adam_epsilon)


def _all_finite(policy: ParametricPolicy) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(ravel_pytree(policy)[0]))
