"""Does the trend fit? The paper asks for such tests of its smoothness assumption before use.

Each finding is a p-value or a number, with what it means. They test what the intervals rest on: a
trend in the span of the basis, independent noise, no jumps, no forecast that hangs on few episodes.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .arrays import in_double
from .basis import Basis, CosineBasis, FourierBasis, PolynomialBasis, TimeAxis
from .bootstrap import Rademacher
from .episodes import EpisodeLog
from .errors import PolicyError
from .findings import Finding, Level, found, level_of, undetermined
from .performance import (
    ForecastSettings,
    design_for,
    policy_trend,
    series_of,
    training_returns,
)
from .policies import Policy
from .scales import LINE, Scales, Series, leading_scale
from .trend import TrendFit
from .trend_tests import autocorrelation_test, jump_test, score_test
from .verdicts import MIN_EPISODES

TESTS = (
    "trend_misfit", "lag_1_autocorrelation", "autocorrelation", "jump", "horizon_leverage",
    "horizon_influence",
)  # fmt: skip
DRAWS = 499  # (1 + B)·5 % and ·1 % are whole numbers
EXTRA_COLUMNS = 3
MAX_LAGS = 10
LEVERAGE_NOTE, LEVERAGE_WARNING = 0.1, 0.25


class BehaviorPolicy(Policy):
    """Whatever collected the log: every ratio is 1, and the returns are the observed ones."""

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        return jnp.asarray(log.behavior_log_probs)

    def log_prob(self, actions: Any, states: Any = None) -> Float[Array, "..."]:
        raise _only_logged()

    def sample(self, key: PRNGKeyArray, states: Any = None) -> Shaped[Array, "..."]:
        raise _only_logged()

    def entropy(self, states: Any = None) -> Float[Array, "..."]:
        raise _only_logged()


def _only_logged() -> PolicyError:
    return PolicyError(
        "the behaviour policy is known only through the log.",
        remedy="It can be evaluated and compared with, but it can neither act nor be searched from.",
    )


@dataclasses.dataclass(frozen=True, eq=False)
class FittedLog:
    """The episodes in time order, the trend of a policy's returns through them, and any doubt.

    `leading` says that it is the line of the leading time scale, on the episodes of its span.
    """

    log: EpisodeLog
    policy: Policy
    settings: ForecastSettings
    axis: TimeAxis
    fit: TrendFit
    weights: npt.NDArray[np.float64]
    doubt: str
    leading: bool = False


def fit_log(
    log: EpisodeLog,
    settings: ForecastSettings,
    policy: Policy | None = None,
    span: tuple[float, float] | None = None,
) -> FittedLog:
    """Fit the trend of the policy's returns; without a policy, of the observed ones."""
    policy = BehaviorPolicy() if policy is None else policy
    axis = TimeAxis.over(span or log.span, settings.lookahead)
    log = in_time_order(log)
    fit, weights = _fit(settings, policy, log, axis)
    return FittedLog(log, policy, settings, axis, fit, np.asarray(weights), _doubt(fit))


def fit_leading_scale(fitted: FittedLog) -> FittedLog:
    """The same at the time scale that leads: the episodes of that span, and a line through them."""
    settings, axis = fitted.settings, fitted.axis
    if settings.scales is None or fitted.log.capacity == 0:
        return fitted
    series = series_of(fitted.log, _returns(settings, fitted.policy, fitted.log))
    first = float(_leading_start(settings, series, axis))
    recent = fitted.log.take(np.flatnonzero(np.asarray(fitted.log.episode_numbers) > first))
    line = dataclasses.replace(settings, basis=LINE, paired=False, scales=None, value_model=None)
    at_scale = fit_log(recent, line, fitted.policy, (first + 1, float(axis.last)))
    return dataclasses.replace(at_scale, leading=True)


@eqx.filter_jit
def _returns(settings: ForecastSettings, policy: Policy, log: EpisodeLog) -> Float[Array, " n"]:
    return training_returns(settings, log, policy)[0]


