"""How much of what a bandit algorithm earns does the safe loop earn, and how often is each worse than safe?

    python benchmarks/peers_loop.py --runs 32

Peers, in the same worlds and for as many episodes: Thompson sampling with discounted sums (Raj and Kalyani,
2017) and UCB over a sliding window (Garivier and Moulines, 2011). They see the same warm-up, know the noise,
choose each episode's arm from all episodes before it and owe nobody safety; the loop has windows of four
episodes and tests every candidate. Each peer has its discount or window from a short list, the best in
hindsight for each world.
"Worse than safe" is, for a peer, the share of episodes with an arm that earns less than the safe policy; for
the loop, its violation rate.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from tidegate import simulate
from tidegate.presets import multiscale_settings
from tidegate.simulators.drifting import DriftingBandit
from tidegate.simulators.recommender import PERIODS

EPISODES, WARMUP, WINDOW, SEED = 2_000, 20, 4, 2026
DISCOUNTS = (0.9, 0.97, 0.99, 0.997)
WINDOWS = (25, 50, 100, 200)
EXPLORATION = 0.2  # of UCB; of .1, .2, .5 and 1 the one that earned most where the noise is .05
NOISES = (0.05, 0.5)

# The gain over the safe policy in each episode or window, and whether a worse one ran.
Earned = tuple[Float[Array, " n"], Bool[Array, " n"]]
Peer = Callable[[DriftingBandit, Any, PRNGKeyArray], Earned]


def worlds() -> dict[str, DriftingBandit]:
    """RecoSys's three speeds and three shorter periods, each with little noise and with much."""
    periods = {f"speed {speed}": period for speed, period in PERIODS.items() if period}
    periods |= {f"period {period}": float(period) for period in (200, 400, 700)}
    return {
        f"{name}, noise {noise}": DriftingBandit.seasonal(period, noise)
        for noise in NOISES
        for name, period in periods.items()
    }


def thompson(world: DriftingBandit, discount: float, key: PRNGKeyArray) -> Earned:
    """The arm that is best in one draw from each arm's posterior: known noise, prior N(0, 1)."""

    def scores(sums: Float[Array, "2 a"], _: Array, key: PRNGKeyArray) -> Float[Array, " a"]:
        total, count = sums
        precision = 1 + count / world.noise**2
        mean = total / world.noise**2 / precision
        sampled: Array = mean + jax.random.normal(key, total.shape) / jnp.sqrt(precision)
        return sampled

    def remember(sums: Float[Array, "2 a"], _: Array, seen: Float[Array, "2 a"]) -> Float[Array, "2 a"]:
        return discount * sums + seen

    return _play(world, jnp.zeros((2, world.arms)), scores, remember, key)


def sliding_ucb(world: DriftingBandit, window: int, key: PRNGKeyArray) -> Earned:
    """The arm with the highest mean over the last episodes plus a bonus for few of them."""

    def scores(last: Float[Array, "w 2 a"], episode: Array, _: PRNGKeyArray) -> Float[Array, " a"]:
        total, count = jnp.sum(last, axis=0)
        bonus = EXPLORATION * jnp.sqrt(jnp.log(jnp.minimum(episode, window)) / jnp.maximum(count, 1))
        return jnp.where(count > 0, total / jnp.maximum(count, 1) + bonus, jnp.inf)

    def remember(last: Float[Array, "w 2 a"], episode: Array, seen: Float[Array, "2 a"]) -> Array:
        return last.at[episode % window].set(seen)

    return _play(world, jnp.zeros((window, 2, world.arms)), scores, remember, key)


