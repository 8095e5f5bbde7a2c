"""How often is a loop wrong at least once, if no candidate is ever better?

    python benchmarks/repeated_tests.py

The world is the recommender, but every item is worth the same at every time, and that worth drifts. So
all policies perform alike: "not better" is true of every candidate, just so, and each DEPLOY is wrong.
Whether a run has been wrong by its j-th test depends on nothing that happens after the first wrong
deployment, and until then the safe policy runs. So the safe policy runs throughout, the p-value of each
test is kept, and one simulation serves every budget. Intervals are those of Clopper and Pearson at 95 %.
"""

import argparse
import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float
from scipy.stats import beta

from tidegate import Paired, Reason, SpinSettings, paper_settings
from tidegate.arrays import ArrayLike, replace_at
from tidegate.gates.spending import (
    EvenSpending,
    FlatLevel,
    HarmonicSpending,
    OBrienFlemingSpending,
    PocockSpending,
)
from tidegate.loop import Spending, SpinState, initial_state, observe, spin_step
from tidegate.presets import multiscale_settings
from tidegate.simulators.recommender import Recommender

ALPHA, WINDOW, BATCH, SEED = 0.05, 4, 32, 2020

Flags = npt.NDArray[np.bool_]


class EqualItems(Recommender):
    """The recommender with the first item's season for all of them."""

    def expected_rewards(self, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, "n items"]:
        first = super().expected_rewards(episode_numbers)[:, :1]
        return jnp.tile(first, (1, self.arms))


def loops() -> dict[str, SpinSettings]:
    """The published test (two bounds, no level of its own) and the paired one in the same loop; ours."""
    published = paper_settings(lookahead=WINDOW)
    forecast = dataclasses.replace(published.forecast, test=Paired(published.forecast.test.shape))
    return {
        "published": published,
        "paired": dataclasses.replace(published, forecast=forecast),
        "multiscale": multiscale_settings(lookahead=WINDOW),
    }


def budgets(tests: int) -> list[Spending]:
    """What is compared."""
    return [
        FlatLevel(ALPHA),
        EvenSpending(ALPHA, tests),
        HarmonicSpending(ALPHA),
        PocockSpending(ALPHA, tests),
        OBrienFlemingSpending(ALPHA, tests),
    ]


def simulated_tests(
    settings: SpinSettings, warmup: int, tests: int, key: Any, sign_key: Any
) -> tuple[Array, Array]:
    """Does each test pass at level α, and with which p-value? The published test has none: 0."""
    world = EqualItems.at_speed(1)
    safe = world.safe_policy
    warm_key, split_key, key = jax.random.split(key, 3)
    first = world.collect(safe, jnp.arange(1.0, warmup + 1), warm_key)
    state = initial_state(settings, safe, first, warmup + tests * WINDOW)
    state = observe(settings, state, first, split_key)

    def turn(state: SpinState, index: Array) -> tuple[SpinState, tuple[Array, Array]]:
        collect_key, step_key = jax.random.split(jax.random.fold_in(key, index))
        numbers = warmup + index * WINDOW + jnp.arange(1.0, WINDOW + 1)
        window = world.collect(safe, numbers, collect_key)
        signs = jax.random.fold_in(sign_key, index)
        state, outcome = spin_step(settings, state, window, step_key, signs)
        state = replace_at(lambda one: one.deployed, state, jnp.zeros((), bool))
        p_value = jnp.zeros(()) if outcome.p_value is None else outcome.p_value
        return state, (outcome.reason == Reason.BETTER, p_value)

    _, found = jax.lax.scan(turn, state, jnp.arange(tests))
    return found


def run_all(settings: SpinSettings, warmup: int, tests: int, runs: int) -> tuple[Flags, npt.NDArray[Any]]:
    """Runs × tests. Runs of a batch share the bootstrap's signs: one product for all of them."""

    def run(key: Any, sign_key: Any) -> tuple[Array, Array]:
        return simulated_tests(settings, warmup, tests, key, sign_key)

    compiled = jax.jit(jax.vmap(run, in_axes=(0, None)))

    def batch(number: int) -> tuple[npt.NDArray[Any], ...]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(SEED), number), BATCH + 1)
        return tuple(np.asarray(one) for one in compiled(keys[1:], keys[0]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(batch, range(-(-runs // BATCH))))
    passed, p_values = (np.concatenate(one)[:runs] for one in zip(*parts, strict=True))
    return passed, p_values


def share(hits: npt.NDArray[Any]) -> str:
    """A percentage with its exact interval."""
    count, total = int(hits.sum()), hits.size
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{100 * count / total:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=320)
    parser.add_argument("--tests", type=int, default=250, help="windows, with a test after each")
    parser.add_argument("--warmup", type=int, nargs="+", default=[20, 400])
    parser.add_argument("--loop", choices=list(loops()), nargs="+", default=["published", "paired"])
    options = parser.parse_args()
    runs, tests = options.runs, options.tests
    marks = [*(one for one in (10, 50) if one < tests), tests]
    print(f"{runs} runs, α = {ALPHA}: % with a wrong deployment within so many tests\n")
    print(f"| test | first test after | budget | {' | '.join(map(str, marks))} | % of all tests |")
    print(f"|---|---|---|{'---|' * len(marks)}---|")
    start = time.perf_counter()
    for name in options.loop:
        settings = loops()[name]
        for warmup in options.warmup:
            passed, p_values = run_all(settings, warmup, tests, runs)
            for budget in budgets(tests) if settings.forecast.test.has_p_value else [FlatLevel(ALPHA)]:
                levels = np.asarray(budget.level(np.arange(1, tests + 1)))
                wrong = passed & (p_values <= levels)
                cells = [share(np.any(wrong[:, :mark], axis=1)) for mark in marks]
                episodes = warmup + WINDOW
                print(
                    f"| {name} | {episodes} episodes | {type(budget).__name__} "
                    f"| {' | '.join(cells)} | {100 * wrong.mean():.2f} |",
                    flush=True,
                )
    print(f"\n{time.perf_counter() - start:.0f} s on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
