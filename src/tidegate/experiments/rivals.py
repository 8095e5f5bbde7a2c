"""The intervals that the paper's Appendix D argues against, in the coordinates of `trend.py`.

Each rival is studentized by the variance that its own assumption licenses: then the degrees of freedom
that the fit has used up need no correction, and what fails is the assumption.
    plain t            pooled variance, Student's quantiles    normal noise of one scale
    residual, block    pooled variance, percentile-t           noise of one scale; stationary noise
    pairs              HC0 variance, percentile-t              any scale, but times drawn at random
So growing noise defeats the pooled variance rather than the resampling: the wild bootstrap and pairs
owe their robustness to HC0 as well.
The resampled episodes are an argument, B rows of n indices, so that randomness stays outside. Every
episode of the fit must be present, and the basis must contain the constant (residuals have mean 0).
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import stdtrit  # JAX itself needs scipy, so it is there

from ..bootstrap import ConfidenceInterval, Side, tail, tail_values
from ..trend import TrendFit


def episode_draws(key: PRNGKeyArray, draws: int, n: int) -> Int[Array, "b n"]:
    """Every episode drawn on its own, with replacement."""
    return jax.random.randint(key, (draws, n), 0, n, jnp.int32)


def block_draws(key: PRNGKeyArray, draws: int, n: int) -> Int[Array, "b n"]:
    """Moving blocks of `block_length(n)` neighbours, laid end to end and cut at n (Künsch, 1989)."""
    length = block_length(n)
    shape = (draws, -(-n // length), 1)
    starts = jax.random.randint(key, shape, 0, n - length + 1, jnp.int32)
    return (starts + jnp.arange(length, dtype=jnp.int32)).reshape(draws, -1)[:, :n]


def block_length(n: int) -> int:
    """n^(1/3), rounded: the rate that Hall, Horowitz and Jing (1995) find best for a variance."""
    return round(math.cbrt(n))


def plain_t_interval(fit: TrendFit, alpha: float) -> ConfidenceInterval:
    """Textbook least squares: exact if the noise is normal with a constant scale."""
    quantile = float(stdtrit(_degrees_of_freedom(fit), 1 - tail(alpha, Side.BOTH)))
    half = quantile * _pooled_spread(fit, jnp.sum(fit.residuals**2))
    return ConfidenceInterval(lower=fit.point - half, upper=fit.point + half)


def residual_interval(fit: TrendFit, drawn: Int[Array, "b n"], alpha: float) -> ConfidenceInterval:
    """Y* = Ŷ + resampled residuals. With `block_draws` it is the block bootstrap.

    As in the wild bootstrap no draw is refitted: with e* the resampled residuals and c = Qᵀe*,
        forecast* − forecast = uᵀc,    Σ residuals*² = Σ e*² − cᵀc.
    """
    noise = fit.residuals[drawn]
    c = noise @ fit.design.orthonormal.T
    squares = jnp.sum(noise**2, axis=1) - jnp.sum(c**2, axis=1)
    statistics = c @ fit.design.horizon / _pooled_spread(fit, squares)
    spread = _pooled_spread(fit, jnp.sum(fit.residuals**2))
    return _studentized_interval(fit, spread, statistics, alpha)


def pairs_interval(fit: TrendFit, drawn: Int[Array, "b n"], alpha: float) -> ConfidenceInterval:
    """Episodes resampled together with their times; NaN if a draw has fewer times than features.

    With w* how often each episode was drawn and G = Qᵀdiag(w*)Q, in every draw
        c = G⁻¹Qᵀ(w*ξ),  a* = Q G⁻¹u,  forecast* − forecast = uᵀc,  variance* = Σ w*(a*(ξ − Qc))².
    """
    q, u = fit.design.orthonormal, fit.design.horizon
    counts = _counts(drawn).astype(q.dtype)
    gram = (counts @ (q[:, None] * q).reshape(-1, q.shape[1]).T).reshape(-1, u.size, u.size)
    sides = jnp.stack([counts @ (fit.residuals * q).T, jnp.broadcast_to(u, gram.shape[:2])], axis=2)
    c, weights = jnp.moveaxis(jnp.linalg.solve(gram, sides), 2, 0)
    variance = jnp.sum(counts * ((weights @ q) * (fit.residuals - c @ q)) ** 2, axis=1)
    enough = jnp.sum(counts > 0, axis=1) >= u.size
    statistics = jnp.where(enough, c @ u / jnp.sqrt(variance), jnp.nan)
    return _studentized_interval(fit, jnp.sqrt(fit.variance), statistics, alpha)


def _counts(drawn: Int[Array, "b n"]) -> Int[Array, "b n"]:
    """How often each episode is in each draw."""
    return jax.vmap(lambda row: jnp.zeros_like(row).at[row].add(1))(drawn)


def _degrees_of_freedom(fit: TrendFit) -> int:
    return fit.residuals.size - fit.design.horizon.size


def _pooled_spread(fit: TrendFit, squares: Float[Array, "..."]) -> Float[Array, "..."]:
    """Standard error of the forecast from a sum of squared residuals, all of one scale."""
    return jnp.sqrt(squares / _degrees_of_freedom(fit) * jnp.sum(fit.design.horizon**2))


def _studentized_interval(
    fit: TrendFit, spread: Float[Array, ""], statistics: Float[Array, " b"], alpha: float
) -> ConfidenceInterval:
    low, high = tail_values(statistics, tail(alpha, Side.BOTH))
    return ConfidenceInterval(lower=fit.point - spread * high, upper=fit.point - spread * low)
