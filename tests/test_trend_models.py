"""Trend models tried on the past: against a slow loop, and in worlds whose best trend is known."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    LogError,
    PeriodicBasis,
    PolynomialBasis,
    SettingsError,
    SoftmaxPolicy,
    TrendChoice,
    TrendModel,
    past_errors,
    select_trend,
    split_log,
    standard_models,
)
from tidegate.basis import TimeAxis
from tidegate.performance import log_axis
from tidegate.scales import Series
from tidegate.trend_models import FEW, SMALLEST, ModelTrial, model_fit, season

from . import oracles

N, LOOKAHEAD, ORIGINS = 900, 5, 24
TIMES = np.arange(1.0, N + 1)
POLICY, SETTINGS = SoftmaxPolicy(np.zeros(2)), ForecastSettings(LOOKAHEAD)
LINE = PolynomialBasis(1)


def _log(rewards: oracles.Vector, seed: int = 0) -> EpisodeLog:
    """One-step episodes of the tested policy itself: its returns are the rewards."""
    actions = np.random.default_rng(seed).integers(0, 2, rewards.size)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rewards.size, 0.5), num_actions=2)


def _choice(rewards: oracles.Vector, seed: int = 0) -> TrendChoice:
    return select_trend(POLICY, split_log(_log(rewards), seed=seed)[0], SETTINGS)


def _autoregression(memory: float, noise: oracles.Vector) -> oracles.Vector:
    values = np.zeros_like(noise)
    for i in range(1, noise.size):
        values[i] = memory * values[i - 1] + noise[i]
    return values


def _series(seed: int = 0, spare: int = 20) -> tuple[Series, TimeAxis]:
    """A wave with noise at uneven times, spare rows at the end; in all as many rows as training has."""
    rng = np.random.default_rng(seed)
    n = N // 2 - spare
    times = np.sort(rng.choice(TIMES, n, replace=False))
    values = np.sin(times / 40) + 0.3 * rng.normal(size=n)
    series = Series(
        jnp.asarray(np.r_[values, np.full(spare, np.nan)]),
        np.r_[times, np.zeros(spare)],
        np.r_[np.ones(n, bool), np.zeros(spare, bool)],
    )
    return series, log_axis(SETTINGS, (float(times[0]), float(times[-1])))


Features = Callable[[Any, float, float], Any]
FEATURES: dict[str, tuple[TrendModel, Features]] = {
    "constant": (TrendModel(ConstantBasis()), lambda t, a, b: np.ones((t.size, 1))),
    "window": (TrendModel(LINE, window=90.0), lambda t, a, b: np.c_[np.ones(t.size), t]),
    "discounted": (TrendModel(LINE, half_life=40.0), lambda t, a, b: np.c_[np.ones(t.size), t]),
    "both": (TrendModel(LINE, 90.0, 40.0), lambda t, a, b: np.c_[np.ones(t.size), t]),
    "cosines": (
        TrendModel(CosineBasis(2, 5)),
        lambda t, a, b: np.cos(np.pi * np.outer((t - a) / (b - a), np.arange(3))),
    ),
    "season": (
        TrendModel(PeriodicBasis(120.0)),
        lambda t, a, b: np.c_[
            np.ones(t.size), t, np.cos(2 * np.pi * t / 120), np.sin(2 * np.pi * t / 120)
        ],
    ),
}


def _slow_past(
    model: TrendModel, features: Features, series: Series, axis: TimeAxis
) -> list[tuple[float, float, float, float, float]]:
    """Date, error, realised mean, variance of the forecast and of the mean, with NumPy's lstsq."""
    keep = np.asarray(series.present)
    times, values = np.asarray(series.times)[keep], np.asarray(series.returns)[keep]
    first, last = float(axis.origin), float(axis.horizon) - LOOKAHEAD
    reach = max(LOOKAHEAD, FEW * (last - first) / times.size)
    found = []
    for date in np.linspace(last - reach, (first + last) / 2, ORIGINS):
        after = (times > date) & (times <= date + reach)
        known = (times <= date) & (date - times < (model.window or np.inf))
        omega = 2 ** (-(date - times[known]) / (model.half_life or np.inf))
        count = omega.sum() ** 2 / (omega**2).sum()
        if after.sum() < 2 or count < SMALLEST:
            continue
        start = max(first, date - (model.window or np.inf))
        x, y = features(times[known], start, date + reach), values[known]
        root = np.sqrt(omega)[:, None]
        solve = np.linalg.lstsq(root * x, np.diag(root[:, 0]), rcond=None)[0]
        weights = features(times[after], start, date + reach).mean(axis=0) @ solve
        residuals = y - x @ (solve @ y)
        inflation = count / (count - x.shape[1])
        scatter = (omega * residuals**2).sum() / omega.sum() * inflation
        realised = values[after].mean()
        found.append(
            (
                date,
                realised - weights @ y,
                realised,
                ((weights * residuals) ** 2).sum() * inflation,
                scatter / after.sum(),
            )
        )
    return found


