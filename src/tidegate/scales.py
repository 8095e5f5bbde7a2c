"""Forecasts at every time scale: lines through the last T, T/2, T/4, … of the log.

A trend model that is wrong is wrong at some scale. So no scale is chosen by hand: each one is tried on
the past of the training episodes (rolling origins), where its errors beyond what noise explains are its
`bias`. The scale with the smallest error leads; it and every shorter one whose error is within
`tolerance` times that must pass a test, and no shorter one may clearly point the other way. It is the idea of
Lepski (1991), read as a rule of safety: agreement across scales, with intervals that know their bias.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from .arrays import full_products
from .basis import PolynomialBasis, TimeAxis
from .bootstrap import Multipliers, studentized_deviations
from .errors import SettingsError
from .trend import TrendDesign, TrendFit, fit_trend, trend_design

REACH = 0.125  # how far a backtest looks ahead, as a part of the scale: the noise of less hides the bias
MIN_DATES = 3
TAIL_SHARE = 0.02  # draws beyond which the tail is taken to be Student's
LINE = PolynomialBasis(1)


class Scales(eqx.Module):
    """How scales are tried: `smallest` episodes at the shortest, `origins` dates in the past.

    `tolerance` says which scales are credible beside the best one. A few dates tell a bias only roughly:
    for an interval, `caution` times its own standard error is added to its square. A test goes without:
    it asks several scales, and the best of a policy's mistakes is to wait (docs/multiscale.md).
    """

    smallest: int = eqx.field(static=True, default=12)
    origins: int = eqx.field(static=True, default=24)
    tolerance: float = eqx.field(static=True, default=1.5)
    caution: float = eqx.field(static=True, default=4.0)

    def __check_init__(self) -> None:
        if (
            self.smallest < 4
            or self.origins < MIN_DATES
            or not (self.tolerance >= 1 and self.caution >= 0)
        ):
            raise SettingsError(
                f"smallest is {self.smallest}, origins {self.origins}, tolerance {self.tolerance}, "
                f"caution {self.caution}",
                expected=f"at least 4 episodes, {MIN_DATES} origins, a tolerance from 1 up, and a "
                "caution from 0 up",
            )

    def levels(self, capacity: int) -> int:
        """How often a log of this capacity can be halved."""
        return 1 + max(0, math.ceil(math.log2(max(capacity, 1) / self.smallest)))

    def spans(self, axis: TimeAxis, levels: int) -> Float[Array, " j"]:
        """T, T/2, T/4, …, in units of time."""
        return jnp.asarray(axis.length) * 0.5 ** jnp.arange(levels)


class Calibration(eqx.Module):
    """What the training episodes say of each scale.

    `variance` is that of its forecast from them, per episode that it uses: the test has more or fewer.
    A scale with few of them, as when the log has grown since the search, has that of the next longer.
    `bias` is the root mean square of its past forecast errors beyond noise, `swing` that of what it had
    to forecast. The longest scales have no past of their own (`tried` is False): they get the largest
    bias of the others, since a longer line through a moving world is no better than a shorter one.
    """

    variance: Float[Array, " j"]
    bias: Float[Array, " j"]
    swing: Float[Array, " j"]
    tried: Bool[Array, " j"]


class ScaleChoice(eqx.Module):
    """Which scale leads, which must pass, and which must at least not contradict."""

    best: Int[Array, ""]
    needed: Bool[Array, " j"]
    watched: Bool[Array, " j"]
    forecastable: Bool[Array, ""]


class Series(eqx.Module):
    """Returns with their times; spare rows are not `present`."""

    returns: Float[Array, " n"]
    times: Any
    present: Any


class ScaleForecasts(eqx.Module):
    """The forecast of a series at each scale; `errors` are standard errors with the bias in them.

    `draws` are the bootstrap's t-statistics, sorted; NaN if one of them is. `freedom` is on how many
    episodes the variance rests.
    """

    spans: Float[Array, " j"]
    counts: Int[Array, " j"]
    fits: TrendFit
    biases: Float[Array, " j"]
    errors: Float[Array, " j"]
    draws: Float[Array, "j b"]
    freedom: Float[Array, " j"]
    choice: ScaleChoice


def forecast_scales(
    scales: Scales,
    series: Series,
    past: Series,
    axis: TimeAxis,
    multipliers: Multipliers,
    *,
    caution: float = 0.0,
) -> ScaleForecasts:
    """Forecast `series` at every scale, each with the bias that it shows on `past`."""
    spans, fits, bias, choice = _tried(scales, series, past, axis, caution)
    counts = jnp.sum(fits.design.present, axis=1)
    return scale_forecasts(spans, counts, fits, bias, choice, multipliers)


def leading_scale(
    scales: Scales, series: Series, axis: TimeAxis
) -> tuple[Float[Array, " j"], TrendFit, ScaleChoice]:
    """The scales, the line through each, and the choice among them; without a bootstrap."""
    spans, fits, _, choice = _tried(scales, series, series, axis)
    return spans, fits, choice


def _tried(
    scales: Scales,
    series: Series,
    past: Series,
    axis: TimeAxis,
    caution: float = 0.0,
) -> tuple[Float[Array, " j"], TrendFit, Float[Array, " j"], ScaleChoice]:
    spans = scales.spans(axis, scales.levels(series.returns.size))
    calibration = calibrate(scales, past, spans, axis, caution)
    designs = scale_designs(spans, series.times, series.present, axis)
    fits = jax.vmap(fit_trend, (0, None))(designs, series.returns)
    choice = choose_scales(scales, jnp.sum(designs.present, axis=1), calibration)
    return spans, fits, calibration.bias, choice


def scale_forecasts(
    spans: Float[Array, " j"],
    counts: Int[Array, " j"],
    fits: TrendFit,
    biases: Float[Array, " j"],
    choice: ScaleChoice,
    multipliers: Multipliers,
) -> ScaleForecasts:
    """Bootstrap every scale with the same multipliers."""
    draws = jnp.sort(jax.vmap(studentized_deviations, (0, None))(fits, multipliers))
    draws = jnp.where(jnp.any(jnp.isnan(draws), axis=1, keepdims=True), jnp.nan, draws)
    errors = jnp.sqrt(fits.variance + biases**2)
    freedom = jax.vmap(effective_freedom)(fits)
    return ScaleForecasts(spans, counts, fits, biases, errors, draws, freedom, choice)


def scale_designs(
    spans: Float[Array, " j"], times: Any, present: Any, axis: TimeAxis
) -> TrendDesign:
    """One line per scale, all forecasting the same episodes."""

    def design(span: Float[Array, ""]) -> TrendDesign:
        recent = axis.recent(span)
        inside = jnp.asarray(present) & (jnp.asarray(times) > recent.origin)
        return trend_design(LINE, times, inside, recent)

    designs: TrendDesign = jax.vmap(design)(spans)
    return designs


@full_products
def calibrate(
    scales: Scales,
    past: Series,
    spans: Float[Array, " j"],
    axis: TimeAxis,
    caution: float = 0.0,
) -> Calibration:
    """Forecast from dates in the past, and compare with what came next."""
    last, times, present = (
        axis.last,
        jnp.asarray(past.times),
        jnp.asarray(past.present),
    )
    returns = jnp.where(present, past.returns, 0.0)
    ages = jnp.arange(1, scales.origins + 1) / (scales.origins + 2)
    dates = last - axis.length * ages

    def at_scale(span: Float[Array, ""]) -> tuple[Array, Array, Array]:
        reach = jnp.maximum(float(axis.lookahead), REACH * span)

        def at(date: Float[Array, ""]) -> _PastForecast:
            return _past_forecast(scales, returns, times, present, date, span, reach)

        tried = jax.vmap(at)(dates)
        fair = tried.fair & (dates + reach <= last) & (dates - span >= axis.origin)
        count = jnp.maximum(jnp.sum(fair), 1)
        unexplained = jnp.where(fair, tried.error**2 - tried.noise, 0.0)
        excess = jnp.sum(unexplained) / count
        spread = jnp.sqrt(jnp.sum(jnp.where(fair, (unexplained - excess) ** 2, 0.0))) / count
        middle = jnp.sum(jnp.where(fair, tried.realised, 0.0)) / count
        moved = jnp.where(fair, (tried.realised - middle) ** 2 - tried.realised_noise, 0.0)
        excess += caution * spread
        return excess, jnp.sum(moved) / count, jnp.sum(fair) >= MIN_DATES

    squares, moves, tried = jax.lax.map(at_scale, spans)
    bias, swing = (jnp.sqrt(jnp.maximum(one, 0.0)) * tried for one in (squares, moves))
    designs = scale_designs(spans, times, present, axis)
    variance = jax.vmap(fit_trend, (0, None))(designs, returns).variance
    counts = jnp.sum(designs.present, axis=1)
    known = jax.lax.cummax(jnp.where(2 * counts >= scales.smallest, jnp.arange(counts.size), 0))
    variance = (variance * counts)[known]
    return Calibration(variance, jnp.where(tried, bias, jnp.max(bias)), swing, tried)


class _PastForecast(eqx.Module):
    """A line's forecast from one date, beside what came in the time after it."""

    error: Float[Array, ""]
    noise: Float[Array, ""]  # the variance that the error has without any bias
    realised: Float[Array, ""]
    realised_noise: Float[Array, ""]
    fair: Bool[Array, ""]


