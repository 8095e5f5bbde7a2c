"""How often does a watch roll back without harm, and how soon with it?

    python benchmarks/watch.py
    python benchmarks/watch.py --only "complaints, 5 in 100" --seed 1

1,000 runs of 5,000 episodes in each world, α = 0.05, for the reward alone and with two guardrails that share
α. Intervals are those of Clopper and Pearson at 95 %. Below, the median episode at which a harm of half a
standard deviation is seen.
"""

import argparse
import time

import numpy as np

from tidegate.experiments.watches import (
    NEVER,
    WatchedWorld,
    harms,
    rate_interval,
    rollbacks,
    watch_with,
    worlds,
)

GUARDRAILS = (0, 2)
SEED = 2021


def rates(world: WatchedWorld, runs: int, episodes: int, seed: int) -> str:
    cells = []
    for guardrails in GUARDRAILS:
        count = int(np.sum(rollbacks(watch_with(guardrails), world, runs, episodes, seed) < NEVER))
        low, high = rate_interval(count, runs)
        cells.append(f"{count / runs:.1%} ({low:.1%} to {high:.1%})")
    return f"| {world.name} | {' | '.join(cells)} |"


def delays(world: WatchedWorld, runs: int, episodes: int, seed: int) -> str:
    cells = []
    for guardrails in GUARDRAILS:
        found = rollbacks(watch_with(guardrails), world, runs, episodes, seed)
        quarter, half, most = np.quantile(found.astype(float), [0.25, 0.5, 0.9], method="lower")
        cells.append(f"{half:.0f} ({quarter:.0f}, {most:.0f})")
    return f"| {world.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--episodes", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="worlds whose name holds this")
    asked, began = parser.parse_args(), time.perf_counter()
    print("| no harm: ever rolled back | reward alone | with two guardrails |\n|---|---|---|")
    for world in worlds():
        if asked.only in world.name:
            print(rates(world, asked.runs, asked.episodes, asked.seed), flush=True)
    print("\n| harm: median episode (quarter, nine of ten) | reward alone | two guardrails |\n|---|---|---|")
    for world in harms():
        if asked.only in world.name:
            print(delays(world, asked.runs, 1_000, asked.seed), flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