@pytest.mark.parametrize("name", FEATURES)
def test_past_errors_equal_a_loop_of_least_squares_over_dates(name: str) -> None:
    model, features = FEATURES[name]
    series, axis = _series()
    slow = _slow_past(model, features, series, axis)
    assert len(slow) >= 20
    found = past_errors(model, series, axis, LOOKAHEAD)
    rows = (found.dates, found.error, found.realised, found.variance, found.realised_noise)
    fair = np.asarray(found.fair)
    np.testing.assert_allclose(np.stack(rows, axis=1)[fair], slow, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found.noise, found.variance + found.realised_noise)


def test_a_past_forecast_knows_nothing_of_its_future() -> None:
    series, axis = _series()
    model = FEATURES["season"][0]
    found = past_errors(model, series, axis, LOOKAHEAD)
    date = float(found.dates[10])
    changed = dataclasses.replace(
        series, returns=jnp.where(series.times > date, 7.0, series.returns)
    )
    again = past_errors(model, changed, axis, LOOKAHEAD)
    np.testing.assert_array_equal(found.variance[10], again.variance[10])
    np.testing.assert_allclose(
        (found.realised - found.error)[10], (again.realised - again.error)[10], rtol=1e-12
    )
    assert abs(float(found.error[9] - again.error[9])) > 1


def test_a_date_with_too_few_episodes_is_not_fair() -> None:
    series, axis = _series()
    found = past_errors(TrendModel(LINE, window=10.0), series, axis, LOOKAHEAD)
    assert not np.asarray(found.fair).any()


