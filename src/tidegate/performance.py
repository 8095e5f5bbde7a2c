"""Policy + log -> forecast of its mean return over the next `lookahead` episodes, with bounds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .basis import Basis, CosineBasis, TimeAxis
from .bootstrap import (
    ConfidenceInterval,
    KeyedMultipliers,
    Multipliers,
    Rademacher,
    Side,
    all_signs,
    check_draws,
    percentile_t_interval,
    tail,
)
from .episodes import EpisodeLog
from .errors import LogError, SettingsError
from .policies import Policy
from .precision import in_double
from .returns import ReturnEstimator, effective_sample_size, episode_ratios, pdis_returns
from .trend import TrendDesign, TrendFit, fit_trend, trend_curve, trend_design

IntervalMethod = Callable[[TrendFit, Multipliers, float, Side], ConfidenceInterval]


class ForecastSettings(eqx.Module):
    """How past returns are estimated, their trend is fitted, and the forecast is bounded.

    `alpha` is the probability left outside the interval; in a safety test, the allowed probability of
    a wrong deployment. `exact` replaces the draws by all 2ⁿ sign vectors (up to 14 episodes).
    `support_z` is how many standard errors the mean importance ratio may be away from 1 before a
    policy counts as unsupported by the log (the paper has no such check: ∞ switches it off).
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

    def __check_init__(self) -> None:
        if not isinstance(self.lookahead, int) or self.lookahead < 1:
            raise SettingsError(
                f"lookahead is {self.lookahead!r}", expected="a whole number of episodes from 1 up"
            )
        if not 0 <= self.discount <= 1:
            raise SettingsError(f"discount is {self.discount}", expected="a factor from 0 to 1")
        check_draws(self.draws, tail(self.alpha, Side.BOTH))


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
    times = axis.horizon + jnp.arange(1 - settings.lookahead, 1)
    return trend_design(settings.basis, episode_numbers, present, times, axis)


def policy_trend(
    settings: ForecastSettings, policy: Policy, log: EpisodeLog, design: TrendDesign
) -> TrendFit:
    """The trend of what the policy would have earned in these episodes."""
    return fit_trend(design, settings.estimator(policy, log, settings.discount))


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
    axis = log_axis(settings, log.span)
    multipliers = draw_multipliers(settings, log, seed)
    fit, interval = _forecast(settings, policy, log, axis, multipliers, side)
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
    axis = log_axis(settings, (float(numbers.min()), float(numbers.max())))
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


def log_axis(settings: ForecastSettings, span: tuple[float, float]) -> TimeAxis:
    """From one episode before the log's first to the last one of the forecast window."""
    first, last = span
    return TimeAxis(origin=jnp.asarray(first - 1), horizon=jnp.asarray(last + settings.lookahead))


@eqx.filter_jit
def _forecast(
    settings: ForecastSettings,
    policy: Policy,
    log: EpisodeLog,
    axis: TimeAxis,
    multipliers: Multipliers,
    side: Side,
) -> tuple[TrendFit, ConfidenceInterval]:
    fit = policy_trend(settings, policy, log, design_for(settings, log, axis))
    return fit, settings.interval(fit, multipliers, settings.alpha, side)


@eqx.filter_jit
def _forecast_returns(
    settings: ForecastSettings,
    returns: Any,
    episode_numbers: Any,
    axis: TimeAxis,
    multipliers: Multipliers,
    side: Side,
) -> tuple[TrendFit, ConfidenceInterval]:
    present = jnp.ones(returns.shape, bool)
    fit = fit_trend(_design(settings, episode_numbers, present, axis), returns)
    return fit, settings.interval(fit, multipliers, settings.alpha, side)


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
) -> Forecast:
    horizon, first = float(axis.horizon), float(axis.origin) + 1
    curve_times = np.linspace(first, horizon, 200)
    curve = trend_curve(fit, settings.basis, axis, curve_times)
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
        forecast_times=np.arange(horizon - settings.lookahead + 1, horizon + 1),
        curve_times=curve_times,
        curve=np.asarray(curve),
    )
