"""Least squares of returns on the time basis, and the forecast it implies.

Everything that depends on the times alone is computed once (`trend_design`); a policy then only adds
its returns (`fit_trend`). The design is held in orthonormal coordinates Q (Φ = QR), where
    point forecast  aᵀY            with a = Q u, u = R⁻ᵀ · mean φ(τ)
    residuals       ξ = Y − QQᵀY
    variance        Σ aᵢ² ξᵢ²      = the mean over the δ×δ matrix of the paper's Algorithm 1.

An episode that pulls the trend towards itself has too small a residual: with leverage h, ξ/(1 − h) is how far
off the trend is that was fitted without it (HC3: MacKinnon and White, 1985). Tests of our own use that; the
paper's uses ξ as it is.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .arrays import full_products
from .basis import Basis, TimeAxis


class TrendDesign(eqx.Module):
    """What the times alone determine."""

    orthonormal: Float[Array, "d n"]  # Qᵀ: a row per time feature, so that sums run along memory
    factor: Float[Array, "d d"]
    horizon: Float[Array, " d"]
    present: Bool[Array, " n"]
    inflation: Float[Array, " n"]  # 1/(1 − h), or 1: what a residual is multiplied by to stand for its noise
    num_columns: Array
    conditioning: Float[Array, ""]

    @property
    def forecast_weights(self) -> Float[Array, " n"]:
        """a: the forecast is Σ aᵢ Yᵢ."""
        return self.horizon @ self.orthonormal

    @property
    def largest_share(self) -> Float[Array, ""]:
        """max aᵢ²/Σa²: how much of the forecast one episode decides (Huber, 1973)."""
        squares = self.forecast_weights**2
        return squares.max() / squares.sum()


class TrendFit(eqx.Module):
    """A policy's returns, the trend through them, its forecast and the forecast's variance."""

    design: TrendDesign
    returns: Float[Array, " n"]
    coordinates: Float[Array, " d"]
    residuals: Float[Array, " n"]
    point: Float[Array, ""]
    variance: Float[Array, ""]

    @property
    def noise(self) -> Float[Array, " n"]:
        """The residuals as the variance and the bootstrap take them."""
        return self.residuals * self.design.inflation

    def in_rows(self, place: Callable[..., Any]) -> Self:
        """The same with the episodes in other rows: `place` takes an array, and the axis of its rows."""
        design = dataclasses.replace(
            self.design,
            orthonormal=place(self.design.orthonormal, 1),
            present=place(self.design.present),
            inflation=place(self.design.inflation),
        )
        returns, residuals = place(self.returns), place(self.residuals)
        return dataclasses.replace(self, design=design, returns=returns, residuals=residuals)


@full_products
def trend_design(
    basis: Basis,
    times: Any,
    present: Any,
    axis: TimeAxis,
    *,
    corrected: bool = False,
) -> TrendDesign:
    """Orthonormalise the design matrix (Cholesky QR, twice: Yamamoto et al., 2015).

    `corrected` residuals are those of a trend that was fitted without the episode.
    """
    present = jnp.asarray(present)
    features = jnp.where(present, basis.design_matrix(times, axis).T, 0.0)
    unused = jnp.diag((~basis.active()).astype(features.dtype))
    once, first_factor = _orthonormalise(features, unused)
    twice, correction = _orthonormalise(once, unused)
    factor = correction @ first_factor
    horizon = axis.forecast_mean(lambda times: basis.design_matrix(times, axis))
    pivots = jnp.abs(jnp.diag(factor))
    return TrendDesign(
        orthonormal=twice,
        factor=factor,
        horizon=jax.scipy.linalg.solve_triangular(factor, horizon, trans="T"),
        present=present,
        inflation=_inflation(twice) if corrected else jnp.ones_like(twice[0]),
        num_columns=jnp.sum(basis.active()),
        conditioning=jnp.min(pivots) / jnp.max(pivots),
    )


@full_products
def fit_trend(design: TrendDesign, returns: Float[Array, " n"]) -> TrendFit:
    """Least squares of the returns on the design."""
    present = jnp.where(design.present, returns, 0.0)
    coordinates = design.orthonormal @ present
    residuals = jnp.where(design.present, present - coordinates @ design.orthonormal, 0.0)
    weighted = design.forecast_weights * (residuals * design.inflation)
    return TrendFit(
        design=design,
        returns=present,
        coordinates=coordinates,
        residuals=residuals,
        point=coordinates @ design.horizon,
        variance=jnp.sum(weighted**2),
    )


def trend_curve(fit: TrendFit, basis: Basis, axis: TimeAxis, times: Any) -> Float[Array, " m"]:
    """The fitted trend at any times, for pictures."""
    weights = jax.scipy.linalg.solve_triangular(fit.design.factor, fit.coordinates)
    return basis.design_matrix(times, axis) @ weights


def _inflation(orthonormal: Float[Array, "d n"]) -> Float[Array, " n"]:
    """1/(1 − h); infinite where an episode determines the trend alone, so that nothing rests on it."""
    room = 1 - jnp.sum(orthonormal**2, axis=0)
    least = np.sqrt(np.finfo(room.dtype).eps)
    return jnp.where(room > least, 1 / jnp.maximum(room, least), jnp.inf)


def _orthonormalise(
    features: Float[Array, "d n"], unused: Float[Array, "d d"]
) -> tuple[Float[Array, "d n"], Float[Array, "d d"]]:
    """Qᵀ and R with features = (QR)ᵀ; NaN where the features are linearly dependent."""
    factor = jnp.linalg.cholesky(features @ features.T + unused).T
    inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(factor.shape[0], dtype=factor.dtype))
    return inverse.T @ features, factor
