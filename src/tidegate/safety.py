"""The safety test: DEPLOY only by a positive comparison of finite numbers, else KEEP, with the reason."""

import equinox as eqx
import jax
import jax.numpy as jnp
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
    policy_trend,
)
from .policies import Policy
from .precision import in_double
from .records import Decision, describe_settings, versions
from .returns import stopped_ratios
from .trend import TrendDesign, TrendFit
from .verdicts import MIN_EPISODES, Reason, Verdict


class Comparison(eqx.Module):
    """The test's arithmetic, as arrays."""

    candidate: TrendFit
    safe: TrendFit
    candidate_bound: ConfidenceInterval
    safe_bound: ConfidenceInterval
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
    """One-sided bounds at α/2 each on the same held-out episodes."""
    log = held_out.log
    design = design_for(settings, log, axis)
    fits = [policy_trend(settings, policy, log, design) for policy in (candidate, safe)]
    half = settings.alpha / 2
    lower = settings.interval(fits[0], multipliers, half, Side.LOWER)
    upper = settings.interval(fits[1], multipliers, half, Side.UPPER)
    ratios = [stopped_ratios(policy, log, settings.discount) for policy in (candidate, safe)]
    doubts = {
        **_design_doubts(design),
        Reason.LOG_FULL: jnp.asarray(log_full),
        Reason.SUPPORT: ~(
            _mean_is_one(ratios[0], design, settings) & _mean_is_one(ratios[1], design, settings)
        ),
        Reason.NO_VARIATION: ~(_varies(fits[0]) & _varies(fits[1])),
        Reason.NOT_FINITE: ~(jnp.isfinite(lower.lower) & jnp.isfinite(upper.upper)),
        Reason.NOT_BETTER: ~(lower.lower > upper.upper),
    }
    return Comparison(fits[0], fits[1], lower, upper, _first_doubt(doubts))


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
    tolerance = jnp.sqrt(jnp.finfo(design.conditioning.dtype).eps)
    return {
        Reason.NO_EPISODES: count < 1,
        Reason.TOO_FEW_EPISODES: count < jnp.maximum(MIN_EPISODES, 2 * design.num_columns),
        Reason.SINGULAR_TREND: ~(design.conditioning > tolerance),
    }


def _mean_is_one(
    ratios: Float[Array, " n"], design: TrendDesign, settings: ForecastSettings
) -> Bool[Array, ""]:
    """Ratios average to 1 if the log supports the policy and its propensities are right."""
    count = jnp.maximum(jnp.sum(design.present), 1)
    mean = jnp.sum(ratios) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(design.present, (ratios - mean) ** 2, 0.0))) / count
    rounding = 1e3 * jnp.finfo(ratios.dtype).eps
    return jnp.abs(mean - 1) <= settings.support_z * spread + rounding


def _varies(fit: TrendFit) -> Bool[Array, ""]:
    scale = jnp.max(jnp.abs(fit.returns) * jnp.abs(fit.design.forecast_weights))
    return fit.variance > (1e3 * jnp.finfo(fit.variance.dtype).eps * scale) ** 2


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
    half = settings.alpha / 2
    log = held_out.log
    return Decision(
        verdict=Verdict.DEPLOY if reason is Reason.BETTER else Verdict.KEEP,
        reason=reason,
        candidate=describe_forecast(
            settings, candidate, log, axis, outcome.candidate, outcome.candidate_bound, half,
            Side.LOWER,
        ),
        safe=describe_forecast(
            settings, safe, log, axis, outcome.safe, outcome.safe_bound, half, Side.UPPER
        ),
        settings=describe_settings(settings),
        seed=seed,
        data_hash=log.digest(),
        versions=versions(),
    )  # fmt: skip