def test_weights_of_a_window_and_of_a_half_life() -> None:
    times = np.array([1.0, 6.0, 8.0, 10.0, 11.0])
    np.testing.assert_allclose(TrendModel(LINE).weights(times, 10.0), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(TrendModel(LINE, window=4.0).weights(times, 10.0), [0, 0, 1, 1, 0])
    np.testing.assert_allclose(
        TrendModel(LINE, half_life=2.0).weights(times, 10.0), [2**-4.5, 0.25, 0.5, 1, 0]
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_season_is_found_and_wins(seed: int) -> None:
    noise = 0.5 * np.random.default_rng(seed).normal(size=N)
    choice = _choice(np.sin(2 * np.pi * TIMES / 150 + 1) + noise, seed)
    basis = choice.best.basis
    assert isinstance(basis, PeriodicBasis)
    assert float(basis.period) == pytest.approx(150, rel=0.03)
    assert choice.forecastable
    assert choice.settings.basis is basis
    best = next(trial for trial in choice.trials if trial.model is choice.best)
    # Noise explains squares of ¼/4 with a standard error of √(2/23) of that: three of them are 0.055.
    assert best.root_mean_square_error**2 < 1 / 16 + 0.055
    assert best.bias**2 < 0.055
    assert best.swing**2 == pytest.approx(0.5, abs=0.32)  # a wave; three standard errors again
    assert "best" in str(choice).splitlines()[1]


@pytest.mark.parametrize("seed", range(4))
def test_what_wanders_is_left_to_recent_trends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    choice = _choice(np.cumsum(0.2 * rng.normal(size=N)) + 0.5 * rng.normal(size=N), seed)
    assert not choice.best.whole_log
    with pytest.raises(SettingsError, match="multiscale"):
        _ = choice.settings


def test_what_jumps_faster_than_any_trend_is_not_forecastable() -> None:
    """In most logs: a trend through jumps has no skill, and 23 dates show that roughly."""
    lost = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        jumps = 2 * np.repeat(rng.normal(size=N // 9), 9)
        lost.append(_choice(jumps + 0.3 * rng.normal(size=N), seed))
    shut = [choice for choice in lost if not choice.forecastable]
    assert len(shut) >= 4
    with pytest.raises(SettingsError, match="no trend model"):
        _ = shut[0].settings


def test_in_noise_the_constant_is_credible_and_the_future_forecastable() -> None:
    choices = [_choice(np.random.default_rng(s).normal(size=N), s) for s in range(10)]
    credible = ["constant" in {model.name for model in one.credible} for one in choices]
    assert sum(credible) >= 9  # a difference of two standard errors is rare, not impossible
    assert sum(one.forecastable for one in choices) >= 8  # a bias of 0 may look positive by chance
    assert np.mean([one.memory for one in choices]) < 0.08
    assert sum(one.best.name == "constant" for one in choices) >= 3  # of 13 models


def test_noise_that_remembers_is_reported() -> None:
    """Half of the episodes: from one to the next, the memory is ½φ/(1 − ½φ) on average."""
    found = [
        _choice(_autoregression(0.7, np.random.default_rng(s).normal(size=N)), s).memory
        for s in range(6)
    ]
    assert np.mean(found) == pytest.approx(0.35 / 0.65, abs=0.08)


def test_noise_has_no_season_and_a_season_is_sought_in_the_older_half_alone() -> None:
    series, axis = _series()
    noise = np.random.default_rng(3).normal(size=series.returns.size)
    quiet = dataclasses.replace(series, returns=jnp.asarray(noise))
    assert season(quiet, axis, LOOKAHEAD) is None
    middle = (float(axis.origin) + float(axis.horizon) - LOOKAHEAD) / 2
    late = jnp.asarray(np.where(series.times > middle, 9 * np.sin(series.times / 5), noise))
    assert season(dataclasses.replace(series, returns=late), axis, LOOKAHEAD) is None


def test_the_fit_of_a_whole_log_model_is_the_paper_s_forecast() -> None:
    series, axis = _series(spare=0)
    model, features = FEATURES["cosines"]
    fit = model_fit(model, series, axis, LOOKAHEAD)
    ends, times = (float(axis.origin), float(axis.horizon)), np.asarray(series.times)
    future = ends[1] + np.arange(1.0 - LOOKAHEAD, 1.0)
    point, variance, _ = oracles.forecast(
        features(times, *ends), np.asarray(series.returns), features(future, *ends)
    )
    assert float(fit.point) == pytest.approx(point, rel=1e-9)
    assert float(fit.variance) == pytest.approx(variance, rel=1e-9)


def test_a_model_that_the_log_is_too_thin_for_is_not_tried() -> None:
    training, _ = split_log(_log(np.random.default_rng(0).normal(size=N)))
    thin, whole = TrendModel(LINE, window=12.0, name="thin"), TrendModel(LINE, name="whole")
    trials: tuple[ModelTrial, ...] = select_trend(POLICY, training, SETTINGS, [thin, whole]).trials
    assert [trial.tried for trial in trials] == [False, True]
    assert [trial.credible for trial in trials] == [False, True]
    with pytest.raises(LogError, match="more episodes"):
        select_trend(POLICY, training, SETTINGS, [thin])


def test_standard_models() -> None:
    models = standard_models(800.0, 50.0)
    assert [m.window for m in models if m.window] == [400.0, 200.0, 100.0, 50.0]
    assert [m.half_life for m in models if m.half_life] == [200.0, 100.0, 50.0]
    assert len({m.name for m in models}) == len(models) == 14
    assert len(standard_models(800.0)) == 13


def test_refusals() -> None:
    training, held_out = split_log(_log(np.random.default_rng(0).normal(size=60)))
    with pytest.raises(SettingsError, match="HeldOutEpisodes"):
        select_trend(POLICY, held_out, SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="no trend models"):
        select_trend(POLICY, training, SETTINGS, [])
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="window"):
            TrendModel(LINE, window=bad)
        with pytest.raises(SettingsError, match="half_life"):
            TrendModel(LINE, half_life=bad)
    series, axis = _series()
    with pytest.raises(SettingsError, match="origins"):
        past_errors(TrendModel(LINE), series, axis, LOOKAHEAD, origins=2)
