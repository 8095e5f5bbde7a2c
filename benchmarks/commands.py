"""How long does a person wait? Every command on logs of 3,000 and 200,000 rows, the first time and again.

    python benchmarks/commands.py [--rows 3000,200000] [COMMAND ...]

The first time is in an empty cache folder of its own; again is the run after it. Each is a new process.
Times are wall clock and CPU seconds; the ratio is that of wall clock to importing JAX in the same run.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

LOOKAHEAD = 200
QUICK, LONG = (8.0, 2.5, 6.0), (15.0, 5.0, 20.0)  # first, again, again on the large log: what we aim at


def make_log(path: Path, rows: int) -> None:
    """One-step episodes with two actions, two features, and a candidate whose advantage grows slowly."""
    rng = np.random.default_rng(0)
    times, action = np.arange(1, rows + 1), rng.integers(0, 2, rows)
    chance = 0.3 + 0.2 * action * times / rows
    columns = {
        "episode": times,
        "action": action,
        "behavior_prob": np.full(rows, 0.5),
        "new_prob": np.where(action == 1, 0.7, 0.3),
        "reward": (rng.random(rows) < chance).astype(float),
        "age": rng.normal(size=rows),
        "visits": rng.normal(size=rows),
    }
    pl.DataFrame(columns).write_parquet(path)


def commands(folder: Path, log: Path) -> dict[str, tuple[list[str], tuple[float, float, float]]]:
    """The arguments of each command, and its targets."""
    new, ahead = ["--candidate", "column:new_prob"], ["--lookahead", str(LOOKAHEAD)]
    record, page = folder / f"{log.stem}.json", folder / "page.html"
    gate = ["gate", str(log), *new, *ahead, "--record", str(record)]
    policy = ["--policy", "column:new_prob", *ahead]
    found = ["--features", "age,visits", "--out", str(folder / "found.json")]
    return {
        "check": (["check", str(log), *policy], QUICK),
        "evaluate": (["evaluate", str(log), *policy], QUICK),
        "gate": (gate, QUICK),
        "plan": (["plan", str(log), *new, *ahead], QUICK),
        "verify": (["verify", str(record), str(log)], QUICK),
        "gate --report": ([*gate, "--report", str(page)], LONG),
        "backtest": (["backtest", str(log), *new, *ahead], LONG),
        "improve": (["improve", str(log), *ahead, *found], LONG),
    }


def seconds(arguments: list[str], cache: Path | None = None) -> tuple[float, float]:
    """Wall clock and CPU of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["TIDEGATE_CACHE"] = "off" if cache is None else str(cache)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=False, capture_output=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def shown(times: tuple[float, float], unit: float, target: float) -> str:
    wall, processor = times
    mark = "" if wall <= target else f", target {target:g}"
    return f"{wall:.1f} s ({processor:.1f} CPU, {wall / unit:.1f} ×{mark})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3000,200000")
    parser.add_argument("commands", nargs="*")
    asked = parser.parse_args()
    jax = min(seconds(["-c", "import jax"]) for _ in range(3))[0]
    print(f"Importing JAX takes {jax:.2f} s.\n\n| rows | command | first ever | again |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in map(int, asked.rows.split(",")):
            log = folder / f"log{rows}.parquet"
            make_log(log, rows)
            seconds(["-m", "tidegate", *commands(folder, log)["gate"][0]], folder / "first")  # for `verify`
            for index, (command, (arguments, (first, again, large))) in enumerate(
                commands(folder, log).items()
            ):
                if asked.commands and command not in asked.commands:
                    continue
                cache = folder / f"cache{rows}-{index}"
                runs = [seconds(["-m", "tidegate", *arguments], cache) for _ in range(2)]
                small = rows <= 3_000
                limits = (first if small else np.inf, again if small else large)
                cells = (shown(one, jax, limit) for one, limit in zip(runs, limits, strict=True))
                print(f"| {rows:,} | {command} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
