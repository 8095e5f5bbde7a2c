"""Returns in time cells, against a loop over episodes."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import cells
from tidegate.arrays import Floats
from tidegate.basis import TimeAxis
from tidegate.cells import BLOCK, CELLS, HALVINGS, LOCAL, ON_EDGE, PER_CELL, PER_HALF, SHARED, Cells, Series

ROOM = 400  # rows of every log, so that one program serves them all

divide = jax.jit(cells.divide)
edges_of = jax.jit(cells.cell_edges, static_argnums=1)
have_times = jax.jit(cells.have_times, static_argnums=2)


class Log(NamedTuple):
    """Times and returns of the episodes, in any order."""

    times: Floats
    returns: Floats


def _series(log: Log, room: int = ROOM) -> tuple[Series, TimeAxis]:
    """The log with spare rows behind it, some of them at times of the log; its axis."""
    spare = room - log.times.size
    times = np.append(log.times, np.linspace(-9.0, log.times.max() + 9, spare))
    returns, present = np.append(log.returns, np.full(spare, 1e6)), np.arange(room) < log.times.size
    axis = TimeAxis.over((log.times.min(), log.times.max()), 10)
    return Series(jnp.asarray(returns), times, present), axis


def _divided(log: Log, room: int = ROOM) -> Cells:
    found: Cells = divide(*_series(log, room))
    return found


def _irregular(n: int, seed: int = 1) -> Log:
    """Bursts and gaps, noise that grows fivefold, returns about a thousand."""
    rng = np.random.default_rng(seed)
    times = 1e3 + np.cumsum(rng.exponential(size=n) ** 3)
    noise = np.linspace(1, 5, n) * rng.normal(size=n)
    return Log(times, 1e3 + np.sin(np.arange(n) / 20) + noise)


def _regular(n: int, seed: int = 0) -> Log:
    rng = np.random.default_rng(seed)
    return Log(np.arange(1.0, n + 1), rng.normal(size=n) + np.arange(n) / n)


def _at_a_few_times(n: int) -> Log:
    log = _regular(n)
    return Log(np.ceil(log.times / 50) * 7, log.returns)


LOGS = {
    "regular": _regular(397),  # no episode lies on the edge of a cell
    "spare rows": _regular(299),
    "irregular": _irregular(301),
    "many at one time": _at_a_few_times(250),
    "all at one time": Log(np.full(40, 3.0), _regular(40).returns),
    "few": _irregular(25),
    "very few": _regular(7),
    "one": Log(np.array([5.0]), np.array([2.0])),
}


def _slow_edges(n: int) -> list[float]:
    """Equally long cells, and the newest cut in half again and again while a part has enough episodes."""
    number = min(max(n // PER_CELL, 1), CELLS)
    parts = [0.5**k for k in range(HALVINGS, 0, -1)]
    halves = [part / number if n / number * part >= PER_HALF else 0.0 for part in parts]
    return [0.0, *halves, *(min(k / number, 1.0) for k in range(1, CELLS + 1))]


def _slow_cells(log: Log) -> list[dict[str, Any]]:
    """Episode by episode: which cell, how many, their mean, and the variance of that."""
    edges = _slow_edges(log.times.size)
    last, origin = log.times.max(), log.times.min() - 1
    members: list[list[tuple[float, float]]] = [[] for _ in edges[1:]]
    for time, value in zip(log.times, log.returns, strict=True):
        age = (last - time) / (last - origin)
        place = max(k for k in range(len(edges) - 1) if edges[k] <= age + ON_EDGE and edges[k] < edges[k + 1])
        members[place].append((age, value))
    squares = [sum((v - np.mean([w for _, w in one])) ** 2 for _, v in one) for one in members]
    freedom = [max(len(one) - 1, 0) for one in members]
    overall = sum(squares) / max(sum(freedom), 1)
    found = []
    for k, one in enumerate(members):
        middle = (edges[k] + edges[k + 1]) / 2
        pooled, weight = SHARED * overall, SHARED
        for j in range(len(members)):
            near = math.exp(-LOCAL * abs(middle - (edges[j] + edges[j + 1]) / 2))
            pooled, weight = pooled + near * squares[j], weight + near * freedom[j]
        noise = pooled / weight
        found.append(
            {
                "newest": edges[k],
                "oldest": edges[k + 1],
                "count": len(one),
                "age": np.mean([a for a, _ in one]) if one else 0.0,
                "mean": np.mean([v for _, v in one]) if one else 0.0,
                "precision": len(one) / noise if noise > 0 else 0.0,
            }
        )
    return found


@pytest.mark.parametrize("name", LOGS)
def test_cells_are_those_of_a_loop_over_episodes(name: str) -> None:
    log = LOGS[name]
    found, slow = _divided(log), _slow_cells(log)
    for field in ("newest", "oldest", "count", "age", "mean", "precision"):
        np.testing.assert_allclose(
            getattr(found, field), [one[field] for one in slow], rtol=1e-9, atol=1e-12, err_msg=field
        )
    assert float(found.freedom) == sum(max(one["count"] - 1, 0) for one in slow)
    assert float(found.count.sum()) == log.times.size


@pytest.mark.parametrize("n", [1, 5, 6, 24, 47, 48, 96, 239, 240, 300, 640, 1279, 1280, 100_000])
def test_edges_are_even_and_the_newest_cell_is_halved(n: int) -> None:
    found = np.asarray(edges_of(jnp.asarray(n), jnp.float64))
    np.testing.assert_allclose(found, _slow_edges(n), rtol=1e-14)
    assert found[0] == 0
    assert found[-1] == 1
    assert np.all(np.diff(found) >= 0)
    lengths = np.diff(found)[np.diff(found) > 0]
    number = min(max(n // PER_CELL, 1), CELLS)
    np.testing.assert_allclose(lengths[len(lengths) - number + 1 :], 1 / number)  # all but the newest
    assert lengths.size == 1 or lengths[0] * n >= PER_HALF - 1e-9


def test_a_long_log_has_four_halvings_and_a_short_one_none() -> None:
    newest = [np.asarray(edges_of(jnp.asarray(n), jnp.float64))[: HALVINGS + 2] * CELLS for n in (10**6, 240)]
    np.testing.assert_allclose(newest[0], [0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1])
    np.testing.assert_allclose(newest[1], [0, 0, 0, 0, 0, 1])


@pytest.mark.parametrize("name", ["spare rows", "irregular", "many at one time"])
def test_the_order_of_the_rows_does_not_matter(name: str) -> None:
    log = LOGS[name]
    order = np.random.default_rng(2).permutation(log.times.size)
    one, other = _divided(log), _divided(Log(log.times[order], log.returns[order]))
    for field in ("newest", "oldest", "count", "age", "mean", "precision", "freedom"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(np.asarray(one.row_cells)[order], other.row_cells[: order.size])


@pytest.mark.parametrize("name", ["spare rows", "irregular", "few", "one"])
def test_spare_rows_do_not_matter(name: str) -> None:
    """Wherever they are, whatever they hold."""
    log = LOGS[name]
    tight, roomy = _divided(log, log.times.size), _divided(log)
    for field in ("newest", "oldest", "count", "age", "mean", "precision", "freedom"):
        np.testing.assert_allclose(getattr(tight, field), getattr(roomy, field), rtol=1e-12, atol=1e-15)
    series, axis = _series(log)
    turned = divide(Series(series.returns[::-1], series.times[::-1], series.present[::-1]), axis)
    np.testing.assert_allclose(turned.precision, tight.precision, rtol=1e-12)
    np.testing.assert_array_equal(turned.row_cells[::-1], roomy.row_cells)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_nothing_is_computed_with_the_returns_of_spare_rows(value: float) -> None:
    series, axis = _series(LOGS["spare rows"])
    odd = divide(Series(jnp.where(series.present, series.returns, value), series.times, series.present), axis)
    plain = divide(series, axis)
    np.testing.assert_array_equal(odd.mean, plain.mean)
    np.testing.assert_array_equal(odd.precision, plain.precision)


def test_episodes_outside_the_axis_are_left_out() -> None:
    """As when a test is asked what it would have said some time ago."""
    log = LOGS["regular"]
    series, axis = _series(log)
    earlier = divide(series, axis.before(np.asarray(299.0)))
    only = _divided(Log(log.times[:299], log.returns[:299]))
    np.testing.assert_array_equal(earlier.present, np.arange(ROOM) < 299)
    np.testing.assert_allclose(earlier.mean, only.mean, rtol=1e-12)
    np.testing.assert_allclose(earlier.precision, only.precision, rtol=1e-12)


def test_within_a_cell_episodes_differ_from_their_mean() -> None:
    log = LOGS["irregular"]
    found = _divided(log)
    values = np.random.default_rng(8).normal(size=(ROOM, 2))
    differences = np.asarray(found.within(jnp.asarray(values)))
    for cell in range(found.mean.size):
        members = np.flatnonzero(np.asarray(found.row_cells)[: log.times.size] == cell)
        own = values[members]
        np.testing.assert_allclose(differences[members], own - own.sum(0) / max(members.size, 1), atol=1e-12)
    np.testing.assert_array_equal(differences[log.times.size :], 0)


def test_unit_and_spread_are_of_the_weighted_mean() -> None:
    found = _divided(LOGS["irregular"])
    mean, precision = (np.asarray(one) for one in (found.mean, found.precision))
    average = np.average(mean, weights=precision)
    assert float(found.unit) == pytest.approx(1 / precision.sum(), rel=1e-12)
    assert float(found.spread) == pytest.approx(np.average((mean - average) ** 2, weights=precision))


def test_episodes_vary_or_do_not() -> None:
    times = np.arange(1.0, 301.0)
    noise = np.random.default_rng(4).normal(size=300)
    assert bool(_divided(Log(times, noise)).varies)
    assert bool(_divided(Log(times, 1e6 + noise)).varies)
    assert not bool(_divided(Log(times, np.full(300, 0.1))).varies)
    assert not bool(_divided(Log(times, 1e6 + 1e-9 * noise)).varies)  # the rounding of a million
    assert not bool(_divided(LOGS["one"]).varies)
    series, axis = _series(LOGS["regular"])
    assert not bool(divide(Series(series.returns, series.times, np.zeros(ROOM, bool)), axis).varies)


def _squares(noise: Floats) -> Floats:
    """Squared errors of the cells' means in units of what is claimed, for logs of nothing but noise."""
    times = np.arange(1.0, noise.shape[1] + 1)
    axis = TimeAxis.over((1.0, times[-1]), 10)
    many = jax.jit(jax.vmap(lambda one: cells.divide(Series(one, times, times > 0), axis)))
    found = many(jnp.asarray(noise))
    squares: Floats = np.asarray(found.mean) ** 2 * np.asarray(found.precision)
    return squares[:, np.asarray(found.count[0]) > 0]


