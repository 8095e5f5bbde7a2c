"""Is the log fit: closed forms, statsmodels, sizes and powers of the tests, and logs that are not."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.diagnostic import acorr_ljungbox

from tests.golden.compare import differences
from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    FourierBasis,
    GaussianPolicy,
    HeldOutEpisodes,
    Multiscale,
    Paired,
    PolicyError,
    PolynomialBasis,
    RecentMeans,
    RecordedPolicy,
    SoftmaxPolicy,
    TabularPolicy,
    TrainingEpisodes,
    TwoBounds,
    forecast_performance,
    split_log,
)
from tidegate import commands as wf
from tidegate.basis import Basis, TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.checks import fitness
from tidegate.checks.backtest import backtest
from tidegate.checks.findings import Finding, Level, found
from tidegate.checks.fitness import check_log, mean_is_one, trend_behind
from tidegate.checks.goodness import (
    DRAWS,
    TESTS,
    FittedTrend,
    richer_columns,
)
from tidegate.checks.trend_tests import autocorrelation_test, hc2_residuals, jump_test, score_test
from tidegate.episodes import grow, rows_by_time
from tidegate.policies import BehaviorPolicy
from tidegate.presets import multiscale_forecast
from tidegate.record import plain
from tidegate.returns import dr_returns, episode_ratios, is_returns, observed_returns, pdis_returns
from tidegate.safety import VERDICT_SEED, compare_once, with_room
from tidegate.trend import TrendDesign, fit_trend, trend_design

SETTINGS = ForecastSettings(10, TwoBounds(CosineBasis(3)))


def goodness_of_fit(*given: Any, **options: Any) -> tuple[Finding, ...]:
    """The findings about the trend."""
    check = check_log(*given, **options)
    return tuple(one for one in check.findings if one.name in TESTS)


POLICY = SoftmaxPolicy([0.5, 0.0, -0.5])
TRENDS: list[Basis] = [
    ConstantBasis(), CosineBasis(3), PolynomialBasis(2), FourierBasis(1, 40.0),
]  # fmt: skip


def _log(rows: int = 300, *, shape: Any = 0.0, seed: int = 0, **more: Any) -> EpisodeLog:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    rewards = shape + rng.normal(size=rows)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3), **more)


def _design(basis: Basis, n: int) -> TrendDesign:
    times = np.arange(1.0, n + 1)
    return trend_design(basis, times, np.ones(n, bool), TimeAxis(0.0, float(n), 10))


# --- the statistics -------------------------------------------------------------------------------


def test_ljung_box_is_that_of_statsmodels() -> None:
    y = np.random.default_rng(0).normal(size=300).cumsum()
    design = _design(CosineBasis(3), 300)
    residuals = fit_trend(design, jnp.asarray(y)).residuals
    found = autocorrelation_test(design, residuals, 10, Rademacher(jax.random.key(0), 499))
    table = acorr_ljungbox(np.asarray(residuals), lags=[10])
    assert float(found.ljung_box.statistic) == pytest.approx(table["lb_stat"].iloc[0], rel=1e-9)
    assert float(found.first) == pytest.approx(sm.tsa.acf(np.asarray(residuals), nlags=1)[1])


def test_with_constant_variance_the_bootstrap_gives_the_textbook_p_value() -> None:
    y = np.random.default_rng(5).normal(size=2_000)
    design = _design(CosineBasis(1), 2_000)
    residuals = fit_trend(design, jnp.asarray(y)).residuals
    found = autocorrelation_test(design, residuals, 10, Rademacher(jax.random.key(0), 4_999))
    textbook = acorr_ljungbox(np.asarray(residuals), lags=[10])["lb_pvalue"].iloc[0]
    assert float(found.ljung_box.p_value) == pytest.approx(textbook, abs=0.04)


def test_score_test_against_its_formula_and_the_wald_test_of_statsmodels() -> None:
    n = 1_500
    times, axis = np.arange(1.0, n + 1), TimeAxis(0.0, float(n), 10)
    rng = np.random.default_rng(1)
    y = rng.normal(size=n) * (0.2 + times / n) + 0.1 * np.cos(3 * np.pi * times / (n + 10))
    small, large = (np.asarray(CosineBasis(m).design_matrix(times, axis)) for m in (2, 5))
    design = _design(CosineBasis(2), n)
    fit = fit_trend(design, jnp.asarray(y))
    test = score_test(design, fit.residuals, jnp.asarray(large.T[3:]), Rademacher(jax.random.key(0), 4_999))
    hat = small @ np.linalg.solve(small.T @ small, small.T)
    z, xi = large[:, 3:] - hat @ large[:, 3:], y - hat @ y
    scores, weights = z.T @ xi, xi**2 / (1 - np.diag(hat))
    expected = scores @ np.linalg.solve(z.T @ (weights[:, None] * z), scores)
    assert float(test.statistic) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(hc2_residuals(design, fit.residuals) ** 2, weights, atol=1e-12)
    wald = sm.OLS(y, large).fit(cov_type="HC2").wald_test(np.eye(6)[3:], scalar=True)
    assert float(test.statistic) == pytest.approx(wald.statistic, rel=0.05)
    assert float(test.p_value) == pytest.approx(wald.pvalue, abs=0.02)


def test_jump_statistic_is_the_largest_score_test_over_steps() -> None:
    n = 300
    y = np.random.default_rng(2).normal(size=n) + (np.arange(n) >= 200)
    design = _design(CosineBasis(3), n)
    fit, signs = fit_trend(design, jnp.asarray(y)), Rademacher(jax.random.key(0), 199)
    jump = jump_test(design, fit.residuals, signs, candidates=19)
    rows = np.linspace(15, 285, 19).astype(int)
    one_by_one = [
        float(score_test(design, fit.residuals, jnp.arange(n)[None] >= row, signs).statistic) for row in rows
    ]
    assert float(jump.significance.statistic) == pytest.approx(max(one_by_one))
    assert int(jump.row) == rows[int(np.argmax(one_by_one))]


def test_columns_that_the_trend_spans_count_for_nothing() -> None:
    y = jnp.asarray(np.random.default_rng(0).normal(size=300))
    design, signs = _design(CosineBasis(3), 300), Rademacher(jax.random.key(0), 499)
    wide = CosineBasis(6).design_matrix(np.arange(1.0, 301), TimeAxis(0.0, 300.0, 10)).T
    residuals = fit_trend(design, y).residuals
    whole, new = (score_test(design, residuals, one, signs) for one in (wide, wide[4:]))
    assert float(whole.statistic) == pytest.approx(float(new.statistic))
    nothing = score_test(design, residuals, wide[:4], signs)
    assert np.isnan(float(nothing.p_value))


N, RUNS = 300, 400


@functools.cache
def _program(noise: Callable[[jax.Array, jax.Array], jax.Array]) -> Any:
    """p-values of all tests on simulated logs; drift against a constant, the others against order 3."""
    x, axis = jnp.arange(1.0, N + 1) / N, TimeAxis(0.0, float(N), 10)
    cosines = CosineBasis(6).design_matrix(np.arange(1.0, N + 1), axis).T
    trend, flat = _design(CosineBasis(3), N), _design(ConstantBasis(), N)

    def one(shape: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        noise_key, sign_key = jax.random.split(key)
        y = shape + noise(noise_key, x)
        fit, mean = fit_trend(trend, y), fit_trend(flat, y)
        signs = Rademacher(sign_key, 199)
        correlation = autocorrelation_test(trend, fit.residuals, 10, signs)
        return {
            "trend_misfit": score_test(trend, fit.residuals, cosines[4:], signs).p_value,
            "jump": jump_test(trend, fit.residuals, signs).significance.p_value,
            "autocorrelation": correlation.ljung_box.p_value,
            "lag_1_autocorrelation": correlation.first_p_value,
            "drift": score_test(flat, mean.residuals, cosines[1:4], signs).p_value,
        }

    return jax.jit(lambda shape, keys: jax.lax.map(lambda key: one(shape, key), keys))


def _p_values(noise: Any, shape: Any) -> dict[str, Any]:
    values = _program(noise)(jnp.asarray(shape + np.zeros(N)), jax.random.split(jax.random.key(3), RUNS))
    return {name: np.asarray(value) for name, value in values.items()}


def _normal(key: jax.Array, x: jax.Array) -> jax.Array:
    return jax.random.normal(key, x.shape)


def _growing(key: jax.Array, x: jax.Array) -> jax.Array:
    """Normal noise whose spread grows sevenfold: the textbook Ljung-Box test rejects a fifth of it."""
    return jax.random.normal(key, x.shape) * (0.5 + 3 * x**2)


def _weighted(key: jax.Array, x: jax.Array) -> jax.Array:
    """Importance-weighted returns: an action of probability 0.2 that the policy takes with 0.8."""
    taken, noise = jax.random.split(key)
    hit = jax.random.bernoulli(taken, 0.2, x.shape)
    return jnp.where(hit, 4.0, 0.25) * (hit + 0.1 * jax.random.normal(noise, x.shape)) - 0.8


@pytest.mark.parametrize("noise", [_normal, _growing, _weighted])
def test_p_values_are_uniform_under_the_null(noise: Any) -> None:
    """400 logs of 300 episodes: rates within three binomial standard errors."""
    for name, values in _p_values(noise, 0.0).items():
        rates = [float(np.mean(values <= level)) for level in (0.05, 0.5)]
        print(f"\n{noise.__name__} {name}: {rates[0]:.3f} at 5 %, {rates[1]:.3f} at 50 %")
        for rate, level in zip(rates, (0.05, 0.5), strict=True):
            assert abs(rate - level) < 3 * np.sqrt(level * (1 - level) / RUNS) + 0.005, name


def test_the_textbook_ljung_box_would_not_hold_its_size() -> None:
    rng, n = np.random.default_rng(0), 300
    scale = 0.5 + 3 * (np.arange(1, n + 1) / n) ** 2
    table = [acorr_ljungbox(rng.normal(size=n) * scale, lags=[10]) for _ in range(300)]
    assert np.mean([one["lb_pvalue"].iloc[0] < 0.05 for one in table]) > 0.12


X = np.arange(1, N + 1) / N


def _correlated(key: jax.Array, x: jax.Array) -> jax.Array:
    """An autoregression with coefficient 0.3."""
    return jax.lax.scan(lambda c, e: (0.3 * c + e,) * 2, jnp.zeros(()), _normal(key, x))[1]


@pytest.mark.parametrize(
    ("name", "noise", "shape", "power"),
    [
        ("trend_misfit", _normal, 0.6 * np.cos(6 * np.pi * X), 0.95),
        ("jump", _normal, 2.0 * (X > 0.7), 0.95),
        ("autocorrelation", _correlated, 0.0, 0.9),
        ("lag_1_autocorrelation", _correlated, 0.0, 0.95),
        ("drift", _normal, X, 0.95),
    ],
)
def test_power_against_a_named_alternative(name: str, noise: Any, shape: Any, power: float) -> None:
    rate = float(np.mean(_p_values(noise, shape)[name] < 0.05))
    print(f"\npower of {name}: {rate:.2f}")
    assert rate >= power


def test_the_mean_ratio_test_has_its_size_in_spite_of_skewness() -> None:
    rng = np.random.default_rng(0)
    skewed = [np.where(rng.random(400) < 0.05, 10.5, 0.5) for _ in range(2_000)]
    rate = np.mean([mean_is_one(ratios) < 0.05 for ratios in skewed])
    plain = np.mean([stats.ttest_1samp(ratios, 1.0).pvalue < 0.05 for ratios in skewed])
    print(f"\nmean ratio: corrected {rate:.3f}, plain t-test {plain:.3f}")
    assert 0.035 < rate < 0.065
    assert mean_is_one(np.ones(50)) == 1
    assert mean_is_one(np.full(50, 0.9)) == pytest.approx(0.9**50)
    assert mean_is_one(np.full(10, 1.1)) == pytest.approx(1.1**-10)
    assert mean_is_one(np.zeros(50)) == 0


# --- findings on logs -----------------------------------------------------------------------------


def test_a_healthy_log_is_found_healthy() -> None:
    check = check_log(_log(), SETTINGS, POLICY)
    assert check.level < Level.WARNING
    assert not check.warnings
    assert (check.num_episodes, check.num_steps) == (300, 300)
    assert [str(finding) for finding in check.findings] == str(check).split("\n")
    ess = forecast_performance(POLICY, _log(), SETTINGS).effective_sample_size
    assert check["effective_sample_size"].value == pytest.approx(ess)
    assert json.loads(json.dumps(plain(check), allow_nan=False))["level"] == check.level.name


def test_overlap_numbers() -> None:
    log = _log()
    check = check_log(log, ForecastSettings(10, TwoBounds(ConstantBasis())), POLICY)
    ratios = 3 * np.exp(np.asarray(POLICY.log_probs()))[np.asarray(log.actions)[:, 0]]
    assert check["largest_ratio"].value == pytest.approx(ratios.max())
    assert check["mean_ratio"].value == pytest.approx(ratios.mean())
    assert check["mean_ratio"].p_value == pytest.approx(stats.ttest_1samp(ratios, 1.0).pvalue, abs=0.02)
    whole, recent = (r.sum() ** 2 / (r**2).sum() for r in (ratios, ratios[-75:]))
    assert check["effective_sample_size"].value == pytest.approx(whole)
    assert check["recent_effective_sample_size"].value == pytest.approx(recent)
    # A constant weighs all episodes alike.
    assert check["horizon_effective_sample_size"].value == pytest.approx(whole)
    assert check["horizon_leverage"].value == pytest.approx(1 / 300)


def test_several_steps_take_the_largest_running_product() -> None:
    log = EpisodeLog.from_arrays(
        np.zeros((40, 3), int), np.ones((40, 3)), np.full((40, 3), 0.5),
        recorded={"new": np.tile([1.0, 1.0, 0.1], (40, 1))},
    )  # fmt: skip
    check = check_log(log, SETTINGS, RecordedPolicy("new"))
    assert check["largest_ratio"].value == pytest.approx(4.0)
    assert check["episode_lengths"].value == 3
    assert check["mean_ratio"].level is Level.WARNING


def test_actions_without_support_are_named() -> None:
    actions = np.r_[np.zeros(150, int), np.full(145, 1), np.full(5, 3)]
    rewards = np.random.default_rng(0).normal(size=300)
    log = EpisodeLog.from_arrays(actions, rewards, np.full(300, 0.5), num_actions=4)
    check = check_log(log, SETTINGS, SoftmaxPolicy.from_probs([0.4, 0.3, 0.2, 0.1]))
    assert check.actions is not None
    np.testing.assert_array_equal(check.actions.counts, [150, 145, 0, 5])
    np.testing.assert_array_equal(check.actions.unseen, [2])
    np.testing.assert_array_equal(check.actions.rare, [3])
    support = check["action_support"]
    assert support.value == pytest.approx(0.2)
    assert support.level is Level.WARNING
    assert "actions 2" in support.sentence
    assert "actions 3" in support.sentence


def test_shares_of_a_policy_over_states_and_of_a_recorded_one() -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, 300)
    policy = TabularPolicy(np.log([[0.9, 0.1], [0.2, 0.8]]))
    actions = rng.integers(0, 2, 300)
    probs = np.exp(np.asarray(policy.table))[states, actions]
    log = EpisodeLog.from_arrays(
        actions, rng.normal(size=300), np.full(300, 0.5), states=states, recorded={"p": probs}
    )
    exact = check_log(log, SETTINGS, policy).actions
    estimated = check_log(log, SETTINGS, RecordedPolicy("p")).actions
    assert exact is not None
    assert estimated is not None
    share = np.mean(np.where(states == 0, 0.9, 0.2))
    assert exact.policy_shares is not None
    assert estimated.policy_shares is not None
    assert exact.policy_shares[0] == pytest.approx(share)
    assert estimated.policy_shares[0] == pytest.approx(share, abs=0.1)
    table = dataclasses.replace(log, recorded={"p": np.asarray(policy.table)[states][:, None]})
    listed = check_log(table, SETTINGS, RecordedPolicy("p"))
    assert listed.actions is not None
    assert listed.actions.policy_shares is not None
    assert listed.actions.policy_shares[0] == pytest.approx(share)
    assert "shows every action that the policy takes" in listed["action_support"].sentence


def test_gaps_in_time() -> None:
    numbers = np.r_[1:101, 301:501]
    gap = check_log(_log(300, episode_numbers=numbers), SETTINGS)["time_gaps"]
    assert gap.value == pytest.approx(201 / 499)
    assert gap.level is Level.WARNING
    assert "between episode 100 and episode 301" in gap.sentence


def test_drift_is_a_note_for_a_trend_and_a_warning_for_a_constant() -> None:
    log = _log(shape=2 * np.arange(300) / 300)
    trend = check_log(log, SETTINGS)["drift"]
    assert trend.p_value is not None
    assert trend.p_value < 0.01
    assert trend.level is Level.NOTE
    flat = check_log(log, ForecastSettings(10, TwoBounds(ConstantBasis())))
    assert flat["drift"].level is Level.WARNING
    assert flat["trend_misfit"].level is Level.WARNING


def _leading(
    settings: ForecastSettings, log: EpisodeLog, training: EpisodeLog | None = None
) -> tuple[FittedTrend, EpisodeLog]:
    """The trend that forecasts the policy in a gate on this log, and the episodes that it tests."""
    given = None if training is None else TrainingEpisodes(training)
    seen, held_out = with_room(settings, given, HeldOutEpisodes(log, (1, 300)))
    comparison, axis = compare_once(settings, POLICY, BehaviorPolicy(), held_out, seen)
    return trend_behind(settings, held_out.log, comparison, axis, "candidate"), held_out.log


def test_a_mixture_is_checked_as_its_leading_movement_weighs_the_episodes() -> None:
    """A steep turn, late: the last episodes have the weight, and every finding on the forecast says so."""
    turn = np.maximum(np.arange(300) - 200, 0) / 10
    settings, log = multiscale_forecast(SETTINGS), _log(shape=turn)
    check = check_log(log, settings, POLICY)
    leading, tested = _leading(settings, log)
    present = np.asarray(tested.present)
    np.testing.assert_array_equal(leading.times, np.asarray(tested.episode_numbers)[present])
    assert leading.weights.sum() == pytest.approx(1)
    squares = leading.weights**2
    assert squares[-60:].sum() > 0.8 * squares.sum()
    weights = np.abs(leading.weights) * np.asarray(episode_ratios(POLICY, tested))[present]
    worth = weights.sum() ** 2 / (weights**2).sum()
    assert worth < 150
    assert check["horizon_effective_sample_size"].value == pytest.approx(worth)
    rests = np.abs(leading.weights).sum() ** 2 / squares.sum()
    assert f"about {rests:,.0f} of 300 episodes" in check["horizon_leverage"].sentence
    assert check["horizon_leverage"].value == pytest.approx(squares.max() / squares.sum())
    assert check["episodes"].sentence == "300 episodes."
    assert check["drift"].level is Level.NOTE
    assert [one.name for one in goodness_of_fit(log, settings, POLICY)] == list(settings.test.tested_by)
    sentences = str(check_log(_log(shape=100 * (np.arange(300) > 290)), settings, POLICY))
    for text in (str(check), sentences):
        assert "basis" not in text
        assert "the trend forecasts" not in text
    assert "needs at least 24." in check_log(_log(9), settings, POLICY)["episodes"].sentence


@pytest.mark.parametrize(
    ("shape", "kept"),
    [(0.0, True), (np.arange(300) / 50, True), (np.where(np.arange(300) < 285, 0.0, 8.0), False)],
    ids=["level", "line", "late jump"],
)
def test_forecasts_of_the_past_must_have_kept_what_they_claimed(shape: Any, kept: bool) -> None:
    settings = multiscale_forecast(SETTINGS)
    finding = check_log(_log(shape=shape), settings, POLICY)["past_forecasts"]
    assert finding.level is (Level.OK if kept else Level.WARNING)
    assert finding.p_value is not None
    assert (finding.p_value > 0.05) == kept
    assert ("no more than they claimed" in finding.sentence) == kept
    assert "past_forecasts" in settings.test.voided_by


def test_a_jump_is_found_where_it_is() -> None:
    findings = goodness_of_fit(_log(shape=3.0 * (np.arange(300) >= 210)), SETTINGS)
    jump = next(one for one in findings if one.name == "jump")
    assert jump.level is Level.WARNING
    assert any(f"episode {row} " in jump.sentence for row in range(205, 217))


@pytest.mark.parametrize("basis", TRENDS)
def test_every_basis_has_something_richer(basis: Basis) -> None:
    axis = TimeAxis(0.0, 100.0, 10)
    added = richer_columns(basis, np.arange(1.0, 101), axis)
    rank = np.linalg.matrix_rank(
        np.vstack([added, np.asarray(basis.design_matrix(np.arange(1.0, 101), axis)).T])
    )
    assert rank >= basis.size + 3
    settings = ForecastSettings(10, TwoBounds(basis))
    assert all(one.value is not None for one in goodness_of_fit(_log(), settings, POLICY))


def test_row_order_and_spare_rows_change_nothing() -> None:
    log = _log(shape=np.arange(300) / 100)
    shuffled = grow(log.take(np.random.default_rng(0).permutation(300)), 400)
    first, second = (check_log(one, SETTINGS, POLICY) for one in (log, shuffled))
    for one, two in zip(first.findings, second.findings, strict=True):
        assert one.value == pytest.approx(two.value, rel=1e-9), one.name
        assert one.p_value == two.p_value, one.name


def test_the_findings_repeat() -> None:
    log = _log()
    first = goodness_of_fit(log, SETTINGS)
    assert goodness_of_fit(log, SETTINGS) == first
    with jax.enable_x64(False):
        assert goodness_of_fit(log, SETTINGS) == first


def test_continuous_actions_have_no_table() -> None:
    actions = np.random.default_rng(0).normal(size=300)
    log = EpisodeLog.from_arrays(actions, actions**2, stats.norm.logpdf(actions), propensity=_density())
    check = check_log(log, SETTINGS, GaussianPolicy([0.1], [0.0]))
    assert check.actions is None
    assert "action_support" not in {finding.name for finding in check.findings}
    assert check["mean_ratio"].level is Level.OK


def _density() -> Any:
    from tidegate import Propensity

    return Propensity.LOG_DENSITY


def test_the_behaviour_as_a_policy() -> None:
    log = _log(20)
    np.testing.assert_allclose(is_returns(BehaviorPolicy(), log), observed_returns(log))
    assert BehaviorPolicy().digest() == BehaviorPolicy().digest()
    for act in ("log_prob", "sample", "entropy"):
        with pytest.raises(PolicyError, match="only through the log"):
            getattr(BehaviorPolicy(), act)(*[] if act == "entropy" else [0])


# --- the episodes and returns that decide ---------------------------------------------------------


def _parts() -> tuple[EpisodeLog, EpisodeLog, tuple[float, float]]:
    """Training and held-out episodes of a log that drifts, and the span of both."""
    log = _log(300, shape=np.arange(300) / 100)
    training, held_out = split_log(log, train_fraction=1 / 3, seed=0)
    return training.log, held_out.log, log.span


def _louder(log: EpisodeLog) -> EpisodeLog:
    """The same episodes with other rewards: a jump, and far more noise."""
    jump = 9.0 * (np.asarray(log.episode_numbers) > 150)[:, None]
    return dataclasses.replace(log, rewards=5 * np.asarray(log.rewards) + jump)


@pytest.mark.parametrize("test", [TwoBounds(CosineBasis(3)), Paired(CosineBasis(3)), Multiscale()])
def test_training_episodes_have_no_part_in_the_findings(test: Any) -> None:
    settings = ForecastSettings(10, test)
    training, held_out, span = _parts()
    found, other = (
        check_log(held_out, settings, POLICY, training=one, span=span)
        for one in (training, _louder(training))
    )
    assert found.findings == other.findings
    assert (found.num_episodes, found.num_steps) == (200, 200)
    changed = check_log(_louder(held_out), settings, POLICY, training=training, span=span)
    assert changed.findings != found.findings


def test_findings_are_of_the_doubly_robust_returns_that_decide() -> None:
    """Each test of the trend, by hand, on the returns that a test of the held-out episodes looks at."""
    model, basis = RecentMeans(), CosineBasis(3)
    settings = ForecastSettings(10, Paired(basis), value_model=model)
    training, held_out, span = _parts()
    check = check_log(held_out, settings, POLICY, training=training, span=span)
    values = model.predict(training, held_out, 1.0, per_action=True)
    returns = dr_returns(POLICY, held_out, 1.0, values)
    axis = TimeAxis(span[0] - 1, span[1], 10)
    times, present = held_out.episode_numbers, held_out.present
    fit = fit_trend(trend_design(basis, times, present, axis), returns)
    design, signs = fit.design, Rademacher(jax.random.key(VERDICT_SEED), DRAWS)
    misfit = score_test(design, fit.residuals, richer_columns(basis, times, axis), signs)
    correlation = autocorrelation_test(design, fit.residuals, 10, signs)
    jump = jump_test(design, fit.residuals, signs).significance
    flat = fit_trend(trend_design(ConstantBasis(), times, present, axis), returns)
    waves = basis.design_matrix(times, axis).T
    drift = score_test(flat.design, flat.residuals, waves, signs)
    expected: dict[str, tuple[Any, Any]] = {
        "trend_misfit": (misfit.statistic, misfit.p_value),
        "lag_1_autocorrelation": (correlation.first, correlation.first_p_value),
        "autocorrelation": (correlation.ljung_box.statistic, correlation.ljung_box.p_value),
        "jump": (jump.statistic, jump.p_value),
        "drift": (drift.statistic, drift.p_value),
    }
    sampled = check_log(held_out, dataclasses.replace(settings, value_model=None), POLICY, span=span)
    for name, (statistic, p_value) in expected.items():
        assert check[name].value == pytest.approx(float(statistic), rel=1e-8), name
        assert check[name].p_value == pytest.approx(float(p_value)), name
        assert check[name].value != pytest.approx(sampled[name].value, rel=1e-3), name
    influence = (np.asarray(design.forecast_weights) * np.asarray(fit.residuals)) ** 2
    share = influence.max() / influence.sum()
    assert check["horizon_influence"].value == pytest.approx(share, rel=1e-8)
    found = goodness_of_fit(held_out, settings, POLICY, training=training, span=span)
    assert found == tuple(check[name] for name in settings.test.tested_by)


def test_a_gate_checks_and_backtests_the_episodes_that_it_tests() -> None:
    """The whole log, with trends that are fitted once."""
    log = _log(240, shape=np.arange(240) / 100)
    probs = np.exp(np.asarray(POLICY.log_probs()))[np.asarray(log.actions)[:, 0]]
    columns = {
        "episode": log.episode_numbers, "action": np.asarray(log.actions)[:, 0],
        "behavior_prob": np.full(240, 1 / 3), "reward": np.asarray(log.rewards)[:, 0], "new": probs,
    }  # fmt: skip
    chosen = wf.PlainSettings(lookahead=10, draws=200)
    frame = pl.DataFrame(columns)
    policy, opened = wf.open_log(frame).policy("column:new")
    safe, opened = opened.policy("behavior")
    for settings in (chosen, _paper(chosen)):
        record = wf.gate(frame, candidate="column:new", settings=settings, dates=2, seed=3)
        forecasting = settings.forecast()
        whole = HeldOutEpisodes(opened.log, opened.log.span)
        seen, held_out = with_room(forecasting, None, whole)
        assert seen is None
        check = check_log(held_out.log, forecasting, policy, span=opened.log.span)
        assert held_out.log.num_episodes == record.checks["candidate"].num_episodes == 240
        # The same findings from the test's own trends as from trends that are fitted anew.
        for one in record.checks["candidate"].findings:
            if one.name != "leak":
                assert one.value == pytest.approx(check[one.name].value, rel=1e-6), one.name
                assert one.level is check[one.name].level
        tests = [one.name for one in record.checks[forecasting.test.rests_on[0]].findings]
        assert set(forecasting.test.tested_by) <= set(tests)
        assert ("difference" in record.checks) == (settings is chosen)
        past = backtest(policy, safe, held_out.log, forecasting, dates=2)
        assert record.backtest is not None
        if settings is not chosen:  # with a model, the command's was fitted to the whole log
            assert not list(differences(plain(past), plain(record.backtest), 1e-6))
        assert past.following.sum() == np.sum(np.asarray(held_out.log.episode_numbers) > 220)


def _paper(settings: wf.PlainSettings) -> wf.PlainSettings:
    return dataclasses.replace(settings, preset=wf.Preset.PAPER, order=1)


# --- logs that are not fit ------------------------------------------------------------------------


def _constant() -> EpisodeLog:
    return EpisodeLog.from_arrays(np.zeros(50, int), np.ones(50), np.ones(50))


def _recorded(values: Any) -> EpisodeLog:
    log = _log(50)
    with np.errstate(divide="ignore"):
        return EpisodeLog(**{**vars(log), "recorded": {"new": np.log(np.full((50, 1), values))}})


def _broken_rewards(value: float) -> EpisodeLog:
    log = _log(50)
    rewards = np.array(log.rewards)
    rewards[7] = value
    return EpisodeLog(**{**vars(log), "rewards": rewards})


@pytest.mark.parametrize(
    ("log", "policy", "undetermined"),
    [
        (_constant(), None, "no variation"),
        (_log(1), None, "too few"),
        (_log(3), POLICY, "too few"),
        (_log(12).take(np.arange(0)), POLICY, "too few"),
        (_recorded(0.0), RecordedPolicy("new"), "no variation"),
        (_recorded(np.nan), RecordedPolicy("new"), "not a finite"),
        (_recorded(np.inf), RecordedPolicy("new"), "not a finite"),
        (_broken_rewards(np.nan), POLICY, "not a finite"),
        (_broken_rewards(np.inf), None, "not a finite"),
        (_broken_rewards(1e308), POLICY, "not a finite number"),
        (_log(50, episode_numbers=np.r_[1, 1e6 + np.arange(49)]), None, "cannot be identified"),
    ],
)
def test_unfit_logs_get_warnings_not_exceptions(log: Any, policy: Any, undetermined: str) -> None:
    check = check_log(log, SETTINGS, policy)
    assert check.level is Level.WARNING
    assert any(undetermined in one.sentence for one in check.warnings), str(check)
    for finding in check.findings:
        assert "nan" not in finding.sentence.replace("finance", "").lower()
        assert finding.level is Level.WARNING or finding.value is not None
        assert finding.value is None or np.isfinite(finding.value)
    json.dumps(plain(check), allow_nan=False)


def test_a_policy_that_does_not_fit_the_log_is_an_error() -> None:
    with pytest.raises(PolicyError, match="knows 2 actions"):
        check_log(_log(), SETTINGS, SoftmaxPolicy([0.0, 0.0]))


def test_findings_never_hide_what_is_not_finite() -> None:
    assert found("x", float("nan"), "fine").level is Level.WARNING
    assert found("x", 1.0, "fine", p_value=float("nan")).value is None
    assert plain({"a": np.array([1.0, np.inf])}) == {"a": [1.0, None]}


@pytest.mark.parametrize("count", [400, 401, 1000])
def test_a_long_log_is_tested_for_drift_on_the_means_of_neighbours(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many means as there may be, of parts that differ by one episode at most; by hand, part by part."""
    most, basis = 100, CosineBasis(3)
    settings = ForecastSettings(10, Paired(basis))
    log = _log(count, shape=np.arange(count) / count)
    monkeypatch.setattr(fitness, "MOST_MEANS", most)
    found = check_log(log, settings, POLICY)["drift"]
    returns = np.asarray(pdis_returns(POLICY, log))
    parts = [np.arange(i * count // most, (i + 1) * count // most) for i in range(most)]
    assert {part.size for part in parts} <= {count // most, count // most + 1}
    means, times = (
        np.array([values[part].mean() for part in parts])
        for values in (returns, np.asarray(log.episode_numbers))
    )
    axis, there = TimeAxis.over(log.span, 10), np.ones(most, bool)
    flat = fit_trend(trend_design(ConstantBasis(), times, there, axis), jnp.asarray(means))
    waves = basis.design_matrix(times, axis).T
    signs = Rademacher(jax.random.key(VERDICT_SEED), DRAWS)
    expected = score_test(flat.design, flat.residuals, waves, signs)
    assert found.value == pytest.approx(float(expected.statistic), rel=1e-8)
    assert found.p_value == pytest.approx(float(expected.p_value))


@pytest.mark.parametrize("spare", [0, 5])
def test_rows_come_by_time(spare: int) -> None:
    times, present = np.array([3.0, 1.0, 2.0, 2.0]), np.ones(4, bool)
    padded = np.append(times, np.zeros(spare)), np.append(present, np.zeros(spare, bool))
    np.testing.assert_array_equal(rows_by_time(*padded), [1, 2, 3, 0])
    padded[0][:4] = np.sort(times)
    assert rows_by_time(*padded) == slice(4)
    padded[1][1] = False
    np.testing.assert_array_equal(rows_by_time(*padded), [0, 2, 3])
    assert rows_by_time(np.zeros(spare), np.zeros(spare, bool)) == slice(0)
