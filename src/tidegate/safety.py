"""The safety test: DEPLOY only by a positive comparison of finite numbers, else KEEP, with the reason."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import in_double, map_leaves
from .basis import TimeAxis
from .bootstrap import ConfidenceInterval, Multipliers, Side
from .episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, grow, split_log
from .errors import SettingsError
from .paired import PairedTest, paired_test
from .performance import (
    CALIBRATION_SHARE,
    ForecastSettings,
    bounded_forecast,
    describe_forecast,
    design_for,
    draw_multipliers,
    held_out_returns,
    series_of,
    training_returns,
)
from .policies import Policy
from .records import Advantage, Decision, Scale, describe_settings, versions
from .returns import stopped_ratios
from .trend import TrendDesign, TrendFit, fit_trend
from .verdicts import Reason, Verdict

RATIO_TOLERANCE = 0.01


class Comparison(eqx.Module):
    """The test's arithmetic, as arrays; `paired` is None under the published test of two bounds."""

    candidate: TrendFit
    safe: TrendFit
    candidate_interval: ConfidenceInterval
    safe_interval: ConfidenceInterval
    reason: Int[Array, ""]
    paired: PairedTest | None = None

    @property
    def lower(self) -> Float[Array, ""]:
        """The lower bound of the candidate's advantage."""
        if self.paired is not None:
            return self.paired.lower
        return self.candidate_interval.lower - self.safe_interval.upper

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
    training: TrainingEpisodes | None = None,
    margin: Float[Array, ""] | float = 0.0,
    level: Float[Array, ""] | float | None = None,
    log_full: Bool[Array, ""] | bool = False,
) -> Comparison:
    """Will the candidate earn more than the safe policy less `margin`? On the same episodes.

    The published test compares two bounds at α/2 each; the paired test bounds the difference at `level`
    (α if not given), and needs training episodes for scales and value models.
    """
    log, policies = held_out.log, (candidate, safe)
    seen = None if training is None else training.log
    returns = jnp.stack(held_out_returns(settings, seen, log, *policies))
    excess = _ratio_excesses(settings, policies, log)
    if settings.paired:
        # Without training episodes the scales are tried on the past of the tested ones.
        past = log if seen is None else seen
        past_returns = (
            returns if seen is None else jnp.stack(training_returns(settings, seen, *policies))
        )
        return _paired_comparison(
            settings, (log, returns), (past, past_returns), excess, axis, multipliers,
            margin, settings.alpha if level is None else level, log_full,
        )  # fmt: skip
    return _two_bounds(settings, returns, excess, log, axis, multipliers, margin, level, log_full)


def _two_bounds(
    settings: ForecastSettings,
    returns: Float[Array, "2 n"],
    excess: Float[Array, " 2"],
    log: EpisodeLog,
    axis: TimeAxis,
    multipliers: Multipliers,
    margin: Float[Array, ""] | float,
    level: Float[Array, ""] | float | None,
    log_full: Bool[Array, ""] | bool,
) -> Comparison:
    """The published test: the candidate's lower against the safe policy's upper bound, each at α/2."""
    if level is not None:
        raise SettingsError(
            "the test of two bounds has no level of its own",
            expected="another alpha in the settings",
        )
    design = design_for(settings, log, axis)

    def bounded(returns: Float[Array, " n"]) -> tuple[TrendFit, ConfidenceInterval]:
        fit = fit_trend(design, returns)
        return fit, settings.interval(fit, multipliers, settings.alpha, Side.BOTH)

    # One vmap over both policies, so that the multipliers are made once.
    fits, intervals = jax.vmap(bounded)(returns)
    lower, upper = intervals.lower[0] + margin, intervals.upper[1]
    doubts = {
        **_design_doubts(settings, design),
        Reason.LOG_FULL: jnp.asarray(log_full),
        Reason.SUPPORT: _unsupported(excess, fits.returns, lower - upper),
        Reason.NO_VARIATION: ~jnp.all(jax.vmap(_varies)(fits)),
        Reason.NOT_FINITE: ~(jnp.isfinite(lower) & jnp.isfinite(upper)),
        Reason.NOT_BETTER: ~(lower > upper),
    }
    first, second = (map_leaves(lambda leaf, i=i: leaf[i], (fits, intervals)) for i in (0, 1))
    return Comparison(first[0], second[0], first[1], second[1], _first_doubt(doubts))