@eqx.filter_jit
def _leading_start(settings: ForecastSettings, series: Series, axis: TimeAxis) -> Float[Array, ""]:
    """The time after which the leading scale begins; one program for all policies."""
    spans, _, choice = leading_scale(settings.scales or Scales(), series, axis)
    return jnp.asarray(axis.recent(spans[choice.best]).origin)


def in_time_order(log: EpisodeLog) -> EpisodeLog:
    """The episodes without spare rows, sorted by their numbers."""
    rows = np.flatnonzero(np.asarray(log.present))
    numbers = np.asarray(log.episode_numbers)[rows]
    return log.take(rows[np.argsort(numbers, kind="stable")])


@eqx.filter_jit
def _fit(
    settings: ForecastSettings, policy: Policy, log: EpisodeLog, axis: TimeAxis
) -> tuple[TrendFit, Float[Array, " n"]]:
    fit = policy_trend(settings, policy, log, design_for(settings, log, axis))
    return fit, fit.design.forecast_weights


def _doubt(fit: TrendFit) -> str:
    """Why nothing can be said about the trend; empty if something can."""
    n, columns = fit.returns.size, int(fit.design.num_columns)
    returns, residuals = np.asarray(fit.returns), np.asarray(fit.residuals)
    if n < max(MIN_EPISODES, 2 * columns):
        return f"{n} episodes are too few for {columns} time features"
    if not np.all(np.isfinite(returns)):
        return "an estimated return is not a finite number"
    if not float(fit.design.conditioning) > np.sqrt(np.finfo(np.float64).eps):
        return "the trend cannot be identified from these episode times"
    if not math.isfinite(float(fit.variance)):
        return "the forecast's variance is not a finite number"
    if not np.abs(residuals).max() > 1e3 * np.finfo(np.float64).eps * np.abs(returns).max():
        return "the estimated returns show no variation about their trend"
    return ""


@in_double
def goodness_of_fit(
    log: EpisodeLog,
    settings: ForecastSettings,
    policy: Policy | None = None,
    *,
    span: tuple[float, float] | None = None,
    seed: int = 0,
) -> tuple[Finding, ...]:
    """Test the trend model for a policy (by default: for what was observed) on this log.

    `span` is the first and the last episode number of the whole log, if this is a part of it. With
    scales, it is the line of the leading one that is tested, on the episodes that it spans.
    """
    return trend_findings(fit_leading_scale(fit_log(log, settings, policy, span)), seed)


def trend_findings(fitted: FittedLog, seed: int) -> tuple[Finding, ...]:
    """The findings about a trend that is fitted already."""
    if fitted.doubt:
        return tuple(undetermined(name, fitted.doubt) for name in TESTS)
    multipliers = Rademacher(jax.random.key(seed), DRAWS)
    return (
        _misfit(fitted, multipliers),
        *_autocorrelation(fitted, multipliers),
        _jump(fitted, multipliers),
        _leverage(fitted),
        _influence(fitted),
    )


def _misfit(fitted: FittedLog, multipliers: Rademacher) -> Finding:
    fit = fitted.fit
    added = richer_columns(fitted.settings.basis, fitted.log.episode_numbers, fitted.axis)
    test = score_test(fit.design, fit.residuals, added, multipliers)
    p = float(test.p_value)
    level = level_of(p)
    remedy = (
        "This is a line through the leading time scale: wait for more episodes, or shorten the lookahead."
        if fitted.leading
        else "Use a larger basis."
    )
    sentence = (
        f"A richer trend ({added.shape[0]} more time features) fits clearly better (p = {p:.2g}): "
        f"the forecast may be narrow and in the wrong place. {remedy}"
        if level
        else f"A richer trend does not fit clearly better (p = {p:.2g})."
    )
    return found("trend_misfit", float(test.statistic), sentence, level=level, p_value=p)


