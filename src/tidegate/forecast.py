"""Policy + log -> forecast of its mean return over the next `lookahead` episodes, with bounds."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .arrays import Floats, in_double, kept, map_leaves, room_for, with_zeros
from .basis import TimeAxis
from .bootstrap import (
    ConfidenceInterval,
    KeyedMultipliers,
    Multipliers,
    Rademacher,
    Side,
    all_signs,
    check_draws,
    tail,
)
from .cells import Series
from .comparison import ComparisonTest, Terms, TwoBounds
from .episodes import EpisodeLog, present_rows, roomy
from .errors import LogError, SettingsError
from .inputs import flag, instance, member, none_or, number, seed_of, shown, whole
from .measured import MeasuredLog
from .mixture import Trend
from .policies import Policy, lists_actions
from .returns import (
    Gap,
    ReturnEstimator,
    dr_returns,
    effective_sample_size,
    episode_ratios,
    gap_returns,
    measured_returns,
    observed_returns,
    pdis_returns,
)
from .values import ValueModel, alternating

CONTEXT_SHARE = 0.5  # of the variance of a return that may be luck of the context
SAME = 1e-6  # logarithms of probabilities that differ by less are one

Predictions: TypeAlias = Callable[[Policy], Float[Array, "n t a"] | None]


class ForecastSettings(eqx.Module):
    """How past returns are estimated, their trend is modelled, and the forecast is bounded.

    `test` says how the trend is modelled and how two policies are compared. `alpha` is the probability
    left outside the interval; in a safety test, the allowed probability of a wrong deployment. `exact`
    replaces the draws by all 2ⁿ sign vectors (up to 14 episodes). `support_z` is how many standard errors
    the mean importance ratio may be off 1 before a policy counts as unsupported by the log (the
    paper has no such check: ∞ switches it off).

    `value_model` makes the returns doubly robust: fitted on training episodes only, it takes the noise
    out of the estimates and leaves their expectation as it is.
    """

    lookahead: int = eqx.field(static=True, converter=partial(whole, "lookahead", low=1))
    test: ComparisonTest = eqx.field(default_factory=TwoBounds)
    alpha: float = eqx.field(static=True, default=0.05, converter=partial(number, "alpha", above=0, below=1))
    draws: int = eqx.field(static=True, default=500, converter=partial(whole, "draws", low=1))
    multipliers: type[KeyedMultipliers] = eqx.field(static=True, default=Rademacher)
    estimator: ReturnEstimator = eqx.field(static=True, default=pdis_returns)
    discount: float = eqx.field(
        static=True, default=1.0, converter=partial(number, "discount", low=0, high=1)
    )
    exact: bool = eqx.field(static=True, default=False, converter=partial(flag, "exact"))
    support_z: float = eqx.field(
        static=True, default=4.0, converter=partial(number, "support_z", low=0, infinite=True)
    )
    value_model: ValueModel | None = eqx.field(
        default=None, converter=partial(none_or, partial(instance, "value_model", ValueModel))
    )

    def __check_init__(self) -> None:
        instance("test", ComparisonTest, self.test, "TwoBounds(…), Paired(…) or Multiscale()")
        if not (isinstance(self.multipliers, type) and issubclass(self.multipliers, KeyedMultipliers)):
            raise SettingsError(
                f"multipliers is {shown(self.multipliers)}.", expected="Rademacher, Mammen or Webb"
            )
        if not callable(self.estimator):
            raise SettingsError(
                f"estimator is {shown(self.estimator)}.", expected="a function such as pdis_returns"
            )
        if self.value_model is not None and self.estimator is not pdis_returns:
            raise SettingsError(
                "an estimator was chosen together with a value model, whose returns are doubly robust",
                expected="one of the two",
                remedy="Leave out estimator=…, or value_model=….",
            )
        check_draws(self.draws, tail(self.alpha, Side.BOTH))

    @property
    def least_episodes(self) -> int:
        """How many episodes a test needs."""
        return self.test.least_episodes

    @property
    def for_any_terms(self) -> "ForecastSettings":
        """The settings without what the terms of a comparison carry: one program serves all of these."""
        return dataclasses.replace(self, lookahead=1, alpha=0.05, draws=500)


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of one policy, with what is needed to draw it."""

    point: float
    lower: float
    upper: float
    standard_error: float
    alpha: float
    side: Side
    num_episodes: int
    effective_sample_size: float
    episode_numbers: Floats
    returns: Floats
    forecast_times: Floats
    curve_times: Floats
    curve: Floats

    def __str__(self) -> str:
        first, last = self.forecast_times[0], self.forecast_times[-1]
        return (
            f"mean return over episodes {first:.10g} to {last:.10g}: {self.point:.4g} "
            f"[{self.lower:.4g}, {self.upper:.4g}] ({self.side.value}, α = {self.alpha:g}; "
            f"{self.num_episodes} episodes, worth {self.effective_sample_size:.0f} on-policy ones)"
        )


