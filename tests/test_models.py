"""Forecasts at every time scale: against slow twins, closed forms, and rates in drifting worlds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    FourierBasis,
    HeldOutEpisodes,
    Paired,
    PolynomialBasis,
    Reason,
    RecordedPolicy,
    SettingsError,
    SoftmaxPolicy,
    TrainingEpisodes,
    Verdict,
    forecast_performance,
    safety_test,
    split_log,
)
from tidegate.basis import PeriodicBasis, TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.comparison import Terms, _agree
from tidegate.episodes import grow
from tidegate.forecast import forecast_returns
from tidegate.gates.spending import since
from tidegate.models import (
    REACH,
    Calibration,
    Series,
    TrendModel,
    TrendModels,
    calibrate,
    choose_models,
    first_at_their_time,
    leading_model,
    tried_forecasts,
)
from tidegate.presets import multiscale_forecast
from tidegate.safety import compare_policies
from tidegate.simulators.drifting import DriftingBandit
from tidegate.trend import fit_trend

LOOKAHEAD = 5
MULTISCALE = multiscale_forecast(ForecastSettings(LOOKAHEAD))
SAFE, GOOD = SoftmaxPolicy(np.zeros(3)), SoftmaxPolicy([-1.0, 0.0, 2.0])
PERIOD = 40.0
OTHERS = (
    TrendModel(PeriodicBasis(PERIOD), 0.5, "season"),
    TrendModel(PeriodicBasis(PERIOD), 0.25, "recent season"),
    TrendModel(PolynomialBasis(2), 0.6, "window"),
)


def _series(n: int = 120, seed: int = 0, spare: int = 0) -> tuple[Series, TimeAxis]:
    """A wave with noise, some episodes missing, spare rows at the end."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.choice(np.arange(1.0, 2 * n), n, replace=False))
    values = np.sin(times / 20) + 0.3 * rng.normal(size=n)
    present = np.r_[np.ones(n, bool), np.zeros(spare, bool)]
    series = Series(
        jnp.asarray(np.r_[values, np.full(spare, 9.0)]),
        np.r_[times, np.full(spare, times[-1] + 3)],
        present,
    )
    return series, TimeAxis(times[0] - 1, times[-1], LOOKAHEAD)


def _line(times: Any) -> Any:
    return np.column_stack([np.ones_like(times), times])


def _season(times: Any) -> Any:
    """The span of `PeriodicBasis(PERIOD)`, from whatever origin."""
    angles = 2 * np.pi * times / PERIOD
    return np.column_stack([_line(times), np.cos(angles), np.sin(angles)])


def _parabola(times: Any) -> Any:
    return np.column_stack([_line(times / 100), (times / 100) ** 2])


def _forecast(features: Any, times: Any, values: Any, ahead: Any) -> tuple[float, Any, Any]:
    """Forecast of a mean, its weights and the residuals of least squares, by the normal equations."""
    x = features(times)
    hat = np.linalg.solve(x.T @ x, x.T)
    weights = features(ahead).mean(axis=0) @ hat
    return float(weights @ values), weights, values - x @ (hat @ values)


def _slow_calibration(
    series: Series, axis: TimeAxis, span: float, origins: int, smallest: int, features: Any = _line
) -> Any:
    """Squared bias and squared swing, date by date."""
    columns = features(np.ones(1)).shape[1]
    smallest = max(smallest, 3 * columns)
    keep = np.asarray(series.present)
    times, values = np.asarray(series.times)[keep], np.asarray(series.returns)[keep]
    first, last = float(axis.origin), float(axis.last)
    reach = max(LOOKAHEAD, REACH * span)
    excess, realised, noises = [], [], []
    for age in range(1, origins + 1):
        date = last - (last - first) * age / (origins + 2)
        inside = (times > date - span) & (times <= date)
        after = (times > date) & (times <= date + reach)
        if inside.sum() < smallest or not after.any() or date + reach > last or date - span < first:
            continue
        point, weights, residuals = _forecast(features, times[inside], values[inside], times[after])
        n, freedom = inside.sum(), inside.sum() - columns
        noise = (residuals**2).sum() / freedom / after.sum()
        error = values[after].mean() - point
        excess.append(error**2 - ((weights * residuals) ** 2).sum() * n / freedom - noise)
        realised.append(values[after].mean())
        noises.append(noise)
    if len(excess) < 3:
        return None
    moved = np.mean((realised - np.mean(realised)) ** 2 - np.array(noises))
    return max(np.mean(excess), 0.0), max(moved, 0.0)


