"""The safety test: DEPLOY only by a positive comparison of finite numbers, else KEEP, with the reason."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .basis import TimeAxis
from .bootstrap import ConfidenceInterval, Multipliers, Side
from .episodes import HeldOutEpisodes, grow
from .errors import SettingsError
from .performance import (
    ForecastSettings,
    describe_forecast,
    design_for,
    draw_multipliers,
    log_axis,
)
from .policies import Policy
from .precision import in_double
from .records import Decision, describe_settings, versions
from .returns import stopped_ratios
from .trees import map_leaves
from .trend import TrendDesign, TrendFit, fit_trend
from .verdicts import MIN_EPISODES, Reason, Verdict

RATIO_TOLERANCE = 0.01


class Comparison(eqx.Module):
    """The test's arithmetic, as arrays."""

    candidate: TrendFit
    safe: TrendFit
    candidate_interval: ConfidenceInterval
    safe_interval: ConfidenceInterval
    reason: Int[Array, ""]

    @property
    def deploys(self) -> Bool[Array, ""]:
        return self.reason == Reason.BETTER


def compare_policies(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    axis: TimeAxis,
    multipliers: Multipliers,
    *,
    log_full: Bool[Array, ""] | bool = False,
) -> Comparison:
    """The candidate's lower against the safe policy's upper bound, each at α/2, on the same episodes."""
    log = held_out.log
    design = design_for(settings, log, axis)
    policies = (candidate, safe)

    def bounded(returns: Float[Array, " n"]) -> tuple[TrendFit, ConfidenceInterval]:
        fit = fit_trend(design, returns)
        return fit, settings.interval(fit, multipliers, settings.alpha, Side.BOTH)

    # One vmap over both policies, so that the multipliers are made once.
    returns = jnp.stack([settings.estimator(policy, log, settings.discount) for policy in policies])
    fits, intervals = jax.vmap(bounded)(returns)
    ratios = jnp.stack([stopped_ratios(policy, log, settings.discount) for policy in policies])
    lower, upper = intervals.lower[0], intervals.upper[1]
    excess = jax.vmap(_ratio_excess, (0, None, None))(ratios, design, settings)
    # Propensities are logged with a few digits, so a small excess is forgiven, but what it can have
    # added to the returns is no evidence.
    forgiven = jnp.sum(excess * jnp.max(jnp.abs(fits.returns), axis=1))
    doubts = {
        **_design_doubts(design),
        Reason.LOG_FULL: jnp.asarray(log_full),
        Reason.SUPPORT: ~jnp.all(excess <= RATIO_TOLERANCE)
        | ((lower > upper) & ~(lower - upper > forgiven)),
        Reason.NO_VARIATION: ~jnp.all(jax.vmap(_varies)(fits)),
        Reason.NOT_FINITE: ~(jnp.isfinite(lower) & jnp.isfinite(upper)),
        Reason.NOT_BETTER: ~(lower > upper),
    }
    first, second = (map_leaves(lambda leaf, i=i: leaf[i], (fits, intervals)) for i in (0, 1))
    return Comparison(first[0], second[0], first[1], second[1], _first_doubt(doubts))


def _first_doubt(doubts: dict[Reason, Bool[Array, ""]]) -> Int[Array, ""]:
    """Every doubt must be a definite False before BETTER is reached."""
    ordered = sorted(doubts)
    return jnp.select(
        [doubts[reason] for reason in ordered],
        [jnp.int32(reason) for reason in ordered],
        jnp.int32(Reason.BETTER),
    )


def _design_doubts(design: TrendDesign) -> dict[Reason, Bool[Array, ""]]:
    count = jnp.sum(design.present)
    tolerance = np.sqrt(_epsilon(design.conditioning))
    return {
        Reason.NO_EPISODES: count < 1,
        Reason.TOO_FEW_EPISODES: count < jnp.maximum(MIN_EPISODES, 2 * design.num_columns),
        Reason.SINGULAR_TREND: ~(design.conditioning > tolerance),
    }


def _ratio_excess(
    ratios: Float[Array, " n"], design: TrendDesign, settings: ForecastSettings
) -> Float[Array, ""]:
    """How far the mean ratio is from 1, beyond chance.

    Its expectation is 1 if the log supports the policy and the propensities are right.
    """
    if math.isinf(settings.support_z):
        return jnp.zeros((), ratios.dtype)
    count = jnp.maximum(jnp.sum(design.present), 1)
    mean = jnp.sum(ratios) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(design.present, (ratios - mean) ** 2, 0.0))) / count
    return jnp.maximum(jnp.abs(mean - 1) - settings.support_z * spread, 0.0)


def _varies(fit: TrendFit) -> Bool[Array, ""]:
    scale = jnp.max(jnp.abs(fit.returns) * jnp.abs(fit.design.forecast_weights))
    return fit.variance > (1e3 * _epsilon(fit.variance) * scale) ** 2


def _epsilon(values: Array) -> float:
    return float(np.finfo(values.dtype).eps)


@in_double
def safety_test(
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    settings: ForecastSettings,
    *,
    seed: int = 0,
) -> Decision:
    """Will the candidate beat the safe policy over the next `lookahead` episodes?

    DEPLOY only if the candidate's lower bound is above the safe policy's upper bound, each at α/2, on
    episodes that the candidate's search has not seen.
    """
    if not isinstance(held_out, HeldOutEpisodes):
        raise SettingsError(
            f"the safety test was given {type(held_out).__name__}",
            expected="HeldOutEpisodes, from split_log",
            remedy="If the candidate was made without this log, pass HeldOutEpisodes(log).",
        )
    if held_out.log.capacity == 0:
        held_out = HeldOutEpisodes(grow(held_out.log, 1), held_out.span)
    axis = log_axis(settings, held_out.span or held_out.log.span)
    multipliers = draw_multipliers(settings, held_out.log, seed)
    outcome = eqx.filter_jit(compare_policies)(
        settings, candidate, safe, held_out, axis, multipliers
    )
    return decision_record(settings, candidate, safe, held_out, axis, outcome, seed)


def decision_record(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    axis: TimeAxis,
    outcome: Comparison,
    seed: int,
) -> Decision:
    """The arrays of a comparison as the record a user keeps."""
    reason = Reason(int(outcome.reason))
    log = held_out.log
    return Decision(
        verdict=Verdict.DEPLOY if reason is Reason.BETTER else Verdict.KEEP,
        reason=reason,
        candidate=describe_forecast(
            settings, candidate, log, axis, outcome.candidate, outcome.candidate_interval
        ),
        safe=describe_forecast(settings, safe, log, axis, outcome.safe, outcome.safe_interval),
        settings=describe_settings(settings),
        seed=seed,
        data_hash=log.digest(),
        policy_hashes={"candidate": candidate.digest(), "safe": safe.digest()},
        versions=versions(),
    )
