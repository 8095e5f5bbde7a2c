"""Unbiasedness by enumeration, identities, and long episodes."""

from collections.abc import Callable

import numpy as np
import pytest
from jax import Array

from tidegate import (
    EpisodeLog,
    Propensity,
    RecordedPolicy,
    TabularPolicy,
    effective_sample_size,
    episode_ratios,
    is_returns,
    observed_returns,
    pdis_returns,
)
from tidegate.returns import stopped_ratios

from .oracles import SmallMDP, is_return, pdis_return

BEHAVIOR = np.array([[0.7, 0.3], [0.2, 0.8]])
TARGET = np.array([[0.1, 0.9], [0.6, 0.4]])


def _enumerated(
    mdp: SmallMDP,
) -> tuple[np.ndarray, EpisodeLog, list[list[tuple[int, int, float, float]]]]:
    listed = list(mdp.trajectories(BEHAVIOR))
    probabilities = np.array([p for p, _ in listed])
    episodes = [episode for _, episode in listed]
    shape = (len(episodes), mdp.horizon)
    grids = [np.zeros(shape) for _ in range(4)]
    mask = np.zeros(shape, bool)
    for i, episode in enumerate(episodes):
        for t, step in enumerate(episode):
            mask[i, t] = True
            for grid, value in zip(grids, step, strict=True):
                grid[i, t] = value
    states, actions, behavior, rewards = grids
    log = EpisodeLog.from_arrays(
        actions, rewards, np.where(mask, behavior, 1.0), mask=mask, states=states.astype(int)
    )
    return probabilities, log, episodes


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.3, 0.0])
@pytest.mark.parametrize("estimator", [is_returns, pdis_returns])
def test_expectation_equals_the_exact_value(
    discount: float, estimator: Callable[..., Array]
) -> None:
    mdp = SmallMDP()
    probabilities, log, _ = _enumerated(mdp)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    policy = TabularPolicy(np.log(TARGET))
    estimate = probabilities @ np.asarray(estimator(policy, log, discount))
    assert estimate == pytest.approx(mdp.value(TARGET, discount), abs=1e-10)


def test_ratios_average_to_one() -> None:
    probabilities, log, _ = _enumerated(SmallMDP())
    policy = TabularPolicy(np.log(TARGET))
    assert probabilities @ np.asarray(episode_ratios(policy, log)) == pytest.approx(1, abs=1e-12)
    for discount in (1.0, 0.5):
        ratios = stopped_ratios(policy, log, discount)
        assert probabilities @ np.asarray(ratios) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_each_episode_agrees_with_the_textbook_loop(discount: float) -> None:
    _, log, episodes = _enumerated(SmallMDP(3))
    policy = TabularPolicy(np.log(TARGET))

    def target(state: int, action: int) -> float:
        return float(TARGET[state, action])

    np.testing.assert_allclose(
        is_returns(policy, log, discount), [is_return(target, e, discount) for e in episodes]
    )
    np.testing.assert_allclose(
        pdis_returns(policy, log, discount), [pdis_return(target, e, discount) for e in episodes]
    )


def test_on_policy_returns_are_the_observed_ones() -> None:
    _, log, _ = _enumerated(SmallMDP(1))
    policy = TabularPolicy(np.log(BEHAVIOR))
    for estimator in (is_returns, pdis_returns):
        np.testing.assert_allclose(estimator(policy, log, 0.9), observed_returns(log, 0.9))


def test_long_episodes_do_not_overflow_on_the_way() -> None:
    """5,000 steps whose ratios multiply to 1 although partial products of either side overflow."""
    steps = 5_000
    behavior = np.where(np.arange(steps) < steps // 2, 0.25, 0.5)[None]
    target = np.where(np.arange(steps) < steps // 2, 0.5, 0.25)[None]
    rewards = np.zeros((1, steps))
    rewards[0, -1] = 1.0
    log = EpisodeLog.from_arrays(
        np.zeros((1, steps)), rewards, behavior, recorded={"target": target}
    )
    assert steps // 2 * np.log(2) > np.log(np.finfo(float).max)
    assert float(is_returns(RecordedPolicy("target"), log)[0]) == pytest.approx(1.0, rel=1e-9)


def test_a_policy_that_never_takes_the_logged_action_earns_nothing_there() -> None:
    log = EpisodeLog.from_arrays(
        [0, 0], [5.0, 7.0], [0.5, 0.5], recorded={"other": np.array([0.0, 1.0])}
    )
    np.testing.assert_allclose(pdis_returns(RecordedPolicy("other"), log), [0.0, 14.0])


def test_recorded_densities() -> None:
    log = EpisodeLog.from_arrays(
        [0.1, 0.2],
        [1.0, 1.0],
        [0.0, 1.0],
        propensity=Propensity.LOG_DENSITY,
        recorded={"c": np.array([np.log(2.0), 1.0])},
    )
    np.testing.assert_allclose(pdis_returns(RecordedPolicy("c"), log), [2.0, 1.0])


def test_effective_sample_size() -> None:
    assert float(effective_sample_size(np.ones(9))) == pytest.approx(9)
    assert float(effective_sample_size(np.array([1e200, 0.0, 0.0]))) == pytest.approx(1)
    assert float(effective_sample_size(np.zeros(3))) == 0
    assert float(effective_sample_size(np.array([1.0, 3.0]))) == pytest.approx(16 / 10)