@pytest.mark.parametrize("spare", [0, 7])
def test_calibration_equals_a_loop_over_dates(spare: int) -> None:
    models = TrendModels(origins=17, others=OTHERS)
    series, axis = _series(spare=spare)
    spans = models.spans(axis, 5)
    found = calibrate(models, series, spans, axis)
    features = [_line] * 5 + [_season, _season, _parabola]
    slow = [
        _slow_calibration(series, axis, float(span), 17, models.smallest, one)
        for span, one in zip(spans, features, strict=True)
    ]
    assert [one is not None for one in slow] == np.asarray(found.tried).tolist()
    assert sum(one is not None for one in slow[:5]) >= 3
    assert all(one is not None for one in slow[5:])
    known = [one for one in slow if one is not None]
    np.testing.assert_allclose(
        np.asarray(found.bias)[np.asarray(found.tried)] ** 2, [one[0] for one in known], atol=1e-10
    )
    np.testing.assert_allclose(
        np.asarray(found.swing)[np.asarray(found.tried)] ** 2, [one[1] for one in known], atol=1e-10
    )
    untried = ~np.asarray(found.tried)
    np.testing.assert_allclose(np.asarray(found.bias)[untried], np.asarray(found.bias).max())


def test_the_bias_of_a_line_through_a_parabola_has_its_closed_form() -> None:
    """Through ½t² over the last h, a line errs by ½(x² + hx + h²/6) at x beyond its end."""
    times = np.arange(1.0, 2001.0)
    series = Series(jnp.asarray(0.5 * times**2), times, np.ones(2000, bool))
    axis, span = TimeAxis(0.0, 2000.0, LOOKAHEAD), 400.0
    found = calibrate(TrendModels(), series, jnp.array([span]), axis)
    x = (np.arange(REACH * span) + 0.5) / span
    expected = np.mean(0.5 * span**2 * (x**2 + x + 1 / 6))
    np.testing.assert_allclose(float(found.bias[0]), expected, rtol=2e-2)


def test_each_model_forecasts_from_its_own_span() -> None:
    series, axis = _series(spare=4)
    models = TrendModels(others=OTHERS)
    spans = models.spans(axis, 3)
    designs = models.designs(spans, series.times, series.present, axis)
    fits = jax.vmap(fit_trend, (0, None))(designs, series.returns)
    times, values = np.asarray(series.times), np.asarray(series.returns)
    last = float(axis.last)
    ahead = last + np.arange(1, LOOKAHEAD + 1)
    features = [_line] * 3 + [_season, _season, _parabola]
    for j, (span, one) in enumerate(zip(np.asarray(spans), features, strict=True)):
        inside = np.asarray(series.present) & (times > last - span)
        point, weights, residuals = _forecast(one, times[inside], values[inside], ahead)
        np.testing.assert_allclose(float(fits.point[j]), point, rtol=1e-9)
        # HC3: each residual is that of a trend fitted without its own episode.
        left_out = [
            values[inside][i]
            - _forecast(one, np.delete(times[inside], i), np.delete(values[inside], i), times[inside][[i]])[0]
            for i in range(residuals.size)
        ]
        variance = ((weights * np.array(left_out)) ** 2).sum()
        np.testing.assert_allclose(float(fits.variance[j]), variance, rtol=1e-8)


SEASONAL = TrendModels(others=OTHERS[:1])


def _wave(height: float, seed: int = 0) -> tuple[Series, TimeAxis]:
    """A season of six periods, at the end of which it starts to rise."""
    times = np.arange(1.0, 241.0)
    wave = height * np.sin(2 * np.pi * times / PERIOD)
    values = wave + 0.2 * np.random.default_rng(seed).normal(size=240)
    return Series(jnp.asarray(values), times, np.ones(240, bool)), TimeAxis(0.0, 240.0, LOOKAHEAD)


