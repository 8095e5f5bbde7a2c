"""Bandits whose arms drift: with the seasons, on straight lines, for a while, or all at once.

With μ from 1 down to 0.2 over the arms, t = episode number − 1 and t' = min(t, stop), arm i earns
    μᵢ · (level + swing · sin(κ t' + π/2 + spread · 2π i/arms + π [t ≥ jump])) + tilt · t' · (μ₋ᵢ − μᵢ)
plus normal noise, where μ₋ᵢ is μ in reverse order. Everything but the number of arms may be traced: one
compiled program serves all worlds with the same number of arms. True performance has a closed form.
"""

import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..arrays import ArrayLike, full_products
from ..episodes import EpisodeLog
from ..inputs import number, whole
from ..policies import DiscretePolicy, SoftmaxPolicy

SAFE_LOGITS = (2.0, 1.5, 1.2, 1.0, 1.0)
NEVER = 1e9  # later than any run ends; unlike ∞ it is a number in every JSON reader
LOWEST_SCALE = 0.2
# Seasons that never turn negative keep the arms in the order of μ.
FIXED_ORDER_LEVEL = 1.5


class DriftingBandit(eqx.Module):
    """One decision per episode; episode numbers start at 1. The default is RecoSys without drift."""

    frequency: float | Array = 0.0
    noise: float | Array = 0.05
    level: float | Array = 0.0
    swing: float | Array = 1.0
    spread: float | Array = 1.0
    tilt: float | Array = 0.0
    stop: float | Array = NEVER
    jump: float | Array = NEVER
    arms: int = eqx.field(static=True, default=5, converter=lambda n: whole("arms", n, 2))

    @classmethod
    def seasonal(cls, period: float | None, noise: float = 0.05, arms: int = 5) -> Self:
        """Each arm has its season; 5 arms are RecoSys at any speed. Without a period nothing drifts."""
        return cls(frequency=_frequency(period), noise=noise, arms=arms)

    @classmethod
    def linear(cls, episodes: float = 2_000.0, noise: float = 0.05, arms: int = 5) -> Self:
        """Straight lines from μ to μ in reverse: the best arm changes once, halfway."""
        tilt = 1 / _positive("episodes", episodes)
        return cls(level=1.0, swing=0.0, tilt=tilt, noise=noise, arms=arms)

    @classmethod
    def stopping(
        cls, period: float = 1_500.0, stop: float = 700.0, noise: float = 0.05, arms: int = 5
    ) -> Self:
        """Seasons that stop at t = `stop`."""
        return cls(frequency=_frequency(period), stop=stop, noise=noise, arms=arms)

    @classmethod
    def fixed_order(cls, period: float = 1_500.0, noise: float = 0.05, arms: int = 5) -> Self:
        """All arms rise and fall together: what is best never changes, what it earns does."""
        level = FIXED_ORDER_LEVEL
        return cls(frequency=_frequency(period), level=level, spread=0.0, noise=noise, arms=arms)

    @classmethod
    def jumping(cls, jump: float = 1_000.0, noise: float = 0.05, arms: int = 5) -> Self:
        """Nothing drifts, but at t = `jump` all signs flip: the best arm is suddenly the worst."""
        return cls(jump=jump, noise=noise, arms=arms)

    @property
    def safe_policy(self) -> SoftmaxPolicy:
        """Near optimal in the first episode: RecoSys's logits, stretched over the arms."""
        places = np.linspace(0, len(SAFE_LOGITS) - 1, self.arms)
        return SoftmaxPolicy(np.interp(places, np.arange(len(SAFE_LOGITS)), SAFE_LOGITS))

    def expected_rewards(self, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, "n arms"]:
        """What each arm earns on average."""
        arms = jnp.arange(self.arms)
        scale = 1.0 - (1 - LOWEST_SCALE) / (self.arms - 1) * arms
        phase = jnp.pi / 2 + self.spread * (2 * jnp.pi * arms / self.arms)
        t = episode_numbers[:, None] - 1
        drifted = jnp.minimum(t, self.stop)
        angle = self.frequency * drifted + phase + jnp.where(t >= self.jump, jnp.pi, 0.0)
        season = scale * (self.level + self.swing * jnp.sin(angle))
        return season + self.tilt * drifted * (scale[::-1] - scale)

    @full_products
    def performance(
        self, policy: DiscretePolicy, episode_numbers: Float[ArrayLike, " n"]
    ) -> Float[Array, " n"]:
        """ρ(π, i), exactly."""
        return self.expected_rewards(episode_numbers) @ jnp.exp(policy.log_probs())

    def collect(
        self, policy: DiscretePolicy, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog:
        """Run the policy for these episodes."""
        action_key, noise_key = jax.random.split(key)
        count = episode_numbers.shape[0]
        log_probs, expected = policy.log_probs(), self.expected_rewards(episode_numbers)
        actions = jax.random.categorical(action_key, log_probs, shape=(count,))
        means = jnp.take_along_axis(expected, actions[:, None], axis=1)
        noise = self.noise * jax.random.normal(noise_key, means.shape, means.dtype)
        return EpisodeLog(
            episode_numbers=episode_numbers,
            actions=actions[:, None],
            behavior_log_probs=log_probs[actions][:, None],
            rewards=means + noise,
            mask=jnp.ones((count, 1), bool),
            num_actions=self.arms,
        )


def _frequency(period: float | None) -> float:
    return 0.0 if period is None else 2 * math.pi / _positive("period", period)


def _positive(name: str, value: float) -> float:
    return number(name, value, above=0)
