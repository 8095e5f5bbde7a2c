"""Policy + log -> forecast of its mean return over the next `lookahead` episodes, with bounds."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
from .comparison import ComparisonTest, Terms, TwoBounds
from .episodes import EpisodeLog, roomy
from .errors import LogError, SettingsError
from .inputs import flag, instance, member, none_or, number, seed_of, shown, whole
from .models import Series
from .policies import DiscretePolicy, Policy
from .returns import (
    ReturnEstimator,
    dr_returns,
    effective_sample_size,
    episode_ratios,
    pdis_returns,
)
from .trend import TrendFit
from .values import ValueModel

CALIBRATION_SHARE = 1 / 3  # of the log goes to training if the candidate was made without the log
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
    def least_log(self) -> int:
        """How many episodes a log needs, if a share of them is for training."""
        share = CALIBRATION_SHARE if self.needs_training else 0.0
        return math.ceil(self.least_episodes / (1 - share))

    @property
    def for_any_terms(self) -> "ForecastSettings":
        """The settings without what the terms of a comparison carry: one program serves all of these."""
        return dataclasses.replace(self, lookahead=1, alpha=0.05, draws=500)

    @property
    def needs_training(self) -> bool:
        """Whether a test needs training episodes: to try trend models, or to fit a model of values."""
        return self.test.tries_models or self.value_model is not None


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
    if values is None:
        return settings.estimator(policy, log, settings.discount)
    return dr_returns(policy, log, settings.discount, values)


def training_returns(
    settings: ForecastSettings, training: EpisodeLog, *policies: Policy
) -> list[Float[Array, " n"]]:
    """What each policy would have earned in the training episodes; models are cross-fitted."""
    values = training_values(settings, training, *policies)
    return [estimated_returns(settings, policy, training, values(policy)) for policy in policies]


def training_values(settings: ForecastSettings, training: EpisodeLog, *policies: Policy) -> Predictions:
    """The model's predictions for the training episodes, each made without that episode."""
    model, discount = settings.value_model, settings.discount
    if model is None:
        return lambda policy: None
    kinds = {_enumerates(policy, training) for policy in policies}
    found = {kind: model.cross_fit(training, discount, per_action=kind) for kind in sorted(kinds)}
    return lambda policy: found[_enumerates(policy, training)]


def held_out_returns(
    settings: ForecastSettings, training: EpisodeLog | None, log: EpisodeLog, *policies: Policy
) -> list[Float[Array, " n"]]:
    """The same for held-out episodes, with models fitted to the training episodes, if there are any."""
    model, discount = settings.value_model, settings.discount
    if model is None or training is None:
        return [estimated_returns(settings, policy, log) for policy in policies]
    kinds = {_enumerates(policy, log) for policy in policies}
    found = {kind: model.predict(training, log, discount, per_action=kind) for kind in sorted(kinds)}
    return [estimated_returns(settings, policy, log, found[_enumerates(policy, log)]) for policy in policies]


def _enumerates(policy: Policy, log: EpisodeLog) -> bool:
    """Whether the policy gives a probability to every action of the log, and to no other."""
    if not isinstance(policy, DiscretePolicy) or log.num_actions is None:
        return False
    return bool(jax.eval_shape(lambda: policy.outputs(log.states)).shape[-1] == log.num_actions)


def series_of(log: EpisodeLog, returns: Float[Array, " n"]) -> Series:
    """These returns at the episodes' times."""
    return Series(returns, log.episode_numbers, log.present)


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
) -> tuple[TrendFit, ConfidenceInterval]:
    """The trend and its bounds, as arrays.

    The policy is given, not chosen with this log, so the models may be tried on its own past.
    """
    series = series_of(log, training_returns(settings, log, policy)[0])
    return settings.test.forecast(series, series, terms, side)


_forecast_policy = kept(forecast_policy)


@kept
def _forecast_returns(
    settings: ForecastSettings, series: Series, terms: Terms, side: Side
) -> tuple[TrendFit, ConfidenceInterval]:
    series = map_leaves(jnp.asarray, series)
    return settings.test.forecast(series, series, terms, side)


_episode_ratios = kept(episode_ratios)


def describe_forecast(
    settings: ForecastSettings,
    log: EpisodeLog,
    axis: TimeAxis,
    policy: Policy,
    fit: TrendFit,
    interval: ConfidenceInterval,
    *,
    alpha: float,
    side: Side = Side.BOTH,
) -> Forecast:
    """Turn arrays into the record a user reads."""
    present = np.asarray(log.present)
    times, returns = (np.asarray(one)[present] for one in (log.episode_numbers, fit.returns))
    worth = float(effective_sample_size(_episode_ratios(policy, log)))
    curve = settings.test.curve(fit, axis, times, present)
    return _record(axis, fit, interval, alpha, side, times, returns, worth, curve)


def _record(
    axis: TimeAxis,
    fit: TrendFit,
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
