"""How fast, and in how much memory, is a log read that does not fit into memory?

    python benchmarks/scale.py ordered FOLDER [episodes [steps]]  10 million episodes of ten steps, in order
    python benchmarks/scale.py shuffled FOLDER [rows [files]]     20 million rows, shuffled over 20 files
    python benchmarks/scale.py episodes FOLDER                    10⁴ to 10⁷ episodes of one step

What is missing in FOLDER is written there first. *ordered* runs `gate` with two policies and a guardrail from
end to end. Its peers only compute what it starts with: the per-decision importance-sampling returns of both
policies, of the reward and of the outcome. *shuffled* compares just these returns, of one policy. Peers, in
the same run: DuckDB's window functions, polars' streaming engine, and pandas where it fits. *episodes* runs
the gate twice in a process: the first time programs are compiled, the second time they are there.
Every case runs in a fresh process, so that its peak memory is its own. Its packages are imported before the
clock starts, ours and the peers' alike.
"""

import dataclasses
import importlib
import itertools
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPISODES, ROWS, FILES, STEPS = 10_000_000, 20_000_000, 20, 5
COUNTS = (10_000, 100_000, 1_000_000, 10_000_000)
LOOKAHEAD = 1000
PANDAS_ROWS = 5_000_000  # more do not fit beside everything else on a laptop
NAMES = ["episode", "step", "behavior_prob", "candidate_prob", "reward"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to do the work; it returns the number of episodes and the mean of the candidate's returns."""

    name: str
    run: Callable[[Path], tuple[int, float]]
    packages: tuple[str, ...]
    most_rows: float = float("inf")


def gate(log: Path) -> tuple[int, float]:
    from tidegate import commands

    record = commands.gate(
        log,
        candidate="column:candidate_prob",
        safe="column:safe_prob",
        guardrails=["late:0.5"],
        candidate_from="elsewhere",
        lookahead=LOOKAHEAD,
    )
    print(record.headline, file=sys.stderr)
    candidate = record.decision.candidate
    return candidate.num_episodes, float(candidate.returns.mean())


def duckdb_gate(log: Path) -> tuple[int, float]:
    import duckdb

    running = "exp(sum(ln({}_prob) - ln(behavior_prob)) over (partition by episode order by step))"
    query = f"""
        with steps as (
            select episode, reward, late,
                {running.format("candidate")} as new, {running.format("safe")} as old
            from '{log}'
        ), returns as (
            select sum(new * reward) as new, sum(old * reward) as old, sum(new * late) as new_late,
                sum(old * late) as old_late
            from steps group by episode)
        select count(*), avg(new), avg(old), avg(new_late), avg(old_late) from returns"""
    row = duckdb.connect().execute(query).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


def polars_gate(log: Path) -> tuple[int, float]:
    import polars as pl

    def weights(name: str) -> pl.Expr:
        return (pl.col(name).log() - pl.col("behavior_prob").log()).cum_sum().exp()

    sums = [
        (weights(f"{policy}_prob") * pl.col(outcome)).sum().alias(f"{policy} {outcome}")
        for policy in ("candidate", "safe")
        for outcome in ("reward", "late")
    ]
    returns = pl.scan_parquet(log).group_by("episode").agg(sums)
    means = returns.select(pl.len(), pl.exclude("episode").mean())
    answer = means.collect(engine="streaming").row(0)
    return int(answer[0]), float(answer[1])


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
    row = duckdb.connect().execute(query).fetchone()
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


OURS = ("numpy", "tidegate.commands.gating", "tidegate.logs.rows")
ORDERED = [
    Case("tidegate gate", gate, OURS),
    Case("DuckDB windows, returns alone", duckdb_gate, ("duckdb",)),
    Case("polars streaming group_by, returns alone", polars_gate, ("polars",)),
]
SHUFFLED = [
    Case("tidegate", ours, OURS),
    Case("DuckDB windows", duckdb_windows, ("duckdb",)),
    Case("polars streaming group_by", polars_streaming, ("polars",)),
    Case("pandas groupby", pandas_groups, ("numpy", "pandas"), PANDAS_ROWS),
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


def in_fresh_process(*arguments: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", *map(str, arguments)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def compare(cases: list[Case], log: Path, rows: int) -> None:
    print("| | s | CPU-s | million rows/s | peak memory, MB | episodes | mean return |\n|" + "---|" * 7)
    for case in cases:
        if rows <= case.most_rows:
            one = in_fresh_process(log, case.name)
            speed = rows / one["seconds"] / 1e6
            print(
                f"| {case.name} | {one['seconds']:.1f} | {one['cpu']:.1f} | {speed:.2f} "
                f"| {one['memory']:.0f} | {one['episodes']:,} | {one['mean']:.12g} |",
                flush=True,
            )


def ordered(folder: Path, episodes: int = EPISODES, steps: int = 10) -> None:
    import polars as pl

    log = written_log(folder, episodes, steps)
    rows = int(pl.scan_parquet(log).select(pl.len()).collect().item())
    print(f"{rows:,} rows of {episodes:,} episodes in order\n")
    compare(ORDERED, log, rows)


def shuffled(folder: Path, rows: int = ROWS, files: int = FILES) -> None:
    log = folder / f"shuffled-{rows}-{files}"
    if not log.exists():
        write(log, rows, files)
    print(f"{rows:,} rows shuffled over {files} files\n")
    compare(SHUFFLED, log, rows)


def growing(folder: Path) -> None:
    """How the cost of a gate grows with the number of episodes."""
    print("| episodes | first gate, s | second, s | peak memory, MB |\n|---|---|---|---|")
    spent = []
    for count in COUNTS:
        one = in_fresh_process(written_log(folder, count, 1), "twice")
        spent.append(one["again"])
        cells = f"{one['first']:.2f} | {one['again']:.2f} | {one['memory']:.0f}"
        print(f"| {count:,} | {cells} |", flush=True)
    slopes = [math.log10(b / a) for a, b in itertools.pairwise(spent)]
    overall = math.log(spent[-1] / spent[0]) / math.log(COUNTS[-1] / COUNTS[0])
    told = ", ".join(f"{one:.2f}" for one in slopes)
    print(f"\nslope of log time on log episodes, second gate: {overall:.2f} ({told})")


def written_log(folder: Path, episodes: int, steps: int) -> Path:
    from make_log import make_log

    log = folder / f"ordered-{episodes}-{steps}.parquet"
    if not log.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_log(log, episodes, steps)
    return log


def measured(case: Case, log: Path) -> dict[str, Any]:
    for package in case.packages:
        importlib.import_module(package)
    start = time.perf_counter()
    episodes, mean = case.run(log)
    return {"seconds": time.perf_counter() - start, "episodes": episodes, "mean": mean, **used()}


def twice(log: Path) -> dict[str, Any]:
    first, again = measured(ORDERED[0], log), measured(ORDERED[0], log)
    return {"first": first["seconds"], "again": again["seconds"], **used()}


def used() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1000}


STUDIES: dict[str, Callable[..., None]] = {"ordered": ordered, "shuffled": shuffled, "episodes": growing}

if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "--case":
        by_name = {case.name: case for case in (*ORDERED, *SHUFFLED)}
        found = twice(Path(where)) if rest == ["twice"] else measured(by_name[rest[0]], Path(where))
        print(json.dumps(found))
    else:
        STUDIES[what](Path(where), *map(int, rest))
