"""How fast, and in how much memory, is a log read whose episodes lie scattered over many files?

    python benchmarks/scale.py FOLDER [rows [files]]

The rows are written to FOLDER once: episodes of five steps, shuffled over all files. Each case computes the
per-decision importance-sampling return of every episode, with a running product of ratios along its steps.
Peers, in the same run: DuckDB's window functions, polars' streaming engine, and pandas up to 5 million rows.
Every case runs in a fresh process, so that its peak memory is its own.
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS, FILES, STEPS = 20_000_000, 20, 5
PANDAS_ROWS = 5_000_000  # more do not fit beside everything else on a laptop
NAMES = ["episode", "step", "behavior_prob", "candidate_prob", "reward"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to do the work; it returns the number of episodes and the mean of their returns."""

    name: str
    run: Callable[[Path], tuple[int, float]]
    most_rows: float = float("inf")


def ours(folder: Path) -> tuple[int, float]:
    import numpy as np

    from tidegate.logs import Columns
    from tidegate.logs.engines import Threads
    from tidegate.logs.memory import memory_limit
    from tidegate.logs.rows import Part, open_rows

    def sums(part: Part) -> tuple[int, float]:
        returns = np.concatenate([_returns(table.frame) for table in part.tables()])
        return returns.size, float(returns.sum())

    with open_rows(folder, Columns(), names=NAMES, limit=memory_limit(), scratch=folder.parent) as rows:
        counts, totals = zip(*Threads().map(sums, rows.parts(NAMES)), strict=True)
    return sum(counts), sum(totals) / sum(counts)


def _returns(frame: Any) -> Any:
    import numpy as np

    episode, _, behavior, candidate, reward = (frame[name].to_numpy() for name in NAMES)
    starts = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    log_ratios = np.log(candidate) - np.log(behavior)
    running = np.cumsum(log_ratios)
    before = (running - log_ratios)[starts]
    weights = np.exp(running - np.repeat(before, np.diff(np.append(starts, episode.size))))
    return np.add.reduceat(weights * reward, starts)


def duckdb_windows(folder: Path) -> tuple[int, float]:
    import duckdb

    query = f"""
        with steps as (
            select episode, reward * exp(sum(ln(candidate_prob) - ln(behavior_prob))
                over (partition by episode order by step)) as weighted
            from '{folder}/*.parquet'
        ), returns as (select sum(weighted) as value from steps group by episode)
        select count(*), avg(value) from returns"""
    row = duckdb.sql(query).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


def polars_streaming(folder: Path) -> tuple[int, float]:
    import polars as pl

    ratios = (pl.col("candidate_prob").log() - pl.col("behavior_prob").log()).sort_by("step")
    value = (ratios.cum_sum().exp() * pl.col("reward").sort_by("step")).sum()
    returns = pl.scan_parquet(folder / "*.parquet").group_by("episode").agg(value.alias("value"))
    answer = returns.select(pl.len(), pl.col("value").mean()).collect(engine="streaming").row(0)
    return int(answer[0]), float(answer[1])


def pandas_groups(folder: Path) -> tuple[int, float]:
    import numpy as np
    import pandas as pd

    frame = pd.read_parquet(folder, columns=NAMES).sort_values(["episode", "step"])
    frame["log_ratio"] = np.log(frame["candidate_prob"]) - np.log(frame["behavior_prob"])
    running = frame.groupby("episode", sort=False)["log_ratio"].cumsum()
    frame["weighted"] = np.exp(running) * frame["reward"]
    returns = frame.groupby("episode", sort=False)["weighted"].sum()
    return len(returns), float(returns.mean())


CASES = [
    Case("tidegate", ours),
    Case("DuckDB windows", duckdb_windows),
    Case("polars streaming group_by", polars_streaming),
    Case("pandas groupby", pandas_groups, PANDAS_ROWS),
]


def write(folder: Path, rows: int, files: int) -> None:
    import numpy as np
    import polars as pl

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, chosen in enumerate(np.array_split(rng.permutation(rows), files)):
        behavior, candidate = rng.uniform(0.1, 1.0, (2, chosen.size))
        columns = {
            "episode": chosen // STEPS,
            "step": (chosen % STEPS).astype(np.int16),
            "action": rng.integers(0, 5, chosen.size).astype(np.int8),
            "behavior_prob": behavior,
            "candidate_prob": candidate,
            "reward": rng.normal(size=chosen.size).round(3),
        }
        pl.DataFrame(columns).write_parquet(folder / f"part-{number:04d}.parquet")


def in_fresh_process(case: Case, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, str(folder), "--case", case.name]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def compare(folder: Path, rows: int, files: int) -> None:
    if not folder.exists():
        write(folder, rows, files)
    print(f"{rows:,} rows shuffled over {files} files\n")
    print("| | s | CPU-s | million rows/s | peak memory, MB | episodes | mean return |\n|" + "---|" * 7)
    for case in CASES:
        if rows <= case.most_rows:
            one = in_fresh_process(case, folder)
            speed = rows / one["seconds"] / 1e6
            print(
                f"| {case.name} | {one['seconds']:.1f} | {one['cpu']:.1f} | {speed:.2f} "
                f"| {one['memory']:.0f} | {one['episodes']:,} | {one['mean']:.12g} |",
                flush=True,
            )


def measured(case: Case, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    episodes, mean = case.run(folder)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss / 1000,
        "episodes": episodes,
        "mean": mean,
    }


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    if rest[:1] == ["--case"]:
        (chosen,) = (case for case in CASES if case.name == rest[1])
        print(json.dumps(measured(chosen, Path(where))))
    else:
        counts = [int(one) for one in rest]
        compare(Path(where), *(counts + [ROWS, FILES][len(counts) :]))
