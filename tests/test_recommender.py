import jax
import numpy as np
import pytest

from tidegate import SettingsError, SoftmaxPolicy
from tidegate.simulators.recommender import Recommender

NUMBERS = np.arange(1.0, 2021.0)


def test_expected_rewards_follow_the_published_formula() -> None:
    world = Recommender.at_speed(2)
    t = np.arange(2020)
    for i, mu in enumerate([1.0, 0.8, 0.6, 0.4, 0.2]):
        expected = mu * np.sin(2 * np.pi / 1500 * t + np.pi / 2 + 2 * np.pi * i / 5)
        np.testing.assert_allclose(world.expected_rewards(NUMBERS)[:, i], expected, atol=1e-12)


def test_a_standing_world_stands() -> None:
    rewards = np.asarray(Recommender.at_speed(0).expected_rewards(NUMBERS))
    assert np.ptp(rewards, axis=0).max() == 0


def test_collected_rewards_and_actions_match_the_truth() -> None:
    world, policy = Recommender.at_speed(1), SoftmaxPolicy([1.0, 0.0, 0.5, 0.2, -1.0])
    log = jax.jit(world.collect)(policy, np.tile(NUMBERS, 20), jax.random.key(0))
    actions, rewards = np.asarray(log.actions)[:, 0], np.asarray(log.rewards)[:, 0]
    means = np.asarray(world.expected_rewards(np.tile(NUMBERS, 20)))
    noise = rewards - means[np.arange(actions.size), actions]
    assert abs(noise.mean()) < 5 * 0.05 / np.sqrt(noise.size)
    assert noise.std() == pytest.approx(0.05, rel=0.02)
    probs = np.exp(np.asarray(policy.log_probs()))
    share = np.bincount(actions, minlength=5) / actions.size
    assert np.all(np.abs(share - probs) < 5 * np.sqrt(probs / actions.size))
    np.testing.assert_allclose(np.exp(log.behavior_log_probs[:, 0]), probs[actions])
    truth = np.asarray(world.performance(policy, NUMBERS))
    error = rewards.std() / np.sqrt(rewards.size)
    assert abs(rewards.mean() - truth.mean()) < 5 * error


def test_unknown_speed() -> None:
    with pytest.raises(SettingsError, match=r"speed is 4"):
        Recommender.at_speed(4)