def estimated_returns(
    settings: ForecastSettings,
    policy: Policy,
    log: EpisodeLog,
    values: Float[Array, "n t a"] | None = None,
) -> Float[Array, " n"]:
    """What the policy would have earned in each episode; doubly robust if values are given."""
    if isinstance(log, MeasuredLog):
        return measured_returns(policy, log)
    if values is None:
        return settings.estimator(policy, log, settings.discount)
    return dr_returns(policy, log, settings.discount, values)


def cross_fitted_returns(
    settings: ForecastSettings, log: EpisodeLog, *policies: Policy
) -> list[Float[Array, " n"]]:
    """What each policy would have earned; the values of an episode are predicted from the others."""
    values = cross_fitted_values(settings, log, *policies)
    return [estimated_returns(settings, policy, log, values(policy)) for policy in policies]


def cross_fitted_values(settings: ForecastSettings, training: EpisodeLog, *policies: Policy) -> Predictions:
    """The model's predictions for the episodes, each made without that episode."""
    model, discount = settings.value_model, settings.discount
    if model is None or isinstance(training, MeasuredLog):
        return lambda policy: None
    kinds = {lists_actions(policy, training) for policy in policies}
    found = {kind: model.cross_fit(training, discount, per_action=kind) for kind in sorted(kinds)}
    return lambda policy: found[lists_actions(policy, training)]


class PairedSeries(Series):
    """Two series of returns whose difference, the `gap`, is estimated by itself."""

    gap: Any = None

    @property
    def difference(self) -> Series:
        return Series(self.gap, self.times, self.present)


def compared_series(
    settings: ForecastSettings,
    training: EpisodeLog | None,
    log: EpisodeLog,
    policies: tuple[Policy, Policy],
    luck: Any = 0.0,
) -> Series:
    """What two policies would have earned in the tested episodes; their difference is the best there is.

    Values are fitted to the training episodes; without any, an episode's are predicted from the others.
    """
    model, source = settings.value_model, log if training is None else training
    if model is None or isinstance(log, MeasuredLog):
        series = series_of(log, jnp.stack([estimated_returns(settings, one, log) for one in policies]), luck)
        if not isinstance(log, MeasuredLog) or not log.gaps:
            return series
        plain, added = log.gaps
        return _with_gap(series, Gap(jnp.asarray(plain), jnp.asarray(added)), log)

    def predict(known: EpisodeLog, discount: float, per_action: bool) -> Float[Array, "*cells a"]:
        if training is None:
            return model.cross_fit(known, discount, per_action=per_action)
        return model.predict(known, log, discount, per_action=per_action)

    kinds = [lists_actions(one, log) for one in policies]
    values = {kind: predict(source, settings.discount, kind) for kind in sorted({*kinds})}
    returns = [
        estimated_returns(settings, one, log, values[kind]) for one, kind in zip(policies, kinds, strict=True)
    ]
    series = series_of(log, jnp.stack(returns), luck)
    if len(values) < 2 or not settings.test.rivals(policies[1]):
        return series
    return _paired(series, policies, source, log, settings.discount, values, predict)


def _paired(
    series: Series,
    policies: tuple[Policy, Policy],
    source: EpisodeLog,
    log: EpisodeLog,
    discount: float,
    values: dict[bool, Float[Array, "*cells a"]],
    predict: Callable[[EpisodeLog, float, bool], Float[Array, "*cells a"]],
) -> PairedSeries:
    """The returns of two policies, one of which lists its probabilities, with their difference."""
    listing = 0 if lists_actions(policies[0], log) else 1
    rival_probs = predict(acts_of(policies[1 - listing], source), 0.0, True)
    gap = gap_between(policies, listing, series.returns, log, discount, values, rival_probs)
    return _with_gap(series, gap, log)


