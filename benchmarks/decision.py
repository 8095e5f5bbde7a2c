"""What does one decision cost: observe a window, search, test? The preset against SPIN as published.

    python benchmarks/decision.py

Both call the same `spin_step`, compiled once for a log of k episodes on RecoSys (half of them training),
with 14 gradient steps. Times are the smallest of several; they are told as ratios, in one run.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidegate import SpinSettings, multiscale_settings, paper_settings
from tidegate.loop import initial_state, observe, spin_step
from tidegate.simulators.recommender import Recommender

LENGTHS = (500, 2_000, 8_000, 32_000)
WINDOW, REPEATS = 4, 15
PEERS: dict[str, SpinSettings] = {
    "SPIN": paper_settings(lookahead=WINDOW),
    "multiscale": multiscale_settings(lookahead=WINDOW),
}


def decision(settings: SpinSettings, length: int) -> Callable[[int], Any]:
    """A compiled step on a log of this length."""
    world = Recommender.at_speed(1)
    log = world.collect(world.safe_policy, jnp.arange(1.0, length + 1), jax.random.key(0))
    state = initial_state(settings, world.safe_policy, log, length // 2 + WINDOW)
    state = observe(settings, state, log, jax.random.key(1))
    numbers = length + jnp.arange(1.0, WINDOW + 1)
    window = world.collect(world.safe_policy, numbers, jax.random.key(2))

    @eqx.filter_jit
    def step(state: Any, window: Any, key: Any) -> Any:
        after, outcome = spin_step(settings, state, window, key, jax.random.key(3))
        return jax.tree.leaves(after.policy)[0].sum() + outcome.reason  # waits for all of it

    return lambda seed: np.asarray(step(state, window, jax.random.key(seed)))


def milliseconds(settings: SpinSettings, length: int) -> float:
    run = decision(settings, length)
    run(0)
    times = []
    for seed in range(REPEATS):
        start = time.perf_counter()
        run(seed)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    for bits in (32, 64):
        with jax.enable_x64(bits == 64):
            found = {name: [milliseconds(settings, k) for k in LENGTHS] for name, settings in PEERS.items()}
        print(f"{bits}-bit, ms a decision at k = {', '.join(map(str, LENGTHS))}")
        for name, row in found.items():
            print(f"  {name:10s} {'  '.join(f'{one:8.2f}' for one in row)}")
        ratios = np.divide(found["multiscale"], found["SPIN"])
        print(f"  {'ratio':10s} {'  '.join(f'{one:8.2f}' for one in ratios)}")
        slope = np.polyfit(np.log(LENGTHS[1:]), np.log(found["multiscale"][1:]), 1)[0]
        print(f"  slope of log time on log k, multiscale, from k = {LENGTHS[1]}: {slope:.2f}")


if __name__ == "__main__":
    main()
