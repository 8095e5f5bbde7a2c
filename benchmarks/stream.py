"""How fast, and in how much memory, is a log of 100 million steps evaluated by streaming?

    python benchmarks/make_log.py log.parquet 10000000
    python benchmarks/stream.py log.parquet

Peer, in the same run on the first tenth of the rows: pandas, with a groupby for the running ratios and one
for the returns. Each side runs in a fresh process, so that its peak memory is its own.
"""

import json
import resource
import subprocess
import sys
import time
from typing import Any

LOOKAHEAD, DRAWS = 1000, 500


def ours(path: str) -> dict[str, Any]:
    from tidegate import ForecastSettings
    from tidegate.forecast import forecast_returns
    from tidegate.logs import stream_returns

    start = time.perf_counter()
    streamed = stream_returns(path, ["column:candidate_prob"])
    read = time.perf_counter()
    policy = streamed.policies[0]
    settings = ForecastSettings(lookahead=LOOKAHEAD, draws=DRAWS)
    forecast = forecast_returns(policy.returns, streamed.episode_numbers, settings, ratios=policy.ratios)
    end = time.perf_counter()
    return {
        "steps": streamed.num_steps,
        "episodes": streamed.num_episodes,
        "returns": read - start,
        "forecast": end - read,
        "mean": float(policy.returns[: streamed.num_episodes // 10].mean()),
        "sentence": str(forecast),
    }


def pandas_tenth(path: str) -> dict[str, Any]:
    import numpy as np
    import pandas as pd
    import pyarrow.parquet as pq

    start = time.perf_counter()
    file = pq.ParquetFile(path)
    groups = list(range(max(file.num_row_groups // 10, 1)))
    names = ["episode", "step", "behavior_prob", "candidate_prob", "reward"]
    frame = pd.DataFrame(file.read_row_groups(groups, columns=names).to_pandas())
    logs = np.log(frame[["candidate_prob", "behavior_prob"]].astype(float))
    frame["log_ratio"] = logs["candidate_prob"] - logs["behavior_prob"]
    running = frame.groupby("episode", sort=False)["log_ratio"].cumsum()
    frame["weighted"] = np.exp(running) * frame["reward"]
    returns = frame.groupby("episode", sort=False)["weighted"].sum()
    spent = time.perf_counter() - start
    return {
        "steps": len(frame),
        "episodes": len(returns),
        "returns": spent,
        "mean": float(returns.mean()),
    }


def in_fresh_process(side: str, path: str) -> dict[str, Any]:
    command = [sys.executable, __file__, path, side]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def compare(path: str) -> None:
    mine, peer = (in_fresh_process(side, path) for side in ("ours", "pandas"))
    spent = mine["returns"] + mine["forecast"]
    print(mine["sentence"])
    print("\n| | steps | s | million steps/s | peak memory, GiB |\n|---|---|---|---|---|")
    for name, steps, seconds, memory in (
        ("tidegate: returns", mine["steps"], mine["returns"], None),
        (f"tidegate: forecast, B = {DRAWS}", mine["steps"], mine["forecast"], None),
        ("tidegate: both", mine["steps"], spent, mine["memory"]),
        ("pandas groupby: returns of a tenth", peer["steps"], peer["returns"], peer["memory"]),
    ):
        peak = "" if memory is None else f"{memory:.2f}"
        print(f"| {name} | {steps:,} | {seconds:.2f} | {steps / seconds / 1e6:.2f} | {peak} |")
    speed = (mine["steps"] / mine["returns"]) / (peer["steps"] / peer["returns"])
    per_step = (peer["memory"] / peer["steps"]) / (mine["memory"] / mine["steps"])
    print(f"\nreturns: {speed:.1f} × the speed of pandas; {per_step:.1f} × less memory per step")
    if mine["episodes"] // 10 == peer["episodes"]:
        print(f"mean return of the first tenth: {mine['mean']:.12g}, pandas {peer['mean']:.12g}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        answer = (ours if sys.argv[2] == "ours" else pandas_tenth)(sys.argv[1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({**answer, "memory": peak}))
    else:
        compare(sys.argv[1])
