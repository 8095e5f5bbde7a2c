"""Is the log fit for this policy? Overlap, effective sample size, support, time, drift, goodness of fit.

For episodes of several steps, the test that the mean ratio is 1 uses the stopped ratios, as the gate does;
the effective sample size uses whole episodes, as `Forecast` does; the largest ratio is the largest factor
that any reward may be multiplied by.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from ..arrays import Floats, in_double
from ..basis import Basis, ConstantBasis, TimeAxis
from ..bootstrap import Rademacher
from ..comparison import Comparison
from ..episodes import EpisodeLog
from ..forecast import ForecastSettings
from ..models import Series
from ..policies import BehaviorPolicy, Policy
from ..returns import effective_sample_size, episode_ratios, log_ratios, stopped_ratios
from ..safety import RATIO_TOLERANCE, VERDICT_SEED
from ..trend import TrendFit, fit_trend, trend_design
from .findings import NUMBERED, Finding, Level, Names, found, level_of, undetermined
from .goodness import (
    DRAWS,
    FittedTrend,
    decisive_series,
    fit_lead,
    fit_shape,
    fitted_trend,
    in_time_order,
    richer_columns,
    trend_findings,
)
from .support import ActionSupport, action_support, support_finding
from .trend_tests import Significance, score_test

OVERLAP = (
    "largest_ratio", "mean_ratio", "effective_sample_size", "recent_effective_sample_size",
    "horizon_effective_sample_size",
)  # fmt: skip
MANY_EPISODES, FEW_EPISODES = 100, 30


@dataclasses.dataclass(frozen=True, eq=False)
class LogCheck:
    """All findings about a log, for a policy or for the behaviour that collected it."""

    derived: ClassVar = ("level",)

    num_episodes: int
    num_steps: int
    findings: tuple[Finding, ...]
    actions: ActionSupport | None

    @property
    def level(self) -> Level:
        """The worst of all findings."""
        return max(finding.level for finding in self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that a report must show first."""
        return tuple(one for one in self.findings if one.level is Level.WARNING)

    def including(self, *findings: Finding) -> "LogCheck":
        """The same with more findings."""
        return dataclasses.replace(self, findings=(*self.findings, *findings))

    def __getitem__(self, name: str) -> Finding:
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


@in_double
def check_log(
    log: EpisodeLog,
    settings: ForecastSettings,
    policy: Policy | None = None,
    *,
    training: EpisodeLog | None = None,
    span: tuple[float, float] | None = None,
    names: Names = NUMBERED,
) -> LogCheck:
    """Is this log fit to forecast the policy? Without a policy: what was observed.

    With `training` episodes, the log is what a gate tests, and the trend is that of the returns it tests.
    `span` is the first and the last episode number of the whole log, if this is a part of it. `names` are
    for the findings' sentences.
    """
    log = in_time_order(log)
    axis = TimeAxis.over(span or log.span, settings.lookahead)
    series, past = decisive_series(settings, policy or BehaviorPolicy(), log, training)
    whole, lead = fit_shape(settings, series, axis), fit_lead(settings, series, past, axis)
    needed = settings.least_log if training is None else settings.least_episodes
    fitness = _fitness(log, policy, settings.discount, needed, whole, lead, names)
    return fitness.including(_lookahead(lead, settings.lookahead, names), *trend_findings(lead, names))


@in_double
def check_tested(
    log: EpisodeLog,
    settings: ForecastSettings,
    policies: tuple[Policy, Policy],
    comparison: Comparison,
    axis: TimeAxis,
    names: Names = NUMBERED,
) -> dict[str, LogCheck]:
    """Were these episodes fit for the comparison that they gave? Of each policy, and of what it rests on.

    The trends are those that the test has fitted: nothing is estimated again.
    """
    ordered, trials = in_time_order(log), comparison.trials
    span, longest = trials.spans[trials.best], float(trials.longest)
    shape, rests_on = settings.test.lead_shape, settings.test.rests_on

    def lead(fit: TrendFit) -> FittedTrend:
        series = Series(fit.returns, log.episode_numbers, log.present)
        return fitted_trend(fit, series, axis.recent(span), shape, longest)

    fits = {"candidate": comparison.candidate, "safe": comparison.safe, "difference": comparison.difference}
    checks = {}
    for role, policy in zip(("candidate", "safe"), policies, strict=True):
        series = Series(fits[role].returns, log.episode_numbers, log.present)
        whole = fit_shape(settings, series, axis)
        checks[role] = _fitness(
            ordered, policy, settings.discount, settings.least_episodes, whole, lead(fits[role]), names
        )
    for role in rests_on:
        trend = lead(fits[role])
        found = (_lookahead(trend, settings.lookahead, names), *trend_findings(trend, names))
        checks[role] = checks[role].including(*found) if role in checks else _only(ordered, found)
    return checks


