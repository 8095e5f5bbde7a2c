"""Policy + log -> forecast of its mean return over the next `lookahead` episodes, with bounds."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from .arrays import in_double, map_leaves, replace_at
from .basis import Basis, CosineBasis, TimeAxis
from .bootstrap import (
    ConfidenceInterval,
    KeyedMultipliers,
    Multipliers,
    Rademacher,
    Side,
    all_signs,
    check_draws,
    one_sided,
    percentile_t_interval,
    tail,
)
from .episodes import EpisodeLog
from .errors import LogError, SettingsError
from .policies import DiscretePolicy, Policy
from .returns import (
    ReturnEstimator,
    dr_returns,
    effective_sample_size,
    episode_ratios,
    pdis_returns,
)
from .scales import Scales, Series, forecast_scales, largest, lower_bounds, smallest, upper_bounds
from .trend import TrendDesign, TrendFit, fit_trend, trend_curve, trend_design
from .value_models import ValueModel
from .verdicts import MIN_EPISODES

CALIBRATION_SHARE = 1 / 3  # of the log, for training, if the candidate was made without it
IntervalMethod = Callable[[TrendFit, Multipliers, float, Side], ConfidenceInterval]
Values: TypeAlias = Callable[[Policy], Float[Array, "n t a"] | None]


class ForecastSettings(eqx.Module):
    """How past returns are estimated, their trend is fitted, and the forecast is bounded.

    `alpha` is the probability left outside the interval; in a safety test, the allowed probability of
    a wrong deployment. `exact` replaces the draws by all 2ⁿ sign vectors (up to 14 episodes).
    `support_z` is how many standard errors the mean importance ratio may be away from 1 before a
    policy counts as unsupported by the log (the paper has no such check: ∞ switches it off).

    `paired` tests the forecast of the difference between two policies at α, instead of one bound of
    each at α/2. `scales` replaces the basis by lines at every time scale, with the bias that the
    training episodes show. `value_model` makes the returns doubly robust: fitted on training episodes
    only, it takes the noise out of the estimates and leaves their expectation as it is.
    """

    lookahead: int = eqx.field(static=True)
    basis: Basis = eqx.field(default_factory=lambda: CosineBasis(3))
    alpha: float = eqx.field(static=True, default=0.05)
    draws: int = eqx.field(static=True, default=500)
    multipliers: type[KeyedMultipliers] = eqx.field(static=True, default=Rademacher)
    interval: IntervalMethod = eqx.field(static=True, default=percentile_t_interval)
    estimator: ReturnEstimator = eqx.field(static=True, default=pdis_returns)
    discount: float = eqx.field(static=True, default=1.0)
    exact: bool = eqx.field(static=True, default=False)
    support_z: float = eqx.field(static=True, default=4.0)
    paired: bool = eqx.field(static=True, default=False)
    scales: Scales | None = None
    value_model: ValueModel | None = None

    def __check_init__(self) -> None:
        if self.scales is not None and not self.paired:
            raise SettingsError("scales belong to the paired test", expected="paired=True")
        if self.paired and self.interval is not percentile_t_interval:
            raise SettingsError(
                "a paired test has bounds of its own",
                expected="paired=False with another interval than percentile_t_interval",
            )
        if not isinstance(self.lookahead, int) or self.lookahead < 1:
            raise SettingsError(
                f"lookahead is {self.lookahead!r}", expected="a whole number of episodes from 1 up"
            )
        if not 0 <= self.discount <= 1:
            raise SettingsError(f"discount is {self.discount}", expected="a factor from 0 to 1")
        check_draws(self.draws, tail(self.alpha, Side.BOTH))

    @property
    def least_episodes(self) -> int:
        """How many episodes a test needs."""
        features = 2 * self.basis.size if self.scales is None else self.scales.smallest
        return max(MIN_EPISODES, features)

    @property
    def least_log(self) -> int:
        """How many a log needs, if a share of it is for training."""
        share = CALIBRATION_SHARE if self.needs_training else 0.0
        return math.ceil(self.least_episodes / (1 - share))

    @property
    def needs_training(self) -> bool:
        """Whether a test needs training episodes: to try scales, or to fit a model of values."""
        return self.scales is not None or self.value_model is not None


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
    episode_numbers: npt.NDArray[np.float64]
    returns: npt.NDArray[np.float64]
    forecast_times: npt.NDArray[np.float64]
    curve_times: npt.NDArray[np.float64]
    curve: npt.NDArray[np.float64]

    def __str__(self) -> str:
        first, last = self.forecast_times[0], self.forecast_times[-1]
        return (
            f"mean return over episodes {first:.10g} to {last:.10g}: {self.point:.4g} "
            f"[{self.lower:.4g}, {self.upper:.4g}] ({self.side.value}, α = {self.alpha:g}; "
            f"{self.num_episodes} episodes, worth {self.effective_sample_size:.0f} on-policy ones)"
        )


def design_for(settings: ForecastSettings, log: EpisodeLog, axis: TimeAxis) -> TrendDesign:
    """The regression that these episodes' times give; the forecast window τ ends the axis."""
    return _design(settings, log.episode_numbers, log.present, axis)


