"""Returns in time cells: how many episodes each holds, their mean, and how well that mean is known.

Everything that forecasts works on at most some fifty cells, so a long log costs no more than reading it once.
Cells are equally long, but the newest one is halved again and again: what happened last matters most.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .basis import TimeAxis

CELLS, HALVINGS = 40, 4
PER_CELL = 6  # episodes of an average cell: fewer do not show how noisy they are
ON_EDGE = 1e-6  # an episode that lies on an edge belongs to the older cell, whatever the rounding
PER_HALF = 4  # and of the parts of the newest
MIN_CELLS = 4  # with episodes
BLOCK = 2**16  # episodes that are added at a time
LOCAL = 8.0  # an eighth of the log: over this, noise may change
SHARED = 20.0  # episodes that the noise of the whole log counts for: a calm stretch proves little


class Series(eqx.Module):
    """Returns with their times; spare rows are not `present`.

    `luck` is the variance that the contexts of a single episode bring to its expected return.
    """

    returns: Float[Array, "*m n"]
    times: Any
    present: Any
    luck: Any = 0.0

    @property
    def difference(self) -> "Series":
        """Of two series of returns, the first minus the second."""
        return Series(self.returns[0] - self.returns[1], self.times, self.present)


class Cells(eqx.Module):
    """A series in cells, the newest first; empty ones have a `precision` of 0.

    Ages are counted back from the last episode, in lengths of the log: a cell reaches from `newest` to
    `oldest`, and `age` is the mean of its episodes. `precision` is the inverse variance of a cell's mean.
    `row_cells` says which cell each row of the series is in; it is left out where only the cells matter.
    """

    newest: Float[Array, " c"]
    oldest: Float[Array, " c"]
    age: Float[Array, " c"]
    count: Float[Array, " c"]
    mean: Float[Array, " c"]
    precision: Float[Array, " c"]
    freedom: Float[Array, ""]
    row_cells: Any
    present: Any

    def without_rows(self) -> "Cells":
        """The cells alone: as much, however long the log is."""
        return dataclasses.replace(self, row_cells=None, present=None)

    @property
    def unit(self) -> Float[Array, ""]:
        """The variance of the mean of all episodes, if nothing moves."""
        return 1 / jnp.sum(self.precision)

    @property
    def spread(self) -> Float[Array, ""]:
        """The variance between the cells' means, noise included."""
        return jnp.sum(self.precision * self.unit * (self.mean - self.centre) ** 2)

    @property
    def centre(self) -> Float[Array, ""]:
        """The mean of all episodes, each cell by its precision."""
        return jnp.sum(self.precision * self.unit * self.mean)

    @property
    def enough(self) -> Bool[Array, ""]:
        """Whether enough cells have episodes: fewer show no movement."""
        return jnp.sum(self.count > 0) >= MIN_CELLS

    @property
    def varies(self) -> Bool[Array, ""]:
        """Whether the episodes of a cell differ at all, beyond rounding."""
        scale = jnp.max(jnp.abs(self.mean))
        epsilon = float(np.finfo(self.mean.dtype).eps)
        return (jnp.sum(self.precision) > 0) & (self.unit > (1e3 * epsilon * scale) ** 2) & (self.freedom > 0)

    def within(self, values: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """By how much the episodes of a cell differ from their mean."""
        known = jnp.where(self.present[:, None], values, 0.0)
        totals: Array = jax.ops.segment_sum(known, self.row_cells, self.count.size)
        means = totals / jnp.maximum(self.count, 1)[:, None]
        return jnp.where(self.present[:, None], known - means[self.row_cells], 0.0)


def divide(series: Series, axis: TimeAxis) -> Cells:
    """The series in time cells, with the noise that the episodes of a cell show among themselves."""
    (cells,) = divide_each([jnp.asarray(series.returns)], series.times, series.present, axis)
    return cells


def divide_each(
    returns: Sequence[Float[Array, " n"]], times: Any, present: Any, axis: TimeAxis
) -> list[Cells]:
    """Several series at the same times. Of a long log, a byte an episode matters: nothing is stacked."""
    times, dtype = jnp.asarray(times), returns[0].dtype
    present, ages = in_reach(times, present, axis), _ages(times, axis)
    edges = cell_edges(jnp.sum(present), dtype)
    inner = [(edges[one] <= ages + ON_EDGE).astype(jnp.int8) for one in range(1, edges.size - 1)]
    rows = jnp.where(present, functools.reduce(jnp.add, inner), 0)
    none = jnp.zeros(edges.size - 1, dtype)

    def of_one(_: Array, here: Array, time: Array, *values: Array) -> tuple[Array, ...]:
        known = (jnp.where(here, one, 0.0) for one in (_ages(time, axis), *values))
        return here.astype(dtype), *known

    count, *totals = _sums(of_one, (none,) * (2 + len(returns)), rows, present, times, *returns)
    age, *means = (total / jnp.maximum(count, 1) for total in totals)

    def square(row: Array, here: Array, *values: Array) -> tuple[Array, ...]:
        pairs = zip(values, means, strict=True)
        return tuple(jnp.where(here, (value - mean[row]) ** 2, 0.0) for value, mean in pairs)

    squares, freedom = (
        _sums(square, (none,) * len(returns), rows, present, *returns),
        jnp.maximum(count - 1, 0),
    )
    found = []
    for mean, spread in zip(means, squares, strict=True):
        noise = _noise((edges[1:] + edges[:-1]) / 2, spread, freedom)
        precision = jnp.where((count > 0) & (noise > 0), count / jnp.where(noise > 0, noise, 1), 0.0)
        found.append(
            Cells(edges[:-1], edges[1:], age, count, mean, precision, jnp.sum(freedom), rows, present)
        )
    return found


def in_reach(times: Any, present: Any, axis: TimeAxis) -> Bool[Array, " n"]:
    """The episodes that lie on this time axis."""
    ages = _ages(jnp.asarray(times), axis)
    return jnp.asarray(present) & (ages >= 0) & (ages < 1)


def _ages(times: Float[Array, " n"], axis: TimeAxis) -> Float[Array, " n"]:
    """Counted back from the last episode, in lengths of the log."""
    ages: Array = (axis.last - times) / axis.length
    return ages


def _sums(
    make: Callable[..., tuple[Array, ...]], start: tuple[Array, ...], cells: Int[Array, " n"], *rows: Any
) -> tuple[Array, ...]:
    """Sums over the rows of each cell. What is added is made block by block: a long log takes no room."""
    width = BLOCK if cells.size % BLOCK == 0 else cells.size

    def add(index: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        part, *parts = (jax.lax.dynamic_slice_in_dim(one, index * width, width) for one in (cells, *rows))
        return tuple(one.at[part].add(more) for one, more in zip(sums, make(part, *parts), strict=True))

    summed: tuple[Array, ...] = jax.lax.fori_loop(0, cells.size // width, add, start)
    return summed


def cell_edges(count: Int[Array, ""], dtype: Any) -> Float[Array, " c"]:
    """Ages that separate the cells of a log with `count` episodes; cells that it has no use for are empty."""
    number = jnp.clip(count // PER_CELL, 1, CELLS)
    parts = 0.5 ** jnp.arange(HALVINGS, 0, -1)
    parts = jnp.where(count / number * parts >= PER_HALF, parts, 0.0)
    ages = jnp.concatenate([jnp.zeros(1), parts, jnp.arange(1, CELLS + 1)]) / number
    return jnp.minimum(ages, 1.0).astype(dtype)


def _noise(
    age: Float[Array, " c"], squares: Float[Array, " c"], freedom: Float[Array, " c"]
) -> Float[Array, " c"]:
    """The variance of a return in each cell, from the cells near in time and from all."""
    near = jnp.exp(-LOCAL * jnp.abs(age[:, None] - age))
    overall = jnp.sum(squares) / jnp.maximum(jnp.sum(freedom), 1)
    return (near @ squares + SHARED * overall) / (near @ freedom + SHARED)


def have_times(times: Any, present: Any, least: int) -> Bool[Array, ""]:
    """Whether the episodes have at least so many different times."""
    times = jnp.asarray(times)

    def next_time(_: int, last: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.min(jnp.where(present & (times > last), times, jnp.inf), initial=jnp.inf)

    found: Bool[Array, ""] = jnp.isfinite(
        jax.lax.fori_loop(0, least, next_time, jnp.full((), -jnp.inf, times.dtype))
    )
    return found
