"""Is the log fit for this policy? Overlap, effective sample size, support, time, drift, goodness of fit.

For episodes of several steps, the test that the mean ratio is 1 uses the stopped ratios, as the gate does;
the effective sample size uses whole episodes, as `Forecast` does; the largest ratio is the largest factor
that any reward may be multiplied by.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from ..arrays import Floats, in_double, kept, room_for, with_zeros
from ..basis import Basis, ConstantBasis, TimeAxis
from ..bootstrap import Rademacher
from ..cells import Series
from ..comparison import Comparison
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, in_time_order, roomy, time_order
from ..forecast import Forecast, ForecastSettings, describe_forecast
from ..measured import MeasuredLog
from ..policies import BehaviorPolicy, Policy
from ..returns import effective_sample_size, episode_ratios, log_ratios, stopped_ratios
from ..safety import RATIO_TOLERANCE, compare_once, with_room
from ..trend import fit_trend, trend_design
from .findings import NUMBERED, Finding, Level, Names, found, level_of, undetermined
from .goodness import (
    FittedTrend,
    Identified,
    fitted_trend,
    identified,
    richer_columns,
    sign_flips,
    trend_findings,
)
from .support import ActionSupport, action_support, support_finding
from .trend_tests import Significance, score_test

OVERLAP = (
    "largest_ratio", "mean_ratio", "effective_sample_size", "recent_effective_sample_size",
    "horizon_effective_sample_size",
)  # fmt: skip
MANY_EPISODES, FEW_EPISODES = 100, 30
MOST_MEANS = 2**16  # that a test of drift looks at
NEARLY_ALL = 0.95  # of the logged episodes: a policy nearer to the logged one would gain nothing


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

    The trend is that of the episodes that a gate tests: those of this log that it does not train on, or all
    if `training` episodes are given. `span` is the first and the last episode number of the whole log, if
    this is a part of it. `names` are for the findings' sentences.
    """
    return forecast_and_check(log, settings, policy, training=training, span=span, names=names)[1]


@in_double
def forecast_and_check(
    log: EpisodeLog,
    settings: ForecastSettings,
    policy: Policy | None = None,
    *,
    training: EpisodeLog | None = None,
    span: tuple[float, float] | None = None,
    names: Names = NUMBERED,
) -> tuple[Forecast, LogCheck]:
    """The forecast of the policy that a gate on this log makes, and whether the log is fit for it."""
    log, given = in_time_order(log), None if training is None else TrainingEpisodes(training)
    seen, held_out = with_room(settings, given, HeldOutEpisodes(log, span or log.span))
    chosen, tested = policy or BehaviorPolicy(), held_out.log
    comparison, axis = compare_once(settings, chosen, BehaviorPolicy(), held_out, seen)
    fit, interval = comparison.candidate, comparison.candidate_interval
    forecast = describe_forecast(settings, tested, axis, chosen, fit, interval, alpha=settings.alpha)
    needed = settings.least_episodes
    trend = trend_behind(settings, tested, comparison, axis, "candidate")
    check = _fitness(log, policy, settings, needed, axis, tested, fit.returns, trend, names)
    found = (_lookahead(trend, settings.lookahead, names), *trend_findings(trend, names))
    return forecast, _with_one_cause(check.including(*found), needed)


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
    checks, rests_on = {}, settings.test.rests_on
    for role, policy in zip(("candidate", "safe"), policies, strict=True):
        trend = trend_behind(settings, log, comparison, axis, role)
        returns, needed = getattr(comparison, role).returns, settings.least_episodes
        checks[role] = _fitness(log, policy, settings, needed, axis, log, returns, trend, names)
    for role in rests_on:
        trend = trend_behind(settings, log, comparison, axis, role)
        found = (_lookahead(trend, settings.lookahead, names), *trend_findings(trend, names))
        checks[role] = checks[role].including(*found) if role in checks else _only(log, found)
    return {role: _with_one_cause(check, settings.least_episodes) for role, check in checks.items()}


def trend_behind(
    settings: ForecastSettings, log: EpisodeLog, comparison: Comparison, axis: TimeAxis, role: str
) -> FittedTrend:
    """The trend of a policy's returns, or of the difference, that the test has fitted."""
    fit, trials = getattr(comparison, role), comparison.trials
    series = Series(fit.returns, log.episode_numbers, log.present)
    test = settings.test
    return fitted_trend(fit, series, axis, test.lead_shape, test.tested_by, float(trials.longest))


