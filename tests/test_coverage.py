"""The coverage study: rival intervals against refitting loops, noises, rates with their errors."""

import dataclasses
import itertools
import json
import math
from collections import Counter

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pytest
import statsmodels.api as sm
from scipy import stats

from tidegate.basis import CosineBasis, TimeAxis
from tidegate.bootstrap import ConfidenceInterval
from tidegate.errors import SettingsError
from tidegate.experiments.coverage import CoverageJob, CoverageRow, summarise_coverage
from tidegate.experiments.figures import draw_coverage
from tidegate.experiments.rivals import (
    block_draws,
    block_length,
    episode_draws,
    pairs_interval,
    plain_t_interval,
    residual_interval,
)
from tidegate.experiments.trend_coverage import (
    METHODS,
    Noise,
    TrendCell,
    draw_noise,
    trend_cells,
    trend_table,
)
from tidegate.reports.figures import draw_figure
from tidegate.trend import TrendFit, fit_trend, trend_design

from . import oracles

Indices = npt.NDArray[np.integer]


def _fit(n: int, order: int) -> tuple[TrendFit, oracles.Matrix, oracles.Matrix]:
    """Growing, skewed noise around a trend; with it the design matrices of past and future."""
    basis, axis = CosineBasis(order), TimeAxis(0.0, float(n), 4)
    times, future = np.arange(1.0, n + 1), np.arange(n + 1.0, n + 5)
    y = np.cos(times / n * 3) + np.random.default_rng(0).exponential(size=n) * times / n
    fit = fit_trend(trend_design(basis, times, np.ones(n, bool), axis), jnp.asarray(y))
    phi, varphi = (np.asarray(basis.design_matrix(t, axis)) for t in (times, future))
    return fit, phi, varphi


def _bounds(interval: ConfidenceInterval) -> list[float]:
    return [float(interval.lower), float(interval.upper)]


def _slow_interval(point: float, spread: float, t: list[float], alpha: float) -> list[float]:
    values, b = np.array(t), len(t)
    high = oracles.order_statistic(values, (1 - alpha / 2) * b, up=True)
    low = oracles.order_statistic(values, alpha / 2 * b, up=False)
    return [point - high * spread, point - low * spread]


def _slow_pooled_variance(phi: oracles.Matrix, xi: oracles.Vector, varphi: oracles.Matrix) -> float:
    """The mean over the δ×δ matrix φ(τ) s²(ΦᵀΦ)⁻¹ φ(τ)ᵀ."""
    s_squared = xi @ xi / (len(xi) - phi.shape[1])
    return float(np.mean(varphi @ (s_squared * np.linalg.inv(phi.T @ phi)) @ varphi.T))


def _slow_residual_interval(
    phi: oracles.Matrix, y: oracles.Vector, varphi: oracles.Matrix, drawn: Indices, alpha: float
) -> list[float]:
    rho, _, xi = oracles.forecast(phi, y, varphi)
    t = []
    for row in drawn:
        rho_star, _, xi_star = oracles.forecast(phi, y - xi + xi[row], varphi)
        t.append((rho_star - rho) / math.sqrt(_slow_pooled_variance(phi, xi_star, varphi)))
    spread = math.sqrt(_slow_pooled_variance(phi, xi, varphi))
    return _slow_interval(rho, spread, t, alpha)


def _slow_pairs_interval(
    phi: oracles.Matrix, y: oracles.Vector, varphi: oracles.Matrix, drawn: Indices, alpha: float
) -> list[float]:
    rho, v, _ = oracles.forecast(phi, y, varphi)
    t = []
    for row in drawn:
        rho_star, v_star, _ = oracles.forecast(phi[row], y[row], varphi)
        t.append((rho_star - rho) / math.sqrt(v_star))
    return _slow_interval(rho, math.sqrt(v), t, alpha)


RESIDUAL, PAIRS = (jax.jit(f, static_argnums=2) for f in (residual_interval, pairs_interval))


