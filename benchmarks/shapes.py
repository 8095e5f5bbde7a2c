"""Advantages that fall, cross zero, swing, jump, rise or stay: how often does the gate open, rightly or not?

    python benchmarks/shapes.py --logs 200

A log has two actions, which the safe policy takes with equal odds and the candidate with 9 to 1; rewards are
0 or 1. The candidate's advantage has a size of .05 or .10 in logs of 1,000 episodes, and in others as much in
standard errors. Peer, in the same run: a paired z-test over the whole log, which trusts the world to stand
still. Options set the prior probabilities of the trend models: `--broken 0.2`, say, sees jumps sooner, and is
paid for with power where nothing breaks.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tidegate.comparison import Multiscale
from tidegate.experiments.many_gates import OneStepLogs, gate_many
from tidegate.forecast import ForecastSettings
from tidegate.models import TrendModels
from tidegate.presets import multiscale_forecast

Array = npt.NDArray[np.float64]
GREEDY = 0.9
SPREAD = 2 * GREEDY - 1  # an advantage of SPREAD · δ if the actions' means differ by 2δ
SIZES = (0.05, 0.10)
CELLS = ((300, 50), (1_000, 200), (3_000, 50), (3_000, 1_000))
LAST = 0.03  # of the log that a jump leaves
SEASONS = 2.0  # in a log
Z = 1.6449

# The advantage, in its size, at time x: 0 at the start of the log and 1 at its end.
SHAPES: dict[str, Callable[[Array], Array]] = {
    "falls to 0 at the end, and on": lambda x: 1 - x,
    "crosses zero at 3/4": lambda x: 1 - x / 0.75,
    "season, at its top at the end": lambda x: np.cos(2 * np.pi * SEASONS * (x - 1)),
    "season, past its top": lambda x: np.cos(2 * np.pi * SEASONS * (x - 1) + 0.9),
    "jumps to the opposite": lambda x: np.where(x > 1 - LAST, -1.0, 1.0),
    "rises from − to +": lambda x: 2 * x - 1,
    "is steady": np.ones_like,
    "is nothing": np.zeros_like,
}


def draw(
    shape: Callable[[Array], Array], size: float, n: int, logs: int, rng: np.random.Generator
) -> OneStepLogs:
    """Logs whose advantage has this shape."""
    gap = size / SPREAD * shape(np.arange(1, n + 1) / n)
    first = rng.random((logs, n)) < 0.5
    rewards = rng.random((logs, n)) < 0.5 + np.where(first, gap, -gap)
    candidate = np.where(first, GREEDY, 1 - GREEDY)
    return OneStepLogs(rewards.astype(float), np.full((logs, n), 0.5), candidate)


def naive(logs: OneStepLogs) -> npt.NDArray[np.bool_]:
    """The z-test: its mean reward is the baseline."""
    difference = (logs.candidate / logs.behavior - 1) * (
        logs.rewards - logs.rewards.mean(axis=1, keepdims=True)
    )
    error = difference.std(axis=1, ddof=1) / np.sqrt(difference.shape[1])
    opens: npt.NDArray[np.bool_] = difference.mean(axis=1) > Z * error
    return opens


def table(cells: tuple[tuple[int, int], ...], logs: int, seed: int, models: TrendModels) -> None:
    print("| advantage | n | lookahead | its mean to come | gate % | z-test % |\n|---|---|---|---|---|---|")
    for n, lookahead in cells:
        settings = replace(multiscale_forecast(ForecastSettings(lookahead)), test=Multiscale(models))
        for index, (name, shape) in enumerate(SHAPES.items()):
            found: list[tuple[float, float]] = []
            for which, size in enumerate(SIZES):
                rng = np.random.default_rng([seed, n, lookahead, index, which])
                drawn = draw(shape, size * np.sqrt(1_000 / n), n, logs, rng)
                found.append((gate_many(drawn, lookahead, settings).deploys.mean(), naive(drawn).mean()))
            ahead = shape(1 + np.arange(1, lookahead + 1) / n).mean()
            rates = (" / ".join(f"{100 * rate:.0f}" for rate in rates) for rates in zip(*found, strict=True))
            print(f"| {name} | {n:,} | {lookahead:,} | {ahead:+.2f} | {' | '.join(rates)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=200, help="logs of each shape and size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", nargs="+", help="as in 1000:200")
    for part in ("still", "broken", "smooth", "level", "season"):
        parser.add_argument(
            f"--{part}", type=float, help=f"prior of this part (default {getattr(TrendModels(), part)})"
        )
    given = parser.parse_args()
    changed = {
        name: value
        for name, value in vars(given).items()
        if value is not None and hasattr(TrendModels(), name)
    }
    cells = CELLS if given.cells is None else tuple(tuple(map(int, one.split(":"))) for one in given.cells)
    table(cells, given.logs, given.seed, replace(TrendModels(), **changed))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
