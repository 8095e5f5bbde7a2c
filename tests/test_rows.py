"""A log that is read a part at a time is the log that is read whole, however it is cut and shuffled."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tidegate.logs import Columns, read_log
from tidegate.logs.engines import Threads
from tidegate.logs.index import index_of, step_order
from tidegate.logs.keys import episode_keys
from tidegate.logs.memory import memory_limit
from tidegate.logs.rows import LogRows, open_rows
from tidegate.logs.table import Table

NAMES = ["episode", "step", "action", "behavior_prob", "reward"]
LIMIT = memory_limit("1GB")


def steps(episodes: int, seed: int = 0) -> pl.DataFrame:
    """Episodes of many lengths, in order."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, episodes)
    rows = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    return pl.DataFrame(
        {
            "episode": np.repeat(np.arange(episodes) * 3 + 5, lengths),
            "step": np.arange(rows) - np.repeat(starts, lengths),
            "action": rng.integers(0, 2, rows),
            "behavior_prob": rng.uniform(0.1, 1.0, rows),
            "reward": rng.normal(size=rows),
            "visit": [f"visit {i}" for i in np.repeat(rng.permutation(episodes), lengths)],
            "hour": np.repeat(rng.permutation(episodes), lengths).astype(float),
        }
    )


FRAME = steps(300)


def written(frame: pl.DataFrame, folder: Path, cuts: Sequence[int] = ()) -> Path:
    """The rows as Parquet files, cut at these rows."""
    folder.mkdir()
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, frame.height], strict=True)):
        frame[start:stop].write_parquet(folder / f"part-{number:03d}.parquet", row_group_size=50)
    return folder


def together(rows: LogRows, names: Sequence[str] = NAMES, chunk_rows: int = 100) -> list[Table]:
    """All tables; each episode is in one of them only."""
    tables = list(rows.tables(names, chunk_rows=chunk_rows))
    keys = [np.unique(episode_keys(table, rows.columns)) for table in tables]
    assert np.unique(np.concatenate(keys)).size == sum(one.size for one in keys)
    return tables


def whole(
    rows: LogRows, columns: Columns, names: Sequence[str] = NAMES, chunk_rows: int = 100
) -> pl.DataFrame:
    """All rows, the episodes in the order of the index."""
    index, _ = index_of(rows, columns, Threads(1))
    rank = {int(key): place for place, key in enumerate(index.keys)}
    frames = [
        table.frame.select(names).with_columns(
            rank=pl.Series([rank[int(key)] for key in episode_keys(table, columns)], dtype=pl.Int64)
        )
        for table in together(rows, names, chunk_rows)
    ]
    return pl.concat(frames).sort("rank", maintain_order=True).drop("rank")


COLUMNS = [Columns(), Columns(episode="visit", time="hour"), Columns(episode="episode", time="hour")]


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("cuts", [(), (500,), (3, 4, 9, 500, 501, 777)])
def test_the_parts_make_up_the_whole(columns: Columns, cuts: Sequence[int], tmp_path: Path) -> None:
    folder = written(FRAME, tmp_path / "log", cuts)
    names = [*NAMES, "visit", "hour"]
    twin = read_log(str(folder / "*.parquet"), columns).table.frame
    for source in (folder, str(folder / "*.parquet"), sorted(folder.glob("*.parquet")), FRAME):
        with open_rows(source, columns, limit=LIMIT) as rows:
            assert rows.num_rows == FRAME.height
            assert rows.schema == FRAME.schema
            for chunk_rows in (1, 7, 100, 10**6) if source is folder else (7, 10**6):
                assert whole(rows, columns, names, chunk_rows).equals(twin.select(names))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("files", [1, 7])
def test_scattered_episodes_are_brought_together(columns: Columns, files: int, tmp_path: Path) -> None:
    shuffled = FRAME.sample(fraction=1, shuffle=True, seed=files)
    cuts = [shuffled.height * i // files for i in range(1, files)]
    folder = written(shuffled, tmp_path / "log", cuts)
    names = [*NAMES, "visit", "hour"]
    twin = read_log(str(folder / "*.parquet"), columns).table.frame
    with open_rows(folder, columns, limit=LIMIT, scratch=tmp_path) as rows:
        assert rows.exchanged is not None
        for chunk_rows in (7, 10**6):
            assert whole(rows, columns, names, chunk_rows).equals(twin.select(names))
    assert [one.name for one in tmp_path.iterdir()] == ["log"]


RNG = np.random.default_rng(0)
STEPS = {
    "counted": RNG.permutation(400),
    "repeated": RNG.integers(0, 3, 400),
    "far apart": RNG.integers(-(2**62), 2**62, 400),
    "fractions": RNG.normal(size=400),
    "unknown": np.where(RNG.random(400) < 0.3, np.nan, RNG.integers(0, 3, 400)),
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("bits", [4, 40, 63])
def test_rows_are_sorted_by_episode_and_step(kind: str, bits: int) -> None:
    """However wide the keys are, and those of the same step as they come: as `lexsort` does it."""
    rng = np.random.default_rng(bits)
    episodes = rng.choice(rng.integers(-(2**bits), 2**bits - 1, 50), 400)
    steps = STEPS[kind]
    assert np.array_equal(step_order(episodes, steps), np.lexsort((steps, episodes)))
    assert np.array_equal(step_order(episodes, None), np.argsort(episodes, kind="stable"))
