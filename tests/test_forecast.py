"""Forecasts of policies: settings, reproducibility, precision, and the coverage of Theorem 2."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    Paired,
    RecentMeans,
    RecordedPolicy,
    SettingsError,
    SoftmaxPolicy,
    TwoBounds,
    forecast_performance,
    pdis_returns,
)
from tidegate.basis import TimeAxis
from tidegate.bootstrap import Rademacher, Side, percentile_t_interval
from tidegate.returns import is_returns, weighted_pdis_returns
from tidegate.trend import fit_trend, trend_design

from . import oracles


def _log(rows: int = 60, seed: int = 0) -> EpisodeLog:
    return EpisodeLog.from_frame(pd.DataFrame(oracles.one_step_frame(rows, seed)))


POLICY = SoftmaxPolicy([0.5, 0.0, -0.5])


def test_forecast_is_algorithm_2_on_pdis_returns() -> None:
    log = _log(12)
    basis = CosineBasis(1)
    settings = ForecastSettings(4, TwoBounds(basis), exact=True, alpha=0.1)
    forecast = forecast_performance(POLICY, log, settings)
    times, future = np.arange(1.0, 13), np.arange(13.0, 17)
    axis = TimeAxis(0.0, 12.0, 4)
    phi = np.asarray(basis.design_matrix(times, axis))
    varphi = np.asarray(basis.design_matrix(future, axis))
    y = np.asarray(pdis_returns(POLICY, log))
    signs = oracles.all_sign_vectors(12)
    expected = oracles.percentile_t_interval(phi, y, varphi, signs, 0.1)
    np.testing.assert_allclose([forecast.lower, forecast.upper], expected, atol=1e-9)
    np.testing.assert_allclose(forecast.returns, y)
    np.testing.assert_array_equal(forecast.forecast_times, future)
    assert "13 to 16" in str(forecast)


def test_the_constant_basis_forecasts_the_mean() -> None:
    log = _log()
    forecast = forecast_performance(POLICY, log, ForecastSettings(5, TwoBounds(ConstantBasis())))
    returns = np.asarray(pdis_returns(POLICY, log))
    assert forecast.point == pytest.approx(returns.mean())
    assert forecast.standard_error == pytest.approx(returns.std() / np.sqrt(60))


def test_same_seed_same_bits_and_64_bit_in_any_mode() -> None:
    log, settings = _log(), ForecastSettings(5)
    first = forecast_performance(POLICY, log, settings, seed=7)
    with jax.enable_x64(False):
        second = forecast_performance(POLICY, log, settings, seed=7)
        assert jnp.zeros(()).dtype == jnp.float32
    assert (first.lower, first.upper) == (second.lower, second.upper)
    assert forecast_performance(POLICY, log, settings, seed=8).lower != first.lower


def test_gaps_and_offsets_in_episode_numbers() -> None:
    """Only differences of episode numbers matter to a basis on the normalised axis."""
    columns = oracles.one_step_frame(30)
    base = forecast_performance(POLICY, EpisodeLog.from_frame(pd.DataFrame(columns)), ForecastSettings(3))
    shifted = forecast_performance(
        POLICY,
        EpisodeLog.from_frame(pd.DataFrame({**columns, "episode": columns["episode"] + 10_000})),
        ForecastSettings(3),
    )
    assert shifted.lower == pytest.approx(base.lower, rel=1e-9)
    assert shifted.forecast_times[0] == 10_031


def test_sides_and_tests() -> None:
    """One side at α is two sides at 2α; a paired test's interval is the same but for the leverage."""
    log = _log()
    both = forecast_performance(POLICY, log, ForecastSettings(5, alpha=0.1))
    lower, upper = (
        forecast_performance(POLICY, log, ForecastSettings(5), side=side) for side in (Side.LOWER, Side.UPPER)
    )
    assert (lower.lower, lower.upper) == (both.lower, np.inf)
    assert (upper.lower, upper.upper) == (-np.inf, both.upper)
    paired = forecast_performance(POLICY, log, ForecastSettings(5, Paired(), alpha=0.1))
    assert paired.point == both.point
    assert both.lower - 0.1 < paired.lower < both.lower
    assert both.upper < paired.upper < both.upper + 0.1


