"""Candidate search: gradient ascent on the lower bound of the forecast, plus entropy.

The bound is an order statistic over bootstrap draws. Its gradient goes straight through the sort
(the paper's appendix E): it is the gradient of the one draw that was selected, so each step
differentiates a single row of multipliers.

With one decision per episode and no state, every return is linear in the action probabilities:
Yᵢ = Σ_a π(a) · {q̂ᵢₐ + 1[aᵢ = a] (rᵢ − q̂ᵢₐ + λ sₐ)/βᵢ}, with sₐ the surprise that the entropy bonus
rewards and q̂ the prediction of a value model (0 without one). Forecast and bootstrap are linear in Y, so
they are computed once per action instead of once per step (`ActionTable`), and each gradient step costs
draws × actions, whatever the length of the log.

Such a policy can also be found without steps (`ByAction`), so that it does not lag behind a world that has
moved on. Each action is then forecast by the trend that leads for it: one that has begun to rise is
seen on a shorter span than one that has long stood still. With Lₐ the lower bound of action a, the policy
that maximises Σ_a π(a) Lₐ + λ H(π) − KL(π ‖ start)/η is π(a) ∝ exp((log start(a) + η Lₐ)/(1 + η λ)).
"""

import dataclasses
import enum
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

from .arrays import Progress, full_products, in_double, kept, map_leaves, replace_at, unreported
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
    weighted_sums,
)
from .comparison import ComparisonTest
from .episodes import EpisodeLog, TrainingEpisodes, roomy
from .errors import PolicyError, SettingsError
from .forecast import (
    ForecastSettings,
    cross_fitted_values,
    estimated_returns,
    series_of,
)
from .inputs import array_or, flag, instance, member, none_or, number, seed_of, whole
from .mixture import Trend
from .policies import MAX_SUMMED, ExploringPolicy, ParametricPolicy, Policy, SoftmaxPolicy
from .returns import is_returns, pdis_returns
from .trend import TrendDesign, TrendFit, fit_trend

if TYPE_CHECKING:
    import optax

PARTS = 20  # in which a search tells how far it is


class Objective(enum.Enum):
    """What the search climbs."""

    PERCENTILE = "lower bound, percentile bootstrap"
    PERCENTILE_T = "lower bound, percentile-t bootstrap"
    NORMAL = "lower bound, normal approximation"
    MEAN = "point forecast"


class ByAction(eqx.Module):
    """How firmly the best actions are preferred, and how much of the previous preference stays.

    A lower bound that is higher by the standard error of a typical action's forecast adds `sharpness` to
    the log-odds, whatever the unit of the rewards. The start is `memory` of the way from the safe policy to
    the previous candidate (in log-probabilities): with 0 a candidate follows every turn of the noise, with
    1 it cannot forget.
    """

    sharpness: float = eqx.field(static=True, default=10.0, converter=partial(number, "sharpness", above=0))
    memory: float = eqx.field(static=True, default=0.5, converter=partial(number, "memory", low=0, high=1))


