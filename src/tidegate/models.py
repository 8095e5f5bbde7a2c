"""Trend models: a time basis, fitted to the last part of the log. Each is tried on the past.

A trend model that is wrong is wrong at some time scale. So none is chosen by hand: each one is tried on
the past of the training episodes (rolling origins: Tashman, 2000), where its errors beyond what noise
explains are its `bias`. The model with the smallest error leads. It and every shorter one whose error is
within `tolerance` times that must pass a test, and no shorter one may clearly point the other way. This
is the idea of Lepski (1991) as a safety rule: scales must agree, and intervals include their bias.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import full_products, map_leaves, replace_at
from .basis import Basis, PolynomialBasis, TimeAxis
from .bootstrap import Multipliers, effective_freedom, studentized_deviations, tail_quantile
from .inputs import instance, number, several, text, whole
from .trend import TrendDesign, TrendFit, fit_trend, trend_design

REACH = 0.125  # how far a trial looks ahead, as a share of the span: over less, noise hides the bias
MIN_DATES = 3  # dates, one lookahead apart, that a forecast must have been tried from
MIN_TIMES = 4  # different times that a span must hold: several episodes on one date show no trend
PER_COLUMN = 3  # episodes per time feature that a trial needs
LINE = PolynomialBasis(1)


class TrendModel(eqx.Module):
    """A time basis, and the last `share` of the log that it is fitted to.

    Half is the longest span that has a past to be tried on; a model that was never tried hardly ever leads.
    """

    basis: Basis = eqx.field(converter=partial(instance, "basis", Basis))
    share: float = eqx.field(static=True, default=0.5, converter=partial(number, "share", above=0, high=1))
    name: str = eqx.field(static=True, default="trend", converter=partial(text, "name"))


class TrendModels(eqx.Module):
    """Which models are tried, and how: lines through the last T, T/2, T/4, … of the log, and `others`.

    `smallest` is the number of episodes in the shortest span and `origins` the number of past dates that
    models are tried at; a model is credible up to `tolerance` times the smallest error. A few dates show
    a squared bias only roughly: an interval adds `caution` of its standard errors to it. A test does not:
    it asks several models, and waiting is the mildest mistake (docs/multiscale.md).
    """

    smallest: int = eqx.field(static=True, default=12, converter=partial(whole, "smallest", low=4))
    origins: int = eqx.field(static=True, default=24, converter=partial(whole, "origins", low=MIN_DATES))
    tolerance: float = eqx.field(static=True, default=1.5, converter=partial(number, "tolerance", low=1))
    caution: float = eqx.field(static=True, default=4.0, converter=partial(number, "caution", low=0))
    others: tuple[TrendModel, ...] = eqx.field(default=(), converter=partial(several, "others", TrendModel))

    def num_lines(self, capacity: int) -> int:
        """How often a log of this capacity can be halved."""
        return 1 + max(0, math.ceil(math.log2(max(capacity, 1) / self.smallest)))

    def names(self, count: int) -> tuple[str, ...]:
        """What each of `count` models is called."""
        others = tuple(one.name for one in self.others)
        return ("line",) * (count - len(others)) + others

    def spans(self, axis: TimeAxis, num_lines: int) -> Float[Array, " j"]:
        """How much time each model is fitted to: T, T/2, T/4, …, then those of the others."""
        length = jnp.asarray(axis.length)
        lines = length * 0.5 ** jnp.arange(num_lines)
        others = [length[None] * one.share for one in self.others]
        return jnp.concatenate([lines, *others]) if others else lines

    def designs(self, spans: Float[Array, " j"], times: Any, present: Any, axis: TimeAxis) -> TrendDesign:
        """One regression per model, all forecasting the same episodes."""
        count = spans.size - len(self.others)
        size = max([LINE.size, *(one.basis.size for one in self.others)])

        def design(basis: Basis, span: Float[Array, ""]) -> TrendDesign:
            recent = axis.recent(span)
            inside = jnp.asarray(present) & (jnp.asarray(times) > recent.origin)
            return trend_design(_widened(basis, size), times, inside, recent, corrected=True)

        lines: TrendDesign = jax.vmap(partial(design, LINE))(spans[:count])
        if not self.others:
            return lines
        rest = [design(one.basis, spans[count + i]) for i, one in enumerate(self.others)]
        return map_leaves(lambda many, *one: jnp.concatenate([many, jnp.stack(one)]), lines, *rest)


class Calibration(eqx.Module):
    """What the training episodes say about each model.

    `variance` is that of its forecast times the number of episodes it uses: the test has more or fewer.
    A span with too few, as when the log has grown since the search, takes that of the next longer span.
    `bias` is the root mean square of its past forecast errors beyond noise, `swing` that of the movement
    it had to forecast. The longest spans have no past of their own (`tried` is False): they get the largest
    bias of the others, since a longer line through a moving world is no better than a shorter one.
    `longest` is the longest lookahead that the past can try with the model, window after window.
    """

    variance: Float[Array, " j"]
    bias: Float[Array, " j"]
    swing: Float[Array, " j"]
    tried: Bool[Array, " j"]
    longest: Float[Array, " j"]


class ModelChoice(eqx.Module):
    """Which model leads, which must pass, and which must at least not contradict.

    `tried` says whether the past can try this lookahead at all, `longest` which one it can.
    """

    best: Int[Array, ""]
    needed: Bool[Array, " j"]
    watched: Bool[Array, " j"]
    forecastable: Bool[Array, ""]
    tried: Bool[Array, ""]
    longest: Float[Array, ""]


class Series(eqx.Module):
    """Returns with their times; spare rows are not `present`."""

    returns: Float[Array, "*m n"]
    times: Any
    present: Any

    @property
    def difference(self) -> "Series":
        """Of two series of returns, the first minus the second."""
        return Series(self.returns[0] - self.returns[1], self.times, self.present)

    @property
    def with_difference(self) -> "Series":
        """Their difference, then the two themselves."""
        returns = jnp.concatenate([(self.returns[0] - self.returns[1])[None], self.returns])
        return Series(jnp.where(jnp.asarray(self.present), returns, 0.0), self.times, self.present)


class ModelForecasts(eqx.Module):
    """The forecast of a series by each model; `errors` are standard errors with the bias in them.

    `draws` are the bootstrap's t-statistics, sorted; all NaN if one of them is. `freedom` is the number
    of episodes that the variance rests on.
    """

    spans: Float[Array, " j"]
    counts: Int[Array, " j"]
    fits: TrendFit
    biases: Float[Array, " j"]
    errors: Float[Array, " j"]
    draws: Float[Array, "j b"]
    freedom: Float[Array, " j"]
    choice: ModelChoice

    def lower_bounds(self, level: Float[Array, ""] | float) -> Float[Array, " j"]:
        """The lower bound of each forecast, wrong with probability `level`."""
        reach = jax.vmap(tail_quantile, (0, 0, None))(self.draws, self.freedom, level)
        return self.fits.point - reach * self.errors

    def upper_bounds(self, level: Float[Array, ""] | float) -> Float[Array, " j"]:
        """The upper bound of each forecast, wrong with probability `level`."""
        draws = -self.draws[:, ::-1]
        reach = jax.vmap(tail_quantile, (0, 0, None))(draws, self.freedom, level)
        return self.fits.point + reach * self.errors


def trusted_forecast(
    basis: Basis, series: Series, axis: TimeAxis, multipliers: Multipliers
) -> ModelForecasts:
    """One model of the whole log, assumed to be free of bias: but not over more than half the log's time."""
    design = trend_design(basis, series.times, series.present, axis, corrected=True)
    designs = map_leaves(lambda leaf: jnp.asarray(leaf)[None], design)
    fits = jax.vmap(fit_trend, (0, None))(designs, series.returns)
    only = jnp.ones(1, bool)
    choice = ModelChoice(
        jnp.zeros((), int), only, only, jnp.ones((), bool), axis.trusted, jnp.asarray(axis.longest_trusted)
    )
    return _bootstrapped(jnp.reshape(axis.length, (1,)), fits, jnp.zeros(1), choice, multipliers)


