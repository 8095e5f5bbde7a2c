"""The difference of a policy that lists its probabilities and one that does not: exact, and less noisy."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import EpisodeLog, ForecastSettings, Paired, Policy, RecordedPolicy, safety_test
from tidegate.basis import ConstantBasis
from tidegate.comparison import TwoBounds
from tidegate.episodes import HeldOutEpisodes, grow, split_log
from tidegate.forecast import PairedSeries, compared_series
from tidegate.policies import BehaviorPolicy
from tidegate.record import Decision
from tidegate.returns import Gap, observed_returns
from tidegate.values import LinearValues

Cells = np.ndarray[Any, Any]
TEST = Paired(ConstantBasis())
SETTINGS = ForecastSettings(50, TEST, value_model=LinearValues(), draws=200)
BEHAVIOR = BehaviorPolicy()


def _softmax(logits: Cells) -> Cells:
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _world(
    seed: int, *, rows: int = 2000, share: float = 0.8, lean: float = 0.0, noise: float | None = None
) -> tuple[EpisodeLog, float]:
    """Three actions, and clicks (or sums, with this noise) that depend on action and feature.

    The candidate takes the best action with probability `share`, else it acts as the logging policy does.

    The log holds the candidate's probabilities of all actions and of the logged ones, and the logging
    policy's. The number is the candidate's true advantage in these contexts.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    tilt = np.array([1.0, 0.0, -1.0])
    means = 1 / (1 + np.exp(-(3 * x[:, None] * tilt + [0.0, 0.3, 0.0])))
    behavior = _softmax(lean * x[:, None] * tilt)
    candidate = (1 - share) * behavior + share * np.eye(3)[means.argmax(axis=1)]
    actions = np.minimum((rng.random(rows)[:, None] > behavior.cumsum(axis=1)).sum(axis=1), 2)
    taken = np.arange(rows), actions
    clicks = (rng.random(rows) < means[taken]).astype(float)
    rewards = clicks if noise is None else means[taken] + noise * rng.normal(size=rows)
    log = EpisodeLog.from_arrays(
        actions, rewards, behavior[taken], states=x[:, None, None], recorded={"column": candidate[taken]}
    )
    tables = {"listed": np.log(candidate)[:, None], "safe": np.log(behavior)[:, None]}
    log = dataclasses.replace(log, recorded={**log.recorded, **tables})
    return log, float(((candidate - behavior) * means).sum(axis=1).mean())


def _tested(name: str, log: EpisodeLog, safe: Policy = BEHAVIOR, **changes: Any) -> Decision:
    settings = dataclasses.replace(SETTINGS, **changes)
    return safety_test(RecordedPolicy(name), safe, HeldOutEpisodes(log), settings)


def _error(name: str, log: EpisodeLog, safe: Policy = BEHAVIOR) -> float:
    advantage = _tested(name, log, safe).advantage
    assert advantage is not None
    return advantage.standard_error


def test_a_log_with_a_table_decides_as_one_with_a_column_until_values_are_used() -> None:
    log, _ = _world(0)
    found = [_tested(name, log, value_model=None) for name in ("listed", "column")]
    assert found[0].advantage == found[1].advantage


@pytest.mark.parametrize("lean", [0.0, 0.8])
@pytest.mark.parametrize("share", [0.1, 0.8])
def test_listing_never_makes_the_advantage_less_certain(share: float, lean: float) -> None:
    """Values that suit the candidate alone make it up to five times less certain (share 0.1, lean 0)."""
    log, _ = _world(1, share=share, lean=lean)
    assert _error("listed", log) <= 1.01 * _error("column", log)
    assert _error("listed", log, RecordedPolicy("safe")) < _error("column", log)


@pytest.mark.parametrize(("noise", "most"), [(None, (0.95, 0.92)), (0.1, (0.85, 0.7))])
def test_the_advantage_is_more_certain_if_one_policy_lists_its_probabilities_and_more_if_both_do(
    noise: float | None, most: tuple[float, float]
) -> None:
    log, _ = _world(2, noise=noise)
    column, one, both = (
        _error(*given)
        for given in (("column", log), ("listed", log), ("listed", log, RecordedPolicy("safe")))
    )
    assert one < most[0] * column
    assert both < most[1] * column


