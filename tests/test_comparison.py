"""Three tests with one kind of answer, each at any level; and one split for all who divide a log."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    Multiscale,
    Paired,
    Reason,
    SoftmaxPolicy,
    TwoBounds,
    Verdict,
    safety_test,
    split_log,
)
from tidegate.basis import TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.cells import Series
from tidegate.checks.plan import plan
from tidegate.commands.training import training_rows
from tidegate.comparison import Comparison, ComparisonTest, Terms
from tidegate.episodes import split_rows, training_count
from tidegate.models import TrendModels
from tidegate.presets import multiscale_forecast
from tidegate.reasons import Status, earlier_doubt, first_doubt
from tidegate.record import Advantage, Decision, ModelFamily, PastErrors, Season

SAFE, GOOD = SoftmaxPolicy(np.zeros(3)), SoftmaxPolicy([-1.0, 0.0, 2.0])
TESTS: dict[str, ComparisonTest] = {
    "two bounds": TwoBounds(CosineBasis(1)),
    "paired": Paired(CosineBasis(1)),
    "multiscale": Multiscale(),
}


def _log(rows: int = 240, gap: Any = 0.35, noise: float = 0.5) -> EpisodeLog:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, rows)
    rewards = gap * (actions == 2) + noise * rng.normal(size=rows)
    return EpisodeLog.from_arrays(actions, rewards, np.full(rows, 1 / 3))


def _decide(test: ComparisonTest, log: EpisodeLog, alpha: float = 0.05, **options: Any) -> Decision:
    settings = ForecastSettings(5, test, alpha=alpha)
    return safety_test(GOOD, SAFE, HeldOutEpisodes(log), settings, seed=1, **options)


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
@pytest.mark.parametrize("level", [0.2, 0.01])
def test_a_level_is_the_same_test_with_that_alpha(test: ComparisonTest, level: float) -> None:
    """Only what the policies' own intervals are for differs: the eye, or the test of two bounds."""
    granted, given = _decide(test, _log(), level=level), _decide(test, _log(), alpha=level)
    assert granted.advantage.level == given.advantage.level == level
    for name in ("point", "lower", "standard_error"):
        mine, theirs = (getattr(one.advantage, name) for one in (granted, given))
        assert mine == pytest.approx(theirs, rel=1e-12)
    assert granted.p_value == (None if given.p_value is None else pytest.approx(given.p_value))
    assert (granted.verdict, granted.reason) == (given.verdict, given.reason)
    if not test.has_p_value:
        for role in ("candidate", "safe"):
            mine, theirs = getattr(granted, role), getattr(given, role)
            assert (mine.alpha, mine.lower, mine.upper) == (level, theirs.lower, theirs.upper)
        assert granted.advantage == given.advantage
    else:
        assert granted.candidate.alpha == 0.05


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
def test_smaller_levels_bound_lower_and_close_the_gate(test: ComparisonTest) -> None:
    found = [_decide(test, _log(), level=level) for level in (0.2, 0.05, 0.01)]
    lower = [one.advantage.lower for one in found]
    assert lower == sorted(lower, reverse=True)
    assert len({one.advantage.point for one in found}) == 1
    assert found[0].verdict is Verdict.DEPLOY
    for one in found:
        assert (one.verdict is Verdict.DEPLOY) == (one.advantage.lower > 0)


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
def test_every_test_gives_the_same_kind_of_record(test: ComparisonTest) -> None:
    decision = _decide(test, _log())
    found = decision.advantage
    kinds: dict[str, Any] = {
        "point": float, "lower": float, "upper": float, "standard_error": float,
        "p_value": float if test.has_p_value else type(None),
        "level": float, "margin": float, "models": tuple, "season": type(None),
        "past": PastErrors if isinstance(test, Multiscale) else type(None), "longest_lookahead": float,
    }  # fmt: skip
    assert {name: type(value) for name, value in vars(found).items()} == kinds
    assert [one.name for one in dataclasses.fields(Advantage)] == list(kinds)
    assert test.has_p_value != isinstance(test, TwoBounds)
    assert isinstance(decision.reason, Reason)
    for family in found.models:
        assert {name: type(value) for name, value in vars(family).items()} == {
            "kind": str, "memory": float, "weight": float, "point": float, "standard_error": float,
            "lower": float, "p_value": kinds["p_value"],
        }  # fmt: skip
    if isinstance(test, Multiscale):
        kinds_found = {one.kind for one in found.models}
        assert kinds_found == {"level", "line", "break", "rough", "smooth"}
    else:
        (only,) = found.models
        assert (only.kind, only.memory, only.weight) == ("trend", 240.0, 1.0)
        assert (only.point, only.standard_error) == (found.point, found.standard_error)
        assert (only.lower, only.p_value) == (found.lower, found.p_value)
    record = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert list(record["advantage"]) == [*Advantage.derived, *kinds]
    assert record["advantage"]["tipping_point"] == found.lower
    assert list(record["advantage"]["models"][0]) == [one.name for one in dataclasses.fields(ModelFamily)]


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.35])
def test_the_families_add_up_to_the_mixture_that_decides(gap: float) -> None:
    """Its forecast, its variance and its p-value are those of the families, as these are weighed."""
    decision = _decide(TESTS["multiscale"], _log(gap=gap))
    found = decision.advantage
    weights, points, errors, p_values = (
        np.array([getattr(one, name) for one in found.models])
        for name in ("weight", "point", "standard_error", "p_value")
    )
    assert weights.sum() == pytest.approx(1)
    assert list(weights) == sorted(weights, reverse=True)
    assert weights @ points == pytest.approx(found.point)
    assert weights @ (errors**2 + (points - found.point) ** 2) == pytest.approx(found.standard_error**2)
    assert weights @ p_values == pytest.approx(found.p_value)
    assert found.p_value is not None
    assert (found.lower > 0) == (found.p_value <= found.level) == (decision.verdict is Verdict.DEPLOY)
    for one in found.models:
        assert one.lower == pytest.approx(one.point - stats.norm.isf(0.05) * one.standard_error)


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
def test_the_bound_says_how_far_a_verdict_is_from_turning(test: ComparisonTest) -> None:
    """What is added to the candidate's return moves its bound by as much, and turns the verdict at zero."""
    rng = np.random.default_rng(2)
    times = np.arange(1.0, 241.0)
    returns = rng.normal(size=(2, 240)) + np.array([0.3, 0.0])[:, None]
    terms = Terms(TimeAxis.over((1.0, 240.0), 5), Rademacher(jax.random.key(0), 499), 0.05)

    compare = eqx.filter_jit(test.compare)  # one program, where each operation would be compiled alone

    def compared(added: float) -> Comparison:
        moved = jnp.asarray(returns + np.array([added, 0.0])[:, None])
        found: Comparison = compare(Series(moved, times, np.ones(240, bool)), terms)
        return found

    with jax.enable_x64(True):
        lower = float(compared(0.0).lower)
        for added in (-lower + 1e-6, -lower - 1e-6):
            turned = compared(added)
            assert float(turned.lower) == pytest.approx(lower + added, abs=1e-9)
            assert bool(turned.deploys) == (added > -lower)


