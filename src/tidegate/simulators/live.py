"""A live loop run inside a world, window after window."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, PRNGKeyArray

from ..arrays import ArrayLike, in_double
from ..drivers import INITIAL_CAPACITY, LiveLoop
from ..episodes import EpisodeLog
from ..errors import SettingsError
from ..loop import SpinSettings
from ..policies import ParametricPolicy
from ..records import Decision
from ..returns import observed_returns
from ..verdicts import Verdict


class ActingWorld(Protocol):
    """A world in which policies can act; its truth need not be known."""

    @property
    def safe_policy(self) -> ParametricPolicy: ...

    def collect(
        self, policy: ParametricPolicy, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog: ...


@dataclasses.dataclass(frozen=True, eq=False)
class LiveWindow:
    """One window: which policy ran, what it earned, and what the test then said."""

    episode_numbers: npt.NDArray[np.float64]
    policy: ParametricPolicy
    deployed: bool
    returns: npt.NDArray[np.float64]
    decision: Decision


@in_double
def run_live(
    world: ActingWorld,
    settings: SpinSettings,
    *,
    num_windows: int,
    window: int,
    warmup: int = 20,
    seed: int = 0,
    capacity: int = INITIAL_CAPACITY,
    on_window: Callable[[LiveWindow], None] | None = None,
) -> list[LiveWindow]:
    """SPIN in this world: `warmup` episodes of the safe policy, then windows with a decision each.

    A candidate that passes its test runs the next window. `on_window` sees each window as it is done.
    """
    for name, count in (("num_windows", num_windows), ("window", window), ("warmup", warmup)):
        if count < 1:
            raise SettingsError(f"{name} is {count}", expected="a count from 1 up")
    _, key = jax.random.split(jax.random.key(seed))
    loop = LiveLoop(settings, world.safe_policy, seed=seed, capacity=capacity)
    numbers = np.arange(1.0, warmup + 1)
    loop.observe(world.collect(loop.policy, numbers, jax.random.fold_in(key, 0)))
    history: list[LiveWindow] = []
    for index in range(num_windows):
        numbers = warmup + index * window + np.arange(1.0, window + 1)
        policy, deployed = loop.policy, bool(history) and _deploys(history[-1])
        log = world.collect(policy, numbers, jax.random.fold_in(key, index + 1))
        returns = np.asarray(observed_returns(log, settings.forecast.discount))
        history.append(LiveWindow(numbers, policy, deployed, returns, loop.step(log)))
        if on_window is not None:
            on_window(history[-1])
    return history


def _deploys(window: LiveWindow) -> bool:
    return window.decision.verdict is Verdict.DEPLOY