@pytest.mark.parametrize("seed", range(3))
def test_a_season_leads_where_there_is_one(seed: int) -> None:
    signs = Rademacher(jax.random.key(0), 100)
    truth = np.mean(np.sin(2 * np.pi * np.arange(241, 246) / PERIOD))
    series, axis = _wave(1.0, seed)
    found = jax.jit(tried_forecasts)(SEASONAL, series, series, axis, signs)
    season = found.spans.size - 1
    assert SEASONAL.names(season + 1) == ("line",) * season + ("season",)
    assert int(found.choice.best) == season
    misses = np.abs(np.asarray(found.fits.point) - truth)
    assert misses[season] < 0.4 * misses[:season].min()
    assert misses[season] < 4 * float(found.errors[season])
    assert float(found.biases[season]) < 0.1 * float(found.biases[:season].max())
    # A model of the whole log has no past of its own, so it is believed no more than the worst line.
    untried = TrendModels(others=(dataclasses.replace(OTHERS[0], share=1.0),))
    calibration = calibrate(untried, series, untried.spans(axis, season), axis)
    assert not bool(calibration.tried[season])
    assert float(calibration.bias[season]) == float(calibration.bias.max())


def test_a_season_does_not_lead_where_there_is_none() -> None:
    """Its further columns cost variance, and there is nothing to gain."""
    leads = []
    for seed in range(10):
        series, axis = _wave(0.0, seed)
        spans = SEASONAL.spans(axis, 6)
        calibration = calibrate(SEASONAL, series, spans, axis)
        counts = jnp.sum(SEASONAL.designs(spans, series.times, series.present, axis).present, 1)
        leads.append(int(choose_models(SEASONAL, spans, counts, counts, calibration, axis).best) == 6)
    assert np.mean(leads) < 0.5


def test_a_season_is_fourier_or_a_line_with_waves() -> None:
    """Any basis may be a model: without a slope, the Fourier basis leads likewise."""
    series, axis = _wave(1.0)
    fourier = TrendModels(others=(TrendModel(FourierBasis(1, PERIOD), 0.5, "fourier"),))
    lead = leading_model(fourier, series, series, axis)
    fit = lead.fit
    assert float(lead.span) == 120
    assert int(fit.design.num_columns) == 3
    truth = np.mean(np.sin(2 * np.pi * np.arange(241, 246) / PERIOD))
    assert float(fit.point) == pytest.approx(truth, abs=0.15)


def _choice(
    bias: list[float],
    variance: list[float],
    swing: float = 1.0,
    tried: Any = None,
    longest: float = LOOKAHEAD,
    times: Any = None,
) -> Any:
    counts = jnp.full(len(bias), 100)
    calibration = Calibration(
        jnp.asarray(variance) * 100,
        jnp.asarray(bias),
        jnp.full(len(bias), swing),
        jnp.asarray([True] * len(bias) if tried is None else tried),
        jnp.full(len(bias), longest),
    )
    spans, axis = 0.5 ** jnp.arange(len(bias)), TimeAxis(0.0, 100.0, LOOKAHEAD)
    times = counts if times is None else jnp.asarray(times)
    return choose_models(TrendModels(tolerance=2.0), spans, counts, times, calibration, axis)


def test_the_scale_with_the_smallest_error_leads_and_shorter_credible_ones_must_pass() -> None:
    choice = _choice([0.9, 0.3, 0.0, 0.0, 0.0], [0.01, 0.01, 0.02, 0.05, 0.5])
    assert int(choice.best) == 2
    assert np.asarray(choice.needed).tolist() == [False, False, True, True, False]
    assert np.asarray(choice.watched).tolist() == [False, False, True, True, True]
    assert bool(choice.forecastable)


def test_a_scale_without_a_past_of_its_own_is_believed_only_as_the_longest() -> None:
    choice = _choice([0.0, 0.0, 0.0], [0.1, 0.01, 0.2], tried=[False, False, True])
    assert int(choice.best) == 0
    assert np.asarray(choice.needed).tolist() == [True, False, True]


def test_errors_as_large_as_the_movement_mean_that_nothing_can_be_forecast() -> None:
    assert not bool(_choice([1.0, 1.2], [0.01, 0.01], swing=0.9).forecastable)
    assert bool(_choice([1.0, 0.5], [0.01, 0.01], swing=0.9).forecastable)
    assert bool(_choice([1.0, 1.2], [2.0, 2.0], swing=0.9).forecastable)  # noise explains as much


def test_a_lookahead_must_have_been_tried() -> None:
    assert bool(_choice([0.0, 0.0], [0.1, 0.1]).tried)
    assert not bool(_choice([0.0, 0.0], [0.1, 0.1], longest=LOOKAHEAD - 1).tried)
    assert not bool(_choice([0.0, 0.0], [0.1, 0.1], tried=[False, False]).tried)


