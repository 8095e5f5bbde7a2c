"""The mixture of all trend models: evidence, forecast, and how it would have forecast the past.

The noise of the cells is known, so all of it is Gaussian (Rasmussen and Williams, 2006): with C = noise +
movement, X the time features with prior variances S (infinite for the level), k the covariance of the cells
with the forecast window and f its features, the forecast is kᵀC⁻¹(Y − Xβ) + fᵀβ, β the posterior mean. A
model's evidence is the density of the log under it: the product of its forecasts of each cell from those
before (Dawid, 1984). Weights are prior times evidence.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from .arrays import eliminate, full_products, map_leaves, replace_at
from .basis import TimeAxis
from .bootstrap import normal_score, student_score
from .cells import CELLS, Cells
from .models import (
    Chain,
    Features,
    Movements,
    Shapes,
    TrendModels,
    Window,
    families_of,
    list_movements,
    list_shapes,
    season_cycles,
    time_features,
)
from .trend import TrendDesign, TrendFit

MOST_DATES, OLDEST_DATE = 14, 0.75  # past dates that are retraced, and how far back, in lengths of the log
BISECTIONS = 60


class Mixture(eqx.Module):
    """What every model forecasts (movements × shapes), and how much weight it has."""

    weights: Float[Array, "m s"]
    means: Float[Array, "m s"]
    variances: Float[Array, "m s"]
    freedom: Float[Array, ""]

    @property
    def mean(self) -> Float[Array, ""]:
        return jnp.sum(self.weights * self.means)

    @property
    def variance(self) -> Float[Array, ""]:
        """Of the forecast, the models' disagreement included."""
        return jnp.sum(self.weights * (self.variances + (self.means - self.mean) ** 2))

    def widened(self, factor: float) -> "Mixture":
        """Every model's variance so many times as large."""
        return replace_at(lambda one: one.variances, self, factor * self.variances)

    def only(self, chosen: Bool[Array, "m s"]) -> "Mixture":
        """The mixture of some of the models; in equal parts if these have no weight at all."""
        weights = jnp.where(chosen, self.weights, 0.0)
        weights = jnp.where(jnp.sum(weights) > 0, weights, jnp.where(chosen, 1.0, 0.0))
        return replace_at(lambda one: one.weights, self, weights / jnp.sum(weights))

    def below(self, value: Any) -> Float[Array, ""]:
        """The probability that what is forecast lies below a value."""
        scores = (self.means - value) / jnp.sqrt(self.variances)
        tails = norm.sf(jnp.sign(scores) * normal_score(jnp.abs(scores), self.freedom))
        return jnp.sum(self.weights * tails)

    def quantile(self, probability: Any) -> Float[Array, ""]:
        """The value that what is forecast lies below with this probability."""
        reach = 40 * jnp.sqrt(self.variances)

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            left = self.below(middle) < probability
            return jnp.where(left, middle, low), jnp.where(left, high, middle)

        ends = jnp.min(self.means - reach), jnp.max(self.means + reach)
        low, high = jax.lax.fori_loop(0, BISECTIONS, halve, ends)
        middle: Float[Array, ""] = (low + high) / 2
        return middle


class Tried(eqx.Module):
    """A mixture with all that it was made of."""

    mixture: Mixture
    window: Window
    features: Features
    movements: Movements
    shapes: Shapes
    cycles: Float[Array, ""]  # of the season, per length of the log

    def shifted(self, by: Float[Array, ""], variance: Float[Array, ""]) -> "Tried":
        """The same with something added to the forecast that is known up to this variance."""
        moved = self.mixture.means + by, self.mixture.variances + variance
        return replace_at(lambda one: (one.mixture.means, one.mixture.variances), self, moved)


@full_products
def weigh(models: TrendModels, cells: Cells, axis: TimeAxis) -> Tried:
    """Every model's forecast of the mean over the window, weighted by its evidence."""
    window = Window(jnp.asarray(axis.lookahead / axis.length, cells.mean.dtype))
    centre, cells = cells.centre, replace_at(lambda one: one.mean, cells, cells.mean - cells.centre)
    cycles = season_cycles(cells)
    features = time_features(cells, window, cycles)
    movements, shapes = list_movements(models, cells, window), list_shapes(models, cells)
    evidence, means, variances = _each(cells, features, movements, shapes)
    odds = evidence + movements.log_prior[:, None] + shapes.log_prior
    weights = jax.nn.softmax(odds.reshape(-1)).reshape(odds.shape)
    mixture = Mixture(weights, means + centre, variances, jnp.maximum(cells.freedom, 3.0))
    return Tried(mixture, window, features, movements, shapes, cycles)


