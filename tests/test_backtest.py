"""The backtest: it is the gate at each date, its coverage is nominal, and it tells noise from truth."""

import functools
import json
from typing import Any

import numpy as np
import pytest

from tidegate import (
    Backtest,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    Rate,
    Reason,
    RecordedPolicy,
    SettingsError,
    SoftmaxPolicy,
    Verdict,
    backtest,
    pdis_returns,
    safety_test,
)
from tidegate.backtesting import backtest_dates
from tidegate.episodes import grow

SETTINGS = ForecastSettings(15, basis=CosineBasis(1))
SAFE = SoftmaxPolicy(np.zeros(3))
GOOD = SoftmaxPolicy([-1.0, 0.0, 1.0])


def _log(rows: int = 400, *, gap: Any = 1.0, noise: float = 0.2, seed: int = 0, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    rewards = gap * (actions == 2) + noise * rng.normal(size=rows)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3), **more)


def test_each_date_is_the_gate_on_the_log_up_to_it() -> None:
    log = _log()
    test = backtest(GOOD, SAFE, log, SETTINGS, dates=6, seed=3)
    np.testing.assert_array_equal(test.dates, 385 - 15 * np.arange(6)[::-1])
    i, end = 2, int(test.dates[2])
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log.take(slice(0, end))), SETTINGS, seed=3)
    assert test.reasons[i] is decision.reason
    assert test.verdicts[i] is decision.verdict
    for record, forecast in ((test.candidate, decision.candidate), (test.safe, decision.safe)):
        assert record.forecast[i] == pytest.approx(forecast.point)
        assert record.lower[i] == pytest.approx(forecast.lower)
        assert record.upper[i] == pytest.approx(forecast.upper)
    came = [np.asarray(pdis_returns(p, log))[end : end + 15].mean() for p in (GOOD, SAFE)]
    assert test.candidate.realised[i] == pytest.approx(came[0])
    assert test.difference[i] == pytest.approx(came[0] - came[1])


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
    assert "opened 6 of 6" in str(test)


def test_records_are_strict_json() -> None:
    content = json.loads(
        json.dumps(backtest(GOOD, SAFE, _log(), SETTINGS, dates=6).summary(), allow_nan=False)
    )
    assert content["coverage"]["candidate"]["total"] == 6
    assert len(content["candidate"]["forecast"]) == len(content["dates"]) == 6
    assert content["reasons"][0] in Reason.__members__


def test_dates_need_a_past_and_a_future() -> None:
    assert "too short" in str(backtest(GOOD, SAFE, _log(1), SETTINGS))
    assert backtest_dates(_log(24), SETTINGS, 20, 15).size == 0
    assert backtest_dates(_log(25), SETTINGS, 20, 15).tolist() == [10]
    np.testing.assert_array_equal(
        backtest_dates(_log(400), SETTINGS, 3, 50), 385 - 50 * np.arange(3)[::-1]
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
    json.dumps(test.summary(), allow_nan=False)


@pytest.mark.parametrize("values", [0.0, np.nan])
def test_unfit_logs_keep_and_never_cover(values: float) -> None:
    log = _log(60)
    with np.errstate(divide="ignore"):
        broken = EpisodeLog(**{**vars(log), "recorded": {"new": np.log(np.full((60, 1), values))}})
    test = backtest(RecordedPolicy("new"), SAFE, broken, SETTINGS, dates=3)
    assert set(test.verdicts) == {Verdict.KEEP}
    assert test.deployments.count == 0
    assert test.wrong_deployments.total == 0
    json.dumps(test.summary(), allow_nan=False)


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
