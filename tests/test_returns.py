"""Unbiasedness by enumeration, identities, textbook loops, and long episodes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tidegate import (
    EpisodeLog,
    LogError,
    PolicyError,
    Propensity,
    RecordedPolicy,
    SoftmaxPolicy,
    TabularPolicy,
    pdis_returns,
)
from tidegate.episodes import grow
from tidegate.returns import (
    control_variate_returns,
    dr_returns,
    effective_sample_size,
    episode_ratios,
    is_returns,
    observed_returns,
    stopped_ratios,
    weighted_is_returns,
    weighted_pdis_returns,
)

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
def test_expectation_equals_the_exact_value(discount: float, estimator: Callable[..., Array]) -> None:
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
    log = EpisodeLog.from_arrays(np.zeros((1, steps)), rewards, behavior, recorded={"target": target})
    assert steps // 2 * np.log(2) > np.log(np.finfo(float).max)
    assert float(is_returns(RecordedPolicy("target"), log)[0]) == pytest.approx(1.0, rel=1e-9)


def test_a_policy_that_never_takes_the_logged_action_earns_nothing_there() -> None:
    log = EpisodeLog.from_arrays([0, 0], [5.0, 7.0], [0.5, 0.5], recorded={"other": np.array([0.0, 1.0])})
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


def _state_values(log: EpisodeLog, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Predictions that may depend on the step and the state, and on nothing that comes after."""
    table = np.random.default_rng(seed).normal(0.0, 3.0, (log.mask.shape[1], 2, count))
    return np.asarray(table[np.arange(log.mask.shape[1]), np.asarray(log.states)])


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("count", [1, 2])
def test_any_values_leave_the_doubly_robust_expectation_exact(count: int, discount: float) -> None:
    policy = TabularPolicy(np.log(TARGET))
    for seed in (0, 1):
        mdp = SmallMDP(seed)
        probabilities, log, _ = _enumerated(mdp)
        returns = dr_returns(policy, log, discount, _state_values(log, count, seed))
        estimate = probabilities @ np.asarray(returns)
        assert estimate == pytest.approx(mdp.value(TARGET, discount), abs=1e-10)


@pytest.mark.parametrize("count", [1, 2])
def test_each_doubly_robust_return_agrees_with_the_backward_recursion(count: int) -> None:
    """Yₜ = v̂ₜ + ρₜ (rₜ + γ Yₜ₊₁ − q̂ₜ), with nothing after the end (Jiang and Li, 2016)."""
    _, log, episodes = _enumerated(SmallMDP(2))
    values = _state_values(log, count, 5)

    def recursion(episode: list[tuple[int, int, float, float]], values: Any) -> float:
        later = 0.0
        for t in reversed(range(len(episode))):
            state, action, behavior, reward = episode[t]
            expected = TARGET[state] @ values[t] if count > 1 else values[t, 0]
            predicted = values[t, action if count > 1 else 0]
            ratio = TARGET[state, action] / behavior
            later = expected + ratio * (reward + 0.8 * later - predicted)
        return float(later)

    expected = np.array([recursion(one, values[i]) for i, one in enumerate(episodes)])
    np.testing.assert_allclose(dr_returns(TabularPolicy(np.log(TARGET)), log, 0.8, values), expected)


def test_without_predictions_doubly_robust_is_per_decision() -> None:
    _, log, _ = _enumerated(SmallMDP(1))
    policy = TabularPolicy(np.log(TARGET))
    for count in (1, 2):
        np.testing.assert_array_equal(
            dr_returns(policy, log, 0.9, np.zeros((*log.mask.shape, count))),
            pdis_returns(policy, log, 0.9),
        )


def test_a_perfect_prediction_leaves_no_noise_of_the_actions() -> None:
    log = EpisodeLog.from_arrays([0, 1, 2], [1.0, 5.0, -2.0], [0.2, 0.3, 0.5])
    values = np.broadcast_to([1.0, 5.0, -2.0], (3, 1, 3))
    # A policy may know an action that the log does not: nothing can be predicted for it.
    for probs in ([0.6, 0.3, 0.1], [0.6, 0.3, 0.05, 0.05]):
        policy = SoftmaxPolicy.from_probs(probs)
        expected = np.array(probs[:3]) @ [1.0, 5.0, -2.0]
        np.testing.assert_allclose(dr_returns(policy, log, 1.0, values), expected)


def test_a_policy_known_by_its_table_has_the_returns_of_the_policy() -> None:
    _, log, _ = _enumerated(SmallMDP(3))
    policy, values = TabularPolicy(np.log(TARGET)), _state_values(log, 2, 4)
    table = np.log(TARGET)[np.asarray(log.states)]
    log = dataclasses.replace(log, recorded={"table": table})
    np.testing.assert_allclose(
        dr_returns(RecordedPolicy("table"), log, 0.9, values), dr_returns(policy, log, 0.9, values)
    )


