"""Hours of the day, days of the week: seasons of a known period that is too short for the time cells.

A season whose period is several cells long is a trend model like the others. One that fits into a cell is
averaged away there: it says nothing about the trend, but it matters for a window that is no whole number of
periods. So it is fitted to what the episodes of a cell differ by, and believed as far as they show it: with a
unit-information prior (Kass and Wasserman, 1995), its probability follows from the squares that it explains.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .arrays import eliminate
from .basis import TimeAxis
from .cells import Cells, Series

HARMONICS = 2  # waves per period
PRIOR = 0.2  # the probability that a calendar season is there
PER_COLUMN = 10  # episodes for each column that is fitted
LONGEST = 1 / 8  # of the log: a longer period is seen in the cells


class CalendarSeason(eqx.Module):
    """What a season adds to each episode and to the forecast, and the variance of the latter."""

    rows: Float[Array, " n"]
    ahead: Float[Array, ""]
    variance: Float[Array, ""]
    weight: Float[Array, ""]


def no_seasons(count: int, dtype: Any) -> CalendarSeason:
    """Nothing, for so many series of a log without a calendar."""
    zeros = jnp.zeros(count, dtype)
    return CalendarSeason(jnp.zeros((count, 1), dtype), zeros, zeros, zeros)


def calendar_season(
    periods: tuple[float, ...], series: Series, cells: Cells, axis: TimeAxis
) -> CalendarSeason:
    """The season with these periods, as far as the episodes within the cells show it."""

    def waves(times: Any) -> Float[Array, "n q"]:
        short = jnp.asarray(periods) <= LONGEST * axis.length
        angles = (
            2 * jnp.pi * times[:, None, None] / jnp.asarray(periods)[:, None] * jnp.arange(1, HARMONICS + 1)
        )
        both = jnp.where(short[:, None, None], jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1), 0.0)
        return both.reshape(times.size, -1)

    rows, ahead = waves(jnp.asarray(series.times)), axis.forecast_mean(waves)
    noise = jnp.sum(cells.count) * cells.unit  # of one episode
    columns = cells.within(rows) / jnp.sqrt(noise)
    target = cells.within(jnp.asarray(series.returns)[:, None])[:, 0] / jnp.sqrt(noise)
    count = jnp.sum(cells.present)
    information = columns.T @ columns
    used = jnp.diag(information) > 1e-6 * count / noise
    information = jnp.where(used[:, None] & used, information, 0.0) + jnp.diag(jnp.where(used, 0.0, 1.0))
    moments = jnp.where(used, columns.T @ target, 0.0)
    return _believed(rows, jnp.where(used, ahead, 0.0), information, moments, count, jnp.sum(used))


def _believed(
    rows: Float[Array, "n q"],
    ahead: Float[Array, " q"],
    information: Float[Array, "q q"],
    moments: Float[Array, " q"],
    count: Array,
    used: Array,
) -> CalendarSeason:
    size = moments.size
    border = jnp.concatenate(
        [jnp.stack([moments, ahead], axis=1), jnp.eye(size, dtype=moments.dtype)], axis=1
    )
    right = jnp.concatenate([information, border], axis=1)
    below = jnp.concatenate([border.T, jnp.zeros((size + 2, size + 2), moments.dtype)], axis=1)
    left, _ = eliminate(jnp.concatenate([right, below]), size)
    explained, across, spread, weights = -left[0, 0], -left[0, 1], -left[1, 1], -left[0, 2:]
    shrunk = count / (1 + count)
    log_odds = jnp.log(PRIOR / (1 - PRIOR)) + 0.5 * shrunk * explained - 0.5 * used * jnp.log1p(count)
    enough = (used > 0) & (count >= PER_COLUMN * used)
    weight = jnp.where(enough, 1 / (1 + jnp.exp(-log_odds)), 0.0)
    point = shrunk * across
    return CalendarSeason(
        rows=weight * shrunk * (rows @ weights),
        ahead=weight * point,
        variance=weight * shrunk * spread + weight * (1 - weight) * point**2,
        weight=weight,
    )