def _fitness(
    log: EpisodeLog,
    policy: Policy | None,
    settings: ForecastSettings,
    needed: int,
    axis: TimeAxis,
    tested: EpisodeLog,
    returns: Any,
    trend: FittedTrend,
    names: Names,
) -> LogCheck:
    """All findings but those about the trend, which was fitted to the `tested` episodes and their returns."""
    ordered = in_time_order(log)
    actions = action_support(ordered, policy)
    support = () if policy is None or actions is None else (support_finding(policy, log, actions, names),)
    overlap = () if policy is None else _overlap_findings(policy, log, settings.discount, tested, trend)
    findings = (
        *_shape_findings(ordered, needed, names),
        *overlap,
        *support,
        _drift(settings, axis, tested, returns),
    )
    return dataclasses.replace(_only(ordered, findings), actions=actions)


def with_support(
    check: LogCheck, policy: Policy | None, sample: EpisodeLog, names: Names = NUMBERED
) -> LogCheck:
    """The same findings with what a sample of the log, held step by step, shows of its actions."""
    actions = action_support(sample, policy)
    if actions is None or policy is None:
        return dataclasses.replace(check, actions=actions)
    found = support_finding(policy, sample, actions, names)
    return dataclasses.replace(check.including(found), actions=actions)


def _only(log: EpisodeLog, findings: tuple[Finding, ...]) -> LogCheck:
    return LogCheck(log.num_episodes, log.num_logged_steps, findings, None)


def _lookahead(lead: FittedTrend, lookahead: int, names: Names) -> Finding:
    longest = int(lead.longest_lookahead)
    if lookahead <= longest:
        sentence = f"The log is long enough to try lookaheads of up to {names.span(longest)} on its past."
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
        return found("episodes", n, _too_few(n, needed), level=Level.WARNING)
    return found("episodes", n, f"{n:,} episodes.")


def _too_few(n: int, needed: int) -> str:
    return f"{n:,} episode{'s are' if n > 1 else ' is'} too few; the gate needs at least {needed:,}."


def _with_one_cause(check: LogCheck, needed: int) -> LogCheck:
    """Where there are too few episodes, every finding that needs more of them says so."""
    n = check.num_episodes
    if not 0 < n < needed:
        return check
    findings = tuple(
        dataclasses.replace(one, sentence=_too_few(n, needed)) if _for_want_of_episodes(one) else one
        for one in check.findings
    )
    return dataclasses.replace(check, findings=findings)


