"""Noise with memory: estimates against loops and dense matrices, intervals by their coverage."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jaxtyping import Array
from scipy.linalg import toeplitz

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    PolynomialBasis,
    Rademacher,
    SettingsError,
    Side,
    SoftmaxPolicy,
    dependent_interval,
    dependent_wild,
    forecast_performance,
    long_run_ratio,
    long_run_t_interval,
    multiplier_memory,
    percentile_interval,
    percentile_t_interval,
    residual_memory,
    safety_test,
)
from tidegate.basis import TimeAxis
from tidegate.bootstrap import DependentWild
from tidegate.candidate import Objective, straight_through_bound
from tidegate.dependence import MAX_MULTIPLIER_MEMORY, correlated, shortfall
from tidegate.trend import TrendDesign, fit_trend, trend_design

from . import oracles


def _autoregression(runs: int, n: int, memory: float, seed: int = 0) -> oracles.Matrix:
    """Stationary normal noise of variance 1, one episode at a time."""
    shocks = np.random.default_rng(seed).normal(size=(runs, n))
    noise = shocks.copy()
    for i in range(1, n):
        noise[:, i] = memory * noise[:, i - 1] + np.sqrt(1 - memory**2) * shocks[:, i]
    return noise


def _line_design(n: int, spare: int = 0, weights: oracles.Vector | None = None) -> TrendDesign:
    times, future = np.arange(1.0, n + 1), np.arange(n + 1.0, n + 6)
    present = np.arange(n + spare) < n
    padded = np.pad(times, (0, spare))
    axis = TimeAxis(0.0, n + 5.0)
    return trend_design(PolynomialBasis(1), padded, present, future, axis, weights)


def test_memory_skips_absent_rows_and_corrects_the_bias() -> None:
    rng = np.random.default_rng(1)
    residuals, present = _autoregression(1, 200, 0.7)[0], rng.random(200) < 0.6
    kept = residuals[present]
    raw = sum(kept[i] * kept[i - 1] for i in range(1, kept.size)) / np.sum(kept**2)
    expected = (raw + 3 / kept.size) / (1 - 5 / kept.size)
    hidden = jnp.asarray(np.where(present, residuals, np.nan))
    found = residual_memory(hidden, present, num_columns=3)
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert float(residual_memory(jnp.asarray(residuals * (-1.0) ** np.arange(200)), present)) == 0


@pytest.mark.parametrize("memory", [0.3, 0.6])
def test_estimated_memory_is_nearly_unbiased_in_short_logs(memory: float) -> None:
    """Uncorrected, the mean over 60 episodes about a line is too small by (2 + 4 memory)/60."""
    design, noise = _line_design(60), _autoregression(3_000, 60, memory)
    residuals = jax.vmap(lambda y: fit_trend(design, y).residuals)(jnp.asarray(noise))
    estimates = jax.vmap(lambda r: residual_memory(r, design.present, num_columns=2))(residuals)
    raw = np.sum(residuals[:, 1:] * residuals[:, :-1], axis=1) / np.sum(residuals**2, axis=1)
    assert memory - raw.mean() > 0.04
    assert abs(float(jnp.mean(estimates)) - memory) < 0.025


def _ratios(noise: oracles.Matrix) -> oracles.Vector:
    design = _line_design(noise.shape[1])
    return np.asarray(
        jax.vmap(
            lambda y: long_run_ratio(fit_trend(design, y).residuals, design.present, num_columns=2)
        )(jnp.asarray(noise))
    )


def test_independent_noise_is_left_alone() -> None:
    """A false alarm in about 4 % of logs (one-sided 1.75 standard errors), also with changing variance."""
    rng = np.random.default_rng(2)
    steady = rng.normal(size=(2_000, 300))
    wild = rng.standard_t(3, size=(2_000, 300)) * np.linspace(0.2, 3, 300)
    for noise in (steady, wild):
        ratios = _ratios(noise)
        assert np.mean(ratios > 1) < 0.04 + 4 * np.sqrt(0.04 / 2_000)
        assert ratios.mean() < 1.03
        assert ratios.std() < 0.1


def test_the_ratio_is_that_of_the_variances() -> None:
    """Of the forecast under noise with memory 0.6 to that under independent noise: 4, nearly."""
    design, noise = _line_design(1_000), _autoregression(1_000, 1_000, 0.6)
    a = np.asarray(design.forecast_weights)
    measured = np.var(noise @ a) / np.sum(a**2)
    ratios = _ratios(noise)
    assert ratios.mean() == pytest.approx(4, rel=0.05)
    assert measured == pytest.approx(ratios.mean(), rel=5 * np.sqrt(2 / 1_000))


def test_multipliers_remember_longer_than_the_noise() -> None:
    bandwidth = (4 * 0.36 / 0.64**2 * 300) ** (1 / 3)
    assert float(multiplier_memory(0.6, 300)) == pytest.approx(np.exp(-1 / bandwidth))
    assert float(multiplier_memory(0.0, 300)) == 0
    assert float(multiplier_memory(0.6, 3_000)) > float(multiplier_memory(0.6, 300)) > 0.9
    assert float(multiplier_memory(0.95, 10**7)) == MAX_MULTIPLIER_MEMORY


@pytest.mark.parametrize("weighted", [False, True])
def test_shortfall_agrees_with_dense_matrices(weighted: bool) -> None:
    n, noise, memory = 45, 0.6, 0.85
    weights = 2.0 ** (np.arange(n) / 10) if weighted else np.ones(n)
    design = _line_design(n, weights=weights if weighted else None)
    a = np.asarray(design.forecast_weights)
    phi = np.stack([np.ones(n), np.arange(n)], axis=1)
    fitted = phi @ np.linalg.inv(phi.T @ (weights[:, None] * phi)) @ (weights[:, None] * phi).T
    gamma, kernel = (toeplitz(m ** np.arange(n)) for m in (noise, memory))
    left = (np.eye(n) - fitted) @ gamma @ (np.eye(n) - fitted).T
    expected = (a @ gamma @ a) / (a @ (kernel * left) @ a)
    assert float(jax.jit(shortfall)(design, noise, memory)) == pytest.approx(expected, rel=1e-10)
    rows = np.random.default_rng(0).normal(size=(2, n))
    np.testing.assert_allclose(jax.jit(correlated)(rows, noise), rows @ gamma, atol=1e-12)


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.92), (0.6, 0.9)])
def test_coverage_of_95_percent_intervals_for_a_line(memory: float, least: float) -> None:
    """1,000 logs of 300 episodes. With memory 0.6 the plain bootstrap covers two times out of three."""
    runs, design = 1_000, _line_design(300)
    noise = jnp.asarray(_autoregression(runs, 300, memory, seed=5))
    key = jax.random.key(1)

    def covers(y: Array) -> Array:
        fit = fit_trend(design, y)
        found = residual_memory(fit.residuals, design.present, num_columns=2)
        estimated = DependentWild(key, 200, multiplier_memory(found, 300))
        intervals = (
            percentile_t_interval(fit, Rademacher(key, 200), 0.05),
            percentile_interval(fit, estimated, 0.05),
            dependent_interval(fit, Rademacher(key, 200), 0.05),
            long_run_t_interval(fit, Rademacher(key, 200), 0.05),
        )
        return jnp.stack([(one.lower <= 0) & (one.upper >= 0) for one in intervals])

    covered = np.asarray(jax.jit(jax.vmap(covers))(noise)).mean(axis=0)
    plain, unstretched, dependent, long_run = covered
    error = np.sqrt(0.9 * 0.1 / runs)
    for coverage in (dependent, long_run):
        assert least < coverage < 0.95 + 3 * error
    if memory:
        assert plain < 0.75
        assert plain + 10 * error < unstretched < dependent
        assert unstretched > 0.87 - 3 * error


@jax.jit
def _bounds(design: TrendDesign, returns: Array) -> tuple[Array, Array]:
    fit = fit_trend(design, returns)
    interval = dependent_interval(fit, Rademacher(jax.random.key(3), 100), 0.1, Side.LOWER)
    return interval.lower, interval.upper


def test_spare_rows_do_not_change_the_interval_and_nan_leaves_none() -> None:
    noise = _autoregression(1, 120, 0.5)[0]
    lower, upper = _bounds(_line_design(120), noise)
    assert lower < 0
    assert upper == np.inf
    padded = np.pad(noise, (0, 80), constant_values=np.nan)
    assert float(_bounds(_line_design(120, spare=80), padded)[0]) == pytest.approx(
        float(lower), rel=1e-12
    )
    noise[7] = np.nan
    assert np.all(np.isnan(_bounds(_line_design(120), noise)))


def test_settings_choose_memory_and_the_record_names_it() -> None:
    log = EpisodeLog.from_frame(pd.DataFrame(oracles.one_step_frame(60)))
    policy, other = SoftmaxPolicy([0.5, 0.0, -0.5]), SoftmaxPolicy([0.0, 0.0, 0.0])
    fixed = ForecastSettings(
        4,
        basis=CosineBasis(1),
        multipliers=dependent_wild(0.8),
        interval=percentile_interval,
    )
    adaptive = ForecastSettings(4, basis=CosineBasis(1), interval=dependent_interval)
    forecasts = [forecast_performance(policy, log, one, seed=2) for one in (fixed, fixed, adaptive)]
    assert forecasts[0].lower == forecasts[1].lower < forecasts[0].point < forecasts[0].upper
    assert forecasts[2].lower < forecasts[2].point < forecasts[2].upper
    for settings, names in (
        (fixed, ("DependentWild(memory=0.8)", "percentile_interval")),
        (adaptive, ("Rademacher", "dependent_interval")),
    ):
        decision = safety_test(policy, other, HeldOutEpisodes(log), settings)
        recorded = json.loads(decision.to_json())["settings"]
        assert (recorded["multipliers"], recorded["interval"]) == names
    with pytest.raises(SettingsError, match=r"leave `exact` off"):
        forecast_performance(
            policy,
            EpisodeLog.from_frame(pd.DataFrame(oracles.one_step_frame(12))),
            ForecastSettings(4, basis=CosineBasis(1), interval=dependent_interval, exact=True),
        )


def test_a_search_climbs_the_bound_of_dependent_draws() -> None:
    design, multipliers = _line_design(80), dependent_wild(0.8)(jax.random.key(4), 100)

    @jax.jit
    def bounds(returns: Array) -> tuple[Array, Array]:
        fit = fit_trend(design, returns)
        climbed = straight_through_bound(fit, multipliers, Objective.PERCENTILE, 0.05)
        return climbed, percentile_interval(fit, multipliers, 0.05, Side.LOWER).lower

    climbed, lower = bounds(_autoregression(1, 80, 0.5)[0])
    assert float(climbed) == pytest.approx(float(lower), rel=1e-12)