def test_the_numbers_of_two_bounds_are_those_of_its_bounds() -> None:
    decision = _decide(TESTS["two bounds"], _log())
    candidate, safe, found = decision.candidate, decision.safe, decision.advantage
    assert found.lower == candidate.lower - safe.upper
    assert found.point == pytest.approx(candidate.point - safe.point)
    # Both see the same noise: the error of the difference is that of the paired test, which corrects its
    # residuals for their leverage.
    paired = _decide(TESTS["paired"], _log())
    assert found.standard_error == pytest.approx(paired.advantage.standard_error, rel=0.02)
    assert found.standard_error < paired.advantage.standard_error
    assert found.point == pytest.approx(paired.advantage.point)
    assert found.lower < paired.advantage.lower


def test_a_margin_moves_every_test_alike() -> None:
    log = _log()
    for test in TESTS.values():
        settings = ForecastSettings(5, test)
        worse = safety_test(SAFE, GOOD, HeldOutEpisodes(log), settings)
        allowed = safety_test(SAFE, GOOD, HeldOutEpisodes(log), settings, margin=1.5)
        assert (worse.reason, allowed.reason) == (Reason.NOT_BETTER, Reason.BETTER)
        assert (worse.advantage.point, worse.advantage.lower) == pytest.approx(
            (allowed.advantage.point, allowed.advantage.lower)
        )


def test_the_first_doubt_is_the_reason() -> None:
    yes, no = (jnp.asarray(one) for one in (True, False))
    doubts = {Reason.NOT_BETTER: yes, Reason.SUPPORT: yes, Reason.NO_EPISODES: no}
    assert int(first_doubt(doubts)) == Reason.SUPPORT
    assert int(first_doubt(dict.fromkeys(doubts, no))) == Reason.BETTER
    for one, other, first in (
        (Reason.BETTER, Reason.BETTER, Reason.BETTER),
        (Reason.BETTER, Reason.SUPPORT, Reason.SUPPORT),
        (Reason.NOT_BETTER, Reason.BETTER, Reason.NOT_BETTER),
        (Reason.NOT_BETTER, Reason.LOG_FULL, Reason.LOG_FULL),
    ):
        assert int(earlier_doubt(jnp.int32(one), jnp.int32(other))) == first


SETTINGS = ForecastSettings(5, Multiscale())
WITHOUT_SEASONS = ForecastSettings(5, Multiscale(TrendModels(season=0.0)))
OFTEN, SELDOM = (SoftmaxPolicy.from_probs([(1 - p) / 2, (1 - p) / 2, p]) for p in (0.98, 0.8))


def _seasonal(height: float = 1.0, last: int = 240) -> HeldOutEpisodes:
    """What the third action earns comes and goes every 24 episodes; the tested ones end at `last` of 240."""
    rng = np.random.default_rng(0)
    behavior = np.array([0.05, 0.05, 0.9])
    actions, rows = rng.choice(3, 240, p=behavior), np.arange(240)
    gap = height + np.sin(2 * np.pi * (rows + 1) / 24)
    rewards = gap * (actions == 2) + 0.02 * rng.normal(size=240)
    log = EpisodeLog.from_arrays(actions, rewards, behavior[actions])
    return HeldOutEpisodes(log.take(np.arange(last)), log.span)