def _past_forecast(
    scales: Scales,
    returns: Float[Array, " n"],
    times: Float[Array, " n"],
    present: Bool[Array, " n"],
    date: Float[Array, ""],
    span: Float[Array, ""],
    reach: Float[Array, ""],
) -> _PastForecast:
    x = (times - date) / span  # a local axis: no cancellation, whatever the episode numbers
    inside = present & (x > -1) & (x <= 0)
    after = present & (x > 0) & (times <= date + reach)
    count, following = jnp.sum(inside), jnp.sum(after)
    weight, next_weight = (m / jnp.maximum(jnp.sum(m), 1) for m in (inside, after))
    centred = jnp.where(inside, x - jnp.sum(weight * x), 0.0)
    squares = jnp.maximum(jnp.sum(centred**2), np.finfo(x.dtype).tiny)
    mean, slope = jnp.sum(weight * returns), jnp.sum(centred * returns) / squares
    ahead = jnp.sum(next_weight * x) - jnp.sum(weight * x)
    residuals = jnp.where(inside, returns - mean - slope * centred, 0.0)
    weights = weight + ahead * centred / squares
    freedom = jnp.maximum(count - 2, 1)
    realised = jnp.sum(next_weight * returns)
    realised_noise = jnp.sum(residuals**2) / freedom / jnp.maximum(following, 1)
    return _PastForecast(
        error=realised - mean - slope * ahead,
        noise=jnp.sum((weights * residuals) ** 2) * count / freedom + realised_noise,
        realised=realised,
        realised_noise=realised_noise,
        fair=(count >= scales.smallest) & (following >= 1),
    )