class SearchSettings(eqx.Module):
    """How to search for the candidate. `alpha` is the tail of the bound that is maximised.

    `entropy_in_returns` gives each step the reward −λ log π(a|s), not differentiated, as the authors'
    scripts do; otherwise λ times the mean entropy is added to the objective, as the paper prints it.
    `average_gradient` divides the gradient by the number of training episodes, which matters only
    relative to Adam's ε.

    `by_action` chooses among the actions of a policy without state in closed form; any other policy, and
    one that must keep exploring, is still found by `steps` along the gradient.
    """

    steps: int | Array = eqx.field(default=100, converter=partial(array_or, partial(whole, "steps", low=0)))
    learning_rate: float | Array = eqx.field(
        default=0.01, converter=partial(array_or, partial(number, "learning_rate", low=0))
    )
    entropy_weight: float | Array = eqx.field(
        default=0.01, converter=partial(array_or, partial(number, "entropy_weight", low=0))
    )
    objective: Objective = eqx.field(
        static=True, default=Objective.PERCENTILE, converter=partial(member, "objective", Objective)
    )
    alpha: float = eqx.field(static=True, default=0.05, converter=partial(number, "alpha", above=0, below=1))
    draws: int = eqx.field(static=True, default=200, converter=partial(whole, "draws", low=1))
    natural_gradient: bool = eqx.field(
        static=True, default=False, converter=partial(flag, "natural_gradient")
    )
    fisher_damping: float = eqx.field(
        static=True, default=1e-4, converter=partial(number, "fisher_damping", low=0)
    )
    average_gradient: bool = eqx.field(
        static=True, default=False, converter=partial(flag, "average_gradient")
    )
    entropy_in_returns: bool = eqx.field(
        static=True, default=False, converter=partial(flag, "entropy_in_returns")
    )
    adam_epsilon: float = eqx.field(
        static=True, default=1e-5, converter=partial(number, "adam_epsilon", above=0)
    )
    by_action: ByAction | None = eqx.field(
        default=None, converter=partial(none_or, partial(instance, "by_action", ByAction))
    )

    def __check_init__(self) -> None:
        check_draws(self.draws, self.alpha)
        if self.by_action is None:
            return
        if self.objective not in (Objective.NORMAL, Objective.MEAN) or self.entropy_in_returns:
            raise SettingsError(
                "the best actions have a closed form only for bounds without a bootstrap",
                expected="objective=Objective.NORMAL or MEAN, and entropy_in_returns=False",
                remedy="Or leave out by_action=….",
            )


class SearchState(eqx.Module):
    """The policy under search and Adam's moments, which are kept from window to window."""

    policy: ParametricPolicy
    moments: Any  # optax's


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


class ActionTable(eqx.Module):
    """Forecast and its deviation in every draw, for one unit of probability on each action.

    A row holds the contribution of each action's rewards, then that of a surprise of 1 at each action,
    and last that of the rival that the policy is compared with.
    """

    points: Float[Array, " m"]
    deviations: Float[Array, "b m"]
    covariance: Float[Array, "m m"]


def is_tabular(
    policy: ParametricPolicy, log: EpisodeLog, settings: ForecastSettings
) -> TypeGuard[SoftmaxPolicy]:
    """Whether returns are linear in the probabilities of a few actions."""
    return (
        isinstance(policy.policy if isinstance(policy, ExploringPolicy) else policy, SoftmaxPolicy)
        and log.num_steps == 1
        and log.num_actions is not None
        and log.num_actions <= policy.outputs().size <= MAX_SUMMED
        and settings.estimator in (pdis_returns, is_returns)
    )


def action_returns(
    count: int, log: EpisodeLog, values: Float[Array, "n 1 a"] | None
) -> tuple[Float[Array, "a n"], Float[Array, "a n"]]:
    """What each action alone would have earned in each episode, and the weights of its rewards."""
    actions = jnp.arange(count)[:, None]
    chosen = (jnp.asarray(log.actions)[:, 0] == actions) & log.mask[:, 0]
    per_reward = jnp.where(chosen, jnp.exp(-jnp.asarray(log.behavior_log_probs)[:, 0]), 0.0)
    predicted = jnp.zeros(()) if values is None else values[:, 0].T
    surplus = jnp.asarray(log.rewards)[:, 0] - predicted
    rewards = jnp.where(log.mask[:, 0], predicted, 0.0) + jnp.where(chosen, per_reward * surplus, 0.0)
    return rewards, per_reward


@full_products
def action_table(
    policy: SoftmaxPolicy,
    log: EpisodeLog,
    design: TrendDesign,
    multipliers: Multipliers,
    values: Float[Array, "n 1 a"] | None = None,
    rival: Float[Array, " n"] | None = None,
) -> ActionTable:
    """All that a search over state-free policies needs to know about the log."""
    rewards, per_reward = action_returns(policy.outputs().size, log, values)
    last = jnp.zeros_like(rewards[0]) if rival is None else rival
    fits = jax.vmap(lambda returns: fit_trend(design, returns))(
        jnp.concatenate([rewards, per_reward, last[None]])
    )
    weighted = design.forecast_weights * design.inflation * fits.residuals
    deviations = weighted_sums(multipliers, lambda rows: rows, weighted)
    return ActionTable(fits.point, deviations, weighted @ weighted.T)


