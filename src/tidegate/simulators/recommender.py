"""RecoSys: a user whose interest in five items moves through the seasons (the paper's first domain).

Item i earns μᵢ sin(κ t + π/2 + 2π i/5) in episode t = 0, 1, …, plus normal noise.
"""

from typing import Self

import jax.numpy as jnp

from ..inputs import number, whole
from .drifting import DriftingBandit

PERIODS = {0: None, 1: 2000.0, 2: 1500.0, 3: 1250.0}


class Recommender(DriftingBandit):
    """One decision per episode: which of the five items to recommend."""

    @classmethod
    def at_speed(cls, speed: int, *, noise: float = 0.05) -> Self:
        """The published speeds: from 0, no drift, to 3."""
        return cls(speed_frequency(whole("speed", speed, 0, max(PERIODS))), number("noise", noise, 0))


def speed_frequency(speed: int) -> float:
    """κ of a published speed."""
    period = PERIODS[speed]
    return 0.0 if period is None else float(2 * jnp.pi / period)