def _play(
    world: DriftingBandit,
    memory: Array,
    scores: Callable[..., Float[Array, " a"]],
    remember: Callable[..., Array],
    key: PRNGKeyArray,
) -> Earned:
    """The arm with the highest score in every episode; the warm-up's arms are those of the safe policy."""
    numbers = jnp.arange(1.0, WARMUP + EPISODES + 1)
    expected, safe = world.expected_rewards(numbers), world.performance(world.safe_policy, numbers)

    def turn(memory: Array, episode: Array) -> tuple[Array, Array]:
        arm_key, noise_key, safe_key = jax.random.split(jax.random.fold_in(key, episode), 3)
        chosen = jnp.argmax(scores(memory, episode, arm_key))
        arm = jnp.where(episode < WARMUP, world.safe_policy.sample(safe_key), chosen)
        reward = expected[episode, arm] + world.noise * jax.random.normal(noise_key)
        seen = jnp.stack([reward, jnp.ones_like(reward)])[:, None] * jax.nn.one_hot(arm, world.arms)
        return remember(memory, episode, seen), expected[episode, arm] - safe[episode]

    _, gain = jax.lax.scan(turn, memory, jnp.arange(numbers.size))
    return gain[WARMUP:], gain[WARMUP:] < 0


def loop(world: DriftingBandit, key: PRNGKeyArray) -> Earned:
    """The loop with its preset's own settings, as `simulate` runs it."""
    key, sign_key = jax.random.split(key)
    history = simulate(
        world, multiscale_settings(lookahead=WINDOW), key, sign_key,
        num_episodes=EPISODES, window=WINDOW, warmup=WARMUP,
    )  # fmt: skip
    gain = history.performance - history.safe_performance
    return gain, history.deployed & (gain < 0)


def best_in_hindsight(
    peer: Peer, choices: tuple[float, ...], world: DriftingBandit, runs: int
) -> tuple[float, float, float]:
    """Of the peer's choices, the one that earned most: improvement, share worse than safe, the choice."""
    keys = jax.random.split(jax.random.key(SEED), runs)
    results = [jax.jit(jax.vmap(partial(peer, world, choice)))(keys) for choice in choices]
    gains, shares = ([float(np.mean(one[i])) for one in results] for i in (0, 1))
    best = int(np.argmax(gains))
    return gains[best], shares[best], choices[best]


def oracle(world: DriftingBandit) -> float:
    """What the best arm of each episode earns over the safe policy."""
    numbers = jnp.arange(WARMUP + 1.0, WARMUP + EPISODES + 1)
    expected = world.expected_rewards(numbers)
    return float(jnp.mean(expected.max(axis=1) - world.performance(world.safe_policy, numbers)))


def main(runs: int, only: str) -> None:
    print(
        "| world | oracle | discounted Thompson (discount) | worse than safe % | sliding-window UCB (window) "
        "| worse % | loop | violation % | loop / Thompson | loop / UCB | s |\n|" + "---|" * 11
    )
    keys = jax.random.split(jax.random.key(SEED), runs)
    for name, world in worlds().items():
        if only not in name:
            continue
        sampled, sampled_worse, discount = best_in_hindsight(thompson, DISCOUNTS, world, max(runs, 200))
        bounded, bounded_worse, window = best_in_hindsight(sliding_ucb, WINDOWS, world, max(runs, 200))
        start = time.perf_counter()
        gain, worse = (np.asarray(one) for one in jax.jit(jax.vmap(partial(loop, world)))(keys))
        spent, earned = time.perf_counter() - start, float(gain.mean())
        spread = float(gain.mean(axis=1).std() / np.sqrt(max(runs - 1, 1)))
        print(
            f"| {name} | {oracle(world):.3f} | {sampled:.3f} ({discount:g}) | {100 * sampled_worse:.1f} "
            f"| {bounded:.3f} ({window:g}) | {100 * bounded_worse:.1f} | {earned:.3f} ± {spread:.3f} "
            f"| {100 * float(worse.mean()):.2f} | {earned / sampled:.2f} | {earned / bounded:.2f} "
            f"| {spent:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=32, help="of the loop in each world")
    parser.add_argument("--only", default="", help="worlds whose name contains this")
    given = parser.parse_args()
    main(given.runs, given.only)
