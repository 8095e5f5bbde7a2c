"""The plan: widths extrapolate as they should, and what it promises comes about."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    PolynomialBasis,
    Reason,
    RecordedPolicy,
    SoftmaxPolicy,
    TwoBounds,
    Verdict,
    safety_test,
)
from tidegate.basis import Basis, TimeAxis
from tidegate.checks.plan import GROWTH, Plan, _shrinkage, plan
from tidegate.comparison import Comparison
from tidegate.presets import multiscale_forecast
from tidegate.record import plain
from tidegate.safety import compare_once, with_room
from tidegate.trend import trend_design

SETTINGS = ForecastSettings(10, TwoBounds(CosineBasis(1)))
SAFE = SoftmaxPolicy(np.zeros(3))
GOOD = SoftmaxPolicy([-1.0, 0.0, 2.0])


def _log(rows: int = 400, *, gap: float = 0.15, seed: int = 2) -> EpisodeLog:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    rewards = gap * (actions == 2) + 0.3 * rng.normal(size=rows)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3))


@pytest.mark.parametrize("basis", [ConstantBasis(), CosineBasis(3), PolynomialBasis(1)])
def test_extrapolated_weights_are_those_of_a_longer_log(basis: Basis) -> None:
    settings = ForecastSettings(20, TwoBounds(basis))
    at = int(np.searchsorted(GROWTH, 4.0))
    squares = []
    for rows in (400, round(400 * GROWTH[at])):
        log = _log(rows)
        axis = TimeAxis.over(log.span, settings.lookahead)
        weights = trend_design(basis, log.episode_numbers, log.present, axis).forecast_weights
        squares.append(float(np.sum(np.asarray(weights) ** 2)))
    shrinkage = _shrinkage(settings, TimeAxis.over(_log(400).span, settings.lookahead), 399)
    assert shrinkage[at] == pytest.approx(np.sqrt(squares[1] / squares[0]), rel=0.02)


def test_with_a_constant_the_number_is_the_square_law() -> None:
    found = plan(GOOD, SAFE, _log(), ForecastSettings(10, TwoBounds(ConstantBasis())))
    assert found.reason is Reason.NOT_BETTER
    assert found.difference is not None
    assert found.half_widths is not None
    assert found.more_episodes is not None
    expected = 400 * ((found.half_widths / found.difference) ** 2 - 1)
    assert found.more_episodes == pytest.approx(expected, rel=0.03)


def test_the_number_gives_even_odds_when_the_estimates_are_true() -> None:
    """Logs of the planned length, made with the advantage and the noise that the plan rests on."""
    candidate_share = float(np.exp(np.asarray(GOOD.log_probs()))[2])
    gap = 0.12
    plans = [plan(GOOD, SAFE, _log(gap=gap, seed=seed), SETTINGS) for seed in range(10)]
    truth = gap * (candidate_share - 1 / 3)
    widths = np.mean([one.half_widths for one in plans if one.half_widths is not None])
    shrinkage = _shrinkage(SETTINGS, TimeAxis.over(_log().span, SETTINGS.lookahead), 399)
    enough = round(400 * float(np.interp(-truth / widths, -shrinkage, GROWTH)))
    passes = [
        safety_test(GOOD, SAFE, HeldOutEpisodes(_log(enough, gap=gap, seed=100 + seed)), SETTINGS).verdict
        is Verdict.DEPLOY
        for seed in range(60)
    ]
    print(f"\nafter {enough} episodes {np.mean(passes):.2f} pass")
    assert 0.3 < np.mean(passes) < 0.7


def test_ranges_are_ordered_and_say_what_they_rest_on() -> None:
    found = plan(GOOD, None, _log(), SETTINGS)
    low, high = found.episode_range
    assert low is not None
    assert found.more_episodes is not None
    assert found.likely_episodes is not None
    assert low <= found.more_episodes < found.likely_episodes
    assert high is None or high > found.more_episodes
    assert "This holds if" in str(found)
    content = json.loads(json.dumps(plain(found), allow_nan=False))
    assert content["more_episodes"] == found.more_episodes
    assert content["lacking_actions"] == [2]


def test_never_and_already() -> None:
    worse = plan(GOOD, SAFE, _log(gap=-1.0), SETTINGS)
    assert worse.more_episodes is None
    assert worse.episode_range == (None, None)
    assert "not estimated to be better" in str(worse)
    passed = plan(GOOD, SAFE, _log(gap=2.0), SETTINGS)
    assert (passed.more_episodes, passed.likely_episodes) == (0, 0)
    assert passed.reason is Reason.BETTER


def test_the_plan_is_the_gate() -> None:
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log()), SETTINGS)
    found = plan(GOOD, SAFE, _log(), SETTINGS)
    assert found.reason is decision.reason
    assert found.difference == pytest.approx(decision.candidate.point - decision.safe.point)
    widths = (decision.candidate.point - decision.candidate.lower) + (
        decision.safe.upper - decision.safe.point
    )
    assert found.half_widths == pytest.approx(widths)


MULTISCALE = multiscale_forecast(SETTINGS)


def _wave(seed: int, height: float, level: float, noise: float) -> EpisodeLog:
    """An advantage that comes and goes."""
    rng = np.random.default_rng(seed)
    actions, phase = rng.integers(0, 3, 600), 0.5 + 1.3 * 2 * np.pi * np.arange(600) / 600
    gap = level + height * np.sin(phase)
    rewards = gap * (actions == 2) + noise * rng.normal(size=600)
    return EpisodeLog.from_arrays(actions, rewards, np.full(600, 1 / 3))


def _gated(log: EpisodeLog) -> tuple[Plan, Comparison]:
    """The plan, and the comparison that it is about, which is the gate's."""
    found = plan(GOOD, SAFE, log, MULTISCALE)
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log), MULTISCALE)
    assert found.reason is decision.reason
    assert found.difference == pytest.approx(decision.advantage.point)
    assert found.half_widths == pytest.approx(decision.advantage.point - decision.advantage.lower)
    assert found.num_episodes == 600
    parts = with_room(MULTISCALE, None, HeldOutEpisodes(log))
    return found, compare_once(MULTISCALE, GOOD, SAFE, parts[1], None)[0]