def test_recorded_policies_take_one_value_whatever_the_action() -> None:
    log = EpisodeLog.from_arrays([0, 1], [5.0, 7.0], [0.5, 0.5], recorded={"c": np.array([0.25, 0.75])})
    baseline = np.full((2, 1, 1), 6.0)
    # v̂ + ρ (r − v̂) with ρ = 0.5 and 1.5.
    returns = dr_returns(RecordedPolicy("c"), log, 1.0, baseline)
    np.testing.assert_allclose(returns, [6 + 0.5 * -1, 6 + 1.5 * 1])
    with pytest.raises(PolicyError, match="RecordedPolicy cannot average 2 action values"):
        dr_returns(RecordedPolicy("c"), log, 1.0, np.zeros((2, 1, 2)))
    with pytest.raises(LogError, match="same number of steps"):
        dr_returns(RecordedPolicy("c"), log, 1.0, np.zeros((2, 3, 1)))


def _running_ratios(episodes: list[list[tuple[int, int, float, float]]], steps: int) -> Any:
    """Π_{l≤min(t, end)} π/β, one row per episode."""
    rows = []
    for episode in episodes:
        factors = [TARGET[s, a] / b for s, a, b, _ in episode]
        rows.append(np.cumprod(factors + [1.0] * (steps - len(factors))))
    return np.array(rows)


def test_weighted_returns_agree_with_the_textbook_loops() -> None:
    _, log, episodes = _enumerated(SmallMDP(3))
    padded = grow(log, log.capacity + 4)
    policy, count = TabularPolicy(np.log(TARGET)), len(episodes)
    running = _running_ratios(episodes, 3)
    whole, each = [], []
    for i, episode in enumerate(episodes):
        rewards = [0.9**t * reward for t, (*_, reward) in enumerate(episode)]
        whole.append(running[i, -1] / running[:, -1].sum() * sum(rewards))
        each.append(sum(running[i, t] / running[:, t].sum() * r for t, r in enumerate(rewards)))
    for estimator, expected in ((weighted_is_returns, whole), (weighted_pdis_returns, each)):
        returns = np.asarray(estimator(policy, padded, 0.9))
        np.testing.assert_allclose(returns[:count], count * np.array(expected))
        np.testing.assert_array_equal(returns[count:], 0.0)


def test_steady_rewards_are_estimated_without_noise() -> None:
    """Where every reward is the same, normalising and the control variate take out all of ρ's noise."""
    rng = np.random.default_rng(0)
    log = EpisodeLog.from_arrays(rng.integers(0, 2, 30), np.full(30, 4.0), np.full(30, 0.5))
    policy = SoftmaxPolicy.from_probs([0.8, 0.2])
    for estimator in (weighted_is_returns, weighted_pdis_returns):
        assert float(np.mean(estimator(policy, log))) == pytest.approx(4.0, abs=1e-12)
    np.testing.assert_allclose(control_variate_returns(policy, log), 4.0)
    assert abs(float(np.mean(is_returns(policy, log))) - 4.0) > 0.1


def test_a_policy_that_could_produce_no_episode_has_no_weighted_return() -> None:
    log = EpisodeLog.from_arrays([0, 0], [5.0, 7.0], [0.5, 0.5], num_actions=2)
    policy = SoftmaxPolicy.from_probs([0.0, 1.0])
    for estimator in (weighted_is_returns, weighted_pdis_returns):
        assert np.all(np.isnan(estimator(policy, log)))


def test_control_variate_is_the_regression_on_the_ratio() -> None:
    _, log, _ = _enumerated(SmallMDP(4))
    policy = TabularPolicy(np.log(TARGET))
    plain, ratios = pdis_returns(policy, log, 0.9), stopped_ratios(policy, log, 0.9)
    slope = np.polyfit(ratios, plain, 1)[0]
    for padded in (log, grow(log, log.capacity + 4)):
        returns = np.asarray(control_variate_returns(policy, padded, 0.9))[: log.capacity]
        np.testing.assert_allclose(returns, plain - slope * (ratios - 1))
    assert np.var(returns) < np.var(plain)
    on_policy = TabularPolicy(np.log(BEHAVIOR))
    np.testing.assert_array_equal(
        control_variate_returns(on_policy, log, 0.9), pdis_returns(on_policy, log, 0.9)
    )


def test_normalised_weights_do_not_overflow() -> None:
    """Ratios far beyond the largest float: one episode dominates, the rest weigh nothing."""
    steps = 4_000
    log = EpisodeLog.from_arrays(
        np.zeros((2, steps)),
        np.ones((2, steps)),
        np.full((2, steps), 0.25),
        recorded={"far": np.array([[0.75], [0.5]]) * np.ones(steps)},
    )
    policy = RecordedPolicy("far")
    assert steps * np.log(2) > np.log(np.finfo(float).max)
    for estimator in (weighted_is_returns, weighted_pdis_returns):
        assert np.all(np.isfinite(estimator(policy, log)))
    np.testing.assert_allclose(weighted_is_returns(policy, log), [2 * steps, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    "estimator",
    [weighted_is_returns, weighted_pdis_returns, control_variate_returns,
     lambda p, log, d: dr_returns(p, log, d, jnp.ones((*log.mask.shape, 2)))],
)  # fmt: skip
def test_estimators_have_finite_gradients_beside_spare_rows(estimator: Any) -> None:
    _, log, _ = _enumerated(SmallMDP(0))
    padded = grow(log, log.capacity + 3)

    def total(table: Array) -> Array:
        return jnp.sum(estimator(TabularPolicy(table), padded, 0.9))

    for table in (TARGET, BEHAVIOR):
        gradient = np.asarray(jax.grad(total)(jnp.log(table)))
        assert np.all(np.isfinite(gradient))