def _each(
    cells: Cells, features: Features, movements: Movements, shapes: Shapes
) -> tuple[Float[Array, "m s"], Float[Array, "m s"], Float[Array, "m s"]]:
    """Log evidence, forecast and its variance for every movement with every shape of the trend."""
    found: tuple[Array, Array, Array] = jax.vmap(lambda one: _evidence(cells, features, one, shapes))(
        movements
    )
    return found


class _Products(eqx.Module):
    """AᵀC⁻¹B of a movement, for A and B among the cells' means, the window and the time features."""

    means: Float[Array, ""]
    window_means: Float[Array, ""]
    window: Float[Array, ""]
    features_means: Float[Array, " f"]
    features_window: Float[Array, " f"]
    features: Float[Array, "f f"]
    log_determinant: Float[Array, ""]


def _products(cells: Cells, features: Features, movement: Movements) -> _Products:
    """All columns go through one Kalman filter, cell by cell: the products are those of its surprises."""
    columns = jnp.concatenate([cells.mean[:, None], movement.window[:, None], features.cells], axis=1)
    known, log_determinant = _filtered(movement.chain, cells.precision, columns)
    return _Products(
        known[0, 0], known[1, 0], known[1, 1], known[2:, 0], known[2:, 1], known[2:, 2:], log_determinant
    )


def _filtered(
    chain: Chain, precision: Float[Array, " c"], columns: Float[Array, "c q"]
) -> tuple[Float[Array, "q q"], Float[Array, ""]]:
    """UᵀC⁻¹U for columns U, and how much larger than the noise C is, as the logarithm of a determinant.

    Matrices of three rows are written out, number by number: compilers make one loop of that.
    """
    size = range(chain.start.shape[-1])

    def cell(state: tuple[Any, Any], row: tuple[Chain, Array, Array]) -> tuple[tuple[Any, Any], Any]:
        (means, covariance), (at, precision, values) = state, row
        seen, onward = [at.seen[i] for i in size], [[at.onward[i, j] for j in size] for i in size]
        surprise = values - sum(seen[i] * means[i] for i in size)
        reach = [sum(covariance[i][j] * seen[j] for j in size) for i in size]
        ratio = 1 + precision * jnp.maximum(sum(seen[i] * reach[i] for i in size) + at.own, 0.0)
        weight = precision / ratio
        along = [sum(onward[i][j] * reach[j] for j in size) + at.alike[i] for i in size]
        half = [[sum(onward[i][k] * covariance[k][j] for k in size) for j in size] for i in size]
        after = [
            [
                sum(half[i][k] * onward[j][k] for k in size) + at.shock[i, j] - weight * along[i] * along[j]
                for j in size
            ]
            for i in size
        ]
        moved = [sum(onward[i][j] * means[j] for j in size) + weight * along[i] * surprise for i in size]
        return (moved, after), (jnp.sqrt(weight) * surprise, ratio)

    start = [[chain.start[i, j] for j in size] for i in size]
    steps = replace_at(lambda one: one.start, chain, jnp.zeros(precision.size))
    nothing = [jnp.zeros_like(columns[0]) for _ in size]
    _, (surprises, ratios) = jax.lax.scan(cell, (nothing, start), (steps, precision, columns), reverse=True)
    return surprises.T @ surprises, jnp.sum(jnp.log(ratios))


def _bordered(matrix: Float[Array, "n n"], columns: Float[Array, "n m"]) -> Float[Array, "k k"]:
    """[[B, U], [Uᵀ, 0]]."""
    below = jnp.concatenate([columns.T, jnp.zeros((columns.shape[1],) * 2, matrix.dtype)], axis=1)
    return jnp.concatenate([jnp.concatenate([matrix, columns], axis=1), below])