def tried_forecasts(
    models: TrendModels,
    series: Series,
    past: Series,
    axis: TimeAxis,
    multipliers: Multipliers,
    *,
    caution: float = 0.0,
) -> ModelForecasts:
    """Forecast `series` with every model, each with the bias that it shows on `past`."""
    return _bootstrapped(*_tried(models, series, past, axis, caution), multipliers)


class LeadingTrend(eqx.Module):
    """The trend that forecasts, and how much time it is fitted to."""

    span: Float[Array, ""]
    fit: TrendFit


def leading_model(models: TrendModels, series: Series, past: Series, axis: TimeAxis) -> LeadingTrend:
    """The leading model, without a bootstrap."""
    spans, fits, _, choice = _tried(models, series, past, axis, caution=0.0)
    return LeadingTrend(spans[choice.best], map_leaves(lambda leaf: leaf[choice.best], fits))


def _tried(
    models: TrendModels, series: Series, past: Series, axis: TimeAxis, caution: float
) -> tuple[Float[Array, " j"], TrendFit, Float[Array, " j"], ModelChoice]:
    spans = models.spans(axis, models.num_lines(series.returns.size))
    calibration = calibrate(models, past, spans, axis, caution)
    designs = models.designs(spans, series.times, series.present, axis)
    fits = jax.vmap(fit_trend, (0, None))(designs, series.returns)
    first = first_at_their_time(series.times, jnp.asarray(series.present))
    counts, times = jnp.sum(designs.present, axis=1), jnp.sum(designs.present & first, axis=1)
    choice = choose_models(models, spans, counts, times, calibration, axis)
    return spans, fits, calibration.bias, choice


