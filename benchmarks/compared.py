"""The same drifting logs through Tidegate's gate, obp's doubly robust estimate and an A/B test.

    python benchmarks/compared.py --obp .venv-obp/bin/python

In each world, every episode is run by a fair coin under the safe policy or under the candidate. So one log
serves an A/B test (Welch's t-test of what was earned under either) as well as off-policy estimates. What the
candidate truly earns more in the episodes after the log is known. `make compared` makes obp an environment of
its own; without `--obp`, its rows are left out.
"""

import argparse
import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

import tidegate

Floats = npt.NDArray[np.float64]
SAFE, CANDIDATE = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
BEHAVIOR = (SAFE + CANDIDATE) / 2
EPISODES, LOOKAHEAD, NOISE, ALPHA = 1000, 100, 0.5, 0.05
OBP = Path(__file__).with_name("compared_obp.py")
Movement = Callable[[Floats, np.random.Generator], Floats]


def still(time: Floats, rng: np.random.Generator) -> Floats:
    return np.full_like(time, rng.uniform(-1, 1))


def line(time: Floats, rng: np.random.Generator) -> Floats:
    start, end = rng.uniform(-1, 1, 2)
    return np.asarray(start + (end - start) * time)


def turn(time: Floats, rng: np.random.Generator) -> Floats:
    """The better policy changes in the second half of the log."""
    size, when = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 1), rng.uniform(0.5, 0.9)
    return np.asarray(size * np.tanh(6 * (when - time)))


def season(time: Floats, rng: np.random.Generator) -> Floats:
    return np.asarray(np.sin(2 * np.pi * (rng.uniform(1.5, 3) * time + rng.uniform())))


MOVEMENTS: dict[str, Movement] = {"stands still": still, "line": line, "turns": turn, "season": season}


@dataclasses.dataclass(frozen=True)
class World:
    """A log, and what the candidate earns more per episode in those that follow."""

    movement: str
    log: pl.DataFrame
    advantage: float


def world(movement: str, seed: int) -> World:
    """The third offer is worth more than the first by what moves; policies differ in these two."""
    rng = np.random.default_rng([seed, *movement.encode()])
    time = np.arange(EPISODES + LOOKAHEAD) / EPISODES
    moves = 0.6 * MOVEMENTS[movement](time, rng)
    means = np.stack([1 - moves / 2, np.full_like(moves, 0.9), 1 + moves / 2], axis=1)
    chosen = rng.integers(0, 2, EPISODES)
    draws = rng.random(EPISODES)[:, None]
    action = (draws > np.where(chosen[:, None], CANDIDATE, SAFE).cumsum(axis=1)[:, :-1]).sum(axis=1)
    reward = means[np.arange(EPISODES), action] + NOISE * rng.normal(size=EPISODES)
    columns = {
        "episode": np.arange(EPISODES),
        "arm": chosen,
        "action": action,
        "behavior_prob": BEHAVIOR[action],
        "safe_prob": SAFE[action],
        "new_prob": CANDIDATE[action],
        "reward": reward,
    }
    return World(movement, pl.DataFrame(columns), float((means[EPISODES:] @ (CANDIDATE - SAFE)).mean()))


def gate_switches(one: World) -> bool:
    record = tidegate.gate(
        one.log.drop("arm"),
        candidate="column:new_prob",
        safe="column:safe_prob",
        candidate_from="elsewhere",
        lookahead=LOOKAHEAD,
        alpha=ALPHA,
    )
    return record.deploys


def welch_switches(one: World) -> bool:
    arms = [one.log.filter(pl.col("arm") == arm)["reward"].to_numpy() for arm in (1, 0)]
    return bool(stats.ttest_ind(*arms, equal_var=False, alternative="greater").pvalue < ALPHA)


def obp_switches(worlds: Sequence[World], python: Path) -> tuple[list[bool], list[bool]]:
    """By obp's point estimates and interval of the candidate, and by intervals that do not overlap."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.npz"
        action, reward = (np.stack([one.log[name] for one in worlds]) for name in ("action", "reward"))
        np.savez(path, action=action, reward=reward, behavior=BEHAVIOR, safe=SAFE, candidate=CANDIDATE)
        command = [python, OBP, path]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    simple = [one["candidate"]["lower"] > one["safe"]["point"] for one in found]
    apart = [one["candidate"]["lower"] > one["safe"]["upper"] for one in found]
    return simple, apart


def rate(hits: Sequence[bool]) -> str:
    """A percentage with its binomial standard error."""
    if not hits:
        return "–"
    share = np.mean(hits)
    return f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / len(hits)):.1f}"


def table(worlds: Sequence[World], rules: dict[str, list[bool]]) -> str:
    """One line for each rule and movement: wrong switches, right ones, and what following it earns."""
    lines = [
        "| worlds | rule | switches though worse, % | switches if better, % | gained |",
        "|---|---|---|---|---|",
    ]
    for movement in (*MOVEMENTS, "all"):
        rows = [number for number, one in enumerate(worlds) if movement in (one.movement, "all")]
        truths = np.array([worlds[row].advantage for row in rows])
        for rule, switches in rules.items():
            switched = np.array([switches[row] for row in rows])
            worse, better = switched[truths <= 0], switched[truths > 0]
            gained = (switched * truths).sum() / truths[truths > 0].sum()
            where = f"{movement} ({len(worse)} worse, {len(better)} better)"
            lines.append(f"| {where} | {rule} | {rate(list(worse))} | {rate(list(better))} | {gained:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=60, help="of each movement")
    parser.add_argument("--obp", type=Path, help="the Python of an environment that has obp")
    options = parser.parse_args()
    worlds = [world(movement, seed) for movement in MOVEMENTS for seed in range(options.worlds)]
    rules = {"Welch's t-test": list(map(welch_switches, worlds))}
    if options.obp is not None:
        simple, apart = obp_switches(worlds, options.obp)
        rules |= {"obp, lower end above the safe estimate": simple, "obp, intervals apart": apart}
    rules["Tidegate's gate"] = list(map(gate_switches, worlds))
    print(table(worlds, rules))


if __name__ == "__main__":
    main()
