"""The paired test: one bound on the forecast of candidate − safe, on the same episodes.

Both policies see the same noise, so their difference is known better than either; and one bound at α
replaces two at α/2. With `scales`, the bound must hold at every scale that the training episodes make
credible; otherwise the given basis is the only scale, and it is taken to be free of bias.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .arrays import map_leaves
from .basis import TimeAxis
from .bootstrap import Multipliers
from .episodes import EpisodeLog
from .performance import ForecastSettings, design_for, series_of
from .scales import (
    ScaleChoice,
    ScaleForecasts,
    forecast_scales,
    largest,
    lower_bounds,
    scale_forecasts,
    smallest,
    tail_probability,
    upper_bounds,
)
from .trend import fit_trend


class PairedTest(eqx.Module):
    """The forecast advantage, and what all scales say of it together.

    `lower` is the smallest lower bound of the scales that must pass, `p_value` the largest p-value of
    "the advantage is at most −margin"; `point` is the forecast of the leading scale. `agree` says that
    no watched scale forecasts a disadvantage, beyond chance.
    """

    point: Float[Array, ""]
    lower: Float[Array, ""]
    p_value: Float[Array, ""]
    p_values: Float[Array, " j"]
    agree: Bool[Array, ""]
    forecasts: ScaleForecasts


def paired_test(
    settings: ForecastSettings,
    held_out: tuple[EpisodeLog, Float[Array, " n"]],
    training: tuple[EpisodeLog, Float[Array, " m"]],
    axis: TimeAxis,
    multipliers: Multipliers,
    *,
    margin: Float[Array, ""] | float = 0.0,
    level: Float[Array, ""] | float,
) -> PairedTest:
    """Forecast the difference from held-out episodes, with scales tried on training ones.

    Both come with the estimated difference of the policies' returns in each episode.
    """
    if settings.scales is None:
        forecasts = _whole_log(settings, *held_out, axis, multipliers)
    else:
        series, past = series_of(*held_out), series_of(*training)
        forecasts = forecast_scales(settings.scales, series, past, axis, multipliers)
    points, choice = forecasts.fits.point, forecasts.choice
    p_values = jax.vmap(tail_probability)(
        (points + margin) / forecasts.errors, forecasts.draws, forecasts.freedom
    )
    return PairedTest(
        point=points[choice.best],
        lower=smallest(lower_bounds(forecasts, level), choice.needed),
        p_value=largest(p_values, choice.needed),
        p_values=p_values,
        agree=_agree(forecasts, -margin, settings.alpha),
        forecasts=forecasts,
    )


def _agree(
    forecasts: ScaleForecasts, limit: Float[Array, ""] | float, alpha: float
) -> Bool[Array, ""]:
    """Noise alone turns the sign at short scales: only what is clearly below the limit contradicts, and
    the more scales are watched, the clearer it must be."""
    watched = forecasts.choice.watched
    level = alpha / jnp.maximum(jnp.sum(watched), 1)
    # Where the policies did the same throughout a scale, there is no noise: its point is the bound.
    same = forecasts.fits.variance == 0
    above = jnp.where(same, forecasts.fits.point >= limit, upper_bounds(forecasts, level) > limit)
    return jnp.all(jnp.where(watched, above, True))


def _whole_log(
    settings: ForecastSettings,
    log: EpisodeLog,
    difference: Float[Array, " n"],
    axis: TimeAxis,
    multipliers: Multipliers,
) -> ScaleForecasts:
    """The given basis as the only scale, taken to be free of bias."""
    design = map_leaves(lambda leaf: jnp.asarray(leaf)[None], design_for(settings, log, axis))
    fits = jax.vmap(fit_trend, (0, None))(design, difference)
    only = jnp.ones(1, bool)
    choice = ScaleChoice(jnp.zeros((), int), only, only, jnp.ones((), bool))
    span = jnp.reshape(axis.length, (1,))
    counts = jnp.sum(design.present, axis=1)
    return scale_forecasts(span, counts, fits, jnp.zeros(1), choice, multipliers)
