"""Theorem 1 of the paper: how far performance can move when the world moves a little each episode."""

from ..inputs import number


def lipschitz_constant(
    transition_change: float, reward_change: float, *, max_reward: float, discount: float
) -> float:
    """L = γ R_max ε_P/(1 − γ)² + ε_R/(1 − γ), so that |ρ(π, k) − ρ(π, k + δ)| ≤ L δ for every policy.

    ε_P bounds ‖P_k(·|s,a) − P_{k+1}(·|s,a)‖₁ and ε_R bounds |E R_k(s,a) − E R_{k+1}(s,a)|.
    """
    discount = number("discount", discount, 0, below=1)  # as Theorem 1 assumes
    transition_change = number("transition_change", transition_change, 0)
    reward_change, max_reward = number("reward_change", reward_change, 0), number("max_reward", max_reward, 0)
    remaining = 1 - discount
    return discount * max_reward * transition_change / remaining**2 + reward_change / remaining
