"""The fast wild bootstrap against the loop that refits every draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import ConstantBasis, CosineBasis, SettingsError
from tidegate.basis import Basis, TimeAxis
from tidegate.bootstrap import (
    BLOCK,
    GivenMultipliers,
    KeyedMultipliers,
    Mammen,
    Multipliers,
    Rademacher,
    Side,
    Webb,
    all_signs,
    check_draws,
    forecast_deviations,
    held,
    multiplier_row,
    percentile_interval,
    percentile_t_interval,
    pseudo_statistics,
    studentized_deviations,
    tail_probability,
    tail_quantile,
    weighted_sums,
)
from tidegate.trend import TrendFit, fit_trend, trend_design

from . import oracles

KINDS: list[type[KeyedMultipliers]] = [Rademacher, Mammen, Webb]


def _fit(n: int, basis: Basis, seed: int = 0) -> tuple[TrendFit, oracles.Matrix, oracles.Matrix]:
    rng = np.random.default_rng(seed)
    times = np.arange(1.0, n + 1)
    future = np.arange(n + 1.0, n + 6)
    axis = TimeAxis(0.0, float(n), 5)
    y = np.cos(times / n * 3) + rng.exponential(size=n) * times / n
    fit = fit_trend(trend_design(basis, times, np.ones(n, bool), axis), jnp.asarray(y))
    phi = np.asarray(basis.design_matrix(times, axis))
    return fit, phi, np.asarray(basis.design_matrix(future, axis))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "basis"), [(9, ConstantBasis()), (60, CosineBasis(4)), (2100, CosineBasis(2))])
def test_draws_agree_with_refitting_to_1e_10(kind: type[KeyedMultipliers], n: int, basis: Basis) -> None:
    fit, phi, varphi = _fit(n, basis)
    draws = 40 if n < 1000 else 3
    multipliers = kind(jax.random.key(1), draws)
    rows = np.stack([multiplier_row(multipliers, b, n) for b in range(draws)])
    forecasts, ts = oracles.wild_statistics(phi, np.asarray(fit.returns), varphi, rows)
    deviations, _ = pseudo_statistics(fit, multipliers)
    np.testing.assert_allclose(fit.point + deviations, forecasts, atol=1e-10)
    np.testing.assert_allclose(fit.point + forecast_deviations(fit, multipliers), forecasts, atol=1e-10)
    np.testing.assert_allclose(studentized_deviations(fit, multipliers), ts, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.29])
@pytest.mark.parametrize("draws", [200, 333, 500])
def test_intervals_agree_with_algorithm_2(alpha: float, draws: int) -> None:
    fit, phi, varphi = _fit(40, CosineBasis(3))
    signs = 1.0 - 2.0 * np.random.default_rng(5).integers(0, 2, (draws, 40))
    y = np.asarray(fit.returns)
    t = percentile_t_interval(fit, GivenMultipliers(signs), alpha)
    expected = oracles.percentile_t_interval(phi, y, varphi, signs, alpha)
    np.testing.assert_allclose([t.lower, t.upper], expected, atol=1e-10)
    p = percentile_interval(fit, GivenMultipliers(signs), alpha)
    expected = oracles.percentile_interval(phi, y, varphi, signs, alpha)
    np.testing.assert_allclose([p.lower, p.upper], expected, atol=1e-10)


def test_one_sided_bounds_are_the_two_sided_ones_at_twice_alpha() -> None:
    fit, _, _ = _fit(30, CosineBasis(1))
    signs = Rademacher(jax.random.key(0), 500)
    for method in (percentile_t_interval, percentile_interval):
        both = method(fit, signs, 0.1, Side.BOTH)
        lower, upper = method(fit, signs, 0.05, Side.LOWER), method(fit, signs, 0.05, Side.UPPER)
        assert (float(lower.lower), float(lower.upper)) == (float(both.lower), np.inf)
        assert (float(upper.lower), float(upper.upper)) == (-np.inf, float(both.upper))


def test_exact_mode_lists_every_sign_vector() -> None:
    signs = np.asarray(all_signs(6).values)
    assert {tuple(row) for row in signs} == {tuple(row) for row in oracles.all_sign_vectors(6)}
    with pytest.raises(SettingsError, match=r"2\^15 sign vectors"):
        all_signs(15)


def test_the_sampled_interval_converges_to_the_exact_one() -> None:
    """Quantiles of 10⁵ draws against all 2¹²: each bound within 4 standard errors of its rank."""
    fit, phi, varphi = _fit(12, CosineBasis(1))
    exact = percentile_t_interval(fit, all_signs(12), 0.1)
    slow = oracles.percentile_t_interval(
        phi, np.asarray(fit.returns), varphi, oracles.all_sign_vectors(12), 0.1
    )
    np.testing.assert_allclose([exact.lower, exact.upper], slow, atol=1e-9)
    ordered = np.sort(studentized_deviations(fit, all_signs(12)))
    errors = []
    for draws in (1_000, 100_000):
        sampled = percentile_t_interval(fit, Rademacher(jax.random.key(2), draws), 0.1)
        spread = 4 * np.sqrt(0.05 * 0.95 / draws)
        ranks = [0.95 - spread, 0.95 + spread, 0.05 - spread, 0.05 + spread]
        low_in, low_out, high_out, high_in = np.quantile(ordered, ranks)
        s = float(np.sqrt(fit.variance))
        point = float(fit.point)
        assert point - s * low_out <= float(sampled.lower) <= point - s * low_in
        assert point - s * high_in <= float(sampled.upper) <= point - s * high_out
        errors.append(abs(float(sampled.lower) - float(exact.lower)))
    assert errors[1] < max(errors[0], 1e-3)


@pytest.mark.parametrize(("kind", "third", "fourth"), [(Rademacher, 0, 1), (Mammen, 1, 2), (Webb, 0, 7 / 6)])
def test_multiplier_moments(kind: type[KeyedMultipliers], third: float, fourth: float) -> None:
    values = np.asarray(kind(jax.random.key(3), 400).block(0, BLOCK)).ravel()
    for power, expected in ((1, 0.0), (2, 1.0), (3, third), (4, fourth)):
        sample = values**power
        assert abs(sample.mean() - expected) <= 5 * sample.std() / np.sqrt(sample.size) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_multipliers_depend_on_key_draw_and_episode_alone(kind: type[KeyedMultipliers]) -> None:
    multipliers = kind(jax.random.key(4), 8)
    long = np.stack([multiplier_row(multipliers, b, 4100) for b in range(8)])
    for n in (1, 31, 33, 2048, 2049):
        short = np.stack([multiplier_row(multipliers, b, n) for b in range(8)])
        np.testing.assert_array_equal(short, long[:, :n])
    other = multiplier_row(kind(jax.random.key(5), 8), 0, 4100)
    assert np.any(np.asarray(other) != long[0])


def test_signs_are_the_same_in_32_and_64_bit() -> None:
    wide = np.asarray(Rademacher(jax.random.key(6), 5).block(2, 100))
    with jax.enable_x64(False):
        narrow = np.asarray(Rademacher(jax.random.key(6), 5).block(2, 100))
    np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("n", [20, 2048, 5000])
def test_held_signs_are_the_same_signs(n: int) -> None:
    columns = jnp.asarray(np.random.default_rng(0).normal(size=(3, n)))
    drawn = Rademacher(jax.random.key(7), 11)
    np.testing.assert_allclose(
        weighted_sums(held(drawn, n), jnp.sin, columns),
        weighted_sums(drawn, jnp.sin, columns),
        atol=1e-10,
    )
    assert isinstance(held(drawn, n), GivenMultipliers)
    assert held(Rademacher(jax.random.key(7), 500), 100_000).num_draws == 500


def _rows(multipliers: Multipliers, n: int) -> oracles.Matrix:
    return np.asarray(jax.jit(lambda drawn: held(drawn, n).block(0, n))(multipliers))


def test_a_nan_among_the_draws_is_not_sorted_away() -> None:
    fit, _, _ = _fit(20, ConstantBasis())
    signs = np.ones((50, 20))
    signs[3, 0] = np.nan
    for method in (percentile_t_interval, percentile_interval):
        interval = method(fit, GivenMultipliers(signs), 0.1)
        assert np.isnan(interval.lower)
        assert np.isnan(interval.upper)


def test_too_few_draws() -> None:
    check_draws(40, 0.025)
    with pytest.raises(SettingsError, match=r"at least 40 draws"):
        check_draws(39, 0.025)


def test_memory_does_not_grow_with_draws_times_episodes() -> None:
    """The compiled interval at n = 50,000 and B = 500 would need 200 MB for one B × n matrix."""
    n = 50_000
    fit, _, _ = _fit(n, CosineBasis(4))
    compiled = (
        jax.jit(lambda f, key: percentile_t_interval(f, Rademacher(key, 500), 0.05))
        .lower(fit, jax.random.key(0))
        .compile()
    )
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 40e6


def test_tail_probabilities_and_quantiles_are_inverse_and_near_those_of_the_draws() -> None:
    draws = jnp.sort(jax.random.normal(jax.random.key(0), (5000,)))
    freedom = jnp.asarray(1e6)
    for level in (0.2, 0.05, 0.01, 1e-3, 1e-5):
        quantile = tail_quantile(draws, freedom, level)
        assert float(quantile) == pytest.approx(stats.norm.isf(level), rel=0.04)
        assert float(tail_probability(quantile + 1e-9, draws, freedom)) <= level * (1 + 1e-4)
        assert float(tail_probability(quantile - 1e-2, draws, freedom)) > level


@pytest.mark.parametrize("freedom", [5.0, 12.0, 60.0])
def test_beyond_the_draws_the_tail_is_students(freedom: float) -> None:
    draws = jnp.asarray(stats.t.ppf((np.arange(500) + 0.5) / 500, freedom))
    for level in (1e-3, 1e-4, 1e-5):
        statistic = stats.t.isf(level, freedom)
        found = float(tail_probability(jnp.asarray(statistic), draws, jnp.asarray(freedom)))
        assert 0.95 * level < found < 2 * level  # its anchor is one rank off, to the safe side


def test_what_is_not_a_number_has_no_tail_probability() -> None:
    draws = jnp.sort(jax.random.normal(jax.random.key(0), (100,)))
    assert np.isnan(float(tail_probability(jnp.asarray(np.nan), draws, jnp.asarray(9.0))))
    broken = jnp.full(100, jnp.nan)
    assert np.isnan(float(tail_probability(jnp.asarray(3.0), broken, jnp.asarray(9.0))))
