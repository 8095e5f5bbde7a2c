"""What would this policy have earned in past episode i? Importance sampling, in log space.

Products of ratios are sums of logarithms until the very last `exp`, so that an episode of thousands
of steps neither under- nor overflows on the way.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from .episodes import ArrayLike, EpisodeLog
from .policies import Policy

ReturnEstimator: TypeAlias = Callable[[Policy, EpisodeLog, float], Float[Array, " n"]]


def log_ratios(policy: Policy, log: EpisodeLog) -> Float[Array, "n t"]:
    """log π(a|s) − log β(a|s) at each logged step, 0 at the unused ones."""
    ratios = policy.logged_log_probs(log) - log.behavior_log_probs
    return jnp.where(log.mask, ratios, 0.0)


def episode_ratios(policy: Policy, log: EpisodeLog) -> Float[Array, " n"]:
    """The product of ratios over each episode; its expectation is 1 if the policy is supported."""
    return jnp.where(log.present, jnp.exp(jnp.sum(log_ratios(policy, log), axis=1)), 0.0)


def stopped_ratios(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """Π_{l≤min(t, end)} π/β, averaged over t with weights γᵗ: expectation 1, as the returns weigh it."""
    running = jnp.exp(jnp.cumsum(log_ratios(policy, log), axis=1))
    weights = jnp.exp(_log_discounts(log, discount))
    return jnp.where(log.present, jnp.sum(running * weights, axis=1) / jnp.sum(weights), 0.0)


def is_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """ρ̂(π, i) = (Π_t π/β) · Σ_t γᵗ rₜ: ordinary importance sampling (Precup et al., 2000)."""
    discounts = jnp.exp(_log_discounts(log, discount))
    return episode_ratios(policy, log) * observed_sum(log, discounts)


def pdis_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """ρ̂(π, i) = Σ_t (Π_{l≤t} π/β) γᵗ rₜ: per-decision importance sampling (Precup et al., 2000)."""
    cumulative = jnp.cumsum(log_ratios(policy, log), axis=1)
    return observed_sum(log, jnp.exp(cumulative + _log_discounts(log, discount)))


def observed_returns(log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """G_i: what the behaviour policy earned."""
    return observed_sum(log, jnp.exp(_log_discounts(log, discount)))


def observed_sum(log: EpisodeLog, weights: Float[Array, "#n t"]) -> Float[Array, " n"]:
    """Σ_t weight · reward over the steps of each episode."""
    return jnp.sum(jnp.where(log.mask, weights * log.rewards, 0.0), axis=1)


def effective_sample_size(ratios: Float[ArrayLike, " n"]) -> Float[Array, ""]:
    """(Σ w)² / Σ w² (Kong, 1992): how many on-policy episodes these weighted ones are worth."""
    ratios = jnp.asarray(ratios)
    peak = jnp.max(ratios)
    scaled = jnp.where(peak > 0, ratios / peak, 0.0)
    squares = jnp.sum(scaled**2)
    return jnp.where(squares > 0, jnp.sum(scaled) ** 2 / squares, 0.0)


def _log_discounts(log: EpisodeLog, discount: float) -> Float[Array, "1 t"]:
    steps = jnp.arange(log.mask.shape[1])
    # At step 0 the factor is 1 even for γ = 0, where log γ = −∞.
    return jnp.where(steps == 0, 0.0, steps * jnp.log(jnp.asarray(discount)))[None]