@eqx.filter_jit
def richer_columns(basis: Basis, times: Any, axis: TimeAxis) -> Float[Array, "m n"]:
    """Time features beyond those of the basis: the next ones of its kind, or slow waves."""
    if isinstance(basis, CosineBasis):
        order = basis.order if isinstance(basis.order, int) else basis.columns - 1
        return CosineBasis(order + EXTRA_COLUMNS).design_matrix(times, axis).T[order + 1 :]
    if isinstance(basis, PolynomialBasis):
        wider = PolynomialBasis(basis.degree + EXTRA_COLUMNS)
        return wider.design_matrix(times, axis).T[basis.size :]
    waves = CosineBasis(EXTRA_COLUMNS).design_matrix(times, axis).T[1:]
    if isinstance(basis, FourierBasis):
        harmonics = FourierBasis(basis.order + 1, basis.period).design_matrix(times, axis).T
        return jnp.concatenate([waves, harmonics])  # those that the basis has count for nothing
    return waves


def _autocorrelation(fitted: FittedLog, multipliers: Rademacher) -> tuple[Finding, Finding]:
    fit = fitted.fit
    lags = max(1, min(MAX_LAGS, fit.returns.size // 5))
    test = autocorrelation_test(fit.design, fit.residuals, lags, multipliers)
    first, first_p = float(test.first), float(test.first_p_value)
    p, level = float(test.ljung_box.p_value), level_of(float(test.ljung_box.p_value))
    neighbours = (
        f"After the trend, neighbouring estimates correlate by {first:+.3f} (p = {first_p:.2g})."
    )
    if level_of(first_p):
        effect = "narrow" if first > 0 else "wide"
        neighbours += f" The intervals are too {effect}: they take episodes to be independent."
    sentence = (
        f"What is left after the trend is correlated from episode to episode (Ljung-Box, {lags} "
        f"lags, p = {p:.2g}): the episodes are not independent, and positive correlation makes the "
        "intervals too narrow. Join dependent rows into episodes."
        if level
        else f"No correlation from episode to episode is seen (Ljung-Box, {lags} lags, p = {p:.2g})."
    )
    statistic = float(test.ljung_box.statistic)
    return (
        found("lag_1_autocorrelation", first, neighbours, level=level_of(first_p), p_value=first_p),
        found("autocorrelation", statistic, sentence, level=level, p_value=p),
    )


def _jump(fitted: FittedLog, multipliers: Rademacher) -> Finding:
    test = jump_test(fitted.fit.design, fitted.fit.residuals, multipliers)
    p = float(test.significance.p_value)
    level = level_of(p)
    episode = float(np.asarray(fitted.log.episode_numbers)[int(test.row)])
    sentence = (
        f"The returns jump, most likely at episode {episode:g} (p = {p:.2g}): the method assumes "
        "smooth change. If something changed then, start the log there."
        if level
        else f"No jump is seen beyond what the trend explains (p = {p:.2g})."
    )
    statistic = float(test.significance.statistic)
    return found("jump", statistic, sentence, level=level, p_value=p)


def _leverage(fitted: FittedLog) -> Finding:
    """max aᵢ²/Σa²: must vanish for the forecast to be nearly normal (Huber, 1973)."""
    squares = fitted.weights**2
    share, worth = squares.max() / squares.sum(), np.sqrt(squares).sum() ** 2 / squares.sum()
    sentence = (
        f"The times alone make the forecast rest on about {worth:.0f} of {squares.size} episodes; "
        f"one carries {share:.1%} of the squared weight."
    )
    return found("horizon_leverage", float(share), sentence, level=_share_level(share))


def _influence(fitted: FittedLog) -> Finding:
    """The largest share (aᵢξᵢ)²/Σ(aξ)² of the forecast's variance from one episode."""
    parts = (fitted.weights * np.asarray(fitted.fit.residuals)) ** 2
    with np.errstate(invalid="ignore"):  # squares that overflow are told as undetermined
        share, row = parts.max() / parts.sum(), int(parts.argmax())
    level = _share_level(share)
    episode = float(np.asarray(fitted.log.episode_numbers)[row])
    sentence = (
        f"Episode {episode:g} brings {share:.1%} of the forecast's variance, the most of all."
    )
    if level:
        sentence += " The interval depends on it: check its reward and ratio, or collect more."
    return found("horizon_influence", float(share), sentence, level=level)


def _share_level(share: float) -> Level:
    if share > LEVERAGE_WARNING:
        return Level.WARNING
    return Level.NOTE if share > LEVERAGE_NOTE else Level.OK