@pytest.mark.parametrize("height", [1.0, -0.3])
def test_a_season_is_found_and_a_list_without_seasons_would_mislead(height: float) -> None:
    """At its start, the season is about to lift an advantage that its last half has pressed down."""
    held_out = _seasonal(height)
    truth = 0.18 * np.mean(height + np.sin(2 * np.pi * np.arange(241, 246) / 24))
    found, alone = (
        safety_test(OFTEN, SELDOM, held_out, settings) for settings in (SETTINGS, WITHOUT_SEASONS)
    )
    assert found.verdict is Verdict.DEPLOY
    assert isinstance(found.advantage.season, Season)
    assert found.advantage.season.period == pytest.approx(24, rel=0.01)
    assert found.advantage.season.weight > 0.99
    assert abs(found.advantage.point - truth) < 3 * found.advantage.standard_error
    assert abs(found.advantage.point - truth) < 0.5 * abs(alone.advantage.point - truth)
    assert alone.verdict is Verdict.KEEP
    assert alone.advantage.season is None
    assert alone.advantage.models[0].kind == "rough"


def test_without_the_latest_episodes_less_is_known() -> None:
    """The axis goes on to the end of the whole log, of which the last part went to a search."""
    whole, cut = (safety_test(OFTEN, SELDOM, _seasonal(last=last), SETTINGS) for last in (240, 225))
    assert cut.safe.forecast_times[0] == whole.safe.forecast_times[0] == 241
    assert cut.advantage.standard_error > whole.advantage.standard_error
    assert cut.advantage.lower < whole.advantage.lower
    assert cut.advantage.past is not None
    assert whole.advantage.past is not None
    assert cut.advantage.past.dates < whole.advantage.past.dates


def test_a_plan_counts_on_a_season_that_goes_on() -> None:
    """Its models stand still but for the season, so a longer log would help."""
    found = plan(OFTEN, SELDOM, _seasonal(-0.45).log, SETTINGS)
    assert found.reason is Reason.NOT_BETTER
    assert found.difference is not None
    assert found.difference > 0
    assert found.more_episodes is not None
    assert found.more_traffic is None
    assert "older episodes help little" not in str(found)


def test_an_advantage_that_movement_could_undo_is_a_reason_of_its_own() -> None:
    """Standing still, the advantage is clear; it has wandered, and may wander off."""
    decision = safety_test(OFTEN, SELDOM, _seasonal(), WITHOUT_SEASONS)
    assert (decision.verdict, decision.reason) == (Verdict.KEEP, Reason.SCALES_DISAGREE)
    still = [one for one in decision.advantage.models if one.kind in ("level", "line")]
    assert max(one.p_value for one in still if one.p_value is not None) <= 0.05
    assert decision.p_value is not None
    assert decision.p_value > 0.05


def test_models_without_any_weight_are_not_taken_to_be_in_favour() -> None:
    """A long log refutes a level and a line to the last bit of their weights, and the candidate with them."""
    rows = 8_000
    moving = np.repeat(np.random.default_rng(5).choice([-2.0, 2.0], 40) - 8, rows // 40)
    log = _log(rows, moving, noise=0.1)
    decision = safety_test(OFTEN, SAFE, HeldOutEpisodes(log), multiscale_forecast(SETTINGS))
    still = [one for one in decision.advantage.models if one.kind in ("level", "line")]
    assert [one.weight for one in still] == [0.0, 0.0]
    assert all(one.point < -3 and one.p_value is not None and one.p_value > 0.99 for one in still)
    assert (decision.reason, decision.status) == (Reason.NOT_BETTER, Status.FAIL)


# --- one split ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "fraction"), [(10, 0.5), (101, 0.29), (7, 0.0), (7, 1.0)])
def test_a_log_is_split_by_the_rows_that_everyone_uses(rows: int, fraction: float) -> None:
    log = _log(rows)
    training, held_out = split_log(log, train_fraction=fraction)
    np.testing.assert_array_equal(training.log.episode_numbers, 1 + training_rows(rows, fraction))
    assert training.log.num_episodes + held_out.log.num_episodes == rows
    for seed in (0, 5):
        training, held_out = split_log(log, train_fraction=fraction, seed=seed)
        count = training_count(rows, fraction)
        seen, tested = split_rows(jax.random.key(seed), rows, count)
        assert sorted([*seen.tolist(), *tested.tolist()]) == list(range(rows))
        np.testing.assert_array_equal(training.log.episode_numbers, 1 + np.sort(seen))
        np.testing.assert_array_equal(held_out.log.episode_numbers, 1 + np.sort(tested))
        with jax.enable_x64(False):
            narrow, _ = split_log(log, train_fraction=fraction, seed=seed)
        assert narrow.log.digest() == training.log.digest()