def test_more_traffic_lessens_noise_and_not_movement() -> None:
    """With so many times the episodes in the same time, the advantage is exactly the half-width."""
    seen = set()
    for seed, height, level, noise in itertools.product((2, 3), (0.0, 0.3), (-0.1, 0.05), (0.3, 0.6)):
        found, outcome = _gated(_wave(seed, height, level, noise))
        assert found.difference is not None
        assert found.half_widths is not None
        advantage, fit = found.difference, outcome.difference
        kind, memory = outcome.trials.kinds[outcome.trials.best], outcome.trials.memories[outcome.trials.best]
        stands = kind in ("level", "line")
        if found.reason not in (Reason.NOT_BETTER, Reason.SCALES_DISAGREE) or not advantage > 0:
            continue
        squares = np.asarray(fit.design.forecast_weights * fit.noise) ** 2
        known = min(1.0, squares.sum() / float(fit.variance))  # the share that noise has in the variance
        if stands:
            assert found.more_traffic is None
            assert "older episodes help little" not in str(found)
        elif found.more_traffic is None:
            assert found.more_episodes is None
            assert math.sqrt(1 - known) * found.half_widths >= advantage
            assert "Shorten the lookahead" in str(found)
        else:
            assert found.more_episodes is None
            left = math.sqrt(1 - known + known / found.more_traffic)
            assert left * found.half_widths == pytest.approx(advantage)
            assert f"About {found.more_traffic:.2g} times as many episodes" in str(found)
        if not stands:
            assert f"forgotten after about {float(memory):,.0f} episodes" in str(found)
        seen.add((stands, found.more_traffic is not None, found.more_episodes is not None))
        json.dumps(plain(found), allow_nan=False)
    assert {(True, False, True), (False, True, False), (False, False, False)} <= seen


def test_policies_that_do_not_differ_have_no_number() -> None:
    found = plan(SAFE, SAFE, _log(), SETTINGS)
    assert (found.difference, found.more_episodes) == (0.0, None)


def test_which_actions_lack_data() -> None:
    rng = np.random.default_rng(0)
    behavior = np.array([0.6, 0.38, 0.02, 0.0])
    actions = rng.choice(4, 500, p=behavior)
    log = EpisodeLog.from_arrays(actions, rng.normal(size=500), behavior[actions], num_actions=4)
    found = plan(SoftmaxPolicy.from_probs([0.2, 0.3, 0.49, 0.01]), None, log, SETTINGS)
    assert found.actions is not None
    np.testing.assert_array_equal(found.actions.lacking, [2, 3])
    np.testing.assert_array_equal(found.actions.support.counts, np.bincount(actions, minlength=4))
    assert found.actions.variance_shares.sum() == pytest.approx(1)
    assert found.actions.variance_shares[2] > 0.5


def test_several_steps_share_out_the_variance_of_the_ratios() -> None:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (100, 3))
    log = EpisodeLog.from_arrays(actions, rng.normal(size=(100, 3)), np.full((100, 3), 0.5))
    found = plan(SoftmaxPolicy.from_probs([0.9, 0.1]), None, log, SETTINGS)
    assert found.actions is not None
    counts = np.bincount(actions.ravel())
    squares = counts * np.array([0.8, -0.8]) ** 2
    np.testing.assert_allclose(found.actions.variance_shares, squares / squares.sum())


@pytest.mark.parametrize(
    ("rows", "values", "sentence"),
    [
        (0, 1.0, "say nothing yet"),
        (1, 1.0, "say nothing yet"),
        (9, 1.0, "at least 10"),
        (50, 0.0, "will not help"),
        (50, np.nan, "will not help"),
    ],
)
def test_unfit_logs_have_no_number(rows: int, values: float, sentence: str) -> None:
    log = _log(max(rows, 1)).take(np.arange(rows))
    with np.errstate(divide="ignore"):
        recorded = {"new": np.log(np.full((rows, 1), values))}
    broken = EpisodeLog(**{**vars(log), "recorded": recorded})
    found = plan(RecordedPolicy("new"), SAFE, broken, SETTINGS)
    assert found.more_episodes is None
    assert sentence in str(found)
    assert "nan" not in str(found)
    json.dumps(plain(found), allow_nan=False)


def test_constant_rewards_have_no_number() -> None:
    log: Any = _log()
    flat = EpisodeLog(**{**vars(log), "rewards": np.ones((400, 1))})
    assert plan(SAFE, SAFE, flat, SETTINGS).more_episodes is None
