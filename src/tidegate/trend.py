"""Least squares of returns on the time basis, and the forecast it implies.

Everything that depends on the times alone is computed once (`trend_design`); a policy then only adds
its returns (`fit_trend`). The design is held in orthonormal coordinates Q (Φ = QR), where
    point forecast  aᵀY            with a = Q u, u = R⁻ᵀ · mean φ(τ)
    residuals       ξ = Y − QQᵀY
    variance        Σ aᵢ² ξᵢ²      = the mean over the δ×δ matrix of the paper's Algorithm 1.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .arrays import full_products
from .basis import Basis, TimeAxis


class TrendDesign(eqx.Module):
    """What the times alone determine."""

    orthonormal: Float[Array, "d n"]  # Qᵀ: a row per time feature, so that sums run along memory
    factor: Float[Array, "d d"]
    horizon: Float[Array, " d"]
    present: Bool[Array, " n"]
    num_columns: Array
    conditioning: Float[Array, ""]

    @property
    def forecast_weights(self) -> Float[Array, " n"]:
        """a: the forecast is Σ aᵢ Yᵢ."""
        return self.horizon @ self.orthonormal


class TrendFit(eqx.Module):
    """A policy's returns, the trend through them, its forecast and the forecast's variance."""

    design: TrendDesign
    returns: Float[Array, " n"]
    coordinates: Float[Array, " d"]
    residuals: Float[Array, " n"]
    point: Float[Array, ""]
    variance: Float[Array, ""]


@full_products
def trend_design(
    basis: Basis,
    times: Any,
    present: Any,
    axis: TimeAxis,
) -> TrendDesign:
    """Orthonormalise the design matrix (Cholesky QR, twice: Yamamoto et al., 2015)."""
    present = jnp.asarray(present)
    features = jnp.where(present, basis.design_matrix(times, axis).T, 0.0)
    unused = jnp.diag((~basis.active()).astype(features.dtype))
    once, first_factor = _orthonormalise(features, unused)
    twice, correction = _orthonormalise(once, unused)
    factor = correction @ first_factor
    horizon = jnp.mean(basis.design_matrix(axis.forecast_times, axis), axis=0)
    pivots = jnp.abs(jnp.diag(factor))
    return TrendDesign(
        orthonormal=twice,
        factor=factor,
        horizon=jax.scipy.linalg.solve_triangular(factor, horizon, trans="T"),
        present=present,
        num_columns=jnp.sum(basis.active()),
        conditioning=jnp.min(pivots) / jnp.max(pivots),
    )


@full_products
def fit_trend(design: TrendDesign, returns: Float[Array, " n"]) -> TrendFit:
    """Least squares of the returns on the design."""
    present = jnp.where(design.present, returns, 0.0)
    coordinates = design.orthonormal @ present
    residuals = jnp.where(design.present, present - coordinates @ design.orthonormal, 0.0)
    weights = design.forecast_weights
    return TrendFit(
        design=design,
        returns=present,
        coordinates=coordinates,
        residuals=residuals,
        point=coordinates @ design.horizon,
        variance=jnp.sum((weights * residuals) ** 2),
    )


def trend_curve(fit: TrendFit, basis: Basis, axis: TimeAxis, times: Any) -> Float[Array, " m"]:
    """The fitted trend at any times, for pictures."""
    weights = jax.scipy.linalg.solve_triangular(fit.design.factor, fit.coordinates)
    return basis.design_matrix(times, axis) @ weights


def _orthonormalise(
    features: Float[Array, "d n"], unused: Float[Array, "d d"]
) -> tuple[Float[Array, "d n"], Float[Array, "d d"]]:
    """Qᵀ and R with features = (QR)ᵀ; NaN where the features are linearly dependent."""
    factor = jnp.linalg.cholesky(features @ features.T + unused).T
    inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype))
    return inverse.T @ features, factor