@pytest.mark.parametrize("safe", [BEHAVIOR, RecordedPolicy("safe")], ids=str)
def test_the_advantage_is_unbiased(safe: Policy) -> None:
    misses, errors = [], []
    for seed in range(40):
        log, truth = _world(100 + seed, rows=600)
        advantage = _tested("listed", log, safe).advantage
        assert advantage is not None
        misses.append(advantage.point - truth)
        errors.append(advantage.standard_error)
    assert abs(np.mean(misses)) < 3 * np.std(misses) / np.sqrt(len(misses))
    # The error that is reported is the error that is made.
    assert np.std(misses) == pytest.approx(np.mean(errors), rel=3 / np.sqrt(2 * len(misses)))


_compared = eqx.filter_jit(compared_series)


def _series(log: EpisodeLog, *policies: Policy, training: EpisodeLog | None = None, **changes: Any) -> Any:
    return _compared(dataclasses.replace(SETTINGS, **changes), training, log, (policies[0], policies[1]))


def test_each_policy_keeps_its_own_returns() -> None:
    log, _ = _world(3)
    listed, column, safe = (RecordedPolicy(name) for name in ("listed", "column", "safe"))
    tested = _series(log, listed, BEHAVIOR)
    assert isinstance(tested, PairedSeries)
    np.testing.assert_allclose(tested.returns[0], _series(log, listed, safe).returns[0])
    np.testing.assert_allclose(tested.returns[1], observed_returns(log))
    for pair in ((listed, safe), (column, BEHAVIOR)):
        assert not isinstance(_series(log, *pair), PairedSeries)
    for change in ({"test": TwoBounds(ConstantBasis())}, {"value_model": None}):
        assert not isinstance(_series(log, listed, BEHAVIOR, **change), PairedSeries)


def test_the_other_way_round_is_the_other_sign() -> None:
    log, _ = _world(4)
    listed = RecordedPolicy("listed")
    there, back = (_series(log, *pair).difference for pair in ((listed, BEHAVIOR), (BEHAVIOR, listed)))
    np.testing.assert_allclose(there.returns, -back.returns)


def test_a_policy_that_acts_like_its_rival_has_no_advantage_at_all() -> None:
    log, _ = _world(5, share=0.0)
    tested = _series(log, RecordedPolicy("listed"), BEHAVIOR)
    np.testing.assert_allclose(tested.difference.returns, 0.0, atol=1e-12)


@pytest.mark.parametrize("trains", [True, False])
def test_spare_rows_change_nothing(trains: bool) -> None:
    log, _ = _world(6)
    training, held_out = (one.log for one in split_log(log, train_fraction=1 / 3))
    policies = RecordedPolicy("listed"), BEHAVIOR
    plain = _series(held_out, *policies, training=training if trains else None)
    room = grow(training, training.capacity + 7) if trains else None
    padded = _series(grow(held_out, held_out.capacity + 5), *policies, training=room)
    np.testing.assert_allclose(padded.difference.returns[: held_out.capacity], plain.difference.returns)


def test_training_episodes_leave_the_advantage_unbiased() -> None:
    """The share of an episode comes from others, so that conditionally on these nothing is biased."""
    misses = []
    for seed in range(40):
        training, (held_out, truth) = _world(200 + seed, rows=300)[0], _world(300 + seed, rows=600)
        found = _series(held_out, RecordedPolicy("listed"), BEHAVIOR, training=training)
        misses.append(float(jnp.mean(found.difference.returns)) - truth)
    assert abs(np.mean(misses)) < 3 * np.std(misses) / np.sqrt(len(misses))


def test_the_share_has_the_least_variance() -> None:
    rng = np.random.default_rng(0)
    present = jnp.arange(203) < 200
    added = rng.normal(size=203)
    for slope, share in ((0.4, 0.4), (3.0, 1.0), (-1.0, 0.0)):
        plain = 5 - slope * added + 0.1 * rng.normal(size=203)
        gap = Gap(jnp.asarray(plain), jnp.asarray(added))
        best = float(gap.best_share(present))
        covariance = np.cov(plain[:200], added[:200])
        assert best == pytest.approx(np.clip(-covariance[0, 1] / covariance[1, 1], 0, 1))
        assert best == pytest.approx(share, abs=0.05)
        # Each half has the share of the other.
        odd = jnp.arange(203) % 2 == 1
        shares = [float(gap.best_share(present & rows)) for rows in (odd, ~odd)]
        expected = plain + np.where(odd, shares[1], shares[0]) * added
        np.testing.assert_allclose(gap.crosswise(odd, present), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_a_share_that_is_not_a_number_is_none(bad: float) -> None:
    gap = Gap(jnp.arange(3.0), jnp.full(3, bad))
    assert float(gap.best_share(jnp.ones(3, bool))) == 0
    found = gap.crosswise(jnp.array([True, False, True]), jnp.ones(3, bool))
    np.testing.assert_array_equal(found, gap.plain)
