"""Make a large log of logged decisions as Parquet: `python benchmarks/make_log.py OUT [EPISODES]`.

Episodes have 5 to 15 steps, 10 on average; two actions whose odds follow a context; a reward that drifts.
The columns are the defaults of `tidegate.logs.Columns`, and `candidate_prob`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EPISODES_PER_CHUNK = 100_000


def chunks(episodes: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for first in range(0, episodes, EPISODES_PER_CHUNK):
        count = min(EPISODES_PER_CHUNK, episodes - first)
        lengths = rng.integers(5, 16, count)
        rows = int(lengths.sum())
        episode = np.repeat(np.arange(first + 1, first + count + 1), lengths)
        starts = np.cumsum(lengths) - lengths
        context = rng.normal(size=rows).astype(np.float32)
        behavior, candidate = (1 / (1 + np.exp(-slope * context)) for slope in (0.3, 0.5))
        action = rng.random(rows) < behavior
        drift = np.cos(3 * episode / episodes)
        yield {
            "episode": episode,
            "step": (np.arange(rows) - np.repeat(starts, lengths)).astype(np.int16),
            "action": action.astype(np.int8),
            "behavior_prob": np.where(action, behavior, 1 - behavior),
            "reward": action * drift + 0.1 * rng.normal(size=rows),
            "candidate_prob": np.where(action, candidate, 1 - candidate),
        }


def make_log(path: Path, episodes: int, seed: int = 0) -> int:
    writer, rows = None, 0
    for columns in chunks(episodes, seed):
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer:
        writer.close()
    return rows


if __name__ == "__main__":
    target = Path(sys.argv[1])
    steps = make_log(target, int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)
    print(f"{target}: {steps:,} steps, {target.stat().st_size / 1e9:.2f} GB")