def test_rivals_agree_with_refitting_every_draw() -> None:
    fit, phi, varphi = _fit(31, 3)  # the last block is cut
    y = np.asarray(fit.returns)
    for draw in (episode_draws, block_draws):
        drawn = draw(jax.random.key(1), 200, 31)
        slow = _slow_residual_interval(phi, y, varphi, np.asarray(drawn), 0.1)
        np.testing.assert_allclose(_bounds(RESIDUAL(fit, drawn, 0.1)), slow, atol=1e-9)
        slow = _slow_pairs_interval(phi, y, varphi, np.asarray(drawn), 0.1)
        np.testing.assert_allclose(_bounds(PAIRS(fit, drawn, 0.1)), slow, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_plain_t_is_the_prediction_of_statsmodels(alpha: float) -> None:
    """statsmodels 0.15, OLS.get_prediction: the mean response at the window's mean features."""
    fit, phi, varphi = _fit(40, 3)
    model = sm.OLS(np.asarray(fit.returns), phi).fit()
    prediction = model.get_prediction(varphi.mean(axis=0, keepdims=True))
    expected = prediction.conf_int(obs=False, alpha=alpha)[0]
    np.testing.assert_allclose(_bounds(plain_t_interval(fit, alpha)), expected, atol=1e-10)


def test_plain_t_is_exact_for_normal_noise_even_in_a_short_log() -> None:
    """5,000 logs of ten episodes around 0, four features."""
    design = _fit(10, 3)[0].design
    logs = jax.random.normal(jax.random.key(6), (5_000, 10))
    bounds = jax.jit(jax.vmap(lambda y: plain_t_interval(fit_trend(design, y), 0.1)))(logs)
    rate = np.mean((np.asarray(bounds.lower) <= 0) & (np.asarray(bounds.upper) >= 0))
    assert rate == pytest.approx(0.9, abs=3 * math.sqrt(0.09 / 5_000))


def test_no_pairs_interval_from_a_draw_with_too_few_distinct_times() -> None:
    fit, _, _ = _fit(31, 3)
    drawn = np.array(episode_draws(jax.random.key(0), 200, 31))
    for times, possible in (([5, 9, 20], False), ([5, 9, 20, 21], True)):
        drawn[7] = np.resize(times, 31)
        assert np.isfinite(_bounds(PAIRS(fit, jnp.asarray(drawn), 0.1))).all() == possible


def test_blocks_grow_with_the_cube_root_of_the_log() -> None:
    assert [block_length(n) for n in (25, 100, 200, 1000, 2000)] == [3, 5, 6, 10, 13]


@pytest.mark.parametrize(("n", "length"), [(25, 3), (200, 6)])
def test_blocks_are_runs_of_neighbours_from_anywhere(n: int, length: int) -> None:
    drawn = np.asarray(block_draws(jax.random.key(2), 3_000, n))
    assert (drawn.min(), drawn.max(), drawn.shape) == (0, n - 1, (3_000, n))
    joins = np.arange(1, n) % length == 0
    assert (np.diff(drawn)[:, ~joins] == 1).all()
    starts = drawn[:, ::length].ravel()
    assert set(starts.tolist()) == set(range(n - length + 1))


def test_episodes_are_drawn_evenly_and_independently() -> None:
    drawn = np.asarray(episode_draws(jax.random.key(3), 4_000, 10))
    singles = np.bincount(drawn.ravel(), minlength=10)
    assert stats.chisquare(singles).pvalue > 1e-4
    neighbours = Counter(map(tuple, drawn[:, :2].tolist()))
    pairs = [neighbours[pair] for pair in itertools.product(range(10), repeat=2)]
    assert stats.chisquare(pairs).pvalue > 1e-4


SHAPES = {
    Noise.NORMAL: stats.norm(),
    Noise.SKEWED: stats.expon(loc=-1),
    Noise.HEAVY: stats.t(3, scale=3**-0.5),
}


@pytest.mark.parametrize("noise", SHAPES)
def test_noise_has_the_claimed_distribution(noise: Noise) -> None:
    """Mean 0 and variance 1 by the distribution itself; the sample by Kolmogorov and Smirnov."""
    assert (SHAPES[noise].mean(), SHAPES[noise].var()) == pytest.approx((0, 1))
    sample = np.asarray(draw_noise(noise, jax.random.key(4), 20_000))
    assert stats.kstest(sample, SHAPES[noise].cdf).pvalue > 1e-3


def test_heteroscedastic_noise_is_normal_with_a_scale_that_grows_tenfold() -> None:
    keys = jax.random.split(jax.random.key(5), 4_000)
    logs = jax.vmap(lambda key: draw_noise(Noise.HETEROSCEDASTIC, key, 50))(keys)
    scale = np.asarray(logs).std(axis=0)
    assert np.mean(scale**2) == pytest.approx(1, abs=5 * math.sqrt(2 / 4_000 / 20))
    assert scale[-1] / scale[0] == pytest.approx(10, rel=5 / math.sqrt(4_000))
    assert stats.kstest((np.asarray(logs) / scale).ravel(), "norm").pvalue > 1e-3


def test_the_study_varies_one_factor_at_a_time() -> None:
    cells = trend_cells()
    assert len(set(cells)) == len(cells) == 19
    centre = dataclasses.astuple(TrendCell())
    for cell in cells:
        changes = [a != b for a, b in zip(dataclasses.astuple(cell), centre, strict=True)]
        assert sum(changes) - (cell.noise is Noise.HETEROSCEDASTIC) <= 1
    assert {cell.episodes for cell in cells} == {25, 50, 100, 200, 500, 2000}
    assert {cell.alpha for cell in cells} == {0.01, 0.05, 0.1, 0.2}
    assert {cell.order for cell in cells} == {1, 3, 6}
    assert {cell.noise for cell in cells} == set(Noise)


UNDERFIT = TrendCell(order=1, draws=100)
RUNS = 300


def run_cell(cell: TrendCell, runs: int, seed: int) -> list[CoverageRow]:
    return summarise_coverage(CoverageJob(cell, runs, seed).run(), list(cell.factors))


def test_same_seed_same_rows_whatever_the_callers_precision() -> None:
    rows = run_cell(UNDERFIT, RUNS, 0)
    with jax.enable_x64(False):
        assert run_cell(UNDERFIT, RUNS, 0) == rows
    other = run_cell(UNDERFIT, RUNS, 1)
    assert all(a.median_width != b.median_width for a, b in zip(rows, other, strict=True))
    plain = [dataclasses.asdict(row) for row in rows]
    assert json.loads(json.dumps(plain)) == plain
    assert [row.method for row in rows] == list(METHODS)


def test_a_row_counts_the_intervals_of_its_method() -> None:
    """Plain t, which resamples nothing, over the same logs; the true trend in NumPy."""
    times, future, axis = np.arange(1.0, 201), np.arange(201.0, 206), TimeAxis(0.0, 200.0, 5)
    past, ahead = (np.cos(np.pi * np.outer(t / 205, range(4))) @ [1, -0.7, 0.4, 0.2] for t in (times, future))
    design = trend_design(CosineBasis(1), times, np.ones(200, bool), axis)

    def plain(key: jax.Array) -> ConfidenceInterval:
        noise = draw_noise(UNDERFIT.noise, jax.random.split(key)[0], 200)
        return plain_t_interval(fit_trend(design, jnp.asarray(past) + noise), UNDERFIT.alpha)

    found = jax.jit(jax.vmap(plain))(jax.random.split(jax.random.key(0), RUNS))
    lower, upper = np.asarray(found.lower), np.asarray(found.upper)
    rate = np.mean((lower <= ahead.mean()) & (ahead.mean() <= upper))
    row = next(r for r in run_cell(UNDERFIT, RUNS, 0) if r.method == "plain t")
    assert row.runs == RUNS
    assert row.coverage == pytest.approx(rate, rel=1e-12)
    assert row.error == pytest.approx(np.sqrt(rate * (1 - rate) / RUNS), rel=1e-12)
    assert row.median_width == pytest.approx(np.median(upper - lower), rel=1e-9)


def _errors_from_nominal(row: CoverageRow) -> float:
    """Coverage less 1 − α, in binomial standard errors at 1 − α."""
    alpha = float(row.factors["alpha"])
    return (row.coverage - (1 - alpha)) / math.sqrt(alpha * (1 - alpha) / row.runs)


def test_growing_noise_breaks_whoever_pools_it() -> None:
    """Appendix D at k = 200, 600 logs: pooled variances cover less than 90 % with nominal 95 %."""
    for row in run_cell(TrendCell(noise=Noise.HETEROSCEDASTIC), 600, 1):
        match row.method:
            case "plain t" | "residual bootstrap" | "block bootstrap":
                assert row.coverage + 3 * row.error < 0.9, row
            case _:
                assert abs(_errors_from_nominal(row)) <= 3, row


def test_too_small_an_order_breaks_every_method() -> None:
    for row in run_cell(UNDERFIT, RUNS, 0):
        assert _errors_from_nominal(row) < -5, row.method


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 30}, "at least 40 draws"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"lookahead": 0}, "lookahead is 0"),
        ({"order": -1}, "order -1 is fitted"),
        ({"episodes": 15}, r"order 3 is fitted to 15 .* at least 4 · \(order \+ 1\) episodes"),
    ],
)
def test_cells_out_of_range(change: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TrendCell(**change)  # type: ignore[arg-type]


def test_no_runs() -> None:
    with pytest.raises(SettingsError, match="runs is 0"):
        run_cell(TrendCell(), 0, 0)


def _rows(episodes: int, **coverage: float) -> list[CoverageRow]:
    factors = {
        "episodes": episodes, "alpha": 0.05, "noise": "skewed", "order": 3, "lookahead": 5, "draws": 500,
    }  # fmt: skip
    assert list(factors) == list(TrendCell().factors)
    return [
        CoverageRow(factors, method.replace("_", " "), 1_000, rate, median_width=1.0, mean_score=1.0)
        for method, rate in coverage.items()
    ]


def test_the_table_has_a_line_per_cell_and_marks_what_misses_by_three_errors() -> None:
    """Three errors of a 95 % rate from 1,000 runs are 2.07 points, on either side."""
    rows = _rows(100, plain_t=0.929, wild=0.930) + _rows(200, plain_t=0.971, wild=0.970)
    assert trend_table(rows).splitlines() == [
        "| k | 1 − α | noise | order | plain t | wild |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 100 | 95% | skewed | 3 | **92.9 ± 0.8** | 93.0 ± 0.8 |",
        "| 200 | 95% | skewed | 3 | **97.1 ± 0.5** | 97.0 ± 0.5 |",
    ]
    assert trend_table(rows[::2] + rows[1::2]) == trend_table(rows)


def test_the_picture_shows_the_rows_of_its_noise() -> None:
    rows = _rows(200, plain_t=0.9, wild=0.95) + _rows(25, plain_t=0.8, wild=0.93)
    others = [
        dataclasses.replace(rows[0], factors={**rows[0].factors, **change})
        for change in ({"alpha": 0.1}, {"noise": "normal"})
    ]
    figure = draw_figure(5, 3, lambda axis: draw_coverage(axis, rows + others))
    plt.close(figure)
    axis = figure.axes[0]
    assert set(axis.get_legend_handles_labels()[1]) == {"plain t", "wild", "nominal"}
    drawn = {bars.get_label(): np.asarray(bars[0].get_xydata()) for bars in axis.containers}
    assert set(drawn) == {"plain t", "wild"}
    np.testing.assert_allclose(drawn["plain t"], [[25, 80], [200, 90]])
    np.testing.assert_allclose(drawn["wild"], [[25, 93], [200, 95]])
