"""The estimated period: recovered from noise and gaps, against NumPy's least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from jaxtyping import Array

from tidegate import PeriodicBasis, SettingsError, estimate_period
from tidegate.basis import TimeAxis
from tidegate.trend import fit_trend, trend_design

from . import oracles

N = 2_000
TIMES = np.arange(1.0, N + 1)


def _season(period: float, seed: int, noise: float) -> tuple[oracles.Vector, npt.NDArray[np.bool_]]:
    """A wave of amplitude 1 on a line, half of the rows missing."""
    rng = np.random.default_rng(seed)
    wave = np.sin(2 * np.pi * TIMES / period + rng.uniform(0, 2 * np.pi))
    values = wave + TIMES / N + noise * rng.normal(size=N)
    present = rng.random(N) < 0.5
    return np.where(present, values, np.nan), present


def _share(values: oracles.Vector, times: oracles.Vector, period: float) -> float:
    """By NumPy: of the variance about a line, the part that the wave explains."""
    line = np.stack([np.ones_like(times), times / N], axis=1)
    angles = 2 * np.pi * times / period
    both = np.concatenate([line, np.stack([np.cos(angles), np.sin(angles)], axis=1)], axis=1)
    left = [
        np.sum((values - x @ np.linalg.lstsq(x, values, rcond=None)[0]) ** 2) for x in (line, both)
    ]
    return float(1 - left[1] / left[0])


@jax.jit
def _estimate(values: Array, present: Array) -> tuple[Array, Array]:
    return estimate_period(values, TIMES, present, longest=1_500.0, shortest=40.0)


def test_periods_are_recovered_within_3_percent_from_noise_and_gaps() -> None:
    periods = [50.0, 77.0, 130.0, 222.0, 365.0, 500.0, 730.0, 1_000.0]
    for period in periods:
        for seed in range(4):
            found, share = _estimate(*_season(period, seed, noise=0.7))
            assert float(found) == pytest.approx(period, rel=0.03), (period, seed)
            assert float(share) == pytest.approx(0.5 / (0.5 + 0.49), abs=0.1)


def test_no_period_explains_more_and_the_share_is_that_of_least_squares() -> None:
    values, present = _season(180.0, 9, noise=2.0)
    found, share = _estimate(values, present)
    kept, times = values[present], TIMES[present]
    assert float(share) == pytest.approx(_share(kept, times, float(found)), rel=2e-3)
    grid = 1 / np.linspace(1 / (2 / 3 * (N - 1)), 1 / 40, 500)
    assert float(share) > max(_share(kept, times, period) for period in grid) - 1e-3


def test_rows_without_an_episode_change_nothing() -> None:
    values, present = _season(300.0, 3, noise=1.0)
    kept = np.ones(present.sum(), bool)
    alone = jax.jit(
        lambda y: estimate_period(y, TIMES[present], kept, longest=1_500.0, shortest=40.0)
    )(values[present])
    np.testing.assert_allclose(_estimate(values, present), alone, rtol=1e-9)


def test_noise_and_lines_have_no_season() -> None:
    noise = np.random.default_rng(4).normal(size=N)
    _, share = _estimate(noise, np.ones(N, bool))
    assert float(share) < 3 * 2 * np.log(50) / N
    _, share = _estimate(np.zeros(N), np.ones(N, bool))
    assert float(share) == 0
    noise[5] = np.nan
    _, share = _estimate(noise, np.ones(N, bool))
    assert np.isnan(share)
    with pytest.raises(SettingsError, match=r"frequencies"):
        estimate_period(
            jnp.zeros(5), TIMES[:5], np.ones(5, bool), longest=5, shortest=2, frequencies=2
        )


def test_an_estimated_period_forecasts_the_season() -> None:
    """A quarter of a period ahead, the period traced all the way into the basis."""
    period, ahead = 400.0, N + np.arange(95.0, 106.0)
    values, present = _season(period, 1, noise=0.5)

    @jax.jit
    def forecast(values: Array, present: Array) -> Array:
        found, _ = estimate_period(values, TIMES, present, longest=1_500.0, shortest=40.0)
        axis = TimeAxis(0.0, ahead[-1])
        return fit_trend(
            trend_design(PeriodicBasis(found), TIMES, present, ahead, axis), values
        ).point

    phase = np.random.default_rng(1).uniform(0, 2 * np.pi)
    truth = np.mean(np.sin(2 * np.pi * ahead / period + phase) + ahead / N)
    assert float(forecast(values, present)) == pytest.approx(truth, abs=0.15)
