"""The gate: each reason, and that nothing but evidence opens it."""

import json
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    LinearPolicy,
    Reason,
    RecordedPolicy,
    SettingsError,
    SoftmaxPolicy,
    TrainingEpisodes,
    TwoBounds,
    Verdict,
    pdis_returns,
    safety_test,
    split_log,
)
from tidegate.arrays import replace_at
from tidegate.basis import TimeAxis
from tidegate.episodes import grow
from tidegate.forecast import draw_multipliers
from tidegate.presets import multiscale_forecast
from tidegate.record import Decision
from tidegate.safety import VERDICT_SEED

from . import oracles

BASIS = CosineBasis(1)
SETTINGS = ForecastSettings(10, TwoBounds(BASIS))
OURS = multiscale_forecast(ForecastSettings(10))
PRESETS = pytest.mark.parametrize("settings", [SETTINGS, OURS], ids=["two bounds", "multiscale"])
SAFE = SoftmaxPolicy(np.zeros(3))
GOOD = SoftmaxPolicy([-1.0, 0.0, 2.0])


def _log(rows: int = 200, *, gap: float = 1.0, seed: int = 0, **columns: Any) -> EpisodeLog:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, rows)
    frame = oracles.one_step_frame(rows, action=actions)
    frame["reward"] = gap * (actions == 2) + 0.1 * rng.normal(size=rows)
    recorded = {name: name for name in columns}
    return EpisodeLog.from_frame(pd.DataFrame({**frame, **columns}), recorded=recorded)


def _recorded(values: Any, rows: int = 200, **log: Any) -> EpisodeLog:
    return _log(rows, candidate=np.broadcast_to(values, rows), safe=np.full(rows, 1 / 3), **log)


def _gate(log: EpisodeLog, settings: ForecastSettings = SETTINGS) -> Any:
    candidate, safe = RecordedPolicy("candidate"), RecordedPolicy("safe")
    return safety_test(candidate, safe, HeldOutEpisodes(log), settings)


def _dumped(decision: Decision) -> str:
    """The record as strict JSON."""
    return json.dumps(decision.to_dict(), allow_nan=False)


@PRESETS
def test_a_clearly_better_policy_is_deployed(settings: ForecastSettings) -> None:
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log()), settings)
    assert decision.verdict is Verdict.DEPLOY
    assert decision.candidate.lower > decision.safe.upper
    assert str(decision).startswith("DEPLOY: the candidate is forecast to beat")


def test_bounds_are_algorithm_2_at_half_alpha_each() -> None:
    log = _log(60)
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log), SETTINGS)
    axis = TimeAxis(0.0, 60.0, 10)
    phi = np.asarray(BASIS.design_matrix(np.arange(1.0, 61), axis))
    varphi = np.asarray(BASIS.design_matrix(np.arange(61.0, 71), axis))
    signs = np.asarray(draw_multipliers(SETTINGS, log, VERDICT_SEED).block(0, 60))
    # α/2 on one side is the two-sided interval at α.
    lower, _ = oracles.percentile_t_interval(phi, np.asarray(pdis_returns(GOOD, log)), varphi, signs, 0.05)
    _, upper = oracles.percentile_t_interval(phi, np.asarray(pdis_returns(SAFE, log)), varphi, signs, 0.05)
    assert decision.candidate.lower == pytest.approx(lower, abs=1e-9)
    assert decision.safe.upper == pytest.approx(upper, abs=1e-9)


def test_no_better_is_kept() -> None:
    decision = safety_test(SAFE, SAFE, HeldOutEpisodes(_log()), SETTINGS)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.NOT_BETTER)
    same = safety_test(SAFE, SAFE, HeldOutEpisodes(_log()), OURS)
    assert (same.verdict, same.reason) == (Verdict.KEEP, Reason.NO_VARIATION)  # their difference is 0
    for settings in (SETTINGS, OURS):
        worse = safety_test(SAFE, GOOD, HeldOutEpisodes(_log()), settings)
        assert (worse.verdict, worse.reason) == (Verdict.KEEP, Reason.NOT_BETTER)


@PRESETS
def test_an_empty_test_split(settings: ForecastSettings) -> None:
    _, held_out = split_log(_log(), train_fraction=1.0)
    decision = safety_test(GOOD, SAFE, held_out, settings)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.NO_EPISODES)
    _dumped(decision)


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_too_few_episodes(rows: int) -> None:
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log(rows)), SETTINGS)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.TOO_FEW_EPISODES)
    rich = ForecastSettings(10, TwoBounds(CosineBasis(7)))
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log(15)), rich)
    assert decision.reason is Reason.TOO_FEW_EPISODES


@pytest.mark.parametrize("rows", [1, 2, 9, 23])
def test_too_few_episodes_for_a_mixture(rows: int) -> None:
    """Nor does it say where a policy is going: its bounds are not numbers."""
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log(rows)), OURS)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.TOO_FEW_EPISODES)
    assert np.isnan([decision.candidate.lower, decision.safe.upper]).all()
    _dumped(decision)