def _bootstrapped(
    spans: Float[Array, " j"],
    fits: TrendFit,
    biases: Float[Array, " j"],
    choice: ModelChoice,
    multipliers: Multipliers,
) -> ModelForecasts:
    """Bootstrap every model with the same multipliers."""
    counts = jnp.sum(fits.design.present, axis=1)
    draws = jnp.sort(jax.vmap(studentized_deviations, (0, None))(fits, multipliers))
    draws = jnp.where(jnp.any(jnp.isnan(draws), axis=1, keepdims=True), jnp.nan, draws)
    errors = jnp.sqrt(fits.variance + biases**2)
    freedom = jax.vmap(effective_freedom)(fits)
    return ModelForecasts(spans, counts, fits, biases, errors, draws, freedom, choice)


class _Widened(Basis):
    """A basis with further columns that are switched off, so that unequal ones can be stacked."""

    basis: Basis
    columns: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.columns

    def active(self) -> Bool[Array, " d"]:
        return jnp.pad(self.basis.active(), (0, self.columns - self.basis.size))

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        matrix = self.basis.design_matrix(times, axis)
        return jnp.pad(matrix, ((0, 0), (0, self.columns - self.basis.size)))


def _widened(basis: Basis, columns: int) -> Basis:
    return basis if basis.size == columns else _Widened(basis, columns)


class _PastForecast(eqx.Module):
    """A model's forecast from one date, compared with what came after it."""

    error: Float[Array, ""]
    noise: Float[Array, ""]  # the variance that the error has without any bias
    realised: Float[Array, ""]
    realised_noise: Float[Array, ""]
    filled: Bool[Array, ""]  # enough episodes before the date
    followed: Bool[Array, ""]  # some after it


class _Window(eqx.Module):
    """The episodes before a date that a model is fitted to, and those after it that it forecasts.

    `x` is time since the date in units of the span: no cancellation, whatever the episode numbers.
    """

    series: Series
    axis: TimeAxis
    x: Float[Array, " n"]
    inside: Bool[Array, " n"]
    after: Bool[Array, " n"]
    realised: Float[Array, ""]


# A model in a window: its forecast error, forecast weights and residuals, and its number of columns.
_Fit = Callable[[_Window], tuple[Array, Array, Array, int]]