def test_a_scale_of_a_few_dates_is_not_asked() -> None:
    """However many episodes there are on them."""
    choice = _choice([0.0, 0.0, 0.0], [0.1, 0.2, 0.2], times=[9, 4, 3])
    assert np.asarray(choice.needed).tolist() == [True, True, False]
    assert np.asarray(choice.watched).tolist() == [True, True, False]


def _slow_longest(times: Any, axis: TimeAxis, span: float, models: TrendModels) -> float:
    """Try every lookahead: can three windows of it follow one another behind the first filled date?"""
    first, last = float(axis.origin), float(axis.last)
    ages = np.arange(1, models.origins + 1) / (models.origins + 2)
    dates = [last - (last - first) * age for age in ages]
    filled = sorted(
        d for d in dates if d - span >= first and np.sum((times > d - span) & (times <= d)) >= models.smallest
    )
    longest = 0.0
    for lookahead in np.arange(0.5, last - first, 0.5):
        able = [d for d in filled if d + lookahead <= last]
        if len(able) >= 3 and able[-1] - able[0] >= 2 * lookahead:
            longest = float(lookahead)
    return longest


def test_the_longest_lookahead_that_the_past_can_try() -> None:
    models = TrendModels(origins=17)
    series, axis = _series()
    spans = models.spans(axis, 5)
    found = calibrate(models, series, spans, axis).longest
    slow = [_slow_longest(np.asarray(series.times), axis, float(span), models) for span in spans]
    assert max(slow) > 30
    np.testing.assert_array_less(np.asarray(slow) - 1e-9, np.asarray(found))
    np.testing.assert_array_less(np.asarray(found), np.asarray(slow) + 0.5)


def test_one_episode_for_each_time() -> None:
    times = np.array([5.0, 1.0, 5.0, 2.0, 1.0, 7.0])
    present = np.array([True, True, True, True, True, False])
    first = np.asarray(first_at_their_time(times, present))
    assert sorted(times[first]) == [1.0, 2.0, 5.0]


def test_more_capacity_changes_nothing() -> None:
    series, axis = _series()
    padded, _ = _series(spare=40)
    signs = Rademacher(jax.random.key(0), 200)
    first, second = (tried_forecasts(TrendModels(), one, one, axis, signs) for one in (series, padded))
    best = int(first.choice.best)
    assert best == int(second.choice.best)
    np.testing.assert_allclose(first.fits.point[best], second.fits.point[best], rtol=1e-10)
    np.testing.assert_allclose(first.draws[best], second.draws[best], rtol=1e-8)


def _log(rows: int = 300, gap: float = 1.0, seed: int = 0, **recorded: Any) -> EpisodeLog:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    rewards = gap * (actions == 2) + 0.1 * rng.normal(size=rows)
    columns = {name: np.broadcast_to(value, rows) for name, value in recorded.items()}
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3), recorded=columns, num_actions=3)


def _test(
    log: EpisodeLog,
    candidate: Any = GOOD,
    safe: Any = SAFE,
    settings: Any = MULTISCALE,
    **options: Any,
) -> Any:
    """The safety test with both parts at one capacity, so that it is compiled once."""
    training, held_out = split_log(log, train_fraction=1 / 3, seed=0)
    return safety_test(
        candidate,
        safe,
        HeldOutEpisodes(grow(held_out.log, 256), held_out.span),
        settings,
        training=TrainingEpisodes(grow(training.log, 128), training.span),
        **options,
    )


def test_a_clearly_better_policy_is_deployed_and_the_record_says_why() -> None:
    decision = _test(_log())
    assert decision.verdict is Verdict.DEPLOY
    assert decision.p_value is not None
    assert decision.advantage.lower > 0
    assert decision.p_value <= 0.05
    needed = [scale for scale in decision.advantage.scales if scale.needed]
    assert needed
    assert decision.p_value == max(scale.p_value for scale in needed)
    assert "advantage at least" in str(decision)
    again = _test(_log())
    assert again.to_dict() == decision.to_dict()


