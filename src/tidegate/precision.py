"""Decisions are made in 64-bit, whatever the caller's JAX is set to, and the setting is left alone.

Sweeps may run in 32-bit, but never in less: on a GPU, JAX multiplies 32-bit matrices with 10-bit
mantissas unless told otherwise, and that moved the baseline's violation rate by a whole point.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


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
