"""Arrays and pytrees: type names for signatures, typed tree operations, layouts of steps, and precision.

Decisions are made in 64-bit, whatever the caller's JAX setting, which is left unchanged. Sweeps may run
in 32-bit, but never in less: on a GPU, JAX by default multiplies 32-bit matrices with 10-bit mantissas,
and that moved the baseline's violation rate by a whole point.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float, Int, Shaped

ArrayLike: TypeAlias = jax.Array | npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def map_leaves(function: Callable[..., Any], tree: T, *others: Any) -> T:
    """Apply a function leaf by leaf; the result has the type of the tree."""
    mapped: T = jax.tree.map(function, tree, *others)
    return mapped


def replace_at(where: Callable[[T], Any], tree: T, values: Any) -> T:
    """The same tree with other values in some places."""
    replaced: T = eqx.tree_at(where, tree, values)
    return replaced


def in_double(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that takes and returns plain records with 64-bit JAX inside."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run


def full_products(function: Callable[P, R]) -> Callable[P, R]:
    """Trace a function with matrix products in the full precision of their inputs."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return run


class Layout(eqx.Module):
    """Where the steps of the episodes lie in an array, and what runs along them."""

    @abc.abstractmethod
    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, "*cells"]:
        """The number of each step within its episode, for an array of this shape."""

    @abc.abstractmethod
    def longest(self, shape: tuple[int, ...]) -> int:
        """How many steps an episode may have."""

    @abc.abstractmethod
    def firsts(self, values: Any) -> Any:
        """The values at the first step of each episode."""

    @abc.abstractmethod
    def spread(self, per_episode: Any) -> Any:
        """One value per episode, at each of its steps."""

    @abc.abstractmethod
    def running(self, values: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """The sum over the steps of an episode up to each of them."""

    @abc.abstractmethod
    def totals(self, values: Float[Array, "*cells"]) -> Float[Array, " n"]:
        """The sum over the steps of each episode."""

    @abc.abstractmethod
    def before(self, values: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """The value at the step before, 0 at the first one."""

    @abc.abstractmethod
    def lasting_mean(self, values: Float[Array, "*cells"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        """The weighted mean over all steps that an episode may have; after its end its last value lasts."""


class Grid(Layout):
    """Episodes × steps, with room for as many steps as the longest episode has."""

    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, "1 t"]:
        return jnp.arange(shape[1])[None]

    def longest(self, shape: tuple[int, ...]) -> int:
        return shape[1]

    def firsts(self, values: Any) -> Any:
        return values[:, 0]

    def spread(self, per_episode: Any) -> Any:
        return per_episode[:, None]

    def running(self, values: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return jnp.cumsum(values, axis=1)

    def totals(self, values: Float[Array, "n t"]) -> Float[Array, " n"]:
        return jnp.sum(values, axis=1)

    def before(self, values: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return jnp.pad(values[:, :-1], ((0, 0), (1, 0)))

    def lasting_mean(self, values: Float[Array, "n t"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        return jnp.sum(values * weights, axis=1) / jnp.sum(weights)


class Ragged(Layout):
    """The steps of all episodes one after the other, for episodes of very unequal length.

    `rows` and `steps` say for each step whose it is, and its place among them; `starts` where an episode
    begins. `num_steps` is the length of the longest episode of the whole log.
    """

    rows: Int[ArrayLike, " s"]
    steps: Int[ArrayLike, " s"]
    starts: Int[ArrayLike, " n"]
    num_steps: int = eqx.field(static=True)

    @classmethod
    def of(cls, lengths: Integers, num_steps: int) -> Self:
        """Episodes of these lengths."""
        starts = np.cumsum(lengths) - lengths
        rows = np.repeat(np.arange(lengths.size), lengths)
        return cls(rows, np.arange(rows.size) - starts[rows], starts, num_steps)

    @property
    def lengths(self) -> Integers:
        return np.diff(np.append(np.asarray(self.starts), np.size(self.rows)))

    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, " s"]:
        return jnp.asarray(self.steps)

    def longest(self, shape: tuple[int, ...]) -> int:
        return self.num_steps

    def firsts(self, values: Any) -> Any:
        return values[self.starts]

    def spread(self, per_episode: Any) -> Any:
        return per_episode[self.rows]

    def running(self, values: Float[Array, " s"]) -> Float[Array, " s"]:
        return recurrence(values, jnp.where(jnp.asarray(self.steps) == 0, 0.0, 1.0))

    def totals(self, values: Float[Array, " s"]) -> Float[Array, " n"]:
        # The last of the running sums, not a scatter: it adds up in a fixed order on every device.
        return self.running(values)[self._ends]

    def before(self, values: Float[Array, " s"]) -> Float[Array, " s"]:
        return jnp.where(jnp.asarray(self.steps) == 0, 0.0, jnp.roll(values, 1))

    def lasting_mean(self, values: Float[Array, " s"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        upto, last = jnp.cumsum(weights), jnp.asarray(self.steps)[self._ends]
        rest = upto[-1] - upto[last]
        sums = self.totals(values * weights[jnp.asarray(self.steps)])
        return (sums + jnp.where(rest > 0, values[self._ends] * rest, 0.0)) / upto[-1]

    @property
    def _ends(self) -> Int[Array, " n"]:
        return jnp.append(jnp.asarray(self.starts)[1:], np.size(self.rows)) - 1


def recurrence(values: Shaped[Array, "n *m"], factors: Float[Array, " n"]) -> Shaped[Array, "n *m"]:
    """yᵢ = xᵢ + factorᵢ · yᵢ₋₁ along the first axis; a factor 0 forgets the past, even an infinite one.

    In √n pieces at once, then the same for the pieces' ends: 2√n turns instead of n.
    """
    n = values.shape[0]
    if n == 0:
        return values
    width = math.isqrt(n - 1) + 1
    count = -(-n // width)

    def pieces(array: Array) -> Array:
        spare = [(0, count * width - n)] + [(0, 0)] * (array.ndim - 1)
        return jnp.moveaxis(jnp.pad(array, spare).reshape(count, width, *array.shape[1:]), 1, 0)

    def turn(last: tuple[Array, Array], new: tuple[Array, Array]) -> Any:
        now = new[0] + _kept(new[1], last[0]), new[1] * last[1]
        return now, now

    factors = factors.astype(values.dtype)
    zeros = jnp.zeros((count, *values.shape[1:]), values.dtype)
    start = (zeros, jnp.ones(count, values.dtype))
    _, (sums, products) = jax.lax.scan(turn, start, (pieces(values), pieces(factors)))

    def chain(carried: Array, end: tuple[Array, Array]) -> tuple[Array, Array]:
        return end[0] + _kept(end[1], carried), carried

    _, carried = jax.lax.scan(chain, zeros[0], (sums[-1], products[-1]))
    whole = sums + _kept(products, jnp.broadcast_to(carried, sums.shape))
    return jnp.moveaxis(whole, 0, 1).reshape(count * width, *values.shape[1:])[:n]


def _kept(factor: Array, value: Array) -> Array:
    factor = factor.reshape(*factor.shape, *[1] * (value.ndim - factor.ndim))
    return jnp.where(factor == 0, 0.0, factor * value)