def _for_want_of_episodes(one: Finding) -> bool:
    if one.level is not Level.WARNING:
        return False
    unknown = one.value is None and "too few" in one.sentence
    return unknown or one.name in ("lookahead", *OVERLAP[2:])


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
    policy: Policy, log: EpisodeLog, discount: float, tested: EpisodeLog, trend: FittedTrend
) -> tuple[Finding, ...]:
    """About the whole log, and about the episodes that the forecast's trend is fitted to."""
    in_time = time_order(log)
    ratios, stops, largest = (np.asarray(one) for one in _ratios(policy, roomy(log), discount))
    whole, stopped = ratios[in_time], stops[in_time]
    if whole.size == 0 or not np.isfinite(whole.sum() + stopped.sum() + largest):
        why = "an importance ratio is not a finite number" if whole.size else "there is no episode"
        return tuple(undetermined(name, why) for name in OVERLAP)
    mean = mean_ratio_finding(stopped)
    del stops, stopped  # of a long log they take much
    recent = whole[-max(1, whole.size // 4) :]
    followed = whole
    if tested is not log:
        followed = np.asarray(_ratios(policy, tested, discount)[0])[time_order(tested)]
    worth = _worth("effective_sample_size", whole, "The log is")
    parts: tuple[Finding, ...] = (
        _worth("recent_effective_sample_size", recent, "The last quarter is"),
        _horizon_worth(followed[trend.rows], trend.weights, trend.doubt),
    )
    if worth.level is Level.WARNING:  # a part of what is worth little is worth less: that has one cause
        parts = tuple(
            one if one.value is None else dataclasses.replace(one, sentence=worth.sentence) for one in parts
        )
    return _largest(float(largest)), mean, worth, *parts


@kept
def _ratios(
    policy: Policy, log: EpisodeLog, discount: float
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
    running, there = log.layout.running(log_ratios(policy, log)), log.mask
    name = policy.name_in(log) if isinstance(log, MeasuredLog) else None
    if isinstance(log, MeasuredLog) and name in log.peaks:
        running, there = jnp.asarray(log.peaks[name]), jnp.asarray(log.present)
    largest = jnp.exp(jnp.max(jnp.where(there, running, -jnp.inf), initial=-jnp.inf))
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
    scaled = ratios - mean
    scaled /= spread
    cubes = scaled * scaled  # NumPy's own take thirty times as long
    cubes *= scaled
    skewness = float(np.mean(cubes)) / np.sqrt(n)
    t = np.sqrt(n) * (mean - 1) / spread
    corrected = t + skewness * (2 * t**2 + 1) / 6 + skewness**2 * t**3 / 27
    return float(2 * special.stdtr(max(n - 1, 1), -abs(corrected)))


def _worth(name: str, ratios: Floats, subject: str) -> Finding:
    worth = float(effective_sample_size(ratios))
    sentence = f"{subject} worth {worth:,.0f} on-policy episodes ({ratios.size:,} were logged)."
    return found(name, worth, sentence + _advice(worth, ratios.size), level=_worth_level(worth))


def _horizon_worth(ratios: Floats, weights: Floats, doubt: str) -> Finding:
    name = "horizon_effective_sample_size"
    if doubt:
        return undetermined(name, doubt)
    weights = np.abs(weights)
    weights *= ratios
    worth = float(effective_sample_size(weights))
    sentence = (
        f"As the forecast weighs it, the log is worth {worth:,.0f} equally weighted on-policy episodes."
    )
    return found(name, worth, sentence + _advice(worth, ratios.size), level=_worth_level(worth))


def _worth_level(worth: float) -> Level:
    if worth < FEW_EPISODES:
        return Level.WARNING
    return Level.NOTE if worth < MANY_EPISODES else Level.OK


def _advice(worth: float, logged: int) -> str:
    if worth >= MANY_EPISODES:
        return ""
    near = worth > NEARLY_ALL * logged
    other = "" if near else ", or take a policy nearer to the one that collected the log"
    return f" That is little: collect more{other}."


def _drift(settings: ForecastSettings, axis: TimeAxis, log: EpisodeLog, returns: Any) -> Finding:
    """Is a constant rejected in favour of the basis, or of slow waves if the basis is a constant?"""
    rows, shape = time_order(log), settings.test.shape
    series = _means_of_neighbours(np.asarray(returns)[rows], np.asarray(log.episode_numbers)[rows])
    trend, mean, test = _drift_test(shape, axis, series, sign_flips())
    doubt, constant = trend.doubt, shape.size == 1
    if doubt:
        return undetermined("drift", doubt)
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


def _means_of_neighbours(returns: Floats, times: Floats) -> Series:
    """Returns in the order of time with spare rows; of very many, the means of neighbours tell as much."""
    if returns.size > MOST_MEANS:
        ends = np.arange(1, MOST_MEANS + 1) * returns.size // MOST_MEANS
        starts, counts = np.append(0, ends[:-1]), np.diff(ends, prepend=0)
        returns, times = (np.add.reduceat(one, starts) / counts for one in (returns, times))
    rows = (returns, times, np.ones(returns.size, bool))
    return Series(*(with_zeros(one, room_for(returns.size) - returns.size) for one in rows))


@kept
def _drift_test(
    basis: Basis, axis: TimeAxis, series: Series, signs: Rademacher
) -> tuple[Identified, Float[Array, ""], Significance]:
    """Can a trend over the whole log be tested, what is the mean without one, and does it add to that?"""
    times, present, returns = series.times, series.present, jnp.asarray(series.returns)
    added = basis.design_matrix(times, axis).T if basis.size > 1 else richer_columns(basis, times, axis)
    design = trend_design(ConstantBasis(), times, present, axis)
    flat = fit_trend(design, returns)
    fit = fit_trend(trend_design(basis, times, present, axis), returns)
    return identified(fit), flat.point, score_test(design, flat.residuals, added, signs)