def coefficients(policy: SoftmaxPolicy, surprise_weight: float | Array) -> Float[Array, " m"]:
    """The table's weights: those of the actions, and −1 for the rival. The surprise is not differentiated."""
    log_probs = policy.log_probs()
    probs = jnp.exp(log_probs)
    surprise = -jax.lax.stop_gradient(jnp.where(jnp.isneginf(log_probs), 0.0, log_probs))
    return jnp.concatenate([probs, surprise_weight * surprise * probs, -jnp.ones(1, probs.dtype)])


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

    For a test of the difference, the search climbs the bound on the advantage over `against`. A policy over
    a few actions is found in closed form instead, if the settings say so.
    """
    policy, log = state.policy, training.log
    if mixes_actions(policy, settings, forecasting, log):
        found = best_actions(settings, forecasting, policy, log, axis, against)
        return SearchState(found, state.moments)
    hill = survey(forecasting, policy, log, axis, against)
    return climb(settings, forecasting, state, log, hill, multipliers)


def mixes_actions(
    policy: ParametricPolicy, settings: SearchSettings, forecasting: ForecastSettings, log: EpisodeLog
) -> TypeGuard[SoftmaxPolicy]:
    """Whether the candidate is chosen among a few actions, and not climbed to."""
    few = isinstance(policy, SoftmaxPolicy) and is_tabular(policy, log, forecasting)
    return settings.by_action is not None and few


def best_actions(
    settings: SearchSettings,
    forecasting: ForecastSettings,
    start: SoftmaxPolicy,
    log: EpisodeLog,
    axis: TimeAxis,
    against: Policy | None,
) -> SoftmaxPolicy:
    """The mixture of actions with the highest lower bounds, near where the search starts."""
    others = forecasting.test.rivals(against)
    values = cross_fitted_values(forecasting, log, start, *others)
    returns, _ = action_returns(start.outputs().size, log, values(start))
    for one in others:
        returns -= estimated_returns(forecasting, one, log, values(one))
    found = action_forecasts(forecasting.test, log, axis, returns)
    reach = norm.isf(settings.alpha) if settings.objective is Objective.NORMAL else 0.0
    home = against if isinstance(against, SoftmaxPolicy) else start
    how = settings.by_action or ByAction()
    return preferred(
        how, found.lower_bounds(reach), found.typical_error, settings.entropy_weight, start, home
    )


class ActionForecasts(eqx.Module):
    """The forecast advantage of each action over the rival, and its standard error."""

    points: Float[Array, " a"]
    errors: Float[Array, " a"]

    def lower_bounds(self, reach: float | Array) -> Float[Array, " a"]:
        """`reach` standard errors below the forecast."""
        return self.points - reach * self.errors

    @property
    def typical_error(self) -> Float[Array, ""]:
        """The root mean square of the errors."""
        return jnp.sqrt(jnp.mean(self.errors**2))


def action_forecasts(
    test: ComparisonTest, log: EpisodeLog, axis: TimeAxis, advantages: Float[Array, "a n"]
) -> ActionForecasts:
    """Each action's advantage, forecast by the trend that leads for it."""

    def led(advantage: Float[Array, " n"]) -> Trend:
        return test.lead(series_of(log, advantage), axis)

    fits = jax.vmap(led)(advantages)
    return ActionForecasts(fits.point, jnp.sqrt(fits.variance))


