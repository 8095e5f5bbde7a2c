"""What would this policy have earned in past episode i? Importance sampling, in log space.

Products of ratios are sums of logarithms until the very last `exp`, so that an episode of thousands
of steps neither under- nor overflows on the way.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import ArrayLike, Ragged
from .episodes import EpisodeLog
from .errors import LogError, PolicyError
from .inputs import array_or, number
from .measured import MeasuredLog
from .policies import Policy

ReturnEstimator: TypeAlias = Callable[[Policy, EpisodeLog, float], Float[Array, " n"]]


def log_ratios(policy: Policy, log: EpisodeLog) -> Float[Array, "*cells"]:
    """log π(a|s) − log β(a|s) at each logged step, 0 at the unused ones."""
    ratios = policy.logged_log_probs(log) - log.behavior_log_probs
    return jnp.where(log.mask, ratios, 0.0)


def episode_ratios(policy: Policy, log: EpisodeLog) -> Float[Array, " n"]:
    """The product of ratios over each episode; its expectation is 1 if the policy is supported."""
    return jnp.where(log.present, jnp.exp(log.layout.totals(log_ratios(policy, log))), 0.0)


def stopped_ratios(
    policy: Policy, log: EpisodeLog, discount: float = 1.0, num_steps: int | None = None
) -> Float[Array, " n"]:
    """Π_{l≤min(t, end)} π/β, averaged over t with the returns' weights γᵗ; the expectation is 1.

    There are `num_steps` of these, as many as the longest episode has, of which this log need not hold any.
    """
    name = policy.name_in(log) if isinstance(log, MeasuredLog) else None
    if isinstance(log, MeasuredLog) and name in log.stopped:
        return jnp.where(log.present, log.stopped[name], 0.0)
    running = jnp.exp(log.layout.running(log_ratios(policy, log)))
    weights = jnp.exp(_log_powers(discount, jnp.arange(num_steps or log.num_steps)))
    return jnp.where(log.present, log.layout.lasting_mean(running, weights), 0.0)


def is_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """ρ̂(π, i) = (Π_t π/β) · Σ_t γᵗ rₜ: ordinary importance sampling (Precup et al., 2000)."""
    discounts = jnp.exp(_log_discounts(log, discount))
    return episode_ratios(policy, log) * observed_sum(log, discounts)


def pdis_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """ρ̂(π, i) = Σ_t (Π_{l≤t} π/β) γᵗ rₜ: per-decision importance sampling (Precup et al., 2000)."""
    cumulative = log.layout.running(log_ratios(policy, log))
    return observed_sum(log, jnp.exp(cumulative + _log_discounts(log, discount)))


def dr_returns(
    policy: Policy, log: EpisodeLog, discount: float, values: Float[ArrayLike, "*cells a"]
) -> Float[Array, " n"]:
    """Σ_t γᵗ [ρ_{0:t} (rₜ − q̂ₜ) + ρ_{0:t−1} v̂ₜ]: doubly robust (Dudík et al., 2011; Jiang and Li, 2016).

    `values` predict the reward-to-go per action, or with one value for all actions (a = 1: a baseline,
    which any policy can use). Unbiased for any values that were not fitted on the episode itself.
    """
    chosen, expected = _action_values(policy, log, jnp.asarray(values))
    until = log.layout.running(log_ratios(policy, log))
    before = log.layout.before(until)
    discounts = _log_discounts(log, discount)
    surprises = jnp.exp(until + discounts) * (log.rewards - chosen)
    predictions = jnp.exp(before + discounts) * expected
    return log.layout.totals(jnp.where(log.mask, surprises + predictions, 0.0))


def _action_values(
    policy: Policy, log: EpisodeLog, values: Float[Array, "*cells a"]
) -> tuple[Float[Array, "*cells"], Float[Array, "*cells"]]:
    """q̂(s, a) of the logged action, and v̂(s) = Σ_a π(a|s) q̂(s, a)."""
    count = values.shape[-1]
    if values.shape[:-1] != log.mask.shape:
        raise LogError(
            f"the values are for {values.shape[:-1]} episodes and steps, the log has {log.mask.shape}.",
            remedy="Pad both logs to the same number of steps before you fit the values.",
        )
    if count == 1:
        return values[..., 0], values[..., 0]
    known = policy.action_log_probs(log) if count == log.num_actions else None
    if known is None:
        raise PolicyError(
            f"{type(policy).__name__} cannot average {count} action values over "
            f"{log.num_actions or 'continuous'} actions.",
            expected="a policy over discrete actions and one value for each of them",
            remedy="Use one value whatever the action (per_action=False).",
        )
    chosen = jnp.arange(count) == jnp.asarray(log.actions)[..., None]
    # Actions that the policy knows and the log does not cannot have been predicted.
    probs = jnp.exp(known)[..., :count]
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1), jnp.sum(probs * values, axis=-1)


class Gap(eqx.Module):
    """What a policy would have earned beyond its rival, where only the policy can list its probabilities.

    Any values leave the expectation of its returns as it is. Those that predict its rewards, q̂, are not those
    that predict its *advantage*: where both policies act alike their rewards cancel, and what is taken out of
    one of them alone comes back as noise. With b̂ a value whatever the action, and π′ the rival,
        b̂ + share · (1 − π̂′/π)₊ · (q̂ − b̂)
    is b̂ where the rival takes the action as often, so that all of it cancels, and q̂ where it never does. The
    prediction π̂′ may be far off, so the share, from 0 to 1, is the one that suits some other episodes best.
    These values lie between b̂ and q̂: actions that were never possible do no more harm than with either.

    `plain` is the gap with a share of 0, and `added` what a share of 1 adds to it.
    """

    plain: Float[Array, " n"]
    added: Float[Array, " n"]

    def best_share(self, present: Bool[ArrayLike, " n"]) -> Float[Array, ""]:
        """The share with the least variance over these episodes; 0 if that is not a number."""
        count = jnp.maximum(jnp.sum(present), 1)

        def centred(values: Float[Array, " n"]) -> Float[Array, " n"]:
            return jnp.where(present, values - jnp.sum(jnp.where(present, values, 0.0)) / count, 0.0)

        plain, added = centred(self.plain), centred(self.added)
        spread = jnp.sum(added**2)
        share = -jnp.sum(plain * added) / jnp.where(spread > 0, spread, 1.0)
        return jnp.where(share > 0, jnp.minimum(share, 1.0), 0.0)

    def crosswise(self, odd: Bool[Array, " n"], present: Bool[Array, " n"]) -> Float[Array, " n"]:
        """The gap in each episode, with the share that is best for those of the other fold."""
        share = jnp.where(odd, self.best_share(present & ~odd), self.best_share(present & odd))
        return jnp.where(share > 0, self.plain + share * self.added, self.plain)


def gap_returns(
    policy: Policy,
    rival_returns: Float[Array, " n"],
    log: EpisodeLog,
    discount: float,
    baseline: Float[Array, "*cells 1"],
    values: Float[Array, "*cells a"],
    rival_probs: Float[Array, "*cells a"],
) -> Gap:
    """The gap to a rival whose returns use the same baseline, and whose probabilities are predicted."""
    log_probs = policy.action_log_probs(log)
    if log_probs is None:
        raise PolicyError(f"{policy} does not say how likely the actions are that were not taken.")
    probs = jnp.exp(log_probs)
    excess = 1 - jnp.clip(rival_probs, 0.0, probs) / jnp.where(probs > 0, probs, 1.0)
    plain = dr_returns(policy, log, discount, baseline)
    chosen = dr_returns(policy, log, discount, baseline + excess * (values - baseline))
    return Gap(plain - rival_returns, chosen - plain)


def weighted_is_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """IS returns times n/Σw, so that their mean is the self-normalised estimate (Precup et al., 2000).

    Biased by O(1/n), consistent. NaN if the policy could have produced none of the episodes.
    """
    shares = log.layout.spread(_shares(log.layout.totals(log_ratios(policy, log))[:, None], log)[:, 0])
    return observed_sum(log, shares * jnp.exp(_log_discounts(log, discount)))


def weighted_pdis_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """PDIS returns whose ratios are normalised at each step over all episodes (Thomas, 2015).

    An episode that has ended keeps its last ratio. Biased by O(1/n), consistent.
    """
    if isinstance(log.layout, Ragged):
        raise LogError(
            f"the log's episodes have up to {log.num_steps} steps, and most have far fewer.",
            expected="episodes of about the same length: ratios are compared step by step",
            remedy="Use pdis_returns.",
        )
    shares = _shares(jnp.cumsum(log_ratios(policy, log), axis=1), log)
    return observed_sum(log, shares * jnp.exp(_log_discounts(log, discount)))


def _shares(log_weights: Float[Array, "n s"], log: EpisodeLog) -> Float[Array, "n s"]:
    """n · w/Σw in each column, over the rows that hold an episode."""
    present = jnp.asarray(log.present)[:, None]
    known = jnp.where(present, log_weights, -jnp.inf)
    weights = jnp.exp(known - jnp.max(known, axis=0, initial=-jnp.inf))
    return jnp.where(present, jnp.sum(present) * weights / jnp.sum(weights, axis=0), 0.0)


def control_variate_returns(policy: Policy, log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """PDIS returns minus c·(ρ − 1): E ρ = 1, so chance excesses of ρ are taken out of the returns.

    c = cov(PDIS, ρ)/var(ρ) over all episodes, with ρ as in `stopped_ratios`. Because c is fitted on the
    episodes it is used for, a bias of O(1/n) remains; a fixed c would leave none.
    """
    returns, ratios = pdis_returns(policy, log, discount), stopped_ratios(policy, log, discount)
    count = jnp.maximum(jnp.sum(log.present), 1)
    centred = jnp.where(log.present, ratios - jnp.sum(ratios) / count, 0.0)
    spread = jnp.sum(centred**2)
    # On-policy all ratios are 1, up to rounding, and there is nothing to take out.
    varies = spread > count * float(np.finfo(spread.dtype).eps)
    slope = jnp.sum(centred * returns) / jnp.where(varies, spread, jnp.inf)
    return returns - jnp.where(log.present, slope * (ratios - 1), 0.0)


def measured_returns(policy: Policy, log: MeasuredLog) -> Float[Array, " n"]:
    """What was estimated when the log was read."""
    name = policy.name_in(log)
    return jnp.asarray(log.rewards)[:, 0] if name is None else jnp.asarray(log.returns[name])


def observed_returns(log: EpisodeLog, discount: float = 1.0) -> Float[Array, " n"]:
    """G_i: what the behaviour policy earned."""
    return observed_sum(log, jnp.exp(_log_discounts(log, discount)))


def observed_sum(log: EpisodeLog, weights: Float[Array, "..."]) -> Float[Array, " n"]:
    """Σ_t weight · reward over the steps of each episode."""
    return log.layout.totals(jnp.where(log.mask, weights * log.rewards, 0.0))


def effective_sample_size(ratios: Float[ArrayLike, " n"]) -> Float[Array, ""]:
    """(Σ w)² / Σ w² (Kong, 1992): how many on-policy episodes these weighted ones are worth."""
    xp = ratios.__array_namespace__()  # NumPy for NumPy's arrays: too little to compile
    peak = xp.max(ratios, initial=0.0)
    scaled = ratios / xp.where(peak > 0, peak, 1.0)
    total = xp.sum(scaled)
    scaled *= scaled  # of NumPy's, in place
    squares = xp.sum(scaled)
    worth: Float[Array, ""] = total**2 / xp.where(squares > 0, squares, 1.0)
    return worth


def _log_discounts(log: EpisodeLog, discount: float) -> Float[Array, "..."]:
    return _log_powers(array_or(partial(number, "discount", low=0, high=1), discount), log.step_numbers)


def _log_powers(discount: float, steps: Int[Array, "..."]) -> Float[Array, "..."]:
    # At step 0 the factor is 1 even for γ = 0, where log γ = −∞.
    return jnp.where(steps == 0, 0.0, steps * jnp.log(jnp.asarray(discount)))