def choose_scales(
    scales: Scales, counts: Int[Array, " j"], calibration: Calibration
) -> ScaleChoice:
    """The scale with the smallest error leads; shorter ones within `tolerance` must agree.

    Of the tested episodes only the number counts: a scale that led because its test looked good would
    make a good test look better. A scale without a past of its own is believed only as the longest. No
    scale can be forecast if all have errors beyond noise that are as large as the movement they should
    have forecast.
    """
    order = jnp.arange(counts.size)
    variances = calibration.variance / jnp.maximum(counts, 1)
    filled = counts >= scales.smallest
    usable = filled & (calibration.tried | (order == 0))
    squared = jnp.where(usable, variances + calibration.bias**2, jnp.inf)
    best = jnp.argmin(squared)
    shorter = order >= best
    lost = (calibration.bias**2 > variances) & (calibration.bias >= calibration.swing)
    tried = usable & calibration.tried
    return ScaleChoice(
        best=best,
        needed=usable & shorter & (squared <= scales.tolerance**2 * squared[best]),
        watched=filled & shorter,
        forecastable=~(jnp.any(tried) & jnp.all(jnp.where(tried, lost, True))),
    )


def tail_probability(
    statistic: Float[Array, ""], draws: Float[Array, " b"], freedom: Float[Array, ""]
) -> Float[Array, ""]:
    """P(draw ≥ statistic) from sorted draws; beyond their reach, Student's tail scaled to them."""
    count = jnp.sum(draws >= statistic)
    tail, scale = _tail(draws, freedom)
    beyond = norm.sf(_normal_score(statistic / scale, freedom))
    share = (count + 1) / (draws.size + 1)
    # Not a number in, not a number out: NaN compares as False and would look like a tiny share.
    return jnp.where(jnp.isnan(statistic + scale), jnp.nan, jnp.where(count < tail, beyond, share))


