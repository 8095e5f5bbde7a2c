"""Theorem 1 and the example of the appendix where it holds with equality."""

import numpy as np
import pytest

from tidegate import SettingsError
from tidegate.checks.theory import lipschitz_constant


def test_the_tight_example() -> None:
    """Two states, one action, γ = 0: R₁(s₁) = 1·1 and R₂(s₁) = 0.9·1 − 0.1."""
    outcomes = np.array([1.0, -1.0])
    first, second = np.array([1.0, 0.0]), np.array([0.9, 0.1])
    transition_change = np.abs(first - second).sum()
    reward_change = abs(first @ outcomes - second @ outcomes)
    bound = lipschitz_constant(transition_change, reward_change, max_reward=1.0, discount=0.0)
    assert bound == pytest.approx(0.2)
    assert abs(first @ outcomes - second @ outcomes) == pytest.approx(bound)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9])
def test_the_bound_holds_in_random_worlds(discount: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        moves = rng.dirichlet(np.ones(3), size=(2, 3, 2))
        moves[1] = moves[0] + 0.1 * (moves[1] - moves[0])
        rewards = rng.uniform(-1, 1, size=(2, 3, 2))
        rewards[1] = rewards[0] + 0.1 * (rewards[1] - rewards[0])
        policy = rng.dirichlet(np.ones(2), size=3)
        start = rng.dirichlet(np.ones(3))
        values = []
        for p, r in zip(moves, rewards, strict=True):
            chain = np.einsum("sa,sat->st", policy, p)
            income = np.sum(policy * r, axis=1)
            values.append(start @ np.linalg.solve(np.eye(3) - discount * chain, income))
        bound = lipschitz_constant(
            np.abs(moves[0] - moves[1]).sum(-1).max(),
            np.abs(rewards[0] - rewards[1]).max(),
            max_reward=np.abs(rewards).max(),
            discount=discount,
        )
        assert abs(values[0] - values[1]) <= bound + 1e-12


def test_the_formula() -> None:
    found = lipschitz_constant(0.01, 0.02, max_reward=3.0, discount=0.9)
    assert found == pytest.approx(0.9 * 3 * 0.01 / 0.01 + 0.02 / 0.1)


def test_bad_arguments() -> None:
    with pytest.raises(SettingsError, match=r"discount is 1"):
        lipschitz_constant(0.1, 0.1, max_reward=1.0, discount=1.0)
    with pytest.raises(SettingsError, match=r"transition_change is -0.1"):
        lipschitz_constant(-0.1, 0.1, max_reward=1.0, discount=0.5)