@pytest.mark.parametrize("times", [1, 3])
def test_a_mixture_needs_different_times(times: int) -> None:
    log = replace_at(lambda one: one.episode_numbers, _log(60), 1.0 + np.arange(60) // (60 // times))
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log), multiscale_forecast(ForecastSettings(1)))
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.TOO_FEW_EPISODES)


@pytest.mark.parametrize(("lookahead", "reason"), [(66, Reason.BETTER), (67, Reason.LOOKAHEAD_TOO_LONG)])
def test_three_windows_must_fit_into_the_log(lookahead: int, reason: Reason) -> None:
    settings = multiscale_forecast(ForecastSettings(lookahead))
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(_log()), settings)
    assert decision.reason is reason
    assert decision.advantage.longest_lookahead == pytest.approx(200 / 3)


def test_a_singular_trend() -> None:
    """All episodes but one at the same spot of the axis, as far as the basis can tell."""
    log = _log(60)
    squeezed = EpisodeLog.from_arrays(
        log.actions, log.rewards, np.exp(log.behavior_log_probs),
        episode_numbers=[*np.arange(59) * 1e-9, 1e6],
    )  # fmt: skip
    for settings in (ForecastSettings(1), multiscale_forecast(ForecastSettings(1))):
        decision = safety_test(GOOD, SAFE, HeldOutEpisodes(squeezed), settings)
        assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.SINGULAR_TREND)


def test_a_candidate_outside_the_support_is_kept() -> None:
    """Negative rewards and a candidate that never agrees with the log: its estimate, 0, looks best."""
    rows = 200
    log = _recorded(0.0, gap=-5.0)
    decision = _gate(log)
    assert decision.candidate.point > decision.safe.upper
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.SUPPORT)
    rare = np.where(np.arange(rows) % 50 == 0, 0.3, 0.0)
    assert _gate(_recorded(rare, gap=-5.0)).reason is Reason.SUPPORT
    assert _gate(log, OURS).reason is _gate(_recorded(rare, gap=-5.0), OURS).reason is Reason.SUPPORT


def test_wrong_propensities_are_kept() -> None:
    """Probabilities three times too large: every estimate triples."""
    assert _gate(_recorded(1.0), OURS).reason is Reason.SUPPORT
    decision = _gate(_recorded(1.0))
    assert decision.candidate.lower > decision.safe.upper
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.SUPPORT)


def test_the_support_check_forgives_rounding_and_can_be_switched_off() -> None:
    """Propensities with three digits pass; with every ratio exactly 1, ∞ standard errors are still off."""
    log = _log(
        200,
        candidate=np.exp(np.asarray(GOOD.log_probs()))[_log().actions[:, 0]],
        safe=np.full(200, 0.333),
    )
    assert _gate(log).verdict is Verdict.DEPLOY
    off = ForecastSettings(10, TwoBounds(CosineBasis(1)), support_z=np.inf)
    assert safety_test(GOOD, SAFE, HeldOutEpisodes(_log()), off).verdict is Verdict.DEPLOY
    assert _gate(_recorded(1.0), off).verdict is Verdict.DEPLOY  # what the check is there to prevent


def test_what_the_support_check_forgives_is_no_evidence() -> None:
    """Propensities 0.9 % too large on rewards near 100: a gain of 0.9 out of nothing."""
    rows = 200
    noise = 1e-3 * np.random.default_rng(1).normal(size=rows)
    log = EpisodeLog.from_arrays(
        np.zeros(rows),
        100 + noise,
        np.full(rows, 0.5),
        recorded={"candidate": np.full(rows, 0.5045), "safe": np.full(rows, 0.5)},
    )
    decision = _gate(log)
    assert decision.candidate.lower > decision.safe.upper
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.SUPPORT)


def test_constant_rewards_are_no_evidence() -> None:
    log = EpisodeLog.from_arrays(
        np.zeros(50), np.full(50, 0.1), np.ones(50), recorded={"candidate": np.ones(50), "safe": np.ones(50)}
    )  # fmt: skip
    decision = _gate(log)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.NO_VARIATION)
    # Rounding residues of the regression must not count as variation either.
    curved = _gate(log, ForecastSettings(10, TwoBounds(CosineBasis(3))))
    assert curved.reason is Reason.NO_VARIATION
    assert _gate(log, OURS).reason is Reason.NO_VARIATION


@PRESETS
def test_numbers_too_large_for_arithmetic(settings: ForecastSettings) -> None:
    log = _log(60)
    huge = EpisodeLog.from_arrays(
        log.actions, np.asarray(log.rewards) * 1e300, np.exp(log.behavior_log_probs)
    )
    decision = safety_test(GOOD, SAFE, HeldOutEpisodes(huge), settings)
    assert decision.verdict is Verdict.KEEP
    assert decision.reason in (Reason.NOT_FINITE, Reason.NO_VARIATION)