def tail_quantile(
    draws: Float[Array, " b"], freedom: Float[Array, ""], level: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The statistic whose tail probability is `level`."""
    tail, scale = _tail(draws, freedom)
    number = jnp.asarray(level) * (draws.size + 1)
    rank = jnp.clip(jnp.floor(number + 1e-6).astype(int), 1, draws.size)
    beyond = scale * _student_score(norm.isf(jnp.asarray(level)), freedom)
    return jnp.where(number < tail + 1, beyond, draws[-rank])


def _tail(draws: Float[Array, " b"], freedom: Float[Array, ""]) -> tuple[int, Float[Array, ""]]:
    """How many draws the tail holds, and the spread of Student's distribution that continues it."""
    tail = max(1, round(TAIL_SHARE * draws.size))
    return tail, draws[-tail] / _student_score(norm.isf((tail + 1) / (draws.size + 1)), freedom)


def _normal_score(t: Float[Array, ""], freedom: Float[Array, ""]) -> Float[Array, ""]:
    """The normal variate with the tail probability of Student's t (Wallace, 1959), for t ≥ 0."""
    return jnp.sqrt(freedom * jnp.log1p(t**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def _student_score(z: Float[Array, ""], freedom: Float[Array, ""]) -> Float[Array, ""]:
    """The inverse of `_normal_score`."""
    wider = z * (8 * freedom + 3) / (8 * freedom + 1)
    return jnp.sqrt(freedom * jnp.expm1(wider**2 / freedom))


def effective_freedom(fit: TrendFit) -> Float[Array, ""]:
    """(Σa²ξ²)² / Σa⁴ξ⁴: how many episodes the variance rests on (Satterthwaite, 1946)."""
    parts = (fit.design.forecast_weights * fit.residuals) ** 2
    squares = jnp.sum(parts**2)
    freedom = jnp.where(squares > 0, jnp.sum(parts) ** 2 / squares, jnp.nan)
    return jnp.maximum(freedom - fit.design.num_columns, 1.0)


def lower_bounds(forecasts: ScaleForecasts, level: Float[Array, ""] | float) -> Float[Array, " j"]:
    """The lower bound of each scale's forecast, wrong with probability `level`."""
    reach = jax.vmap(tail_quantile, (0, 0, None))(forecasts.draws, forecasts.freedom, level)
    return forecasts.fits.point - reach * forecasts.errors


def upper_bounds(forecasts: ScaleForecasts, level: Float[Array, ""] | float) -> Float[Array, " j"]:
    """The same above."""
    draws = -forecasts.draws[:, ::-1]
    reach = jax.vmap(tail_quantile, (0, 0, None))(draws, forecasts.freedom, level)
    return forecasts.fits.point + reach * forecasts.errors


def smallest(values: Float[Array, " j"], mask: Bool[Array, " j"]) -> Float[Array, ""]:
    """The smallest over some scales; NaN if there is none, or if one of them is NaN."""
    return jnp.where(jnp.any(mask), jnp.min(jnp.where(mask, values, jnp.inf)), jnp.nan)


def largest(values: Float[Array, " j"], mask: Bool[Array, " j"]) -> Float[Array, ""]:
    """The largest, likewise."""
    return -smallest(-values, mask)