def _design(
    settings: ForecastSettings, episode_numbers: Any, present: Any, axis: TimeAxis
) -> TrendDesign:
    return trend_design(settings.basis, episode_numbers, present, axis)


def policy_trend(
    settings: ForecastSettings, policy: Policy, log: EpisodeLog, design: TrendDesign
) -> TrendFit:
    """The trend of what the policy would have earned in these episodes."""
    return fit_trend(design, estimated_returns(settings, policy, log))


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


def training_values(settings: ForecastSettings, training: EpisodeLog, *policies: Policy) -> Values:
    """What the model says of the training episodes, each without its own help."""
    model, discount = settings.value_model, settings.discount
    if model is None:
        return lambda policy: None
    kinds = {_enumerates(policy, training) for policy in policies}
    found = {kind: model.cross_fit(training, discount, per_action=kind) for kind in sorted(kinds)}
    return lambda policy: found[_enumerates(policy, training)]


def held_out_returns(
    settings: ForecastSettings, training: EpisodeLog | None, log: EpisodeLog, *policies: Policy
) -> list[Float[Array, " n"]]:
    """The same in other episodes, with models of the training episodes, if there are any."""
    model, discount = settings.value_model, settings.discount
    if model is None or training is None:
        return [estimated_returns(settings, policy, log) for policy in policies]
    kinds = {_enumerates(policy, log) for policy in policies}
    found = {
        kind: model.predict(training, log, discount, per_action=kind) for kind in sorted(kinds)
    }
    return [
        estimated_returns(settings, policy, log, found[_enumerates(policy, log)])
        for policy in policies
    ]


def _enumerates(policy: Policy, log: EpisodeLog) -> bool:
    """Whether the policy gives a probability to every action of the log, and to no other."""
    if not isinstance(policy, DiscretePolicy) or log.num_actions is None:
        return False
    return bool(jax.eval_shape(lambda: policy.outputs(log.states)).shape[-1] == log.num_actions)


def series_of(log: EpisodeLog, returns: Float[Array, " n"]) -> Series:
    """These returns at the episodes' times."""
    return Series(returns, log.episode_numbers, log.present)


def bounded_forecast(
    settings: ForecastSettings,
    series: Series,
    past: Series,
    axis: TimeAxis,
    multipliers: Multipliers,
    side: Side = Side.BOTH,
) -> tuple[TrendFit, ConfidenceInterval]:
    """The trend of a series and the bounds of its forecast; with scales, those that all of them keep.

    Scales are tried on `past`. The trend is then that of the leading scale, its variance with the bias.
    """
    if settings.scales is None:
        fit = fit_trend(_design(settings, series.times, series.present, axis), series.returns)
        return fit, settings.interval(fit, multipliers, settings.alpha, side)
    found = forecast_scales(
        settings.scales,
        series,
        past,
        axis,
        multipliers,
        caution=settings.scales.caution,
    )
    needed, best, level = found.choice.needed, found.choice.best, tail(settings.alpha, side)
    lower, upper = (
        smallest(lower_bounds(found, level), needed),
        largest(upper_bounds(found, level), needed),
    )
    leading = map_leaves(lambda leaf: leaf[best], found.fits)
    returns = jnp.where(jnp.asarray(series.present), series.returns, 0.0)
    leading = replace_at(
        lambda fit: (fit.returns, fit.variance), leading, (returns, found.errors[best] ** 2)
    )
    return leading, one_sided(side, lower=lower, upper=upper)


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
    axis = TimeAxis.over(log.span, settings.lookahead)
    multipliers = draw_multipliers(settings, log, seed)
    fit, interval = forecast_policy(settings, policy, log, axis, multipliers, side)
    return describe_forecast(settings, policy, log, axis, fit, interval, side)


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
    """The forecast from returns that were estimated elsewhere, as by streaming: one per episode.

    The same numbers as `forecast_performance` gives for the same returns; `settings.estimator` and
    `settings.discount` are not used. `ratios` are the episodes' importance ratios, from which the
    effective sample size is told; without them every episode counts as on-policy.
    """
    values, numbers = (np.asarray(one, np.float64) for one in (returns, episode_numbers))
    if values.ndim != 1 or values.size == 0 or values.shape != numbers.shape:
        raise LogError(
            f"returns have shape {values.shape}, episode numbers {numbers.shape}.",
            expected="one of each per episode, and at least one episode",
        )
    axis = TimeAxis.over((float(numbers.min()), float(numbers.max())), settings.lookahead)
    multipliers = _multipliers(settings, values.size, seed)
    fit, interval = _forecast_returns(settings, values, numbers, axis, multipliers, side)
    worth = values.size if ratios is None else float(effective_sample_size(np.asarray(ratios)))
    return _record(settings, axis, fit, interval, side, numbers, values, worth)