def test_training_episodes_may_end_long_before_the_log() -> None:
    """A search of last month, tested on a log that has grown since: short scales have no training."""
    log = _log()
    decision = safety_test(
        GOOD,
        SAFE,
        HeldOutEpisodes(grow(log.take(np.r_[1:120:2, 120:300]), 256), log.span),
        MULTISCALE,
        training=TrainingEpisodes(grow(log.take(np.arange(0, 120, 2)), 128), log.span),
    )
    assert decision.verdict is Verdict.DEPLOY


@pytest.mark.parametrize(("lately", "agree"), [(0.0, True), (-1.0, False)])
def test_policies_that_did_the_same_lately_do_not_contradict(lately: float, agree: bool) -> None:
    noise = np.random.default_rng(1).normal(size=300)
    difference = jnp.asarray(np.where(np.arange(300) < 260, 5 + noise, lately))
    axis = TimeAxis(jnp.asarray(0.0), jnp.asarray(300.0), LOOKAHEAD)
    series = Series(difference, np.arange(1.0, 301.0), np.ones(300, bool))
    signs = Rademacher(jax.random.key(0), 100)

    @jax.jit
    def agreement(series: Series) -> jax.Array:
        return _agree(tried_forecasts(TrendModels(), series, series, axis, signs), 0.0, 0.05)

    assert bool(agreement(series)) == agree


def test_a_margin_and_a_level_move_the_verdict() -> None:
    log = _log()
    assert _test(log, SAFE, GOOD).reason is Reason.NOT_BETTER
    assert _test(log, SAFE, GOOD, margin=2.0).verdict is Verdict.DEPLOY
    assert _test(log, level=0.0).reason is Reason.BUDGET_SPENT
    assert _test(log, level=1e-9).p_value == pytest.approx(_test(log).p_value)


def test_with_a_basis_the_paired_bound_is_that_of_the_difference() -> None:
    settings = ForecastSettings(LOOKAHEAD, Paired(CosineBasis(1)), draws=999)
    log = _log()
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log), settings)
    chosen = np.asarray(log.actions)[:, 0]
    ratios = [np.asarray(jax.nn.softmax(jnp.asarray(p.logits)))[chosen] * 3 for p in (GOOD, SAFE)]
    difference = (ratios[0] - ratios[1]) * np.asarray(log.rewards)[:, 0]
    alone = forecast_returns(
        difference, np.asarray(log.episode_numbers), dataclasses.replace(settings, alpha=0.1)
    )
    np.testing.assert_allclose(decision.advantage.point, alone.point, rtol=1e-10)
    np.testing.assert_allclose(decision.advantage.lower, alone.lower, rtol=1e-10)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [(0, Reason.NO_EPISODES), (1, Reason.TOO_FEW_EPISODES), (16, Reason.TOO_FEW_EPISODES)],
)
def test_too_little_evidence_keeps_the_gate_shut(rows: int, reason: Reason) -> None:
    log = _log().take(np.arange(rows))
    assert _test(log).reason is reason


def test_constant_rewards_equal_policies_and_wrong_propensities_keep_it_shut() -> None:
    rewards = np.ones(200)
    flat = EpisodeLog.from_arrays(np.arange(200) % 3, rewards, np.full(200, 1 / 3), num_actions=3)
    assert _test(flat).verdict is Verdict.KEEP
    assert _test(_log(), SAFE, SAFE).verdict is Verdict.KEEP
    log = _log(candidate=np.full(300, 0.9), safe=np.full(300, 1 / 3))
    policies = RecordedPolicy("candidate"), RecordedPolicy("safe")
    assert _test(log, *policies).reason is Reason.SUPPORT


def test_huge_rewards_and_unseen_actions_keep_it_shut() -> None:
    log = _log()
    huge = EpisodeLog.from_arrays(
        np.asarray(log.actions), np.asarray(log.rewards) * 1e300, np.full(300, 1 / 3), num_actions=3
    )
    assert _test(huge).verdict is Verdict.KEEP
    actions = np.asarray(log.actions)[:, 0] % 2
    unseen = EpisodeLog.from_arrays(actions, -np.ones(300), np.full(300, 0.5), num_actions=3)
    third = SoftmaxPolicy.from_probs([0.0, 0.0, 1.0])
    assert _test(unseen, third, SoftmaxPolicy.from_probs([0.5, 0.5, 0])).verdict is Verdict.KEEP