def acts_of(rival: Policy, log: EpisodeLog) -> EpisodeLog:
    """The log with the rival's probability of each logged action in place of the reward."""
    return dataclasses.replace(log, rewards=jnp.exp(rival.logged_log_probs(log)))


def gap_between(
    policies: tuple[Policy, Policy],
    listing: int,
    returns: Float[Array, "2 n"],
    log: EpisodeLog,
    discount: float,
    values: dict[bool, Float[Array, "*cells a"]],
    rival_probs: Float[Array, "*cells a"],
) -> Gap:
    """What the first policy would have earned beyond the second; number `listing` lists its actions."""
    rival_returns = returns[1 - listing]
    gap = gap_returns(
        policies[listing], rival_returns, log, discount, values[False], values[True], rival_probs
    )
    return map_leaves(jnp.negative, gap) if listing else gap


def _with_gap(series: Series, gap: Gap, log: EpisodeLog) -> PairedSeries:
    found = gap.crosswise(alternating(log), jnp.asarray(log.present))
    return PairedSeries(series.returns, series.times, series.present, series.luck, found)


def series_of(log: EpisodeLog, returns: Float[Array, "*m n"], luck: Any = 0.0) -> Series:
    """These returns at the episodes' times."""
    return Series(returns, log.episode_numbers, log.present, luck)


def context_luck(policy: Policy, log: EpisodeLog, discount: float) -> Float[Array, ""]:
    """The variance that contexts bring to an episode's expected return: which ones come next is luck, too.

    A log does not tell luck of the context from luck of the reward, so half of the variance of the policy's
    return is taken for it; none if actions had the same probabilities throughout, as without any context.
    """
    ratios, returns = episode_ratios(policy, log), observed_returns(log, discount)
    total = jnp.maximum(jnp.sum(ratios), np.finfo(np.float32).tiny)
    mean = jnp.sum(ratios * returns) / total
    variance = jnp.sum(ratios * (returns - mean) ** 2) / total
    return jnp.where(has_contexts(log), CONTEXT_SHARE * variance, 0.0)


def has_contexts(*logs: EpisodeLog) -> Bool[Array, ""]:
    """Whether the probability of an action differed from step to step of these logs."""
    if isinstance(logs[0], MeasuredLog):
        return jnp.any(jnp.asarray(logs[0].contexts))
    count = logs[0].num_actions
    if count is None:
        return jnp.ones((), bool)
    highest, lowest = jnp.full(count, -jnp.inf), jnp.full(count, jnp.inf)
    for log in logs:
        actions, mask = jnp.asarray(log.actions, int).reshape(-1), jnp.asarray(log.mask).reshape(-1)
        probs = jnp.asarray(log.behavior_log_probs).reshape(-1)
        highest = highest.at[actions].max(jnp.where(mask, probs, -jnp.inf))
        lowest = lowest.at[actions].min(jnp.where(mask, probs, jnp.inf))
    return jnp.any(highest - lowest > SAME)


@in_double
def forecast_performance(
    policy: Policy,
    log: EpisodeLog,
    settings: ForecastSettings,
    *,
    side: Side = Side.BOTH,
    seed: int = 0,
) -> Forecast:
    """Forecast the policy's mean return over the next episodes, bounded by the wild bootstrap."""
    instance("policy", Policy, policy, "a policy such as SoftmaxPolicy(…) or RecordedPolicy(…)")
    instance("log", EpisodeLog, log, "EpisodeLog.from_frame(…) or EpisodeLog.from_arrays(…)")
    instance("settings", ForecastSettings, settings)
    side, seed = member("side", Side, side), seed_of(seed)
    axis = TimeAxis.over(log.span, settings.lookahead)
    multipliers = draw_multipliers(settings, log, seed)
    log = log if settings.exact else roomy(log)
    terms = Terms(axis, multipliers, settings.test.asked_for(settings.alpha))
    fit, interval = _forecast_policy(settings.for_any_terms, policy, log, terms, side)
    return describe_forecast(settings, log, axis, policy, fit, interval, alpha=settings.alpha, side=side)