@full_products
def calibrate(
    models: TrendModels,
    past: Series,
    spans: Float[Array, " j"],
    axis: TimeAxis,
    caution: float = 0.0,
) -> Calibration:
    """Forecast from dates in the past, and compare with what came next."""
    present = jnp.asarray(past.present)
    series = Series(jnp.where(present, past.returns, 0.0), jnp.asarray(past.times), present)
    count = spans.size - len(models.others)
    first = first_at_their_time(series.times, present)
    trial = partial(_trial, models, series, first, axis, caution)
    found = jax.lax.map(partial(trial, _line), spans[:count])
    for i, one in enumerate(models.others):
        more = trial(partial(_trend, one.basis), spans[count + i])
        found = map_leaves(jnp.append, found, more)
    squares, moves, tried, longest = found
    bias, swing = (jnp.sqrt(jnp.maximum(one, 0.0)) * tried for one in (squares, moves))
    designs = models.designs(spans, series.times, present, axis)
    variance = jax.vmap(fit_trend, (0, None))(designs, series.returns).variance
    counts = jnp.sum(designs.present, axis=1)
    known = jax.lax.cummax(jnp.where(2 * counts >= models.smallest, jnp.arange(counts.size), 0))
    variance = (variance * counts)[known]
    return Calibration(variance, jnp.where(tried, bias, jnp.max(bias)), swing, tried, longest)


def _trial(
    models: TrendModels,
    series: Series,
    first: Bool[Array, " n"],
    axis: TimeAxis,
    caution: float,
    fit: _Fit,
    span: Float[Array, ""],
) -> tuple[Array, Array, Array, Array]:
    """Squared error beyond noise, squared movement to be forecast, whether enough dates were fair, and the
    longest lookahead that they could try."""
    reach = jnp.maximum(axis.lookahead, REACH * span)
    ages = jnp.arange(1, models.origins + 1) / (models.origins + 2)
    dates = axis.last - axis.length * ages

    def at(date: Float[Array, ""]) -> _PastForecast:
        return _past_forecast(models.smallest, series, first, fit, axis.before(date, span), span, reach)

    tried = jax.vmap(at)(dates)
    filled = tried.filled & (dates - span >= axis.origin)
    fair = filled & tried.followed & (dates + reach <= axis.last)
    count = jnp.maximum(jnp.sum(fair), 1)
    unexplained = jnp.where(fair, tried.error**2 - tried.noise, 0.0)
    excess = jnp.sum(unexplained) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(fair, (unexplained - excess) ** 2, 0.0))) / count
    middle = jnp.sum(jnp.where(fair, tried.realised, 0.0)) / count
    moved = jnp.where(fair, (tried.realised - middle) ** 2 - tried.realised_noise, 0.0)
    excess += caution * spread
    return excess, jnp.sum(moved) / count, jnp.sum(fair) >= MIN_DATES, _longest_tried(dates, filled, axis)


def _longest_tried(dates: Float[Array, " m"], filled: Bool[Array, " m"], axis: TimeAxis) -> Float[Array, ""]:
    """The longest window of which `MIN_DATES` fit one after another behind the first of these dates.

    Windows that overlap are one trial seen several times. Dates run from the latest back.
    """
    first = jnp.min(jnp.where(filled, dates, jnp.inf))
    before = jnp.cumsum(filled[::-1])[::-1]  # filled dates up to and including this one
    windows = jnp.minimum(axis.last - dates, (dates - first) / (MIN_DATES - 1))
    return jnp.max(jnp.where(filled & (before >= MIN_DATES), windows, 0.0))


def _past_forecast(
    smallest: int, series: Series, first: Bool[Array, " n"], fit: _Fit, axis: TimeAxis, span: Any, reach: Any
) -> _PastForecast:
    """The forecast from the last episode of this axis, which goes back by the model's span."""
    x = (series.times - axis.last) / span
    inside = series.present & (x > -1) & (x <= 0)
    after = series.present & (x > 0) & (series.times <= axis.last + reach)
    count, following = jnp.sum(inside), jnp.sum(after)
    realised = jnp.sum(after / jnp.maximum(following, 1) * series.returns)
    error, weights, residuals, columns = fit(_Window(series, axis, x, inside, after, realised))
    freedom = jnp.maximum(count - columns, 1)
    realised_noise = jnp.sum(residuals**2) / freedom / jnp.maximum(following, 1)
    return _PastForecast(
        error=error,
        noise=jnp.sum((weights * residuals) ** 2) * count / freedom + realised_noise,
        realised=realised,
        realised_noise=realised_noise,
        filled=(count >= max(smallest, PER_COLUMN * columns)) & (jnp.sum(inside & first) >= MIN_TIMES),
        followed=following >= 1,
    )