def _paired_comparison(
    settings: ForecastSettings,
    held_out: tuple[EpisodeLog, Float[Array, "2 n"]],
    past: tuple[EpisodeLog, Float[Array, "2 m"]],
    excess: Float[Array, " 2"],
    axis: TimeAxis,
    multipliers: Multipliers,
    margin: Float[Array, ""] | float,
    level: Float[Array, ""] | float,
    log_full: Bool[Array, ""] | bool,
) -> Comparison:
    """One bound on the difference; the policies' own forecasts are only for the eye."""
    (log, returns), (past_log, past_returns) = held_out, past
    test = paired_test(
        settings,
        (log, returns[0] - returns[1]),
        (past_log, past_returns[0] - past_returns[1]),
        axis,
        multipliers,
        margin=margin,
        level=level,
    )
    found, choice = test.forecasts, test.forecasts.choice
    varies = jax.vmap(_varies)(found.fits)
    doubts = {
        **_design_doubts(settings, map_leaves(lambda leaf: leaf[0], found.fits.design)),
        Reason.LOG_FULL: jnp.asarray(log_full),
        Reason.SUPPORT: _unsupported(
            excess, jnp.where(log.present, returns, 0.0), test.lower + margin
        ),
        Reason.NO_VARIATION: ~jnp.all(jnp.where(choice.needed, varies, True)),
        Reason.NOT_FINITE: ~(jnp.isfinite(test.point) & jnp.isfinite(test.p_value)),
        Reason.BUDGET_SPENT: ~(jnp.asarray(level) > 0),
        Reason.NOT_FORECASTABLE: ~choice.forecastable,
        Reason.NOT_BETTER: ~(test.p_value <= level),
        Reason.SCALES_DISAGREE: ~test.agree,
    }

    def alone(returns: Float[Array, " n"], past: Float[Array, " m"]) -> Any:
        series = series_of(log, returns), series_of(past_log, past)
        return bounded_forecast(settings, *series, axis, multipliers)

    both = jax.vmap(alone)(returns, past_returns)
    first, second = (map_leaves(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
    return Comparison(first[0], second[0], first[1], second[1], _first_doubt(doubts), test)


def _ratio_excesses(
    settings: ForecastSettings, policies: tuple[Policy, Policy], log: EpisodeLog
) -> Float[Array, " 2"]:
    ratios = jnp.stack([stopped_ratios(policy, log, settings.discount) for policy in policies])
    return jax.vmap(_ratio_excess, (0, None, None))(ratios, jnp.asarray(log.present), settings)


def _unsupported(
    excess: Float[Array, " 2"], returns: Float[Array, "2 n"], advantage: Float[Array, ""]
) -> Bool[Array, ""]:
    """Propensities are logged with a few digits, so a small excess of the ratios is forgiven; but what it
    can have added to the returns is no evidence."""
    forgiven = jnp.sum(excess * jnp.max(jnp.abs(returns), axis=1))
    return ~jnp.all(excess <= RATIO_TOLERANCE) | ((advantage > 0) & ~(advantage > forgiven))


def _first_doubt(doubts: dict[Reason, Bool[Array, ""]]) -> Int[Array, ""]:
    """Every doubt must be a definite False before BETTER is reached."""
    ordered = sorted(doubts)
    return jnp.select(
        [doubts[reason] for reason in ordered],
        [jnp.int32(reason) for reason in ordered],
        jnp.int32(Reason.BETTER),
    )


def _design_doubts(
    settings: ForecastSettings, design: TrendDesign
) -> dict[Reason, Bool[Array, ""]]:
    count = jnp.sum(design.present)
    tolerance = np.sqrt(_epsilon(design.conditioning))
    return {
        Reason.NO_EPISODES: count < 1,
        Reason.TOO_FEW_EPISODES: count < settings.least_episodes,
        Reason.SINGULAR_TREND: ~(design.conditioning > tolerance),
    }


def _ratio_excess(
    ratios: Float[Array, " n"], present: Bool[Array, " n"], settings: ForecastSettings
) -> Float[Array, ""]:
    """How far the mean ratio is from 1, beyond chance.

    Its expectation is 1 if the log supports the policy and the propensities are right.
    """
    if math.isinf(settings.support_z):
        return jnp.zeros((), ratios.dtype)
    count = jnp.maximum(jnp.sum(present), 1)
    mean = jnp.sum(ratios) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(present, (ratios - mean) ** 2, 0.0))) / count
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
    training: TrainingEpisodes | None = None,
    margin: float = 0.0,
    level: float | None = None,
    seed: int = 0,
) -> Decision:
    """Will the candidate beat the safe policy over the next `lookahead` episodes?

    DEPLOY only on evidence from episodes that the candidate's search has not seen: two bounds at α/2
    apart, or, for paired settings, a p-value of at most `level` (α) at every credible scale. `training`
    are the episodes that the search has seen; if there are none, and the settings need some to try
    scales or to fit a value model, a third of the held-out ones is taken. `margin` is how much worse the
    candidate may be, as for a guardrail.
    """
    if not isinstance(held_out, HeldOutEpisodes):
        raise SettingsError(
            f"the safety test was given {type(held_out).__name__}",
            expected="HeldOutEpisodes, from split_log",
            remedy="If the candidate was made without this log, pass HeldOutEpisodes(log).",
        )
    require_level(level)
    training, held_out = with_training(settings, training, held_out, seed)
    axis = TimeAxis.over(held_out.span or held_out.log.span, settings.lookahead)
    multipliers = draw_multipliers(settings, held_out.log, seed)
    outcome = eqx.filter_jit(compare_policies)(
        settings,
        candidate,
        safe,
        HeldOutEpisodes(held_out.log),  # the axis has the span: as numbers it would compile anew
        axis,
        multipliers,
        training=None if training is None else TrainingEpisodes(training.log),
        margin=jnp.asarray(margin, float),
        level=None if level is None else jnp.asarray(level, float),
    )
    return decision_record(
        settings,
        candidate,
        safe,
        held_out,
        axis,
        outcome,
        seed,
        training=training,
        level=level,
        margin=margin,
    )