def preferred(
    how: ByAction,
    lower_bounds: Float[Array, " a"],
    unit: Float[Array, ""],
    entropy_weight: float | Array,
    previous: SoftmaxPolicy,
    safe: SoftmaxPolicy,
) -> SoftmaxPolicy:
    """The policy of the closed form; the previous one if a bound is not a number."""
    before, trusted = previous.log_probs(), safe.log_probs()
    start = trusted + how.memory * (before - trusted)
    pull = how.sharpness / jnp.maximum(unit, np.finfo(start.dtype).tiny)
    logits = jax.nn.log_softmax((start + pull * lower_bounds) / (1 + pull * entropy_weight))
    kept = jnp.where(jnp.all(jnp.isfinite(logits)), logits, before)
    return replace_at(lambda one: one.logits, previous, kept.astype(previous.outputs().dtype))


class Hill(eqx.Module):
    """What a search climbs on: the trend that forecasts, predicted values, and the rival's returns."""

    design: TrendDesign
    values: Float[Array, "n t a"] | None
    rival: tuple[Float[Array, " n"], ...]


def survey(
    forecasting: ForecastSettings,
    policy: ParametricPolicy,
    log: EpisodeLog,
    axis: TimeAxis,
    against: Policy | None,
) -> Hill:
    """All that the steps of a search share, whatever the policy becomes."""
    others = forecasting.test.rivals(against)
    model = cross_fitted_values(forecasting, log, policy, *others)
    rival = tuple(estimated_returns(forecasting, one, log, model(one)) for one in others)
    values = model(policy)
    return Hill(_search_design(forecasting, policy, log, values, axis), values, rival)


def climb(
    settings: SearchSettings,
    forecasting: ForecastSettings,
    state: SearchState,
    log: EpisodeLog,
    hill: Hill,
    multipliers: Multipliers,
) -> SearchState:
    """The gradient steps of `continue_search`."""
    objective = objective_of(
        settings, forecasting, state.policy, log, hill.design, multipliers, hill.values, *hill.rival
    )

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
    """The trend that the search forecasts with."""
    series = series_of(log, estimated_returns(forecasting, policy, log, values))
    design = forecasting.test.lead(series, axis).design
    return design if isinstance(design, TrendDesign) else design.regression


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
    progress: Progress = unreported,
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
    instance("forecasting", ForecastSettings, forecasting)
    settings = SearchSettings() if settings is None else instance("settings", SearchSettings, settings)
    seed = seed_of(seed)
    multipliers = forecasting.multipliers(jax.random.key(seed), settings.draws)
    axis = TimeAxis.over(training.span or training.log.span, forecasting.lookahead)
    log, shared, state = roomy(training.log), forecasting.for_any_terms, _begin(settings, start)
    if mixes_actions(start := state.policy, settings, shared, log):
        return map_leaves(np.asarray, _best(settings, shared, start, log, axis, against))
    hill = _survey(shared, state.policy, log, axis, against)
    for steps in progress(_parts(int(settings.steps))):
        part = map_leaves(np.asarray, dataclasses.replace(settings, steps=steps))
        state = _climb(part, shared, state, log, hill, multipliers)  # one program serves all numbers
    return map_leaves(np.asarray, state.policy)


_begin, _survey, _climb, _best = kept(begin_search), kept(survey), kept(climb), kept(best_actions)


def _parts(steps: int) -> list[int]:
    """The steps in up to `PARTS` parts, so that progress can be seen."""
    return [len(part) for part in np.array_split(np.arange(steps), PARTS) if len(part)]


def _root(variance: Float[Array, ""]) -> Float[Array, ""]:
    """√variance, with a finite gradient where it is 0."""
    tiny = np.finfo(variance.dtype).tiny
    return jnp.sqrt(jnp.maximum(variance, tiny))


def _adam(settings: SearchSettings) -> "optax.GradientTransformation":
    import optax  # a gate does not need it, and it takes a while to load

    return optax.scale_by_adam(b1=0.9, b2=0.999, eps=settings.adam_epsilon)


def _all_finite(policy: ParametricPolicy) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(ravel_pytree(policy)[0]))
