"""Three tests with one kind of answer, each at any level; and one split for all who divide a log."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
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
    SoftmaxPolicy,
    TrainingEpisodes,
    TwoBounds,
    Verdict,
    safety_test,
    split_log,
)
from tidegate.basis import PeriodicBasis, TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.checks.plan import plan
from tidegate.commands.training import training_rows
from tidegate.comparison import Comparison, ComparisonTest, Terms, earlier_doubt, first_doubt
from tidegate.episodes import split_rows, training_count
from tidegate.models import Series, TrendModel, TrendModels
from tidegate.record import Advantage, Decision, Scale

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
        "level": float, "margin": float, "scales": tuple, "leading": int,
        "longest_lookahead": float,
    }  # fmt: skip
    assert {name: type(value) for name, value in vars(found).items()} == kinds
    assert [one.name for one in dataclasses.fields(Advantage)] == list(kinds)
    assert test.has_p_value != isinstance(test, TwoBounds)
    assert isinstance(decision.reason, Reason)
    assert found.scales
    for scale in found.scales:
        assert isinstance(scale, Scale)
        assert {name: type(value) for name, value in vars(scale).items()} == {
            "model": str, "span": float, "episodes": int, "point": float, "standard_error": float,
            "bias": float, "lower": float, "upper": float, "p_value": kinds["p_value"], "needed": bool,
            "watched": bool, "role": str,
        }  # fmt: skip
    leading = found.scales[found.leading]
    assert leading.point == found.point
    assert leading.standard_error == found.standard_error
    assert found.scales[found.leading].role == "leads"
    names = {"multiscale": {"line"}}.get(_name(test), {"trend"})
    assert {scale.model for scale in found.scales} == names
    record = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert list(record["advantage"]) == list(kinds)
    assert list(record["advantage"]["scales"][0]) == [one.name for one in dataclasses.fields(Scale)]


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
@pytest.mark.parametrize("gap", [0.1, 0.35])
def test_each_scale_has_the_bound_that_decides_it(test: ComparisonTest, gap: float) -> None:
    found = _decide(test, _log(gap=gap)).advantage
    asked = [scale for scale in found.scales if scale.needed]
    assert min(scale.lower for scale in asked) == pytest.approx(found.lower, rel=1e-12)
    for scale in found.scales:
        assert scale.lower < scale.point < scale.upper
        if scale.p_value is not None:
            assert (scale.lower > 0) == (scale.p_value <= found.level)


@pytest.mark.parametrize("test", TESTS.values(), ids=list(TESTS))
def test_the_bound_says_how_far_a_verdict_is_from_turning(test: ComparisonTest) -> None:
    """What is added to the candidate's return moves its bound by as much, and turns the verdict at zero."""
    rng = np.random.default_rng(2)
    times = np.arange(1.0, 241.0)
    returns = rng.normal(size=(2, 2, 240)) + np.array([0.3, 0.0])[:, None]

    def compared(added: float) -> Comparison:
        tested, past = (
            Series(jnp.asarray(one + np.array([added, 0.0])[:, None]), times, np.ones(240, bool))
            for one in returns
        )
        axis = TimeAxis.over((1.0, 240.0), 5)
        return test.compare(tested, past, Terms(axis, Rademacher(jax.random.key(0), 499), 0.05))

    with jax.enable_x64(True):
        lower = float(compared(0.0).lower)
        for added in (-lower + 1e-6, -lower - 1e-6):
            turned = compared(added)
            assert float(turned.lower) == pytest.approx(lower + added, abs=1e-9)
            assert bool(turned.deploys) == (added > -lower)


def _name(test: ComparisonTest) -> str:
    return next(name for name, one in TESTS.items() if one is test)


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


SEASONAL = ForecastSettings(
    5, Multiscale(TrendModels(others=(TrendModel(PeriodicBasis(24.0), 0.5, "season"),)))
)
LINES = ForecastSettings(5, Multiscale())
OFTEN, SELDOM = (SoftmaxPolicy.from_probs([(1 - p) / 2, (1 - p) / 2, p]) for p in (0.98, 0.8))


def _seasonal(last: int = 240, height: float = 1.0) -> tuple[HeldOutEpisodes, TrainingEpisodes]:
    """What the third action earns comes and goes; the tested episodes end at `last` of 240."""
    rng = np.random.default_rng(0)
    behavior = np.array([0.05, 0.05, 0.9])
    actions, rows = rng.choice(3, 240, p=behavior), np.arange(240)
    gap = height + np.sin(2 * np.pi * (rows + 1) / 24)
    rewards = gap * (actions == 2) + 0.02 * rng.normal(size=240)
    log = EpisodeLog.from_arrays(actions, rewards, behavior[actions])
    tested = (rows % 2 == 0) & (rows < last)
    return (
        HeldOutEpisodes(log.take(np.flatnonzero(tested)), log.span),
        TrainingEpisodes(log.take(np.flatnonzero(rows % 2 == 1)), log.span),
    )


def test_a_season_that_is_among_the_models_leads_and_lines_would_mislead() -> None:
    """At its start, the season is about to lift an advantage that its last half has pressed down."""
    for height in (1.0, -0.3):
        held_out, training = _seasonal(height=height)
        decision = safety_test(OFTEN, SELDOM, held_out, SEASONAL, training=training)
        *lines, season = decision.advantage.scales
        truth = 0.18 * np.mean(height + np.sin(2 * np.pi * np.arange(241, 246) / 24))
        assert (season.model, {one.model for one in lines}) == ("season", {"line"})
        assert decision.advantage.scales[len(lines)].role == "leads"
        assert decision.verdict is Verdict.DEPLOY
        assert abs(season.point - truth) < 3 * season.standard_error
        assert abs(season.point - truth) < 0.5 * min(abs(one.point - truth) for one in lines)
        (other,) = decision.to_dict()["settings"]["test"]["models"]["others"]
        assert (other["name"], other["basis"]["period"]) == ("season", 24.0)
    alone = safety_test(OFTEN, SELDOM, held_out, LINES, training=training)
    assert alone.verdict is Verdict.KEEP
    assert "season" not in {one.model for one in alone.advantage.scales}


def test_the_leading_model_is_found_in_the_record_also_when_short_lines_have_no_episodes() -> None:
    """Models without episodes are left out of the record, and the others keep their roles."""
    held_out, training = _seasonal(225)
    found = safety_test(OFTEN, SELDOM, held_out, SEASONAL, training=training).advantage
    assert [one.model for one in found.scales] == ["line"] * 4 + ["season"]
    leading = found.scales[found.leading]
    assert (leading.model, leading.span) == ("season", 120)
    assert (leading.point, leading.standard_error) == (found.point, found.standard_error)
    assert [one.role for one in found.scales].count("leads") == 1


def test_a_plan_knows_a_long_span_by_its_length() -> None:
    """Half of the log is the longest span that can be tried: if it leads, a longer log would help."""
    held_out, training = _seasonal(height=-0.7)
    parts: Any = {"training": training.log, "span": held_out.span}
    found = plan(OFTEN, SELDOM, held_out.log, SEASONAL, **parts)
    assert found.reason is Reason.NOT_BETTER
    assert found.difference is not None
    assert found.difference > 0
    assert found.more_episodes is not None
    assert found.more_traffic is None
    assert "older episodes help little" not in str(found)


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