def require_level(level: float | None) -> None:
    """A level of its own is a probability."""
    if level is not None and not 0 <= level < 1:
        raise SettingsError(f"level is {level}", expected="a probability from 0 to below 1")


def with_training(
    settings: ForecastSettings,
    training: TrainingEpisodes | None,
    held_out: HeldOutEpisodes,
    seed: int,
) -> tuple[TrainingEpisodes | None, HeldOutEpisodes]:
    """Both parts of the log, none of them without room for an episode."""
    if training is None and settings.needs_training:
        span = held_out.span or held_out.log.span
        training, held_out = split_log(held_out.log, train_fraction=CALIBRATION_SHARE, seed=seed)
        training = TrainingEpisodes(training.log, span)
        held_out = HeldOutEpisodes(held_out.log, span)
    if training is not None and training.log.capacity == 0:
        training = TrainingEpisodes(grow(training.log, 1), training.span)
    if held_out.log.capacity == 0:
        held_out = HeldOutEpisodes(grow(held_out.log, 1), held_out.span)
    return training, held_out


def decision_record(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    axis: TimeAxis,
    outcome: Comparison,
    seed: int,
    *,
    training: TrainingEpisodes | None = None,
    level: float | None = None,
    margin: float = 0.0,
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
        advantage=None
        if outcome.paired is None
        else _advantage(outcome.paired, settings, level, margin),
        settings=describe_settings(settings),
        seed=seed,
        data_hash=log.digest(),
        training_hash=None if training is None else training.log.digest(),
        policy_hashes={"candidate": candidate.digest(), "safe": safe.digest()},
        versions=versions(),
    )


def _advantage(
    test: PairedTest, settings: ForecastSettings, level: float | None, margin: float
) -> Advantage:
    """The paired test as a record."""
    found, choice = test.forecasts, test.forecasts.choice
    columns = (
        found.spans, found.counts, found.fits.point, found.errors, found.biases, test.p_values,
        choice.needed, choice.watched,
    )  # fmt: skip
    return Advantage(
        point=float(test.point),
        lower=float(test.lower),
        p_value=float(test.p_value),
        level=settings.alpha if level is None else float(level),
        margin=margin,
        scales=tuple(
            Scale(
                span=float(span),
                episodes=int(count),
                point=float(point),
                standard_error=float(error),
                bias=float(bias),
                p_value=float(p),
                needed=bool(needed),
                watched=bool(watched),
            )
            for span, count, point, error, bias, p, needed, watched in zip(
                *(np.asarray(one) for one in columns), strict=True
            )
            if count > 0
        ),
        leading=int(choice.best),
    )