def _fitness(
    log: EpisodeLog,
    policy: Policy | None,
    discount: float,
    needed: int,
    whole: FittedTrend,
    lead: FittedTrend,
    names: Names,
) -> LogCheck:
    """All findings but those about the trend; the log is in time order."""
    actions = action_support(log, policy)
    support = () if policy is None or actions is None else (support_finding(policy, actions, names),)
    overlap = () if policy is None else _overlap_findings(policy, log, discount, lead)
    findings = (*_shape_findings(log, needed, names), *overlap, *support, _drift(whole))
    return dataclasses.replace(_only(log, findings), actions=actions)


def _only(log: EpisodeLog, findings: tuple[Finding, ...]) -> LogCheck:
    return LogCheck(log.capacity, int(np.sum(np.asarray(log.mask))), findings, None)


def _lookahead(lead: FittedTrend, lookahead: int, names: Names) -> Finding:
    longest = int(lead.longest_lookahead)
    if lookahead <= longest:
        sentence = f"The past can try forecasts over a lookahead of up to {names.span(longest)}."
        return found("lookahead", longest, sentence)
    limit = f"at most {names.span(longest)}" if longest else "it is too short for any"
    sentence = (
        f"The log is too short to try a lookahead of {names.span(lookahead)} on its past ({limit}): nobody "
        "knows how far off such forecasts are."
    )
    return found("lookahead", longest, sentence, level=Level.WARNING)


def _shape_findings(log: EpisodeLog, needed: int, names: Names) -> tuple[Finding, ...]:
    if log.capacity == 0:
        return (found("episodes", 0, "The log has no episodes.", level=Level.WARNING),)
    return (_count(log.capacity, needed), _lengths(log), _gaps(log, names))


def _count(n: int, needed: int) -> Finding:
    if n < needed:
        sentence = f"{n:,} episodes: the gate needs at least {needed:,}."
        return found("episodes", n, sentence, level=Level.WARNING)
    return found("episodes", n, f"{n:,} episodes.")


def _lengths(log: EpisodeLog) -> Finding:
    lengths = log.lengths
    low, middle, high = lengths.min(), np.median(lengths), lengths.max()
    sentence = f"Episodes have {low:,} to {high:,} steps, {middle:,.6g} in the middle."
    return found("episode_lengths", float(high), "Each episode is one step." if high == 1 else sentence)


def _gaps(log: EpisodeLog, names: Names) -> Finding:
    times = np.asarray(log.episode_numbers)
    if times.size < 2 or times[-1] == times[0]:
        return found("time_gaps", 0.0, "All episodes have the same time.", level=Level.NOTE)
    steps = np.diff(times)
    at = int(steps.argmax())
    share = steps[at] / (times[-1] - times[0])
    if share <= 0.1 or steps[at] <= 10 * np.median(steps):
        sentence = f"No large gap: neighbouring episodes are at most {names.span(float(steps[at]))} apart."
        return found("time_gaps", float(share), sentence)
    sentence = (
        f"Nothing was logged between {names.at(float(times[at]))} and {names.at(float(times[at + 1]))}, "
        f"{share:.0%} of the time: "
        "the trend is interpolated there."
    )
    level = Level.WARNING if share > 0.25 else Level.NOTE
    return found("time_gaps", float(share), sentence, level=level)


