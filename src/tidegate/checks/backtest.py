"""The gate at past dates of a log: would its intervals have held, would its deployments have been right?

What came next is known only as a noisy estimate: the mean of the estimated returns of the following test
episodes. So it is compared with a prediction interval, which adds the sampling error of that mean to the
interval of the forecast. If the candidate was found with the help of the tested episodes, the backtest
flatters it.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from ..arrays import ArrayLike, Flags, Floats, Integers, Progress, in_double, kept, map_leaves, unreported
from ..basis import TimeAxis
from ..comparison import Terms
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, in_time_order, time_order
from ..errors import SettingsError
from ..forecast import ForecastSettings, PairedSeries, compared_series, draw_multipliers
from ..inputs import whole
from ..mixture import Trend
from ..policies import BehaviorPolicy, Policy
from ..reasons import Reason, Verdict
from ..safety import VERDICT_SEED, compare_policies, with_room

RECENT = 50  # the fewest residuals used to estimate the noise of the following episodes
MAX_DATES, MAX_EVERY = 1_000, 10**9


@dataclasses.dataclass(frozen=True)
class Rate:
    """How often something happened, with its binomial error."""

    derived: ClassVar = ("share", "interval")

    count: int
    total: int

    @property
    def share(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def standard_error(self) -> float | None:
        share = self.share
        return None if share is None else float(np.sqrt(share * (1 - share) / self.total))

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % bounds (Clopper and Pearson, 1934); (0, 1) when nothing was tried."""
        k, n = self.count, self.total
        lower = float(special.betaincinv(k, n - k + 1, 0.025)) if k else 0.0
        upper = float(special.betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
        return lower, upper

    def __str__(self) -> str:
        if not self.total:
            return "0 of 0"
        low, high = self.interval
        return f"{self.count} of {self.total} ({self.count / self.total:.0%}, {low:.0%} to {high:.0%})"


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyBacktest:
    """One policy at every date: its forecast and interval, and the estimate of what came next.

    `lower` and `upper` bound the expected return; `predicted_lower` and `predicted_upper` bound its
    noisy estimate `realised`, whose standard error is `noise`.
    """

    forecast: Floats
    lower: Floats
    upper: Floats
    realised: Floats
    noise: Floats
    predicted_lower: Floats
    predicted_upper: Floats

    @property
    def known(self) -> Flags:
        """Where there is something to compare."""
        ends = (self.predicted_lower, self.predicted_upper, self.realised)
        known: Flags = np.logical_and.reduce([np.isfinite(one) for one in ends])
        return known

    @property
    def coverage(self) -> Rate:
        """How often the prediction interval held the realised mean: nominally 1 − α."""
        return self._within(self.predicted_lower, self.predicted_upper)

    @property
    def interval_coverage(self) -> Rate:
        """How often the forecast's own interval held it: less, since the realised mean is noisy."""
        return self._within(self.lower, self.upper)

    def _within(self, lower: Floats, upper: Floats) -> Rate:
        inside = (lower <= self.realised) & (self.realised <= upper) & self.known
        return Rate(int(inside.sum()), int(self.known.sum()))


@dataclasses.dataclass(frozen=True, eq=False)
class Backtest:
    """What the gate would have said at each date, and what came in the `lookahead` episodes after it.

    `advantage` is the candidate's forecast advantage at each date, and `advantage_lower` the bound that
    decided. `difference` is its estimated advantage over the safe policy in the episodes that followed, and
    `difference_noise` the standard error of that.
    """

    derived: ClassVar = (
        "coverage", "interval_coverage", "deployments", "wrong_deployments",
        "clearly_wrong_deployments", "sentence", "verdicts",
    )  # fmt: skip

    dates: Floats
    lookahead: int
    alpha: float
    following: Integers
    candidate: PolicyBacktest
    safe: PolicyBacktest
    reasons: tuple[Reason, ...]
    advantage: Floats
    advantage_lower: Floats
    difference: Floats
    difference_noise: Floats

    @property
    def coverage(self) -> dict[str, Rate]:
        """How often each policy's prediction interval held what came next."""
        return {"candidate": self.candidate.coverage, "safe": self.safe.coverage}

    @property
    def interval_coverage(self) -> dict[str, Rate]:
        """How often each policy's forecast interval held it."""
        policies = {"candidate": self.candidate, "safe": self.safe}
        return {name: one.interval_coverage for name, one in policies.items()}

    @property
    def sentence(self) -> str:
        return str(self)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the gate would have said at each date."""
        return tuple(Verdict.DEPLOY if deploys else Verdict.KEEP for deploys in self.deploys)

    @property
    def deploys(self) -> Flags:
        return np.array([reason is Reason.BETTER for reason in self.reasons], bool)

    @property
    def deployments(self) -> Rate:
        """At how many dates the gate would have opened."""
        return Rate(int(self.deploys.sum()), self.dates.size)

    @property
    def wrong_deployments(self) -> Rate:
        """Deployments after which the candidate's estimated advantage was negative, noise included."""
        return self._wrong(self.difference < 0)

    @property
    def clearly_wrong_deployments(self) -> Rate:
        """Deployments after which it was negative beyond its noise (one-sided, 2.5 %)."""
        return self._wrong(self.difference + 1.96 * self.difference_noise < 0)

    def _wrong(self, wrong: Flags) -> Rate:
        judged = self.deploys & np.isfinite(self.difference)
        return Rate(int((wrong & judged).sum()), int(judged.sum()))

    def __str__(self) -> str:
        if not self.dates.size:
            return "The log is too short for a backtest."
        return (
            f"At past dates, {1 - self.alpha:.0%} intervals held what came next for the candidate at "
            f"{self.candidate.coverage}, and for the safe policy at {self.safe.coverage}. The gate would "
            f"have opened at {self.deployments}; after that, the candidate's estimated advantage was "
            f"negative at {self.wrong_deployments}, and beyond its noise at {self.clearly_wrong_deployments}."
        )


class _AtDate(eqx.Module):
    """One date's numbers; the first axis of a pair is candidate, safe."""

    forecast: Float[Array, " 2"]
    lower: Float[Array, " 2"]
    upper: Float[Array, " 2"]
    realised: Float[Array, " 2"]
    noise: Float[Array, " 2"]
    advantage: Float[Array, ""]
    advantage_lower: Float[Array, ""]
    difference: Float[Array, ""]
    difference_noise: Float[Array, ""]
    following: Int[Array, ""]
    reason: Int[Array, ""]


@in_double
def backtest(
    candidate: Policy,
    safe: Policy | None,
    log: EpisodeLog,
    settings: ForecastSettings,
    *,
    training: EpisodeLog | None = None,
    dates: int = 20,
    every: int | None = None,
    progress: Progress = unreported,
) -> Backtest:
    """Use the gate at up to `dates` past dates, the last one `lookahead` before the end of the log.

    Dates are `every` apart, by default the lookahead, so that forecast windows do not overlap. Without a
    safe policy, the candidate is compared with the behaviour that collected the log. `training` are the
    episodes that a gate on this log trains on; without them, the log is split as the gate would split it.
    """
    if settings.exact:
        raise SettingsError("a backtest cannot enumerate all sign vectors", expected="exact=False")
    dates = whole("dates", dates, 1, MAX_DATES)
    every = settings.lookahead if every is None else whole("every", every, 1, MAX_EVERY)
    log = in_time_order(log)
    given = None if training is None else TrainingEpisodes(in_time_order(training))
    seen, held_out = with_room(settings, given, HeldOutEpisodes(log))
    past = None if seen is None else seen.log
    parts = [one.log for one in (seen, held_out) if one is not None]
    numbers = np.sort(np.concatenate([np.asarray(one.episode_numbers)[time_order(one)] for one in parts]))
    times = backtest_dates(numbers, settings, dates, every)
    policies = (candidate, BehaviorPolicy() if safe is None else safe)
    terms = Terms(
        TimeAxis.over((numbers[0], numbers[-1]) if numbers.size else (1.0, 0.0), settings.lookahead),
        draw_multipliers(settings, held_out.log, VERDICT_SEED),
        settings.test.asked_for(settings.alpha),
    )
    rows = [
        _at_date(settings.for_any_terms, policies, past, held_out.log, np.asarray(time), terms)
        for time in progress(times)
    ]
    return _describe(settings, times, rows)


def backtest_dates(numbers: Floats, settings: ForecastSettings, dates: int, every: int) -> Floats:
    """Past dates with enough episodes before them for a verdict, oldest first; the numbers are in order."""
    if numbers.size == 0:
        return np.zeros(0)
    axis = TimeAxis.over((numbers[0], numbers[-1]), settings.lookahead)
    times = axis.latest_trial - every * np.arange(dates)[::-1]
    enough = np.searchsorted(numbers, times, "right") >= settings.least_episodes
    return np.asarray(times[enough], np.float64)


@kept
def _at_date(
    settings: ForecastSettings,
    policies: tuple[Policy, Policy],
    training: EpisodeLog | None,
    log: EpisodeLog,
    time: Float[ArrayLike, ""],
    terms: Terms,
) -> _AtDate:
    """The gate's comparison with later episodes masked out, and the returns of the test episodes after it."""

    def known(log: EpisodeLog) -> EpisodeLog:
        return log.only(jnp.asarray(log.episode_numbers) <= time)

    seen = None if training is None else known(training)
    axis = terms.axis.before(time)
    outcome = compare_policies(
        settings,
        *policies,
        HeldOutEpisodes(known(log)),
        dataclasses.replace(terms, axis=axis),
        training=None if seen is None else TrainingEpisodes(seen),
    )
    # What came next is estimated as in the gate, by models that have not seen it.
    series = compared_series(settings, known(log) if seen is None else seen, log, policies)
    numbers = jnp.where(log.present, jnp.asarray(log.episode_numbers), jnp.nan)
    fits = (outcome.candidate, outcome.safe)
    intervals = (outcome.candidate_interval, outcome.safe_interval)
    after = (numbers > axis.last) & (numbers <= axis.end)
    following = jnp.sum(after)
    window = jnp.maximum(RECENT, following)
    noise = [_noise(fit, window) for fit in (*fits, outcome.difference)]
    share = jnp.where(following > 0, 1 / following, jnp.nan)

    def mean(returns: Float[Array, "*m n"]) -> Float[Array, "*m"]:
        return jnp.sum(jnp.where(after, returns, 0.0), axis=-1) * share

    realised, paired = mean(series.returns), isinstance(series, PairedSeries)
    return _AtDate(
        forecast=jnp.stack([fit.point for fit in fits]),
        lower=jnp.stack([interval.lower for interval in intervals]),
        upper=jnp.stack([interval.upper for interval in intervals]),
        realised=realised,
        noise=jnp.sqrt(jnp.stack(noise[:2]) * share),
        advantage=outcome.point,
        advantage_lower=outcome.lower,
        difference=mean(series.difference.returns) if paired else realised[0] - realised[1],
        difference_noise=jnp.sqrt(noise[2] * share),
        following=following,
        reason=outcome.reason,
    )


def _noise(fit: Trend, window: Int[Array, ""]) -> Float[Array, ""]:
    """The mean square of the last residuals before the date: the noise level is assumed to persist."""
    past = fit.design.present
    last = past & (jnp.cumsum(past[::-1])[::-1] <= window)
    return jnp.sum(jnp.where(last, fit.residuals**2, 0.0)) / jnp.maximum(jnp.sum(last), 1)


def _describe(settings: ForecastSettings, times: Floats, dates: list[_AtDate]) -> Backtest:
    nothing = _AtDate(*(jnp.zeros((0, 2)) for _ in range(5)), *(jnp.zeros(0) for _ in range(6)))
    rows = map_leaves(lambda *each: np.stack(each), *dates) if dates else nothing
    return Backtest(
        dates=times,
        lookahead=settings.lookahead,
        alpha=settings.alpha,
        following=np.asarray(rows.following, np.int64),
        candidate=_policy_record(settings, rows, 0),
        safe=_policy_record(settings, rows, 1),
        reasons=tuple(Reason(int(reason)) for reason in np.asarray(rows.reason)),
        advantage=np.asarray(rows.advantage),
        advantage_lower=np.asarray(rows.advantage_lower),
        difference=np.asarray(rows.difference),
        difference_noise=np.asarray(rows.difference_noise),
    )


def _policy_record(settings: ForecastSettings, rows: _AtDate, which: int) -> PolicyBacktest:
    """Both errors are combined on each side separately (Zou and Donner, 2008): intervals are asymmetric."""
    names = ("forecast", "lower", "upper", "realised", "noise")
    forecast, lower, upper, realised, noise = (np.asarray(getattr(rows, name))[:, which] for name in names)
    reach = -special.ndtri(settings.alpha / 2) * noise
    return PolicyBacktest(
        forecast=forecast,
        lower=lower,
        upper=upper,
        realised=realised,
        noise=noise,
        predicted_lower=forecast - np.hypot(forecast - lower, reach),
        predicted_upper=forecast + np.hypot(upper - forecast, reach),
    )