def _line(window: _Window) -> tuple[Array, Array, Array, int]:
    """The straight line in closed form: nearly all of a trial's time is spent here."""
    x, inside, returns = window.x, window.inside, window.series.returns
    weight, next_weight = (m / jnp.maximum(jnp.sum(m), 1) for m in (inside, window.after))
    centred = jnp.where(inside, x - jnp.sum(weight * x), 0.0)
    squares = jnp.maximum(jnp.sum(centred**2), np.finfo(x.dtype).tiny)
    mean, slope = jnp.sum(weight * returns), jnp.sum(centred * returns) / squares
    ahead = jnp.sum(next_weight * x) - jnp.sum(weight * x)
    residuals = jnp.where(inside, returns - mean - slope * centred, 0.0)
    error = window.realised - mean - slope * ahead
    return error, weight + ahead * centred / squares, residuals, LINE.size


def _trend(basis: Basis, window: _Window) -> tuple[Array, Array, Array, int]:
    """Any other basis, by least squares."""
    series, axis = window.series, window.axis
    design = trend_design(basis, series.times, window.inside, axis)
    shares = window.after / jnp.maximum(jnp.sum(window.after), 1)
    features = shares @ basis.design_matrix(series.times, axis)
    horizon = jax.scipy.linalg.solve_triangular(design.factor, features, trans="T")
    fit = fit_trend(replace_at(lambda one: one.horizon, design, horizon), series.returns)
    return window.realised - fit.point, fit.design.forecast_weights, fit.residuals, basis.size


def choose_models(
    models: TrendModels,
    spans: Float[Array, " j"],
    counts: Int[Array, " j"],
    times: Int[Array, " j"],
    calibration: Calibration,
    axis: TimeAxis,
) -> ModelChoice:
    """The model with the smallest error leads; shorter ones within `tolerance` must agree.

    Of the tested episodes only the number is used, and how many different `times` they have: a model that
    led because its test looked good would make a good test look better. A model that could not be tried is
    usable only if it is the longest.
    Nothing can be forecast if all models have errors beyond noise that are as large as the movement they
    should have forecast.
    """
    variances = calibration.variance / jnp.maximum(counts, 1)
    filled = (counts >= models.smallest) & (times >= MIN_TIMES)
    usable = filled & (calibration.tried | (spans >= spans[0]))
    squared = jnp.where(usable, variances + calibration.bias**2, jnp.inf)
    best = jnp.argmin(squared)
    shorter = spans <= spans[best]
    lost = (calibration.bias**2 > variances) & (calibration.bias >= calibration.swing)
    tried = usable & calibration.tried
    longest = jnp.max(jnp.where(filled, calibration.longest, 0.0))
    return ModelChoice(
        best=best,
        needed=usable & shorter & (squared <= models.tolerance**2 * squared[best]),
        watched=filled & shorter,
        forecastable=~(jnp.any(tried) & jnp.all(jnp.where(tried, lost, True))),
        tried=jnp.any(tried) & (axis.lookahead <= longest),
        longest=longest,
    )


def first_at_their_time(times: Any, present: Any) -> Bool[Array, " n"]:
    """One episode for each different time; summed over a span, it counts the times in the span."""
    known = jnp.where(present, times, jnp.inf)
    order = jnp.argsort(known)
    ordered = known[order]
    new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] > ordered[:-1]])
    first: Bool[Array, " n"] = jnp.zeros(known.shape, bool).at[order].set(new) & present
    return first


def smallest(values: Float[Array, " j"], mask: Bool[Array, " j"]) -> Float[Array, ""]:
    """The smallest over some models; NaN if there is none, or if one of them is NaN."""
    return jnp.where(jnp.any(mask), jnp.min(jnp.where(mask, values, jnp.inf)), jnp.nan)


def largest(values: Float[Array, " j"], mask: Bool[Array, " j"]) -> Float[Array, ""]:
    """The largest over some models; NaN as for `smallest`."""
    return -smallest(-values, mask)
