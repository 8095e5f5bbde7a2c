"""The mixture of trend models: against dense Gaussian twins, identities, and rates in its own worlds."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import mixture
from tidegate.arrays import Floats, map_leaves, replace_at
from tidegate.basis import TimeAxis
from tidegate.cells import CELLS, Cells, Series
from tidegate.cells import divide as divide_series
from tidegate.mixture import (
    MOST_DATES,
    OLDEST_DATE,
    Mixture,
    MovingFit,
    PastForecasts,
    Tried,
    climatology_reach,
    moving_fit,
)
from tidegate.models import (
    BELIEVED,
    BREAKS,
    ROUGH,
    SMOOTH,
    STRENGTHS,
    STRONG,
    Features,
    Movements,
    TrendModels,
    families_of,
)

from . import oracles

MODELS = TrendModels()
ROOM, LOOKAHEAD, ALPHA = 300, 50, 0.05

divide = jax.jit(divide_series)
weigh = jax.jit(functools.partial(mixture.weigh, MODELS))
fit = jax.jit(moving_fit)
reach = jax.jit(climatology_reach)
below = jax.jit(Mixture.below)
quantile = jax.jit(Mixture.quantile)
describe = jax.jit(functools.partial(mixture.describe_trials, MODELS))


class Case(NamedTuple):
    """A log with all that is made of it."""

    series: Series
    axis: TimeAxis
    cells: Cells
    tried: Tried

    @property
    def mixture(self) -> Mixture:
        return self.tried.mixture

    @property
    def fit(self) -> MovingFit:
        found: MovingFit = fit(self.cells, self.tried, self.series.returns)
        return found

    @property
    def past(self) -> PastForecasts:
        return self.fit.past


def _case(times: Any, returns: Any, lookahead: int = LOOKAHEAD) -> Case:
    spare = ROOM - times.size
    present = np.arange(ROOM) < times.size
    series = Series(jnp.asarray(np.pad(returns, (0, spare))), np.pad(times, (0, spare)), present)
    axis = TimeAxis(np.asarray(times[0] - 1), np.asarray(times[-1]), np.asarray(lookahead), 2 * LOOKAHEAD)
    cells = divide(series, axis)
    return Case(series, axis, cells, weigh(cells, axis))


@functools.cache
def _log(name: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(len(name))
    n = 40 if name == "short" else ROOM
    gaps = np.ones(n) if name == "line" else rng.exponential(size=n) ** 2
    times = np.cumsum(gaps * n / gaps.sum())
    x = times / n
    shape = {
        "line": 0.5 * x,
        "irregular": np.where(x < 0.8, 0.0, 0.6),
        "season": np.sin(2 * np.pi * 3.3 * x),
        "short": np.zeros(n),
    }[name]
    return times, 0.3 + shape + np.linspace(0.5, 1.0, n) * rng.normal(size=n)


LOGS = ["line", "irregular", "season", "short"]


def _lookahead(name: str) -> int:
    return 8 if name == "short" else LOOKAHEAD


def _logged(name: str) -> Case:
    return _case(*_log(name), _lookahead(name))


def _numpy(tree: Any) -> Any:
    return map_leaves(np.asarray, tree)


def _dense(case: Case, m: int, variances: Any) -> oracles.Gaussian:
    """One movement with one shape of the trend, by the textbook."""
    cells, features = case.cells, case.tried.features
    known = np.asarray(cells.precision) > 0
    movement = _numpy(map_leaves(lambda leaf: leaf[m], case.tried.movements))
    return oracles.gaussian_forecast(
        values=np.asarray(cells.mean)[known],
        noise=1 / np.asarray(cells.precision)[known],
        movement=movement.cells[np.ix_(known, known)],
        features=np.asarray(features.cells)[known],
        variances=np.asarray(variances),
        ahead=movement.window[known],
        ahead_variance=float(movement.variance),
        ahead_features=np.asarray(features.window),
    )


@pytest.mark.parametrize("name", LOGS[1:])
def test_weights_means_and_variances_are_those_of_dense_gaussians(name: str) -> None:
    case = _logged(name)
    tried, shapes = case.tried, _numpy(case.tried.shapes)
    movements = np.asarray(tried.movements.log_prior)
    slow = [[_dense(case, m, one) for one in shapes.variances] for m in range(movements.size)]
    odds = np.array([[one.log_density for one in row] for row in slow])
    odds += movements[:, None] + shapes.log_prior
    weights = np.exp(odds - odds.max())
    found = _numpy(case.mixture)
    means = np.array([[one.mean for one in row] for row in slow])
    spread = math.sqrt(float(case.mixture.variance))
    np.testing.assert_allclose(found.weights, weights / weights.sum(), rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(found.means, means, rtol=1e-8, atol=1e-8 * spread)
    np.testing.assert_allclose(found.variances, [[one.variance for one in row] for row in slow], rtol=1e-8)
    assert float(case.mixture.mean) == pytest.approx(float(np.sum(found.weights * means)), rel=1e-6)
    assert float(found.freedom) == float(case.cells.freedom)


@jax.jit
def _one_by_one(cells: Cells, tried: Tried, movement: Movements, places: Any) -> tuple[Any, Any, Any]:
    """Log evidence of the cells from a place on, and the forecast of the cell before them."""

    def one(place: Any) -> tuple[Any, Any, Any]:
        older = jnp.where(jnp.arange(cells.mean.size) > place, cells.precision, 0.0)
        known = replace_at(lambda one: one.precision, cells, older)
        features = Features(tried.features.cells, tried.features.cells[place])
        own = movement.cells[place], movement.cells[place, place]
        inner = replace_at(lambda one: (one.window, one.variance), movement, own)
        return mixture._evidence(known, features, inner, tried.shapes)

    found: tuple[Any, Any, Any] = jax.vmap(one)(places)
    return found


@pytest.mark.parametrize("kind", ["still", "rough", "smooth", "break"])
def test_evidence_is_the_product_of_forecasts_from_cell_to_cell(kind: str) -> None:
    """Dawid's prequential identity, for every shape; the level is learnt from the oldest cell."""
    case = _logged("irregular")
    families = [members for name, _, members in families_of(MODELS) if name == kind] or [np.eye(59, 16) > 0]
    m = int(np.flatnonzero(families[len(families) // 2].any(axis=1))[-1])
    movement = map_leaves(lambda leaf: leaf[m], case.tried.movements)
    cells = _numpy(case.cells)
    known = np.flatnonzero(cells.precision > 0)  # the newest first
    places = np.r_[-1, known]
    evidence, points, variances = map(np.asarray, _one_by_one(case.cells, case.tried, movement, places))
    whole, oldest = evidence[0], evidence[-2]  # from all the cells, and from the oldest alone
    ahead = slice(1, -1)
    densities = stats.norm.logpdf(
        cells.mean[known[:-1], None],
        points[ahead],
        np.sqrt(variances[ahead] + 1 / cells.precision[known[:-1], None]),
    )
    constants = 0.5 * np.log(cells.precision[known[:-1]] / (2 * np.pi)).sum()
    np.testing.assert_allclose(densities.sum(axis=0), whole - oldest + constants, rtol=1e-9)


def _mixture(freedom: float, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(12, 0.5)).reshape(3, 4)
    means, variances = rng.normal(size=(3, 4)), rng.exponential(size=(3, 4))
    return Mixture(*(jnp.asarray(one) for one in (weights, means, variances, freedom)))


@pytest.mark.parametrize("freedom", [3.0, 8.0, 40.0, 1000.0])
def test_probabilities_are_those_of_a_mixture_of_students(freedom: float) -> None:
    found = _mixture(freedom)
    plain = _numpy(found)
    for value in np.linspace(-5, 5, 41):
        scores = (value - plain.means) / np.sqrt(plain.variances)
        expected = np.sum(plain.weights * stats.t.cdf(scores, freedom))
        # Wallace's approximation of Student's t is off by 10⁻³ at most, with few degrees of freedom.
        assert abs(float(below(found, value)) - expected) < (2e-3 if freedom < 5 else 1e-3)


@pytest.mark.parametrize("freedom", [3.0, 40.0])
def test_quantiles_and_probabilities_are_inverse_to_each_other(freedom: float) -> None:
    found = _mixture(freedom)
    for probability in (1e-4, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999):
        value = quantile(found, probability)
        assert float(below(found, value)) == pytest.approx(probability, rel=1e-9)
        assert float(quantile(found, below(found, value))) == pytest.approx(float(value), abs=1e-9)


def test_mean_and_variance_of_a_mixture() -> None:
    found = _mixture(40.0)
    plain = _numpy(found)
    rng = np.random.default_rng(1)
    chosen = rng.choice(12, size=200_000, p=plain.weights.ravel())
    drawn = plain.means.ravel()[chosen] + np.sqrt(plain.variances.ravel()[chosen]) * rng.normal(size=200_000)
    spread = drawn.std()
    assert abs(float(found.mean) - drawn.mean()) < 4 * spread / math.sqrt(200_000)
    assert float(found.variance) == pytest.approx(spread**2, rel=0.03)


def test_a_part_of_a_mixture_is_a_mixture() -> None:
    found = _mixture(40.0)
    chosen = np.arange(12).reshape(3, 4) % 5 < 2
    part = _numpy(found.only(jnp.asarray(chosen)))
    weights = np.where(chosen, np.asarray(found.weights), 0.0)
    np.testing.assert_allclose(part.weights, weights / weights.sum(), rtol=1e-12)
    nothing = replace_at(lambda one: one.weights, found, jnp.asarray(np.where(chosen, 0.0, found.weights)))
    np.testing.assert_allclose(nothing.only(jnp.asarray(chosen)).weights, chosen / chosen.sum(), rtol=1e-12)


def test_what_is_added_to_a_forecast_moves_it_and_widens_it() -> None:
    tried = _logged("line").tried
    moved = tried.shifted(jnp.asarray(2.0), jnp.asarray(0.5)).mixture
    assert float(moved.mean) == pytest.approx(float(tried.mixture.mean) + 2, rel=1e-12)
    assert float(moved.variance) == pytest.approx(float(tried.mixture.variance) + 0.5, rel=1e-12)
    np.testing.assert_array_equal(moved.weights, tried.mixture.weights)


def _cell_weights(case: Case) -> Floats:
    """The weights of the episodes in the forecast, taken together in each cell."""
    rows = np.asarray(case.fit.design.forecast_weights)
    cells = np.asarray(case.cells.row_cells)
    return np.array([rows[cells == one].sum() for one in range(case.cells.mean.size)])


@pytest.mark.parametrize("name", LOGS)
def test_forecast_weights_and_path_are_those_of_the_leading_movement(name: str) -> None:
    """With the mean of its shapes. The weights sum to 1, and the episodes of a cell have the same."""
    case = _logged(name)
    weights, path = _cell_weights(case), np.asarray(case.fit.path)
    assert weights.sum() == pytest.approx(1, rel=1e-9)
    totals = np.asarray(case.mixture.weights).sum(axis=1)
    best = int(totals.argmax())
    shares = np.asarray(case.mixture.weights)[best] / totals[best]
    slow = _dense(case, best, shares @ np.asarray(case.tried.shapes.variances))
    known = np.asarray(case.cells.precision) > 0
    np.testing.assert_allclose(weights[known], slow.weights, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(weights[~known], 0, atol=1e-12)
    np.testing.assert_allclose(path[known], slow.path, rtol=1e-8, atol=1e-9)
    cells, present = np.asarray(case.cells.row_cells), np.asarray(case.series.present)
    per_row = np.where(present, (weights / np.maximum(case.cells.count, 1))[cells], 0.0)
    np.testing.assert_allclose(case.fit.design.forecast_weights, per_row, rtol=1e-9, atol=1e-12)
    share = float(case.fit.design.largest_share)
    assert share == pytest.approx(np.max(per_row**2) / np.sum(per_row**2), rel=1e-9)


def test_a_constant_is_forecast_to_stay() -> None:
    """By every model, and by the weights of the leading one; so is its path."""
    case = _logged("irregular")
    cells = replace_at(lambda one: one.mean, case.cells, jnp.full_like(case.cells.mean, 7.0))
    constant = case._replace(cells=cells, tried=weigh(cells, case.axis))
    np.testing.assert_allclose(constant.mixture.means, 7.0, rtol=1e-9)
    assert float(_cell_weights(constant) @ np.asarray(cells.mean)) == pytest.approx(7, rel=1e-9)
    np.testing.assert_allclose(constant.fit.path, 7.0, rtol=1e-9)


@pytest.mark.parametrize("name", ["season", "short"])
def test_the_fit_has_the_forecast_of_the_mixture(name: str) -> None:
    case = _logged(name)
    found, present = case.fit, np.asarray(case.series.present)
    assert float(found.point) == pytest.approx(float(case.mixture.mean), rel=1e-12)
    assert float(found.variance) == pytest.approx(float(case.mixture.variance), rel=1e-12)
    path = np.asarray(found.path)[np.asarray(case.cells.row_cells)]
    expected = np.where(present, np.asarray(case.series.returns) - path, 0.0)
    np.testing.assert_allclose(found.residuals, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(np.isnan(found.ages), np.asarray(case.cells.count) == 0)


def _bounds(case: Case) -> Floats:
    """Forecast and bounds."""
    found = case.mixture
    return np.array([float(found.mean), *(float(quantile(found, level)) for level in (0.025, 0.3, 0.975))])


@pytest.mark.parametrize("name", LOGS)
def test_shifts_scales_and_signs_of_returns_go_through(name: str) -> None:
    times, returns = _log(name)
    plain = _bounds(_logged(name))
    spread = plain[3] - plain[1]
    shifted = _bounds(_case(times, returns + 500, _lookahead(name)))
    scaled = _bounds(_case(times, 40 * returns, _lookahead(name)))
    turned = _case(times, -returns, _lookahead(name))
    np.testing.assert_allclose(shifted - 500, plain, atol=1e-7 * spread)
    np.testing.assert_allclose(scaled / 40, plain, atol=1e-8 * spread)
    np.testing.assert_allclose(-_bounds(turned)[[0, 3, 1]], plain[[0, 1, 3]], atol=1e-8 * spread)
    assert float(below(turned.mixture, -0.2)) == pytest.approx(1 - float(below(_logged(name).mixture, 0.2)))


def test_the_unit_of_time_does_not_matter() -> None:
    times, returns = _log("irregular")
    plain = _logged("irregular")
    start, last = (np.asarray(3600 * one) for one in (plain.axis.origin, plain.axis.last))
    axis = TimeAxis(start, last, np.asarray(3600 * LOOKAHEAD), plain.axis.room)
    cells = divide(Series(jnp.asarray(returns), 3600 * times, np.ones(ROOM, bool)), axis)
    np.testing.assert_allclose(weigh(cells, axis).mixture.means, plain.mixture.means, rtol=1e-7)


def _slow_past(case: Case) -> tuple[int, float, float]:
    """Date by date: what came next less the forecast of it, by the movement that leads now."""
    cells, tried = _numpy(case.cells), _numpy(case.tried)
    totals = tried.mixture.weights.sum(axis=1)
    best = int(totals.argmax())
    shares, covariance = tried.mixture.weights[best] / totals[best], tried.movements.cells[best]
    length = max(float(tried.window.length), float((cells.oldest - cells.newest).max()))
    squares, claims, noises = [], [], []
    for date in length * np.arange(1, MOST_DATES + 1):
        after = (cells.oldest <= date + 1e-9) & (cells.oldest > date - length + 1e-9) & (cells.precision > 0)
        before = (cells.newest >= date - 1e-9) & (cells.precision > 0)
        if date > OLDEST_DATE or not after.any():
            continue
        part = cells.count[after] / cells.count[after].sum()
        forecasts = [
            oracles.gaussian_forecast(
                values=cells.mean[before],
                noise=1 / cells.precision[before],
                movement=covariance[np.ix_(before, before)],
                features=tried.features.cells[before],
                variances=one,
                ahead=covariance[np.ix_(before, after)] @ part,
                ahead_variance=part @ covariance[np.ix_(after, after)] @ part,
                ahead_features=part @ tried.features.cells[after],
            )
            for one in tried.shapes.variances
        ]
        means, variances = (np.array([getattr(one, of) for one in forecasts]) for of in ("mean", "variance"))
        noise = float(part**2 @ (1 / cells.precision[after]))
        squares.append(float(part @ cells.mean[after] - shares @ means) ** 2)
        claims.append(shares @ (variances + (means - shares @ means) ** 2) + noise)
        noises.append(noise)
    off = math.sqrt(max(float(np.mean(np.subtract(squares, noises))), 0.0))
    return len(squares), off, float(stats.chi2.sf(np.sum(np.divide(squares, claims)), len(squares)))


@pytest.mark.parametrize("name", LOGS)
def test_past_forecasts_are_those_of_a_loop_over_dates(name: str) -> None:
    case = _logged(name)
    found = case.past
    dates, off, misfit = _slow_past(case)
    assert int(found.dates) == dates
    assert float(found.off) == pytest.approx(off, rel=1e-8, abs=1e-9)
    assert float(found.misfit) == pytest.approx(misfit, rel=1e-8)


@pytest.mark.parametrize(("lookahead", "dates"), [(5, MOST_DATES), (20, 11), (75, 3), (100, 2)])
def test_as_many_past_dates_as_windows_fit_into_three_quarters_of_the_log(lookahead: int, dates: int) -> None:
    times = np.arange(1.0, ROOM + 1)
    case = _case(times, np.random.default_rng(0).normal(size=ROOM), lookahead)
    assert int(case.past.dates) == dates


def test_the_past_of_a_line_without_noise_was_forecast_without_error() -> None:
    times = np.arange(1.0, ROOM + 1)
    case = _case(times, times / ROOM + 1e-5 * np.random.default_rng(0).normal(size=ROOM))
    found = case.past
    # Over a cell, the line itself rises by 1/40: that is the noise that its episodes show.
    assert float(found.off) < 0.25 / CELLS
    assert float(case.mixture.mean) == pytest.approx(1 + LOOKAHEAD / ROOM / 2, abs=0.5 / CELLS)


def test_a_past_that_moved_more_than_is_claimed_is_a_misfit() -> None:
    case = _logged("line")
    steps = np.random.default_rng(3).normal(size=case.cells.mean.size)
    moved = replace_at(lambda one: one.mean, case.cells, case.cells.mean + np.cumsum(steps))
    calm, wild = case.past, case._replace(cells=moved).past
    assert float(calm.misfit) > 0.05
    assert float(wild.misfit) < 1e-6
    assert float(wild.off) > 5 * float(calm.off)


def test_a_past_that_is_as_claimed_is_seldom_a_misfit() -> None:
    noise = np.random.default_rng(6).normal(size=(40, ROOM))
    cases = [_case(np.arange(1.0, ROOM + 1), one) for one in noise]
    found = [float(one.past.misfit) for one in cases]
    assert np.mean(np.array(found) <= 0.05) <= _most(0.05, 40)
    assert np.mean(np.array(found) >= 0.5) >= 0.25


def test_windows_that_strayed_further_reach_further() -> None:
    case = _logged("irregular")
    cells, window = case.cells, case.tried.window.length
    average = cells.mean - jnp.sum(cells.mean * cells.precision) * cells.unit
    reaches = []
    for factor in (0.0, 1.0, 2.0, 4.0):
        wider = replace_at(lambda one: one.mean, cells, factor * average)
        reaches.append(float(reach(wider, window, 0.025)))
    assert reaches == sorted(reaches)
    assert reaches[3] > 2 * reaches[1]
    # Of a world that stood still, only the noise of its mean is left.
    freedom = 1 / float(window)
    assert reaches[0] == pytest.approx(stats.t.isf(0.025, freedom) * math.sqrt(float(cells.unit)), rel=0.02)
    assert float(reach(cells, window, 0.005)) > reaches[1]


def test_families_make_up_the_mixture() -> None:
    case = _logged("season")
    trials = describe(case.tried, case.axis, ALPHA, 0.1)
    weights = np.asarray(trials.weights)
    assert weights.sum() == pytest.approx(1)
    assert weights @ np.asarray(trials.points) == pytest.approx(float(case.mixture.mean))
    assert trials.p_values is not None
    assert weights @ np.asarray(trials.p_values) == pytest.approx(float(below(case.mixture, 0.1)))
    squares = np.asarray(trials.errors) ** 2 + (np.asarray(trials.points) - float(case.mixture.mean)) ** 2
    assert weights @ squares == pytest.approx(float(case.mixture.variance))
    assert trials.kinds == tuple(kind for kind, _, _ in families_of(MODELS))
    assert float(trials.season) > 0.99
    assert float(trials.period) == pytest.approx(float(case.axis.length) / 3.3, rel=0.02)
    still = describe(_logged("line").tried, _logged("line").axis, ALPHA, 0.1)
    assert float(still.season) < 0.1


class Answers(NamedTuple):
    """Of each log, the probabilities below the truth and below 0."""

    truth: Floats
    zero: Floats


def _asked(paths: Floats, seed: int) -> tuple[Answers, Floats]:
    """Paths over log and window with normal noise; the truth is the mean of the window."""
    noise = np.random.default_rng(seed).normal(size=(len(paths), ROOM))
    truths = paths[:, ROOM:].mean(axis=1)
    found = [_case(np.arange(1.0, ROOM + 1), one).mixture for one in paths[:, :ROOM] + noise]
    both = zip(found, truths, strict=True)
    return Answers(
        np.array([float(below(one, truth)) for one, truth in both]),
        np.array([float(below(one, 0.0)) for one in found]),
    ), truths


X = np.arange(1.0, ROOM + LOOKAHEAD + 1) / ROOM  # the log ends at 1


def _most(rate: float, count: int) -> float:
    """A rate and two of its binomial errors."""
    return rate + 2 * math.sqrt(rate * (1 - rate) / count)


@functools.cache
def _root(kind: str, memory: float) -> Floats:
    gaps = np.abs(X[:, None] - X) / memory
    smooth = (1 + math.sqrt(5) * gaps + 5 * gaps**2 / 3) * np.exp(-math.sqrt(5) * gaps)
    covariance = np.exp(-gaps) if kind == "rough" else smooth
    root: Floats = np.asarray(np.linalg.cholesky(covariance + 1e-9 * np.eye(X.size)), np.float64)
    return root


def _drawn_path(rng: np.random.Generator) -> Floats:
    """A movement and a shape by their prior probabilities, for noise of variance 1.

    The variance of the log's mean is then 1/n, and that between the means of 40 cells 40/n.
    """
    unit, spread = 1 / ROOM, CELLS / ROOM

    def strength(least: float, most: float, which: int) -> float:
        """The standard deviation of the weakest, the middle or the strongest."""
        return float(np.sqrt(least * (max(least, most) / least) ** (which / 2)))

    path = np.zeros(X.size)
    kind = rng.choice(["still", "break", "rough", "smooth"], p=[
        MODELS.still, MODELS.broken, MODELS.rough, MODELS.smooth,
    ])  # fmt: skip
    if kind == "break":
        age = rng.choice(BREAKS)
        size = strength(BELIEVED * unit / (age * (1 - age)), spread, int(rng.choice([0, 2])))
        path += size * rng.normal() * (1 - age > X)
    elif kind != "still":
        memory = rng.choice(ROUGH if kind == "rough" else SMOOTH)
        steps = rng.integers(STRENGTHS) / (STRENGTHS - 1)
        scale = math.sqrt(0.5 * unit * (8 * spread / unit) ** steps)
        path += scale * _root(kind, float(memory)) @ rng.normal(size=X.size)
    odds = [MODELS.level, *((1 - MODELS.level) * np.array([1 - STRONG, STRONG / 2, STRONG / 2]))]
    slope = int(rng.choice(4, p=odds))
    if slope:
        path += strength(12 * BELIEVED * unit, 16 * spread, slope - 1) * rng.normal() * (X - 0.5)
    if rng.random() < MODELS.season:
        size = strength(2 * BELIEVED * unit, 2 * spread, int(rng.integers(3)))
        angles = 2 * np.pi * rng.uniform(1, CELLS / 3) * (X - 0.5)
        cos, sin = ((size * rng.normal() + size * rng.normal() * (X - 0.5)) for _ in range(2))
        path += cos * np.cos(angles) + sin * np.sin(angles)
    return path


def test_in_worlds_like_its_models_the_mixture_is_as_often_right_as_it_says() -> None:
    rng = np.random.default_rng(0)
    count = 300
    paths = np.array([_drawn_path(rng) + 0.3 * rng.normal() for _ in range(count)])
    found, truths = _asked(paths, 1)
    covered = np.mean((found.truth > 0.025) & (found.truth < 0.975))
    assert abs(covered - 0.95) < 3 * math.sqrt(0.95 * 0.05 / count)
    # Of a level that puts the truth just below 0, every DEPLOY is wrong.
    assert np.mean(found.truth <= ALPHA) <= _most(ALPHA, count)
    deployed = found.zero <= ALPHA
    assert deployed.sum() > 50
    assert np.mean(truths[deployed] <= 0) <= _most(ALPHA, int(deployed.sum()))


def test_without_an_advantage_it_seldom_deploys() -> None:
    found, _ = _asked(np.zeros((150, X.size)), 2)
    assert np.mean(found.zero <= ALPHA) <= _most(ALPHA, 150)
    assert np.mean(found.zero >= 1 - ALPHA) <= _most(ALPHA, 150)


def test_an_advantage_that_has_fallen_to_nothing_is_seldom_deployed() -> None:
    """It was large on average; after the log it is negative."""
    sizes = np.repeat([0.5, 1.0, 2.0], 50)[:, None]
    found, truths = _asked(sizes * (1 - X), 3)
    assert np.all(truths < 0)
    assert np.mean(found.zero <= ALPHA) <= _most(ALPHA, 150)


def test_verdicts_are_the_same_in_32_bit() -> None:
    rng = np.random.default_rng(4)
    paths = np.array([0.2 + _drawn_path(rng) for _ in range(30)])
    double = _asked(paths, 5)[0].zero
    with jax.enable_x64(False):
        single = _asked(paths, 5)[0].zero
    assert np.abs(single - double).max() > 0
    np.testing.assert_allclose(single, double, atol=1e-3)
    unclear = np.abs(double - ALPHA) < 1e-4
    np.testing.assert_array_equal((single <= ALPHA)[~unclear], (double <= ALPHA)[~unclear])
    assert unclear.sum() < 2
    assert 5 < np.sum(double <= ALPHA) < 25