@in_double
def forecast_returns(
    returns: Any,
    episode_numbers: Any,
    settings: ForecastSettings,
    *,
    ratios: Any = None,
    side: Side = Side.BOTH,
    seed: int = 0,
) -> Forecast:
    """The forecast from returns that were estimated elsewhere (by streaming, say): one per episode.

    The same numbers as `forecast_performance` gives for the same returns; `settings.estimator` and
    `settings.discount` are not used. `ratios` are the episodes' importance ratios, from which the
    effective sample size is computed; without them every episode counts as on-policy.
    """
    instance("settings", ForecastSettings, settings)
    side, seed = member("side", Side, side), seed_of(seed)
    values, numbers = (np.asarray(one, np.float64) for one in (returns, episode_numbers))
    if values.ndim != 1 or values.size == 0 or values.shape != numbers.shape:
        raise LogError(
            f"returns have shape {values.shape}, episode numbers {numbers.shape}.",
            expected="one of each per episode, and at least one episode",
        )
    axis = TimeAxis.over((float(numbers.min()), float(numbers.max())), settings.lookahead)
    terms = Terms(axis, _multipliers(settings, values.size, seed), settings.test.asked_for(settings.alpha))
    spare = 0 if settings.exact else room_for(values.size) - values.size
    rows = (with_zeros(one, spare) for one in (values, numbers, np.ones(values.size, bool)))
    fit, interval = _forecast_returns(settings.for_any_terms, Series(*rows), terms, side)
    worth = values.size if ratios is None else float(effective_sample_size(np.asarray(ratios)))
    curve = settings.test.curve(fit, axis, numbers, slice(values.size))
    return _record(axis, fit, interval, settings.alpha, side, numbers, values, worth, curve)


def draw_multipliers(settings: ForecastSettings, log: EpisodeLog, seed: int) -> Multipliers:
    """The bootstrap's signs: all of them in exact mode, else `draws` rows from the seed."""
    return _multipliers(settings, log.capacity, seed)


def _multipliers(settings: ForecastSettings, capacity: int, seed: int) -> Multipliers:
    if settings.exact:
        return all_signs(capacity)
    return settings.multipliers(jax.random.key(seed), settings.draws)


def forecast_policy(
    settings: ForecastSettings, policy: Policy, log: EpisodeLog, terms: Terms, side: Side
) -> tuple[Trend, ConfidenceInterval]:
    """The trend and its bounds, as arrays."""
    luck = context_luck(policy, log, settings.discount)
    series = series_of(log, cross_fitted_returns(settings, log, policy)[0], luck)
    return settings.test.forecast(series, terms, side)


_forecast_policy = kept(forecast_policy)


@kept
def _forecast_returns(
    settings: ForecastSettings, series: Series, terms: Terms, side: Side
) -> tuple[Trend, ConfidenceInterval]:
    series = map_leaves(jnp.asarray, series)
    return settings.test.forecast(series, terms, side)


@kept
def _worth(policy: Policy, log: EpisodeLog) -> Float[Array, ""]:
    return effective_sample_size(episode_ratios(policy, log))


def describe_forecast(
    settings: ForecastSettings,
    log: EpisodeLog,
    axis: TimeAxis,
    policy: Policy,
    fit: Trend,
    interval: ConfidenceInterval,
    *,
    alpha: float,
    side: Side = Side.BOTH,
) -> Forecast:
    """Turn arrays into the record a user reads."""
    present = present_rows(log)
    times, returns = (np.asarray(one)[present] for one in (log.episode_numbers, fit.returns))
    worth = float(_worth(policy, log))
    curve = settings.test.curve(fit, axis, times, present)
    return _record(axis, fit, interval, alpha, side, times, returns, worth, curve)


def _record(
    axis: TimeAxis,
    fit: Trend,
    interval: ConfidenceInterval,
    alpha: float,
    side: Side,
    episode_numbers: Floats,
    returns: Floats,
    worth: float,
    curve: tuple[Floats, Floats],
) -> Forecast:
    return Forecast(
        point=float(fit.point),
        lower=float(interval.lower),
        upper=float(interval.upper),
        standard_error=float(np.sqrt(fit.variance)),
        alpha=alpha,
        side=side,
        num_episodes=returns.size,
        effective_sample_size=worth,
        episode_numbers=episode_numbers,
        returns=returns,
        forecast_times=np.asarray(axis.forecast_times),
        curve_times=curve[0],
        curve=curve[1],
    )
