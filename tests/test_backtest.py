"""The backtest: it is the gate at each date, its coverage is nominal, and it tells noise from truth."""

import dataclasses
import functools
import json
from typing import Any

import numpy as np
import pytest

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    Multiscale,
    Paired,
    Reason,
    RecentMeans,
    RecordedPolicy,
    SettingsError,
    SoftmaxPolicy,
    TwoBounds,
    Verdict,
    pdis_returns,
    safety_test,
    split_log,
)
from tidegate.basis import TimeAxis
from tidegate.checks.backtest import Backtest, Rate, backtest, backtest_dates
from tidegate.comparison import ComparisonTest
from tidegate.episodes import grow
from tidegate.record import plain
from tidegate.returns import dr_returns
from tidegate.trend import fit_trend, trend_design

SETTINGS = ForecastSettings(15, TwoBounds(CosineBasis(1)))
SAFE = SoftmaxPolicy(np.zeros(3))
GOOD = SoftmaxPolicy([-1.0, 0.0, 1.0])


def _log(rows: int = 400, *, gap: Any = 1.0, noise: float = 0.2, seed: int = 0, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    rewards = gap * (actions == 2) + noise * rng.normal(size=rows)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3), **more)


def test_each_date_is_the_gate_on_the_log_up_to_it() -> None:
    log = _log()
    test = backtest(GOOD, SAFE, log, SETTINGS, dates=6)
    np.testing.assert_array_equal(test.dates, 385 - 15 * np.arange(6)[::-1])
    i, end = 2, int(test.dates[2])
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log.take(slice(0, end))), SETTINGS)
    assert test.reasons[i] is decision.reason
    assert test.verdicts[i] is decision.verdict
    for record, forecast in ((test.candidate, decision.candidate), (test.safe, decision.safe)):
        assert record.forecast[i] == pytest.approx(forecast.point)
        assert record.lower[i] == pytest.approx(forecast.lower)
        assert record.upper[i] == pytest.approx(forecast.upper)
    came = [np.asarray(pdis_returns(p, log))[end : end + 15].mean() for p in (GOOD, SAFE)]
    assert test.candidate.realised[i] == pytest.approx(came[0])
    assert test.difference[i] == pytest.approx(came[0] - came[1])


def _parts() -> tuple[EpisodeLog, EpisodeLog]:
    training, held_out = split_log(_log(), train_fraction=1 / 3)
    return training.log, held_out.log


def _same(one: Backtest, other: Backtest) -> bool:
    return json.dumps(plain(one)) == json.dumps(plain(other))


def test_training_episodes_are_neither_tested_nor_what_came_next() -> None:
    """What a search has seen would flatter its candidate, also as the future of an earlier date."""
    settings = ForecastSettings(15, Paired(CosineBasis(1)))
    training, held_out = _parts()
    louder = dataclasses.replace(training, rewards=9 + 5 * np.asarray(training.rewards))
    found, other = (
        backtest(GOOD, SAFE, held_out, settings, training=one, dates=4) for one in (training, louder)
    )
    assert _same(found, other)
    numbers = np.asarray(held_out.episode_numbers)
    for date, following in zip(found.dates, found.following, strict=True):
        assert following == np.sum((numbers > date) & (numbers <= date + 15))
    changed = dataclasses.replace(held_out, rewards=9 + 5 * np.asarray(held_out.rewards))
    assert not _same(found, backtest(GOOD, SAFE, changed, settings, training=training, dates=4))


def test_each_date_has_the_doubly_robust_returns_that_would_have_decided() -> None:
    """By hand at one date: a model of the training episodes up to it, for the others before and after."""
    model, basis = RecentMeans(), CosineBasis(1)
    settings = ForecastSettings(15, Paired(basis), value_model=model)
    training, held_out = _parts()
    test = backtest(GOOD, SAFE, held_out, settings, training=training, dates=4)
    date = test.dates[1]
    seen = training.take(np.flatnonzero(np.asarray(training.episode_numbers) <= date))
    times = np.asarray(held_out.episode_numbers)
    values = model.predict(seen, held_out, 1.0, per_action=True)
    axis = TimeAxis(0.0, float(date), 15)
    after = (times > date) & (times <= date + 15)
    design = trend_design(basis, times, times <= date, axis)
    for policy, record in ((GOOD, test.candidate), (SAFE, test.safe)):
        returns = dr_returns(policy, held_out, 1.0, values)
        fit = fit_trend(design, returns)
        assert record.forecast[1] == pytest.approx(float(fit.point))
        assert record.realised[1] == pytest.approx(float(np.asarray(returns)[after].mean()))
        assert record.noise[1] < 0.7 * np.std(np.asarray(pdis_returns(policy, held_out))) / np.sqrt(
            after.sum()
        )


@pytest.mark.parametrize("test", [Paired(CosineBasis(1)), Multiscale()], ids=["paired", "multiscale"])
def test_without_training_episodes_each_date_is_a_gate_on_the_log_of_that_day(test: ComparisonTest) -> None:
    """Values are cross-fitted to what was known; what came next is estimated from that alone."""
    model = RecentMeans()
    settings, log = ForecastSettings(15, test, value_model=model), _log()
    found = backtest(GOOD, SAFE, log, settings, dates=4)
    date, times = found.dates[1], np.asarray(log.episode_numbers)
    known = log.take(np.flatnonzero(times <= date))
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(known), settings)
    assert found.reasons[1] is decision.reason
    values = model.predict(known, log, 1.0, per_action=True)
    after = (times > date) & (times <= date + 15)
    for policy, record, forecast in (
        (GOOD, found.candidate, decision.candidate),
        (SAFE, found.safe, decision.safe),
    ):
        assert record.forecast[1] == pytest.approx(forecast.point)
        assert record.lower[1] == pytest.approx(forecast.lower, rel=0.05)
        returns = np.asarray(dr_returns(policy, log, 1.0, values))
        assert record.realised[1] == pytest.approx(float(returns[after].mean()))