def test_recorded_policy_equals_the_policy_itself() -> None:
    columns = oracles.one_step_frame(40)
    probs = np.exp(np.asarray(POLICY.log_probs()))[columns["action"]]
    log = EpisodeLog.from_frame(pd.DataFrame({**columns, "p": probs}), recorded={"new": "p"})
    direct = forecast_performance(POLICY, log, ForecastSettings(5))
    recorded = forecast_performance(RecordedPolicy("new"), log, ForecastSettings(5))
    assert recorded.lower == pytest.approx(direct.lower, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lookahead": 0}, "lookahead is 0"),
        ({"lookahead": 2.5}, "lookahead is 2.5"),
        ({"lookahead": 1, "alpha": 0.0}, "alpha is 0.0"),
        ({"lookahead": 1, "alpha": 1.0}, "alpha is 1.0"),
        ({"lookahead": 1, "discount": 1.5}, "discount is 1.5"),
        ({"lookahead": 1, "draws": 10}, "at least 40 draws"),
        ({"lookahead": 1, "test": CosineBasis(1)}, r"test is CosineBasis.*TwoBounds\(…\)"),
    ],
)
def test_settings_out_of_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ForecastSettings(**change)


@pytest.mark.parametrize("estimator", [is_returns, weighted_pdis_returns])
def test_an_estimator_beside_a_value_model_is_refused(estimator: Any) -> None:
    """It would not be used: a value model's returns are doubly robust."""
    assert ForecastSettings(5, estimator=estimator).estimator is estimator
    assert ForecastSettings(5, value_model=RecentMeans()).estimator is pdis_returns
    with pytest.raises(SettingsError, match=r"estimator was chosen together with a value model"):
        ForecastSettings(5, estimator=estimator, value_model=RecentMeans())


def test_coverage_of_theorem_2() -> None:
    """95 ± 2 points at k = 500 with heteroscedastic, skewed noise; the plain t-interval beside it.

    2,000 simulated logs: a binomial standard error of 0.5 points.
    """
    k, runs, lookahead = 500, 2_000, 5
    times = np.arange(1.0, k + 1)
    future = np.arange(k + 1.0, k + lookahead + 1)
    axis = TimeAxis(0.0, float(k), lookahead)
    basis = CosineBasis(3)
    design = trend_design(basis, times, np.ones(k, bool), axis)
    weights = np.array([1.0, -0.7, 0.4, 0.2])
    trend = jnp.asarray(basis.design_matrix(times, axis) @ weights)
    truth = float(np.mean(basis.design_matrix(future, axis) @ weights))
    scale = jnp.asarray(0.2 + 3.0 * (times / k) ** 2)
    t_quantile = stats.t.ppf(0.975, k - 4)

    @jax.jit
    def covered(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise_key, sign_key = jax.random.split(key)
        noise = (jax.random.exponential(noise_key, (k,)) - 1) * scale
        fit = fit_trend(design, trend + noise)
        interval = percentile_t_interval(fit, Rademacher(sign_key, 500), 0.05)
        pooled = jnp.sum(fit.residuals**2) / (k - 4) * jnp.sum(design.forecast_weights**2)
        plain = jnp.abs(fit.point - truth) <= t_quantile * jnp.sqrt(pooled)
        return (interval.lower <= truth) & (truth <= interval.upper), plain

    wild, plain = jax.lax.map(covered, jax.random.split(jax.random.key(0), runs))
    wild_rate, plain_rate = float(jnp.mean(wild)), float(jnp.mean(plain))
    print(f"\ncoverage of 95 % intervals: wild bootstrap {wild_rate:.3f}, plain t {plain_rate:.3f}")
    assert 0.93 <= wild_rate <= 0.97
    assert plain_rate < 0.90