def draw_multipliers(settings: ForecastSettings, log: EpisodeLog, seed: int) -> Multipliers:
    """The bootstrap's signs: all of them in exact mode, else `draws` rows from the seed."""
    return _multipliers(settings, log.capacity, seed)


def _multipliers(settings: ForecastSettings, capacity: int, seed: int) -> Multipliers:
    if settings.exact:
        return all_signs(capacity)
    return settings.multipliers(jax.random.key(seed), settings.draws)


@eqx.filter_jit
def forecast_policy(
    settings: ForecastSettings,
    policy: Policy,
    log: EpisodeLog,
    axis: TimeAxis,
    multipliers: Multipliers,
    side: Side,
) -> tuple[TrendFit, ConfidenceInterval]:
    """The trend and its bounds, as arrays.

    The policy is given, not chosen by this log: so its own past may try the scales.
    """
    series = series_of(log, training_returns(settings, log, policy)[0])
    return bounded_forecast(settings, series, series, axis, multipliers, side)


@eqx.filter_jit
def _forecast_returns(
    settings: ForecastSettings,
    returns: Any,
    episode_numbers: Any,
    axis: TimeAxis,
    multipliers: Multipliers,
    side: Side,
) -> tuple[TrendFit, ConfidenceInterval]:
    series = Series(jnp.asarray(returns), episode_numbers, jnp.ones(returns.shape, bool))
    return bounded_forecast(settings, series, series, axis, multipliers, side)


def describe_forecast(
    settings: ForecastSettings,
    policy: Policy,
    log: EpisodeLog,
    axis: TimeAxis,
    fit: TrendFit,
    interval: ConfidenceInterval,
    side: Side = Side.BOTH,
) -> Forecast:
    """Turn arrays into the record a user reads."""
    present = np.asarray(log.present)
    return _record(
        settings,
        axis,
        fit,
        interval,
        side,
        np.asarray(log.episode_numbers)[present],
        np.asarray(fit.returns)[present],
        float(effective_sample_size(episode_ratios(policy, log))),
        present,
    )


def _record(
    settings: ForecastSettings,
    axis: TimeAxis,
    fit: TrendFit,
    interval: ConfidenceInterval,
    side: Side,
    episode_numbers: npt.NDArray[np.float64],
    returns: npt.NDArray[np.float64],
    worth: float,
    present: Any = slice(None),
) -> Forecast:
    curve_times, curve = _curve(settings, axis, fit, episode_numbers, present)
    return Forecast(
        point=float(fit.point),
        lower=float(interval.lower),
        upper=float(interval.upper),
        standard_error=float(jnp.sqrt(fit.variance)),
        alpha=settings.alpha,
        side=side,
        num_episodes=returns.size,
        effective_sample_size=worth,
        episode_numbers=episode_numbers,
        returns=returns,
        forecast_times=np.asarray(axis.forecast_times),
        curve_times=curve_times,
        curve=curve,
    )


def _curve(
    settings: ForecastSettings,
    axis: TimeAxis,
    fit: TrendFit,
    episode_numbers: npt.NDArray[np.float64],
    present: Any,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The trend for a picture: over the whole log, or over the leading scale."""
    end, first = float(axis.end), float(axis.origin) + 1
    if settings.scales is None:
        times = np.linspace(first, end, 200)
        return times, np.asarray(trend_curve(fit, settings.basis, axis, times))
    used = np.asarray(fit.design.present)[present]
    if np.unique(episode_numbers[used]).size < 2:
        return np.array([first, end]), np.full(2, float(fit.point))
    fitted = np.asarray(fit.coordinates @ fit.design.orthonormal)[present][used]
    line = np.polynomial.Polynomial.fit(episode_numbers[used], fitted, 1)
    times = np.linspace(float(episode_numbers[used].min()), end, 200)
    return times, np.asarray(line(times))
