"""A live loop run inside a world, window after window."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..arrays import ArrayLike, Floats, in_double, map_leaves
from ..drivers import INITIAL_CAPACITY, LiveLoop
from ..episodes import EpisodeLog
from ..inputs import seed_of, whole
from ..loop import SpinSettings
from ..policies import ParametricPolicy
from ..reasons import Verdict
from ..record import Decision
from ..returns import observed_returns


class ActingWorld(Protocol):
    """A world in which policies can act; its truth need not be known."""

    @property
    def safe_policy(self) -> ParametricPolicy: ...

    def collect(
        self, policy: ParametricPolicy, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog: ...


@dataclasses.dataclass(frozen=True, eq=False)
class LiveWindow:
    """One window: which policy ran, what it earned, and what the test then said about a candidate."""

    episode_numbers: Floats
    policy: ParametricPolicy
    deployed: bool
    returns: Floats
    candidate: ParametricPolicy
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
    num_windows, seed = whole("num_windows", num_windows, 1), seed_of(seed)
    window, warmup = whole("window", window, 1), whole("warmup", warmup, 1)
    _, key = jax.random.split(jax.random.key(seed))
    loop = LiveLoop(settings, world.safe_policy, seed=seed, capacity=capacity)
    keys = (jax.random.fold_in(key, index) for index in range(num_windows + 1))
    history: list[LiveWindow] = []
    for one in live_windows(loop, world.collect, keys, window=window, warmup=warmup):
        history.append(one)
        if on_window is not None:
            on_window(one)
    return history


def live_windows(
    loop: LiveLoop,
    collect: Callable[[ParametricPolicy, Floats, PRNGKeyArray], EpisodeLog],
    keys: Iterable[PRNGKeyArray],
    *,
    window: int,
    warmup: int,
) -> Iterator[LiveWindow]:
    """The warm-up under the first key, then a window under each of the others, as they are done."""
    warm_key, *keys = keys
    loop.observe(collect(loop.policy, np.arange(1.0, warmup + 1), warm_key))
    deployed = False
    for index, key in enumerate(keys):
        numbers = warmup + index * window + np.arange(1.0, window + 1)
        policy = loop.policy
        log = collect(policy, numbers, key)
        returns = np.asarray(observed_returns(log, loop.settings.forecast.discount))
        decision = loop.step(log)
        yield LiveWindow(numbers, policy, deployed, returns, _candidate(loop), decision)
        deployed = decision.verdict is Verdict.DEPLOY


def _candidate(loop: LiveLoop) -> ParametricPolicy:
    """What the last test was about."""
    assert loop.state is not None
    return map_leaves(np.asarray, loop.state.search.policy)