@PRESETS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_reward_that_is_not_finite_is_enough(settings: ForecastSettings, bad: float) -> None:
    """However it came into the log: at its start, in the middle, or last."""
    for row in (0, 100, 199):
        rewards = np.array(_log().rewards)
        rewards[row] = bad
        log = replace_at(lambda one: one.rewards, _log(), rewards)
        decision = safety_test(GOOD, SAFE, HeldOutEpisodes(log), settings)
        assert decision.verdict is Verdict.KEEP
        _dumped(decision)


@PRESETS
def test_a_policy_of_nan_is_kept(settings: ForecastSettings) -> None:
    nan = replace_at(lambda one: one.logits, SAFE, np.array([np.nan, 0.0, 0.0]))
    for candidate, safe in ((nan, SAFE), (GOOD, nan)):
        decision = safety_test(candidate, safe, HeldOutEpisodes(_log()), settings)
        assert decision.verdict is Verdict.KEEP
    weights = LinearPolicy(np.zeros((1, 3)), np.zeros(3))
    weights = replace_at(lambda one: one.weights, weights, np.full((1, 3), np.inf))
    columns = oracles.one_step_frame(60, x=np.ones(60))
    log = EpisodeLog.from_frame(pd.DataFrame(columns), states=["x"])
    assert safety_test(weights, SAFE, HeldOutEpisodes(log), settings).verdict is Verdict.KEEP


def test_training_episodes_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"given TrainingEpisodes"):
        safety_test(GOOD, SAFE, TrainingEpisodes(_log()), SETTINGS)  # type: ignore[arg-type]


def test_every_reason_has_a_sentence_and_only_one_deploys() -> None:
    for reason in Reason:
        assert reason.sentence.endswith(".")
    assert [r for r in Reason if r.value == 0] == [Reason.BETTER]


def test_the_record_repeats_to_the_bit() -> None:
    log = HeldOutEpisodes(_log())
    first = safety_test(GOOD, SAFE, log, SETTINGS, seed=11)
    with jax.enable_x64(False):
        second = safety_test(GOOD, SAFE, log, SETTINGS, seed=11)
    assert _dumped(first) == _dumped(second)
    record = json.loads(_dumped(first))
    basis = {"class": "CosineBasis", "order": 1, "columns": 2}
    assert record["settings"]["test"] == {"class": "TwoBounds", "basis": basis, "max_share": 1 / 3}
    assert record["settings"]["estimator"] == "pdis_returns"
    assert record["test_data_hash"] == log.log.digest()
    assert record["training_data_hash"] is None
    assert record["versions"]["jax"] == jax.__version__
    assert record["seed"] == 11
    for role, policy in (("candidate", GOOD), ("safe", SAFE)):
        assert record[role]["policy_hash"] == policy.digest()
        assert record[role]["forecast_episodes"] == [201, 210]
    other = json.loads(_dumped(safety_test(GOOD, SAFE, log, SETTINGS, seed=12)))
    assert {**other, "seed": 11} == record  # the seed is kept, and changes nothing


def test_a_mixture_repeats_to_the_bit_and_minds_neither_seed_nor_spare_rows() -> None:
    held_out = HeldOutEpisodes(_log())
    first = safety_test(GOOD, SAFE, held_out, OURS, seed=11)
    with jax.enable_x64(False):
        assert _dumped(safety_test(GOOD, SAFE, held_out, OURS, seed=11)) == _dumped(first)
    other = json.loads(_dumped(safety_test(GOOD, SAFE, held_out, OURS, seed=12)))
    assert {**other, "seed": 11} == json.loads(_dumped(first))
    shuffled = grow(_log().take(np.random.default_rng(0).permutation(200)), 400)
    moved = safety_test(GOOD, SAFE, HeldOutEpisodes(shuffled), OURS).advantage
    assert (moved.point, moved.lower) == pytest.approx((first.advantage.point, first.advantage.lower))
    assert moved.p_value == pytest.approx(first.p_value, rel=1e-6)


def test_split_halves_forecast_the_same_window() -> None:
    train, held_out = split_log(_log(101), train_fraction=0.5, seed=0)
    decision = safety_test(GOOD, SAFE, held_out, SETTINGS)
    assert decision.safe.forecast_times[0] == 102
    assert train.span == (1, 101)


def test_error_rate_when_nothing_is_better() -> None:
    """Candidate and safe policy truly equal in a standing world: wrong deployments stay below α.

    400 logs; the binomial standard error at 5 % is 1.1 points.
    """
    rng = np.random.default_rng(0)
    settings = ForecastSettings(5, TwoBounds(ConstantBasis()))
    wrong = 0
    for _ in range(400):
        log = EpisodeLog.from_arrays(
            rng.integers(0, 3, 100), rng.exponential(size=100), np.full(100, 1 / 3), num_actions=3
        )
        verdict = safety_test(GOOD, SAFE, HeldOutEpisodes(log), settings).verdict
        wrong += verdict is Verdict.DEPLOY
    assert wrong / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
