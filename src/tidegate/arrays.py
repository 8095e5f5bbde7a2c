"""Arrays and pytrees: type names for signatures, typed tree operations, and precision.

Decisions are made in 64-bit, whatever the caller's JAX setting, which is left unchanged. Sweeps may run
in 32-bit, but never in less: on a GPU, JAX by default multiplies 32-bit matrices with 10-bit mantissas,
and that moved the baseline's violation rate by a whole point.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt

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
