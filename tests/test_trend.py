"""Bases, least squares and the sandwich variance against closed forms and statsmodels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm

from tidegate import ConstantBasis, CosineBasis, FourierBasis, PolynomialBasis, SettingsError
from tidegate.basis import Basis, PeriodicBasis, TimeAxis
from tidegate.trend import TrendDesign, fit_trend, trend_curve, trend_design

from . import oracles

BASES: list[Basis] = [
    ConstantBasis(),
    CosineBasis(3),
    FourierBasis(2, 55.0),
    PolynomialBasis(0),
    PolynomialBasis(3),
    PeriodicBasis(40.0, harmonics=2),
]
RNG = np.random.default_rng(0)
TIMES = np.sort(RNG.choice(np.arange(1, 121), 80, replace=False)).astype(float)
FUTURE = np.arange(121.0, 129.0)
AXIS = TimeAxis(0.0, 120.0, 8)
Y = np.sin(TIMES / 20) + RNG.normal(size=80) * (0.1 + TIMES / 100)


def _design(basis: Basis) -> TrendDesign:
    return trend_design(basis, TIMES, np.ones(80, bool), AXIS)


@pytest.mark.parametrize("basis", BASES)
def test_forecast_follows_algorithm_1(basis: Basis) -> None:
    fit = fit_trend(_design(basis), jnp.asarray(Y))
    phi = np.asarray(basis.design_matrix(TIMES, AXIS))
    varphi = np.asarray(basis.design_matrix(FUTURE, AXIS))
    point, variance, residuals = oracles.forecast(phi, Y, varphi)
    assert float(fit.point) == pytest.approx(point, rel=1e-10)
    assert float(fit.variance) == pytest.approx(variance, rel=1e-10)
    np.testing.assert_allclose(fit.residuals, residuals, atol=1e-12)
    np.testing.assert_allclose(fit.design.forecast_weights @ Y, point, rtol=1e-10)
    np.testing.assert_allclose(trend_curve(fit, basis, AXIS, TIMES), Y - residuals, atol=1e-11)


@pytest.mark.parametrize("basis", BASES)
def test_variance_is_statsmodels_hc0(basis: Basis) -> None:
    phi = np.asarray(basis.design_matrix(TIMES, AXIS))
    at = np.asarray(basis.design_matrix(FUTURE, AXIS)).mean(axis=0)
    covariance = sm.OLS(Y, phi).fit(cov_type="HC0").cov_params()
    fit = fit_trend(_design(basis), jnp.asarray(Y))
    assert float(fit.variance) == pytest.approx(at @ covariance @ at, rel=1e-9)


def test_basis_formulas() -> None:
    x = TIMES / 128
    np.testing.assert_allclose(
        CosineBasis(2).design_matrix(TIMES, AXIS)[:, 2], np.cos(2 * np.pi * x), atol=1e-12
    )
    fourier = np.asarray(FourierBasis(3, 40.0).design_matrix(TIMES, AXIS))
    np.testing.assert_allclose(fourier[:, 1], np.sin(2 * np.pi * 2 * TIMES / 40) / 2, atol=1e-12)
    np.testing.assert_allclose(np.sum(fourier**2, axis=1), 1.0)  # φφᵀ = 1, as the proof needs
    cubic = PolynomialBasis(3).design_matrix(TIMES, AXIS)
    powers = np.vander(x, 4)
    residual = powers - cubic @ np.linalg.lstsq(np.asarray(cubic), powers, rcond=None)[0]
    assert np.abs(residual).max() < 1e-12
    season = PeriodicBasis(30.0).design_matrix(TIMES, TimeAxis(10.0, 120.0, 8))
    angles = 2 * np.pi * (TIMES - 10) / 30
    expected = [np.ones(80), (TIMES - 10) / 118, np.cos(angles), np.sin(angles)]
    np.testing.assert_allclose(season, np.stack(expected, axis=1), atol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 3])
def test_switched_off_columns_change_nothing(order: int) -> None:
    plain = fit_trend(_design(CosineBasis(order)), jnp.asarray(Y))
    traced = jax.jit(lambda n: fit_trend(_design(CosineBasis(n, columns=5)), jnp.asarray(Y)))(order)
    assert float(traced.point) == pytest.approx(float(plain.point), rel=1e-12)
    assert float(traced.variance) == pytest.approx(float(plain.variance), rel=1e-12)
    assert int(traced.design.num_columns) == order + 1


def test_spare_rows_change_nothing() -> None:
    basis = CosineBasis(3)
    present = np.concatenate([np.ones(80, bool), np.zeros(40, bool)])
    design = trend_design(basis, np.pad(TIMES, (0, 40)), present, AXIS)
    padded = fit_trend(design, jnp.asarray(np.pad(Y, (0, 40), constant_values=np.nan)))
    plain = fit_trend(_design(basis), jnp.asarray(Y))
    assert float(padded.point) == pytest.approx(float(plain.point), rel=1e-12)
    assert float(padded.variance) == pytest.approx(float(plain.variance), rel=1e-12)


def test_an_ill_conditioned_design_is_still_solved_well() -> None:
    """Data on a fifth of the axis: condition number near 1e4, squared in the normal equations."""
    times = np.arange(401.0, 501.0)
    axis = TimeAxis(0.0, 500.0, 1)
    basis = CosineBasis(4)
    design = trend_design(basis, times, np.ones(100, bool), axis)
    phi = np.asarray(basis.design_matrix(times, axis))
    assert np.linalg.cond(phi) > 1e4
    y = np.sin(times)
    at = np.asarray(basis.design_matrix(np.array([501.0]), axis))
    reference = (at @ np.linalg.lstsq(phi, y, rcond=None)[0]).item()
    assert float(fit_trend(design, jnp.asarray(y)).point) == pytest.approx(reference, rel=1e-9)


def test_a_singular_design_is_seen() -> None:
    one_time = trend_design(CosineBasis(2), np.ones(20), np.ones(20, bool), AXIS)
    assert not bool(one_time.conditioning > 1e-8)
    assert float(_design(CosineBasis(2)).conditioning) > 1e-3


@pytest.mark.parametrize("order", [-1, 1.5])
def test_bad_orders(order: int) -> None:
    for make in (CosineBasis, PolynomialBasis, lambda n: FourierBasis(n, 10.0)):
        with pytest.raises(SettingsError, match=r"order of the basis"):
            make(order)
    with pytest.raises(SettingsError, match=r"period"):
        FourierBasis(1, 0.0)
    with pytest.raises(SettingsError, match=r"period"):
        PeriodicBasis(-1.0)
    with pytest.raises(SettingsError, match=r"harmonics"):
        PeriodicBasis(10.0, harmonics=0)


def test_orders_are_static_for_a_plain_user() -> None:
    assert eqx.filter(CosineBasis(3), eqx.is_array).order is None