def test_another_past_changes_the_bias_that_is_believed_and_never_the_point() -> None:
    series, axis = _series()
    other = Series(series.returns + 5 * jnp.sin(jnp.asarray(series.times) / 9), series.times, series.present)
    signs = Rademacher(jax.random.key(0), 100)
    calm, rough = (tried_forecasts(TrendModels(), series, past, axis, signs) for past in (series, other))
    np.testing.assert_array_equal(calm.fits.point, rough.fits.point)
    assert np.all(np.asarray(rough.biases) > np.asarray(calm.biases))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"tolerance"):
        TrendModels(tolerance=0.5)
    with pytest.raises(SettingsError, match=r"caution"):
        TrendModels(caution=float("nan"))
    with pytest.raises(SettingsError, match=r"smallest is 3"):
        TrendModels(smallest=3)
    with pytest.raises(SettingsError, match=r"origins is 2"):
        TrendModels(origins=2)
    for share in (0.0, 1.5, np.nan):
        with pytest.raises(SettingsError, match=f"share is {share}"):
            TrendModel(CosineBasis(1), share)
    with pytest.raises(SettingsError, match=r"level is 5"):
        _test(_log(), level=5.0)
    two_bounds = ForecastSettings(5, draws=100)
    with pytest.raises(SettingsError, match=r"at least 200 draws"):
        safety_test(GOOD, SAFE, HeldOutEpisodes(_log()), two_bounds, level=0.01)


def test_an_interval_is_wider_than_that_of_any_scale_it_needs_and_has_a_curve() -> None:
    forecast = forecast_performance(GOOD, _log(), MULTISCALE)
    assert forecast.lower < forecast.point < forecast.upper
    assert forecast.curve_times[-1] == 305
    assert np.all(np.isfinite(forecast.curve))
    assert forecast.returns.size == 300


def test_the_curve_is_of_the_episodes_present_wherever_the_spare_rows_are() -> None:
    log = _log()
    masked = forecast_performance(GOOD, since(log, 200.0), MULTISCALE)
    taken = forecast_performance(GOOD, grow(log.take(np.arange(200, 300)), 300), MULTISCALE)
    np.testing.assert_allclose(masked.curve_times, taken.curve_times)
    np.testing.assert_allclose(masked.curve, taken.curve, rtol=1e-9)


def _verdicts(settings: ForecastSettings, period: float, logs: int) -> tuple[Any, Any]:
    """DEPLOY? and truly worse? for a policy on one arm, from logs that end anywhere in the season."""
    world = DriftingBandit.seasonal(period, noise=0.1)
    n = 300

    def one(key: Any) -> tuple[Any, Any]:
        start_key, arm_key, log_key = jax.random.split(key, 3)
        numbers = jnp.floor(period * jax.random.uniform(start_key)) + jnp.arange(1.0, n + 1)
        arm = jax.random.randint(arm_key, (), 0, world.arms)
        candidate = SoftmaxPolicy(jnp.where(jnp.arange(world.arms) == arm, 3.0, 0.0))
        log = world.collect(world.safe_policy, numbers, log_key)
        rows = np.arange(n)
        axis = TimeAxis(numbers[0] - 1, numbers[-1], settings.lookahead)
        parts = (log.take(rows[rows % 3 > 0]), log.take(rows[rows % 3 == 0]))
        outcome = compare_policies(
            settings,
            candidate,
            world.safe_policy,
            HeldOutEpisodes(parts[0]),
            Terms(axis, Rademacher(jax.random.key(1), settings.draws), settings.alpha),
            training=TrainingEpisodes(parts[1]),
        )
        future = numbers[-1] + jnp.arange(1.0, settings.lookahead + 1)
        gain = world.performance(candidate, future) - world.performance(world.safe_policy, future)
        return outcome.deploys, jnp.mean(gain) < 0

    found: tuple[Any, Any] = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), logs))
    return np.asarray(found[0]), np.asarray(found[1])


def test_in_a_season_the_gate_seldom_opens_for_what_will_be_worse() -> None:
    """A third of a season in the log, 60 episodes ahead."""
    settings = multiscale_forecast(ForecastSettings(60, support_z=np.inf, draws=200))
    deployed, worse = _verdicts(settings, 900.0, 400)
    wrong, chances = int((deployed & worse).sum()), int(worse.sum())
    assert chances > 100
    assert stats.binom.sf(wrong - 1, chances, 0.05) > 0.01
    assert deployed[~worse].mean() > 0.2
