"""Typed wrappers of tree operations: what comes out has the type of what went in."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

T = TypeVar("T")


def map_leaves(function: Callable[..., Any], tree: T, *others: Any) -> T:
    """Apply a function leaf by leaf."""
    mapped: T = jax.tree.map(function, tree, *others)
    return mapped


def replace_at(where: Callable[[T], Any], tree: T, values: Any) -> T:
    """The same tree with other values in some places."""
    replaced: T = eqx.tree_at(where, tree, values)
    return replaced
