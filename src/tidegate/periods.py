"""Which season is in these returns? The period of the wave that explains most about a straight line.

A least-squares periodogram (Lomb, 1976; Scargle, 1982) that keeps the line in the fit, so that gaps
and drift do not pass for a season. Its cost is episodes × frequencies; memory grows with the episodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .arrays import full_products
from .errors import SettingsError

MAX_SHARE_OF_SPAN = 2 / 3  # a longer wave cannot be told from a line
SINGULAR = 1e-6
FINE = 17
AT_ONCE = 8  # frequencies tried together


@full_products
def estimate_period(
    values: Float[Array, " n"],
    times: Any,
    present: Any,
    *,
    longest: Any,
    shortest: Any,
    frequencies: int = 128,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The most likely period, and the share of the variance about a line that its wave explains.

    The frequencies are evenly spaced from that of `longest`, at most ⅔ of the span, to that of
    `shortest`. A peak is one cycle per span wide, so none is overlooked while span/shortest stays
    below about ¾ of `frequencies`. Pure noise has a best wave too: its share is about 2 ln(cycles)/n.
    """
    if frequencies < 3:
        raise SettingsError(f"frequencies is {frequencies}", expected="a count from 3 up")
    present = jnp.asarray(present)
    offsets, span = _centred(jnp.asarray(times), present)
    line = _line(offsets / span, present)
    about_line = jnp.where(present, values, 0.0)
    about_line = about_line - (line @ about_line) @ line

    def drop(frequency: Float[Array, ""]) -> Float[Array, ""]:
        """By how much a wave of this frequency lowers the sum of squares."""
        angles = 2 * jnp.pi * frequency * offsets
        waves = jnp.where(present, jnp.stack([jnp.cos(angles), jnp.sin(angles)]), 0.0)
        waves = waves - (waves @ line.T) @ line
        (cc, cs), (_, ss) = waves @ waves.T
        c, s = waves @ about_line
        determinant = cc * ss - cs**2
        lowered = (ss * c**2 - 2 * cs * c * s + cc * s**2) / determinant
        return jnp.where(determinant <= SINGULAR * (cc + ss) ** 2, 0.0, lowered)

    low = 1 / jnp.minimum(longest, MAX_SHARE_OF_SPAN * span)
    high = jnp.maximum(1 / jnp.asarray(shortest), low)
    coarse, _ = _highest(drop, jnp.linspace(low, high, frequencies))
    step = (high - low) / (frequencies - 1)
    near = jnp.clip(coarse + step * jnp.linspace(-1, 1, FINE), low, high)
    best, lowered = _highest(drop, near)
    squares = jnp.sum(about_line**2)
    return 1 / best, jnp.where(squares == 0, 0.0, lowered / squares)


def _highest(drop: Any, grid: Float[Array, " f"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Where on an even grid the function peaks, by a parabola through its three highest neighbours."""
    heights = jax.lax.map(drop, grid, batch_size=AT_ONCE)
    top = jnp.argmax(heights)
    inner = jnp.clip(top, 1, grid.size - 2)
    left, middle, right = heights[inner - 1], heights[inner], heights[inner + 1]
    curvature = left - 2 * middle + right
    shift = jnp.where(curvature < 0, (left - right) / jnp.where(curvature < 0, 2 * curvature, 1), 0)
    is_inner = (top == inner) & (jnp.abs(shift) <= 1)
    vertex = grid[inner] + shift * (grid[inner + 1] - grid[inner])
    return jnp.where(is_inner, vertex, grid[top]), heights[top]


def _centred(
    times: Float[Array, " n"], present: Bool[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Times about the middle of the log, and the log's length; absent rows at the middle."""
    first = jnp.min(jnp.where(present, times, jnp.inf))
    last = jnp.max(jnp.where(present, times, -jnp.inf))
    return jnp.where(present, times - (first + last) / 2, 0.0), last - first


def _line(x: Float[Array, " n"], present: Bool[Array, " n"]) -> Float[Array, "2 n"]:
    """An orthonormal basis of the straight lines."""
    ones = present / jnp.sqrt(jnp.sum(present))
    slope = jnp.where(present, x - jnp.sum(jnp.where(present, x, 0.0)) / jnp.sum(present), 0.0)
    return jnp.stack([ones, slope / jnp.sqrt(jnp.sum(slope**2))])
