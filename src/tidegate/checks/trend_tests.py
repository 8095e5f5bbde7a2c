"""Tests of a fitted trend that hold when the noise is neither normal nor of constant variance.

Each statistic is a function of sums Σ zᵢ ξᵢ of the residuals. Flipping the residuals' signs gives its
distribution under the null (wild bootstrap of the score: Wu, 1986; Kline and Santos, 2012), so that
each test is one product of the multipliers with a few rows, linear in the number of episodes.
Rows are in time order; spare ones come last, with residuals of 0. Residuals enter the pseudo sums as
ξ/√(1 − h), which undoes the shrinkage by the fit (HC2: MacKinnon and White, 1985).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..arrays import full_products
from ..bootstrap import GivenMultipliers, Multipliers, weighted_sums
from ..trend import TrendDesign

DEPENDENT = 1e-6  # a column whose remainder is below this share of it adds nothing
SINGULAR = 1e-10
MIN_ROOM = 1e-9


class Significance(eqx.Module):
    """A statistic and how often chance alone gives one as large; NaN when it cannot be computed."""

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]


class Jump(eqx.Module):
    """The most likely jump: before which row, and how significant it is."""

    row: Int[Array, ""]
    significance: Significance


class Autocorrelation(eqx.Module):
    """The lag-1 autocorrelation with its own test, and the Ljung-Box test of all lags."""

    first: Float[Array, ""]
    first_p_value: Float[Array, ""]
    ljung_box: Significance


def bootstrap_p_value(statistic: Float[Array, ""], pseudo: Float[Array, " b"]) -> Float[Array, ""]:
    """(1 + #{T* ≥ T})/(1 + B): never zero (Davison and Hinkley, 1997, 4.2)."""
    reached = jnp.sum(pseudo >= statistic * (1 - 1e-12))
    sound = jnp.isfinite(statistic) & jnp.all(jnp.isfinite(pseudo))
    return jnp.where(sound, (1 + reached) / (1 + pseudo.size), jnp.nan)


def hc2_residuals(design: TrendDesign, residuals: Float[Array, " n"]) -> Float[Array, " n"]:
    """ξ/√(1 − h), with h the leverage: its square is unbiased when the variance is constant."""
    room = 1 - jnp.sum(design.orthonormal**2, axis=0)
    return jnp.where(room > MIN_ROOM, residuals / jnp.sqrt(jnp.maximum(room, MIN_ROOM)), 0.0)


@full_products
def score_test(
    design: TrendDesign,
    residuals: Float[Array, " n"],
    added: Float[Array, "m n"],
    multipliers: Multipliers,
) -> Significance:
    """Do these columns belong in the trend? The robust score test (Wooldridge, 1991), bootstrapped.

    With z the added columns after the trend is taken out: T = sᵀV⁻¹s, s = Σ zᵢξᵢ, V = Σ zᵢzᵢᵀξᵢ²/(1 − hᵢ).
    Columns that the trend already spans add nothing.
    """
    q, added = design.orthonormal, jnp.where(design.present, added, 0.0)
    remainder = added - (added @ q.T) @ q
    size = jnp.linalg.norm(remainder, axis=1)
    useful = size > DEPENDENT * jnp.linalg.norm(added, axis=1)
    z = jnp.where(useful[:, None], remainder / jnp.where(useful, size, 1.0)[:, None], 0.0)
    rows = z * hc2_residuals(design, residuals)
    whiten, rank = _whitening(rows @ rows.T)
    statistic = jnp.sum((whiten @ (z @ residuals)) ** 2)
    pseudo = weighted_sums(multipliers, lambda row: row, whiten @ rows)
    statistic = jnp.where(rank > 0, statistic, jnp.nan)
    return Significance(statistic, bootstrap_p_value(statistic, jnp.sum(pseudo**2, axis=1)))


def _whitening(covariance: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Int[Array, ""]]:
    """W with WᵀW the pseudo-inverse of the covariance, and its rank."""
    values, vectors = jnp.linalg.eigh(covariance)
    kept = values > SINGULAR * jnp.max(values)
    return jnp.where(kept, values, jnp.inf)[:, None] ** -0.5 * vectors.T, jnp.sum(kept)


@full_products
def jump_test(
    design: TrendDesign,
    residuals: Float[Array, " n"],
    multipliers: Multipliers,
    *,
    candidates: int = 50,
    trimming: float = 0.05,
) -> Jump:
    """Does the level jump at an unknown time? The largest score test over steps (Andrews, 1993).

    Its distribution under the null is that of the same maximum over sign-flipped residuals, with the
    regressors fixed (Hansen, 2000). Steps are tried at `candidates` times, none near the ends.
    """
    n, q = jnp.sum(design.present), design.orthonormal
    rows = jnp.linspace(trimming * n, (1 - trimming) * n, candidates).astype(int).clip(1, n - 1)
    fitted = (jnp.sum(q, axis=1, keepdims=True) - jnp.cumsum(q, axis=1)[:, rows - 1]).T

    def steps(q: Array, index: Array) -> Array:
        return (index >= rows[:, None]) - fitted @ q

    def total(make_rows: Callable[..., Array], *values: Array) -> Array:
        return weighted_sums(GivenMultipliers(jnp.ones((1, residuals.size))), make_rows, *values)[0]

    index, scaled = jnp.arange(residuals.size, dtype=residuals.dtype), hc2_residuals(design, residuals)
    variance = total(lambda q, i, e: (steps(q, i) * e) ** 2, q, index, scaled)
    spread = jnp.where(variance > 0, jnp.sqrt(variance), jnp.nan)
    scores = total(lambda q, i, e: steps(q, i) * e, q, index, residuals) / spread
    pseudo = weighted_sums(multipliers, lambda q, i, e: steps(q, i) * e, q, index, scaled) / spread
    statistic = jnp.max(scores**2)
    p_value = bootstrap_p_value(statistic, jnp.max(pseudo**2, axis=1))
    return Jump(rows[jnp.argmax(scores**2)], Significance(statistic, p_value))


@full_products
def autocorrelation_test(
    design: TrendDesign, residuals: Float[Array, " n"], lags: int, multipliers: Multipliers
) -> Autocorrelation:
    """Is the noise correlated from episode to episode? Ljung and Box (1978), bootstrapped.

    The textbook's χ² needs noise of constant variance. Here the products ξᵢξᵢ₊ₗ are sign-flipped about
    the small correlation that the fit itself puts into independent noise.
    """
    n, squares = jnp.sum(design.present), jnp.sum(residuals**2)
    products, expected = jax.lax.map(
        lambda lag: (_lagged(residuals, residuals, lag), _induced(design, residuals, lag)),
        jnp.arange(1, lags + 1),
    )
    sums, variances = jnp.sum(products, axis=1), jnp.sum(products**2, axis=1)
    pseudo = expected + weighted_sums(multipliers, lambda row: row, products)

    def portmanteau(sums: Float[Array, "... l"]) -> Float[Array, "..."]:
        return n * (n + 2) * jnp.sum((sums / squares) ** 2 / (n - jnp.arange(1, lags + 1)), -1)

    z = (sums[0] - expected[0]) / jnp.sqrt(variances[0])
    statistic = portmanteau(sums)
    return Autocorrelation(
        first=sums[0] / squares,
        first_p_value=2 * jax.scipy.stats.norm.sf(jnp.abs(z)),
        ljung_box=Significance(statistic, bootstrap_p_value(statistic, portmanteau(pseudo))),
    )


def _lagged(
    left: Float[Array, "*d n"], right: Float[Array, "*d n"], lag: Int[Array, ""]
) -> Float[Array, "*d n"]:
    """leftᵢ · rightᵢ₊ₗ, and 0 where there is no such pair."""
    n = left.shape[-1]
    return jnp.where(jnp.arange(n) < n - lag, left * jnp.roll(right, -lag, axis=-1), 0.0)


def _induced(design: TrendDesign, residuals: Float[Array, " n"], lag: Int[Array, ""]) -> Float[Array, ""]:
    """E Σ ξᵢξᵢ₊ₗ for independent noise ε, where ξ = (I − P)ε, with ξ² in place of the variances."""
    q, squares = design.orthonormal, residuals**2
    near = jnp.sum(_lagged(q, q, lag), axis=0) * (squares + jnp.roll(squares, -lag))
    mixed = ((q * squares) @ q.T) @ q
    return jnp.sum(_lagged(mixed, q, lag)) - jnp.sum(near)