def test_row_order_and_spare_rows_change_nothing() -> None:
    log = _log()
    shuffled = grow(log.take(np.random.default_rng(0).permutation(400)), 512)
    first, second = (backtest(GOOD, SAFE, one, SETTINGS, dates=6) for one in (log, shuffled))
    np.testing.assert_allclose(first.candidate.lower, second.candidate.lower)
    assert first.reasons == second.reasons


@functools.cache
def _forty() -> list[Backtest]:
    return [backtest(GOOD, None, _log(seed=seed), SETTINGS) for seed in range(40)]


def test_prediction_intervals_have_nominal_coverage_and_plain_ones_do_not() -> None:
    """40 logs with 20 dates each, for the behaviour itself and for a policy with skewed ratios."""
    tests = _forty()
    for name in ("candidate", "safe"):
        records = [getattr(test, name) for test in tests]
        rates = (
            np.mean([one.coverage.share for one in records]),
            np.mean([one.interval_coverage.share for one in records]),
        )
        print(f"\n{name}: prediction {rates[0]:.3f}, interval {rates[1]:.3f} of nominal 0.95")
        assert 0.92 < rates[0] < 0.98
        assert rates[1] < 0.8


def test_noise_of_the_realised_means_is_what_it_says() -> None:
    """(realised − truth)/noise has variance 1; the candidate's true advantage is known here."""
    tests = _forty()
    truth = float(np.exp(np.asarray(GOOD.log_probs()))[2]) - 1 / 3
    scores = np.concatenate([(t.difference - truth) / t.difference_noise for t in tests])
    assert np.mean(scores) == pytest.approx(0, abs=0.15)
    assert np.var(scores) == pytest.approx(1, abs=0.15)


def test_a_reversal_makes_deployments_wrong() -> None:
    gap = np.where(np.arange(400) < 385, 1.0, -3.0)
    test = backtest(GOOD, SAFE, _log(gap=gap), SETTINGS, dates=6)
    assert test.deployments == Rate(6, 6)
    assert test.wrong_deployments == Rate(1, 6)
    assert test.clearly_wrong_deployments == Rate(1, 6)
    assert test.candidate.coverage.count == 5
    assert test.verdicts == (Verdict.DEPLOY,) * 6
    assert "would have opened at 6 of 6" in str(test)


def test_records_are_strict_json() -> None:
    content = json.loads(json.dumps(plain(backtest(GOOD, SAFE, _log(), SETTINGS, dates=6)), allow_nan=False))
    assert content["coverage"]["candidate"]["total"] == 6
    assert len(content["candidate"]["forecast"]) == len(content["dates"]) == 6
    assert content["reasons"][0] in Reason.__members__


def test_dates_need_a_past_and_a_future() -> None:
    assert "too short" in str(backtest(GOOD, SAFE, _log(1), SETTINGS))
    assert backtest_dates(np.arange(1.0, 24 + 1), SETTINGS, 20, 15).size == 0
    assert backtest_dates(np.arange(1.0, 25 + 1), SETTINGS, 20, 15).tolist() == [10]
    np.testing.assert_array_equal(
        backtest_dates(np.arange(1.0, 400 + 1), SETTINGS, 3, 50), 385 - 50 * np.arange(3)[::-1]
    )
    with pytest.raises(SettingsError, match="dates is 0"):
        backtest(GOOD, SAFE, _log(), SETTINGS, dates=0)
    with pytest.raises(SettingsError, match="all sign vectors"):
        backtest(GOOD, SAFE, _log(12), ForecastSettings(2, exact=True))


def test_a_gap_leaves_nothing_to_compare_with() -> None:
    numbers = np.r_[1:351, 381:431].astype(float)
    test = backtest(GOOD, SAFE, _log(episode_numbers=numbers), SETTINGS, dates=6)
    empty = test.following == 0
    assert empty.any()
    assert np.isnan(test.difference[empty]).all()
    assert test.candidate.coverage.total == int((~empty).sum())
    json.dumps(plain(test), allow_nan=False)


@pytest.mark.parametrize("values", [0.0, np.nan])
def test_unfit_logs_keep_and_never_cover(values: float) -> None:
    log = _log(60)
    with np.errstate(divide="ignore"):
        broken = EpisodeLog(**{**vars(log), "recorded": {"new": np.log(np.full((60, 1), values))}})
    test = backtest(RecordedPolicy("new"), SAFE, broken, SETTINGS, dates=3)
    assert set(test.verdicts) == {Verdict.KEEP}
    assert test.deployments.count == 0
    assert test.wrong_deployments.total == 0
    json.dumps(plain(test), allow_nan=False)


def test_rates() -> None:
    rate = Rate(19, 20)
    assert rate.share == pytest.approx(0.95)
    assert rate.standard_error == pytest.approx(np.sqrt(0.95 * 0.05 / 20))
    # statsmodels 0.15.0: proportion_confint(19, 20, method="beta")
    assert rate.interval == pytest.approx((0.7512672, 0.9987349), abs=1e-6)
    assert Rate(0, 0).share is None
    assert Rate(0, 0).standard_error is None
    assert Rate(0, 0).interval == (0, 1)
    assert str(Rate(0, 0)) == "0 of 0"