def _evidence(
    cells: Cells, features: Features, movement: Movements, shapes: Shapes
) -> tuple[Float[Array, " s"], Float[Array, " s"], Float[Array, " s"]]:
    """Log evidence, forecast and its variance for one movement with every shape of the trend.

    The level, which may be anything, is taken out first.
    """
    found = _products(cells, features, movement)
    known, means = found.features[0, 0], found.means - found.features_means[0] ** 2 / found.features[0, 0]
    level = found.features[0] / known
    ahead = features.window - found.features_window  # what the movement does not tell of the window
    point = found.window_means + ahead[0] * found.features_means[0] / known
    variance = movement.variance - found.window + ahead[0] ** 2 / known
    along = found.features_means - level * found.features_means[0]
    rest = found.features - jnp.outer(found.features[0], level)
    columns = jnp.stack([along, ahead - level * ahead[0]], axis=1)[1:]

    def shaped(variances: Float[Array, " f"]) -> tuple[Array, Array, Array]:
        sd = jnp.sqrt(variances)
        inner = jnp.eye(sd.size, dtype=sd.dtype) + sd[:, None] * rest[1:, 1:] * sd
        left, log_determinant = eliminate(_bordered(inner, sd[:, None] * columns), sd.size)
        return -0.5 * (means + left[0, 0] + log_determinant), point - left[0, 1], variance - left[1, 1]

    evidence, points, variances = jax.vmap(shaped)(shapes.variances)
    return evidence - 0.5 * (found.log_determinant + jnp.log(known)), points, variances


def climatology_reach(cells: Cells, window: Float[Array, ""], level: Any) -> Float[Array, ""]:
    """How far windows of this length have strayed from the mean of the log, noise included.

    It is what somebody would say who knew nothing but the past windows: no interval need be wider.
    """
    near = jnp.abs(cells.age[:, None] - cells.age) <= window / 2
    shares = near * cells.count / jnp.maximum(jnp.sum(near * cells.count, axis=1, keepdims=True), 1)
    swing = jnp.sum(cells.precision * cells.unit * (shares @ cells.mean - cells.centre) ** 2)
    freedom = jnp.clip(1 / jnp.maximum(window, 1 / CELLS), 3.0, CELLS)
    return student_score(norm.isf(jnp.asarray(level)), freedom) * jnp.sqrt(swing + cells.unit)


class PastForecasts(eqx.Module):
    """How the leading movement would have forecast the past, from dates a lookahead apart.

    `off` is the root mean square by which it missed, less the noise of what came next; `misfit` is the
    probability of such misses, or larger ones, if its errors were as large as it claims.
    """

    dates: Int[Array, ""]
    off: Float[Array, ""]
    misfit: Float[Array, ""]


@full_products
def retrace(cells: Cells, tried: Tried) -> PastForecasts:
    """Forecast past windows from the cells before them, with the movement that leads now."""
    cells = replace_at(lambda one: one.mean, cells, cells.mean - cells.centre)
    movement, shares = _best(tried)
    length = jnp.maximum(tried.window.length, jnp.max(cells.oldest - cells.newest))
    dates = length * jnp.arange(1, MOST_DATES + 1)
    errors, claimed, noise = jax.vmap(partial(_past_error, cells, tried, movement, shares, length))(dates)
    usable = (dates <= OLDEST_DATE) & jnp.isfinite(errors) & (claimed > 0)
    count = jnp.maximum(jnp.sum(usable), 1)
    squares = jnp.where(usable, errors**2, 0.0)
    off = jnp.sqrt(jnp.maximum(jnp.sum(squares - jnp.where(usable, noise, 0.0)), 0.0) / count)
    misfit = gammaincc(count / 2, jnp.sum(jnp.where(usable, squares / claimed, 0.0)) / 2)
    return PastForecasts(jnp.sum(usable), off, misfit)


