"""The exchange: rows of episodes that lie scattered are brought together, by way of a scratch folder.

Rows are read a batch at a time, and a hash of its episode sends each to one of some buckets. A bucket is
small enough to be sorted in memory, and holds its episodes whole. Each task writes one file, batch after
batch, and within a batch bucket after bucket; so a bucket is a few stretches of each file.
"""

import dataclasses
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from ..arrays import Integers
from .columns import Columns
from .cuts import whole_tasks
from .engines import Engine
from .index import step_order
from .keys import episode_keys, key_expression
from .memory import MemoryLimit
from .pieces import POSITION, Pieces, batches
from .scratch import require_space, writing
from .table import Table
from .timeline import row_steps

BATCH_ROWS = 1_000_000
BUCKET_BYTES = 2**25  # of the rows in a bucket, about
MOST_BUCKETS = 4096
SORTED_COPIES = 6  # of a bucket while it is sorted
OVERHEAD = 600  # bytes of the scratch file for a stretch, beside its rows


@dataclasses.dataclass(frozen=True, eq=False)
class Spilled:
    """A scratch file: `ends[i, j]` is where the rows of batch i for bucket j end in it."""

    path: Path
    ends: Integers

    def stretches(self, bucket: int) -> Iterator[tuple[int, int]]:
        """Where the rows of a bucket begin and end, batch by batch."""
        begins = np.append(0, self.ends.ravel()[:-1]).reshape(self.ends.shape)
        for begin, end in zip(begins[:, bucket].tolist(), self.ends[:, bucket].tolist(), strict=True):
            if begin < end:
                yield begin, end


@dataclasses.dataclass(frozen=True, eq=False)
class Spill:
    """The task of sending the rows between two positions to their buckets."""

    pieces: Pieces
    columns: Columns
    names: tuple[str, ...]
    start: int
    stop: int
    buckets: int
    path: Path

    def run(self) -> Spilled:
        """Whole or not there: a task that is run again after its machine was lost finds nothing half-done."""
        unfinished = self.path.with_suffix(".unfinished")
        with writing(self.path.parent):  # what was buffered is written when the file is closed
            with unfinished.open("wb") as file:
                tables = batches(self.pieces, self.names, self.start, self.stop, BATCH_ROWS)
                ends = [[_appended(frame, file) for frame in self._by_bucket(table)] for table in tables]
            os.replace(unfinished, self.path)
        return Spilled(self.path, np.array(ends, np.int64).reshape(-1, self.buckets))

    def _by_bucket(self, table: Table) -> Iterator[pl.DataFrame]:
        episode_keys(table, self.columns)  # refuses rows that belong to no episode
        # polars takes rows from one chunk in half the time that several need.
        frame = table.frame.with_columns(pl.Series(POSITION, table.places.rows)).rechunk()
        bucket = (key_expression(self.columns, frame.schema).hash() % self.buckets).cast(pl.UInt16)
        codes = frame.select(bucket).to_series().to_numpy()
        order = np.argsort(codes, kind="stable").astype(np.uint32)
        ends = np.cumsum(np.bincount(codes, minlength=self.buckets)).tolist()
        placed = frame[order]
        return (placed[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class Bucket:
    """The episodes that share a bucket."""

    pieces: Pieces
    columns: Columns
    names: tuple[str, ...]
    stretches: tuple[tuple[Path, int, int], ...]
    limit: MemoryLimit

    def tables(self, *, chunk_rows: int = 0) -> Iterator[Table]:
        """One table, whatever its size: buckets are small."""
        size = sum(end - begin for _, begin, end in self.stretches)
        self.limit.require(
            SORTED_COPIES * size, "the longest episode with others in its bucket", remedy="split the episode"
        )
        if self.stretches:
            yield self._table()

    def _table(self) -> Table:
        frames = [_read(*one).select(POSITION, *self.names) for one in self.stretches]
        table = self.pieces.table(pl.concat(frames, rechunk=True))
        keys, steps = episode_keys(table, self.columns), row_steps(table, self.columns)
        return table.take(step_order(keys, steps))


def _appended(frame: pl.DataFrame, file: IO[bytes]) -> int:
    """Where the file ends after these rows."""
    if frame.height:
        packed = io.BytesIO()
        frame.write_ipc_stream(packed, compression="uncompressed")
        file.write(packed.getbuffer())
    return file.tell()


def _read(path: Path, begin: int, end: int) -> pl.DataFrame:
    with path.open("rb") as file:
        file.seek(begin)
        return pl.read_ipc_stream(io.BytesIO(file.read(end - begin)))


@dataclasses.dataclass(frozen=True, eq=False)
class Exchanged:
    """The scratch files of a log whose episodes lay scattered."""

    spilled: tuple[Spilled, ...]
    buckets: int
    names: tuple[str, ...]

    def stretches(self, bucket: int) -> tuple[tuple[Path, int, int], ...]:
        """Where the rows of a bucket are, in the order of the log."""
        return tuple((one.path, *part) for one in self.spilled for part in one.stretches(bucket))


def exchange(
    pieces: Pieces, columns: Columns, names: Sequence[str], folder: Path, limit: MemoryLimit, engine: Engine
) -> Exchanged:
    """Send all rows to their buckets; the folder keeps these columns of them until it is removed."""
    row_bytes = _row_bytes(pieces, names)
    buckets = _bucket_count(pieces.rows * row_bytes, limit, engine.workers)
    tasks = [
        Spill(pieces, columns, tuple(names), start, stop, buckets, folder / f"{number:06d}.rows")
        for number, (start, stop) in enumerate(whole_tasks(pieces, BATCH_ROWS))
    ]
    batches_written = pieces.rows / BATCH_ROWS + len(tasks)
    needed = pieces.rows * row_bytes + OVERHEAD * buckets * batches_written
    require_space(folder, needed, f"bringing the rows of {pieces.name} together")
    return Exchanged(tuple(engine.map(Spill.run, tasks)), buckets, tuple(names))


def _row_bytes(pieces: Pieces, names: Sequence[str]) -> float:
    """What a row of these columns takes, by the first rows of the log."""
    first = next(batches(pieces, names, 0, pieces.span, 10_000)).frame
    return 8 + first.estimated_size() / max(1, first.height)


def _bucket_count(size: float, limit: MemoryLimit, workers: int) -> int:
    room = min(BUCKET_BYTES, limit.left / (SORTED_COPIES * workers) / 2)
    return max(1, min(MOST_BUCKETS, math.ceil(size / max(room, 2**16))))