def test_precisions_are_those_that_the_means_have() -> None:
    noise = np.random.default_rng(5).normal(size=(400, 240))
    steady, growing = _squares(noise), _squares(np.linspace(1.0, 3.0, 240) * noise)
    # The square of a normal variate has a variance of 2.
    assert abs(steady.mean() - 1) < 3 * math.sqrt(2 / steady.size)
    # Where noise triples, that of the whole log is some two thirds of what the newest quarter has.
    assert 1.0 < growing[:, :10].mean() < 1.35
    assert 0.5 < growing[:, -10:].mean() < 1.0


def test_in_32_bit_the_cells_are_the_same() -> None:
    log = LOGS["spare rows"]
    double = _divided(log)
    with jax.enable_x64(False):
        single = _divided(log)
        assert single.precision.dtype == jnp.float32
    np.testing.assert_array_equal(single.count, double.count)
    np.testing.assert_allclose(single.mean, double.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(single.precision, double.precision, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_different_times_are_counted_as_far_as_they_are_needed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times, present = rng.integers(-9, 9, 20).astype(float), rng.random(20) < 0.7
    there = len(set(times[present]))
    assert bool(have_times(times, present, there))
    assert not bool(have_times(times, present, there + 1))


def test_no_episode_has_a_time_where_there_is_none() -> None:
    assert not bool(have_times(np.arange(60.0), np.zeros(60, bool), 1))


def test_a_long_log_is_added_block_by_block() -> None:
    times = np.arange(1.0, 3 * BLOCK + 1)
    returns = np.sin(times) + np.random.default_rng(0).normal(size=times.size)
    found = _divided(Log(times, returns), times.size)
    rows = np.asarray(found.row_cells)
    count = np.bincount(rows, minlength=found.count.size)
    np.testing.assert_array_equal(found.count, count)
    sums = np.bincount(rows, returns, found.count.size)
    np.testing.assert_allclose(found.mean, sums / np.maximum(count, 1), rtol=1e-9)
