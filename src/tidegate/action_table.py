"""One decision per episode and no state: every return is linear in the action probabilities.

Then Yᵢ = Σ_a π(a) · {q̂ᵢₐ + 1[aᵢ = a] (rᵢ − q̂ᵢₐ + λ sₐ)/βᵢ}, with sₐ the surprise that the entropy bonus
rewards and q̂ the prediction of a value model (0 without one). Forecast and bootstrap are linear in Y, so
a search computes them once per action instead of once per step, and each gradient step costs draws ×
actions, whatever the length of the log.
"""

from typing import TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .arrays import full_products
from .bootstrap import Multipliers, weighted_sums
from .episodes import EpisodeLog
from .forecast import ForecastSettings
from .policies import MAX_SUMMED, ParametricPolicy, SoftmaxPolicy
from .returns import is_returns, pdis_returns
from .trend import TrendDesign, fit_trend


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
        isinstance(policy, SoftmaxPolicy)
        and log.num_steps == 1
        and log.num_actions is not None
        and log.num_actions <= policy.outputs().size <= MAX_SUMMED
        and settings.estimator in (pdis_returns, is_returns)
    )


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
    actions = jnp.arange(policy.outputs().size)[:, None]
    chosen = (jnp.asarray(log.actions)[:, 0] == actions) & log.mask[:, 0]
    per_reward = jnp.where(chosen, jnp.exp(-jnp.asarray(log.behavior_log_probs)[:, 0]), 0.0)
    predicted = jnp.zeros(()) if values is None else values[:, 0].T
    surplus = jnp.asarray(log.rewards)[:, 0] - predicted
    rewards = jnp.where(log.mask[:, 0], predicted, 0.0) + jnp.where(chosen, per_reward * surplus, 0.0)
    last = jnp.zeros_like(rewards[0]) if rival is None else rival
    fits = jax.vmap(lambda returns: fit_trend(design, returns))(
        jnp.concatenate([rewards, per_reward, last[None]])
    )
    weighted = design.forecast_weights * fits.residuals
    deviations = weighted_sums(multipliers, lambda rows: rows, weighted)
    return ActionTable(fits.point, deviations, weighted @ weighted.T)


def coefficients(policy: SoftmaxPolicy, surprise_weight: float | Array) -> Float[Array, " m"]:
    """The table's weights: those of the actions, and −1 for the rival. The surprise is not differentiated."""
    log_probs = policy.log_probs()
    probs = jnp.exp(log_probs)
    surprise = -jax.lax.stop_gradient(jnp.where(jnp.isneginf(log_probs), 0.0, log_probs))
    return jnp.concatenate([probs, surprise_weight * surprise * probs, -jnp.ones(1, probs.dtype)])
