"""Noise that remembers: how strongly, what it does to the forecast's variance, and an interval for it.

The model is the simplest one, an autoregression of order 1: residuals j episodes apart have correlation
φʲ. Then the variance of a smooth weighted sum, such as a forecast, is (1 + φ)/(1 − φ) times what it
would be for independent noise. Noise that is weakly correlated over a long time is underestimated:
only its first lag is looked at. Rows are in time order; absent rows are skipped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .arrays import full_products
from .bootstrap import (
    ConfidenceInterval,
    DependentWild,
    KeyedMultipliers,
    Multipliers,
    Side,
    percentile_interval,
    percentile_t_interval,
    remembered,
)
from .errors import SettingsError
from .trend import TrendDesign, TrendFit

MAX_NOISE_MEMORY = 0.95
MAX_MULTIPLIER_MEMORY = 0.99  # beyond it, a block of multipliers would not forget the one before
SIGNIFICANT = 1.75  # standard errors; below them an autocorrelation is taken for chance


def residual_memory(
    residuals: Float[Array, " n"], present: Any, *, num_columns: Int[Array, ""] | int = 1
) -> Float[Array, ""]:
    """φ: the correlation of a residual with the one before it, between 0 and 0.95.

    A trend of d smooth columns takes memory out of its residuals, about (d + (d + 2)φ)/n (Kendall, 1954,
    for d = 1); that is put back.
    """
    correlation, _, count = _first_lag(residuals, jnp.asarray(present))
    room = jnp.maximum(count - num_columns - 2, 1)
    return jnp.clip((count * correlation + num_columns) / room, 0.0, MAX_NOISE_MEMORY)


def significant_memory(
    residuals: Float[Array, " n"], present: Any, *, num_columns: Int[Array, ""] | int = 1
) -> Float[Array, ""]:
    """`residual_memory`, or 0 where independent noise of changing variance could show as much."""
    memory = residual_memory(residuals, present, num_columns=num_columns)
    _, error, _ = _first_lag(residuals, jnp.asarray(present))
    return jnp.where(memory <= SIGNIFICANT * error, 0.0, memory)


def long_run_ratio(
    residuals: Float[Array, " n"], present: Any, *, num_columns: Int[Array, ""] | int = 1
) -> Float[Array, ""]:
    """(1 + φ)/(1 − φ): the factor that memory puts on a forecast's variance; 1 if φ may be chance."""
    memory = significant_memory(residuals, present, num_columns=num_columns)
    return (1 + memory) / (1 - memory)


def multiplier_memory(
    noise_memory: Float[Array, ""] | float, num_episodes: Int[Array, ""] | int
) -> Float[Array, ""]:
    """How long the multipliers must remember for noise of this memory: more than it, and more as n grows.

    They weigh autocovariances by memoryʲ = exp(−j/bandwidth); this is the bandwidth of least mean
    squared error in that family for an autoregression of order 1 (Andrews, 1991).
    """
    noise = jnp.asarray(noise_memory)
    bandwidth = jnp.cbrt(4 * noise**2 / (1 - noise**2) ** 2 * num_episodes)
    return jnp.minimum(jnp.exp(-1 / bandwidth), MAX_MULTIPLIER_MEMORY)


@full_products
def shortfall(design: TrendDesign, noise_memory: Any, multiplier_memory: Any) -> Float[Array, ""]:
    """Variance of the forecast over the variance that the bootstrap expects, for such noise.

    The bootstrap falls short twice: it weighs the autocovariances down, and its residuals are less
    correlated than the noise, being orthogonal to the trend. With Γ the noise's correlations, a the
    forecast's weights and I − P what turns noise into residuals, this is
        aᵀΓa / Σᵢⱼ aᵢaⱼ · multiplier_memory^|i−j| · [(I − P)Γ(I − P)ᵀ]ᵢⱼ
    in time and memory linear in n, since P has the rank of the basis.
    """
    a, q = design.forecast_weights, design.orthonormal
    scaled = design.scaled(q)
    reached = correlated(scaled, noise_memory)
    left = (design.horizon @ q) * q  # a times the columns of the trend, one row each
    kept = jnp.sum(a * correlated(a, noise_memory * multiplier_memory))
    spread = correlated(left, multiplier_memory)
    crossed = jnp.sum(spread * (a * reached))
    fitted = jnp.sum((left @ spread.T) * (reached @ scaled.T))
    return jnp.sum(a * correlated(a, noise_memory)) / (kept - 2 * crossed + fitted)


def dependent_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: float, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """The percentile interval of a bootstrap that remembers as long as these residuals ask for.

    Only the key and the number of draws of `multipliers` are used. The deviations are stretched to the
    variance that an autoregression of the estimated memory gives the forecast.
    """
    if not isinstance(multipliers, KeyedMultipliers):
        raise SettingsError(
            f"{type(multipliers).__name__} has no key",
            expected="multipliers drawn from a key, such as Rademacher",
            remedy="All sign vectors stand for independent noise: leave `exact` off.",
        )
    design = fit.design
    noise = significant_memory(fit.residuals, design.present, num_columns=design.num_columns)
    memory = multiplier_memory(noise, jnp.sum(design.present))
    dependent = DependentWild(multipliers.key, multipliers.draws, memory)
    interval = percentile_interval(fit, dependent, alpha, side)
    return _stretched(interval, fit, jnp.maximum(shortfall(design, noise, memory), 1.0))


def long_run_t_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: float, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """The percentile-t interval, its variance multiplied by `long_run_ratio`.

    For noise that is an autoregression of order 1 it covers better than `dependent_interval`, and costs
    no more than percentile-t; for noise with a longer, weaker memory it covers worse.
    """
    design = fit.design
    ratio = long_run_ratio(fit.residuals, design.present, num_columns=design.num_columns)
    return _stretched(percentile_t_interval(fit, multipliers, alpha, side), fit, ratio)


def _stretched(
    interval: ConfidenceInterval, fit: TrendFit, variance_ratio: Float[Array, ""]
) -> ConfidenceInterval:
    stretch = jnp.sqrt(variance_ratio)
    return ConfidenceInterval(
        lower=fit.point + stretch * (interval.lower - fit.point),
        upper=fit.point + stretch * (interval.upper - fit.point),
    )


def correlated(rows: Float[Array, "*d n"], memory: Any) -> Float[Array, "*d n"]:
    """Σⱼ memory^|i−j| · rowⱼ: the product with a matrix of correlations, without the matrix."""
    both = jnp.stack([rows, rows[..., ::-1]])
    sums = remembered(both, memory)
    return sums[0] + sums[1, ..., ::-1] - rows


def _first_lag(
    residuals: Float[Array, " n"], present: Bool[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""], Int[Array, ""]]:
    """Correlation of consecutive present residuals, its standard error if they are independent, n."""
    values = jnp.where(present, residuals, 0.0)
    rows = jnp.arange(values.size)
    last = jax.lax.cummax(jnp.where(present, rows, -1))
    previous = jnp.concatenate([jnp.full(1, -1), last[:-1]])
    products = jnp.where(present & (previous >= 0), values * values[previous], 0.0)
    squares = jnp.sum(values**2)
    scale = jnp.where(squares == 0, 1.0, squares)
    return jnp.sum(products) / scale, jnp.sqrt(jnp.sum(products**2)) / scale, jnp.sum(present)
