"""RecoSys: a user whose interest in five items moves through the seasons (the paper's first domain).

Item i earns μᵢ sin(κ t + π/2 + 2π i/5) in episode t = 0, 1, …, plus normal noise. The true
performance of every policy is known in closed form.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..arrays import ArrayLike
from ..errors import SettingsError
from ..policies import SoftmaxPolicy
from .bandit import Bandit

NUM_ITEMS = 5
PERIODS = {0: None, 1: 2000.0, 2: 1500.0, 3: 1250.0}
SAFE_LOGITS = (2.0, 1.5, 1.2, 1.0, 1.0)


class Recommender(Bandit):
    """One decision per episode; episode numbers start at 1, so t = number − 1."""

    frequency: float | Array = 0.0
    noise: float | Array = 0.05

    @classmethod
    def at_speed(cls, speed: int, *, noise: float = 0.05) -> "Recommender":
        """The published speeds 0 (a standing world) to 3."""
        if speed not in PERIODS:
            raise SettingsError(f"speed is {speed!r}", expected="0, 1, 2 or 3")
        return cls(speed_frequency(speed), noise)

    @property
    def safe_policy(self) -> SoftmaxPolicy:
        """Near optimal in the first episode."""
        return SoftmaxPolicy(SAFE_LOGITS)

    def expected_rewards(self, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, "n items"]:
        items = jnp.arange(NUM_ITEMS)
        scale = 1.0 - 0.2 * items
        phase = jnp.pi / 2 + 2 * jnp.pi * items / NUM_ITEMS
        return scale * jnp.sin(self.frequency * (episode_numbers[:, None] - 1) + phase)


def speed_frequency(speed: int) -> float:
    """κ of a published speed."""
    period = PERIODS[speed]
    return 0.0 if period is None else float(2 * jnp.pi / period)
