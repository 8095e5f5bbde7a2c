"""Make a large log of logged decisions as Parquet: `python benchmarks/make_log.py OUT [EPISODES [STEPS]]`.

Episodes have STEPS steps on average, 10 unless given, from half to one and a half times as many; two actions
whose odds follow a context; a reward that drifts. The columns are those of `tidegate.logs.Columns`, with
two policies (`candidate_prob`, `safe_prob`) and an outcome to guard (`late`).
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EPISODES_PER_CHUNK = 100_000


def chunks(episodes: int, steps: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for first in range(0, episodes, EPISODES_PER_CHUNK):
        count = min(EPISODES_PER_CHUNK, episodes - first)
        lengths = rng.integers((steps + 1) // 2, 3 * steps // 2 + 1, count)
        rows = int(lengths.sum())
        episode = np.repeat(np.arange(first + 1, first + count + 1), lengths)
        starts = np.cumsum(lengths) - lengths
        context = rng.normal(size=rows).astype(np.float32)
        behavior, candidate, safe = (1 / (1 + np.exp(-slope * context)) for slope in (0.3, 0.5, 0.2))
        action = rng.random(rows) < behavior
        drift = np.cos(3 * episode / episodes)
        yield {
            "episode": episode,
            "step": (np.arange(rows) - np.repeat(starts, lengths)).astype(np.int16),
            "action": action.astype(np.int8),
            "behavior_prob": np.where(action, behavior, 1 - behavior),
            "reward": action * drift + 0.1 * rng.normal(size=rows),
            "candidate_prob": np.where(action, candidate, 1 - candidate),
            "safe_prob": np.where(action, safe, 1 - safe),
            "late": (rng.random(rows) < 0.05).astype(np.int8),
        }


def make_log(path: Path, episodes: int, steps: int = 10, seed: int = 0) -> int:
    writer, rows = None, 0
    for columns in chunks(episodes, steps, seed):
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer:
        writer.close()
    return rows


if __name__ == "__main__":
    target, counts = Path(sys.argv[1]), [int(one) for one in sys.argv[2:]]
    written = make_log(target, *(counts + [10_000_000, 10][len(counts) :]))
    print(f"{target}: {written:,} steps, {target.stat().st_size / 1e9:.2f} GB")