def _overlap_findings(
    policy: Policy, log: EpisodeLog, discount: float, lead: FittedTrend
) -> tuple[Finding, ...]:
    """About the whole log, and about the episodes that the forecast's trend is fitted to."""
    whole, stopped, largest = (np.asarray(one) for one in _ratios(policy, log, discount))
    if whole.size == 0 or not np.isfinite(whole.sum() + stopped.sum() + largest):
        why = "an importance ratio is not a finite number" if whole.size else "there is no episode"
        return tuple(undetermined(name, why) for name in OVERLAP)
    recent = whole[-max(1, whole.size // 4) :]
    return (
        _largest(float(largest)),
        mean_ratio_finding(stopped),
        _worth("effective_sample_size", whole, "The log is"),
        _worth("recent_effective_sample_size", recent, "The last quarter is"),
        _horizon_worth(whole[lead.rows], lead.weights, lead.doubt),
    )


@eqx.filter_jit
def _ratios(
    policy: Policy, log: EpisodeLog, discount: float
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
    running = log.layout.running(log_ratios(policy, log))
    largest = jnp.exp(jnp.max(jnp.where(log.mask, running, -jnp.inf), initial=-jnp.inf))
    return episode_ratios(policy, log), stopped_ratios(policy, log, discount), largest


def _largest(ratio: float) -> Finding:
    sentence = f"The largest importance ratio is {ratio:.4g}: one reward can count that many times."
    level = Level.NOTE if ratio > 100 else Level.OK
    return found("largest_ratio", ratio, sentence, level=level)


def mean_ratio_finding(ratios: Floats) -> Finding:
    """Is the mean ratio 1, as it must be if the log supports the policy and the propensities are right?"""
    mean, p = float(ratios.mean()), mean_is_one(ratios)
    level = level_of(p) if abs(mean - 1) > RATIO_TOLERANCE else Level.OK
    start = f"The importance ratios average {mean:.4g}"
    if level is Level.OK:
        rest = f", as near to 1 as chance and the digits of the propensities allow (p = {p:.2g})."
    elif level is Level.NOTE:
        rest = f", a little far from 1 (p = {p:.2g}): by chance, or the propensities are not exact."
    elif mean < 1:
        rest = (
            f" instead of 1 (p = {p:.2g}): about {1 - mean:.0%} of what the policy does is never seen "
            "in the log, or the propensities are wrong."
        )
    else:
        rest = (
            f" instead of 1 (p = {p:.2g}): the logged propensities are too small, or the policy's "
            "probabilities too large."
        )
    return found("mean_ratio", mean, start + rest, level=level, p_value=p)


def mean_is_one(ratios: Floats) -> float:
    """p-value of the t-test that the mean is 1, with its skewness removed (Hall, 1992).

    If all ratios equal some w > 1, each episode had a chance of at least 1 − 1/w of a different one, so
    their p-value is at most w⁻ⁿ; equal ratios below 1 are treated alike.
    """
    n, mean, spread = ratios.size, ratios.mean(), ratios.std()
    if not spread > 1e-9 * abs(mean):
        return float(min(mean, 1 / mean) ** n) if mean > 0 else 0.0
    skewness = float(np.mean(((ratios - mean) / spread) ** 3)) / np.sqrt(n)
    t = np.sqrt(n) * (mean - 1) / spread
    corrected = t + skewness * (2 * t**2 + 1) / 6 + skewness**2 * t**3 / 27
    return float(2 * special.stdtr(max(n - 1, 1), -abs(corrected)))


_worth_of = jax.jit(effective_sample_size)


def _worth(name: str, ratios: Floats, subject: str) -> Finding:
    worth = float(_worth_of(ratios))
    sentence = f"{subject} worth {worth:,.0f} on-policy episodes ({ratios.size:,} were logged)."
    return found(name, worth, sentence + _advice(worth), level=_worth_level(worth))


def _horizon_worth(ratios: Floats, weights: Floats, doubt: str) -> Finding:
    name = "horizon_effective_sample_size"
    if doubt:
        return undetermined(name, doubt)
    worth = float(_worth_of(np.abs(weights) * ratios))
    sentence = (
        f"As the forecast weighs it, the log is worth {worth:,.0f} equally weighted on-policy episodes."
    )
    return found(name, worth, sentence + _advice(worth), level=_worth_level(worth))


def _worth_level(worth: float) -> Level:
    if worth < FEW_EPISODES:
        return Level.WARNING
    return Level.NOTE if worth < MANY_EPISODES else Level.OK


def _advice(worth: float) -> str:
    if worth >= MANY_EPISODES:
        return ""
    return " That is little: collect more, or take a policy nearer to the one that collected the log."


def _drift(fitted: FittedTrend) -> Finding:
    """Is a constant rejected in favour of the basis, or of slow waves if the basis is a constant?"""
    if fitted.doubt:
        return undetermined("drift", fitted.doubt)
    constant = fitted.shape.size == 1
    mean, test = _constant_test(
        fitted.shape,
        fitted.axis,
        fitted.times,
        fitted.fit.returns,
        Rademacher(jax.random.key(VERDICT_SEED), DRAWS),
    )
    p, level = float(test.p_value), level_of(float(test.p_value))
    if level and not constant:
        level = Level.NOTE  # this is what the trend is for
    sentence = (
        f"Performance drifts (p = {p:.2g}): the mean of the log, {float(mean):.4g}, is not what "
        "to expect next."
        if level
        else f"No drift is seen (p = {p:.2g}): a constant describes the past as well."
    )
    if level and constant:
        sentence = f"Performance drifts (p = {p:.2g}), and the basis says that nothing changes: use a trend."
    return found("drift", float(test.statistic), sentence, level=level, p_value=p)


@eqx.filter_jit
def _constant_test(
    basis: Basis, axis: TimeAxis, numbers: Any, returns: Float[Array, " n"], signs: Rademacher
) -> tuple[Float[Array, ""], Significance]:
    added = richer_columns(basis, numbers, axis)
    if basis.size > 1:
        added = basis.design_matrix(numbers, axis).T
    present = jnp.ones(returns.shape, bool)
    design = trend_design(ConstantBasis(), numbers, present, axis)
    flat = fit_trend(design, returns)
    return flat.point, score_test(design, flat.residuals, added, signs)