def _past_error(
    cells: Cells,
    tried: Tried,
    movement: Movements,
    shares: Float[Array, " s"],
    length: Float[Array, ""],
    date: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """What came after a date less its forecast, the variance that was claimed for this, and its noise."""
    slack = 1e-3 * length  # cells end where windows do, up to rounding
    after = (cells.oldest <= date + slack) & (cells.oldest > date - length + slack) & (cells.precision > 0)
    part = jnp.where(after, cells.count, 0.0)
    part = part / jnp.sum(part)
    noise = jnp.sum(jnp.where(after, part**2 / jnp.where(after, cells.precision, 1.0), 0.0))
    before = cells.newest >= date - slack
    known = replace_at(lambda one: one.precision, cells, jnp.where(before, cells.precision, 0.0))
    features = Features(tried.features.cells, part @ tried.features.cells)
    ahead = movement.cells @ part
    inner = replace_at(lambda one: (one.window, one.variance), movement, (ahead, part @ ahead))
    _, points, variances = _evidence(known, features, inner, tried.shapes)
    point = shares @ points
    claimed = shares @ (variances + (points - point) ** 2) + noise
    return part @ cells.mean - point, claimed, noise


class CellWeights(eqx.Module):
    """An equal share of its cell's weight for each episode: `row_cells` says which cell each row is in.

    `counts` are the episodes of the cells, `shares` the weight of one of them.
    """

    shares: Float[Array, " c"]
    counts: Float[Array, " c"]
    row_cells: Any
    present: Any
    num_columns: Array
    conditioning: Float[Array, ""]

    @property
    def forecast_weights(self) -> Float[Array, " n"]:
        """How much the return of each episode counts in the forecast."""
        xp = self.shares.__array_namespace__()  # NumPy for NumPy's arrays: too little to compile
        weights: Float[Array, " n"] = xp.where(self.present, self.shares[self.row_cells], 0.0)
        return weights

    @property
    def largest_share(self) -> Float[Array, ""]:
        """How much of the forecast one episode decides."""
        squares = self.shares**2 * (self.counts > 0)
        return squares.max() / (self.counts * squares).sum()

    @property
    def regression(self) -> TrendDesign:
        """The smallest regression with this forecast: on a constant, and on the weights."""
        weights, present = self.forecast_weights, self.present
        constant = present / jnp.sqrt(jnp.maximum(jnp.sum(present), 1))
        along = weights - (constant @ weights) * constant
        norm_ = jnp.sqrt(jnp.sum(along**2))
        orthonormal = jnp.stack([constant, along / jnp.where(norm_ > 0, norm_, 1.0)])
        return TrendDesign(
            orthonormal=orthonormal,
            factor=jnp.eye(2, dtype=weights.dtype),
            horizon=orthonormal @ weights,
            present=present,
            inflation=jnp.ones_like(weights),
            num_columns=self.num_columns,
            conditioning=self.conditioning,
        )


class MovingFit(eqx.Module):
    """A mixture's forecast; weights of the episodes and the path by its leading movement.

    What is the same for all episodes of a cell is held once; the rows are those of the series, if it has any.
    """

    design: CellWeights
    returns: Any
    point: Float[Array, ""]
    variance: Float[Array, ""]
    ages: Float[Array, " c"]
    path: Float[Array, " c"]
    past: PastForecasts

    @property
    def residuals(self) -> Float[Array, " n"]:
        """By how much the returns are off the path."""
        xp = self.returns.__array_namespace__()
        off: Float[Array, " n"] = self.returns - self.path[self.design.row_cells]
        rest: Float[Array, " n"] = xp.where(self.design.present, off, 0.0)
        return rest

    @property
    def noise(self) -> Float[Array, " n"]:
        """The residuals as the variance takes them."""
        return self.residuals

    def in_rows(self, place: Callable[..., Any]) -> Self:
        """The same with the episodes in other rows: `place` takes an array, and the axis of its rows."""
        return self.with_rows(place(self.returns), place(self.design.row_cells), place(self.design.present))

    def with_rows(self, returns: Any, row_cells: Any, present: Any) -> Self:
        """The same for a series of these returns."""
        design = dataclasses.replace(self.design, row_cells=row_cells, present=present)
        return dataclasses.replace(self, design=design, returns=returns)


Trend: TypeAlias = TrendFit | MovingFit


class Leading(eqx.Module):
    """The leading movement with all of its shapes: how each cell counts in its forecast, and its path."""

    weights: Float[Array, " c"]
    path: Float[Array, " c"]


@full_products
def leading_movement(cells: Cells, tried: Tried) -> Leading:
    """The movement with the most weight and the mean of its shapes, as functions of the cells' means."""
    movement, shares = _best(tried)
    features, scale = tried.features, jnp.sqrt(cells.precision)
    shape = shares @ tried.shapes.variances
    moves = movement.cells + (features.cells[:, 1:] * shape) @ features.cells[:, 1:].T
    ahead = movement.window + features.cells[:, 1:] @ (shape * features.window[1:])
    identity = jnp.eye(scale.size, dtype=scale.dtype)
    left, _ = eliminate(_bordered(identity + scale[:, None] * moves * scale, identity), scale.size)
    inverse = -scale[:, None] * left * scale
    level = jnp.sum(inverse, axis=1) / jnp.sum(inverse)
    start = level @ cells.mean
    weights = inverse @ ahead
    return Leading(weights + (1 - jnp.sum(weights)) * level, start + moves @ (inverse @ (cells.mean - start)))


def _best(tried: Tried) -> tuple[Movements, Float[Array, " s"]]:
    """The movement with the most weight, and how it is shared among the shapes of the trend."""
    total = jnp.sum(tried.mixture.weights, axis=1)
    best = jnp.argmax(total)
    movement = map_leaves(lambda leaf: leaf[best], tried.movements)
    return movement, tried.mixture.weights[best] / total[best]


@full_products
def moving_fit(cells: Cells, tried: Tried, returns: Float[Array, " n"] | None = None) -> MovingFit:
    """The forecast, with the weights and the path of the leading movement, and the rows if there are any."""
    lead = leading_movement(cells, tried)
    design = CellWeights(
        shares=lead.weights / jnp.maximum(cells.count, 1),
        counts=cells.count,
        row_cells=cells.row_cells,
        present=cells.present,
        num_columns=jnp.full((), 2),  # a constant, and the forecast's weights
        conditioning=jnp.ones((), lead.weights.dtype),
    )
    return MovingFit(
        design=design,
        returns=None if returns is None else jnp.where(cells.present, returns, 0.0),
        point=tried.mixture.mean,
        variance=tried.mixture.variance,
        ages=jnp.where(cells.count > 0, cells.age, jnp.nan),
        path=lead.path,
        past=retrace(cells, tried),
    )


class Trials(eqx.Module):
    """What each family of models says about the difference, and how much weight it has.

    `kinds` and `memories` (in the log's time) say which family. `season` is the weight of all models with a
    season of this `period`. `longest` is the longest lookahead that the test could have been asked for.
    """

    kinds: tuple[str, ...] = eqx.field(static=True)
    memories: Float[Array, " j"]
    weights: Float[Array, " j"]
    points: Float[Array, " j"]
    errors: Float[Array, " j"]
    lowers: Float[Array, " j"]
    p_values: Float[Array, " j"] | None
    season: Float[Array, ""]
    period: Float[Array, ""]
    longest: Float[Array, ""]

    @property
    def best(self) -> Int[Array, ""]:
        return jnp.argmax(self.weights)


@full_products
def describe_trials(models: TrendModels, tried: Tried, axis: TimeAxis, level: Any, limit: Any) -> Trials:
    """The mixture, family by family: forecasts, bounds at about this level, p-values of "below the limit"."""
    families = families_of(models)
    kinds, memories, members = zip(*families, strict=True)
    seasonal = tried.shapes.variances[:, 1] > 0

    def one(chosen: Bool[Array, "m s"]) -> tuple[Array, ...]:
        part = tried.mixture.only(chosen)
        weight = jnp.sum(jnp.where(chosen, tried.mixture.weights, 0.0))
        return weight, part.mean, jnp.sqrt(part.variance), part.below(limit)

    weights, points, errors, p_values = jax.vmap(one)(jnp.asarray(np.stack(members)))
    return Trials(
        kinds=kinds,
        memories=jnp.asarray(memories) * axis.length,
        weights=weights,
        points=points,
        errors=errors,
        lowers=points - norm.isf(jnp.asarray(level)) * errors,
        p_values=p_values,
        season=jnp.sum(jnp.where(seasonal, tried.mixture.weights, 0.0)),
        period=axis.length / tried.cycles,
        longest=jnp.asarray(axis.longest_tried),
    )


def trusted_trial(
    fit: TrendFit, lower: Float[Array, ""], p_value: Float[Array, ""] | None, axis: TimeAxis
) -> Trials:
    """The one trend of the whole log, taken on trust."""
    none = jnp.zeros((), lower.dtype)
    return Trials(
        kinds=("trend",),
        memories=jnp.reshape(axis.length, (1,)),
        weights=jnp.ones(1),
        points=fit.point[None],
        errors=jnp.sqrt(fit.variance)[None],
        lowers=lower[None],
        p_values=None if p_value is None else p_value[None],
        season=none,
        period=jnp.full_like(none, jnp.nan),
        longest=jnp.asarray(axis.longest_trusted),
    )
