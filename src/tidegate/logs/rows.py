"""The rows of a log that need not fit into memory, as tables of whole episodes.

    with open_rows("logs/*.parquet", columns) as rows:
        index, _ = index_of(rows, columns, engine)
        for table in rows.tables(["episode", "step", "reward"]):
            ...

Every episode comes exactly once, in one table, its rows together and in the order of their steps. Which
episodes share a table depends on how the log is cut into files, and nothing else may.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import polars as pl

from ..errors import LogError
from .columns import Columns
from .cuts import cuts_between_episodes
from .engines import Engine, Threads
from .exchange import Bucket, Exchanged, exchange
from .formats import Format
from .index import identifying, in_step_order, whole_episodes
from .memory import MemoryLimit, hold_freed
from .pieces import Pieces, batches
from .scratch import scratch_folder
from .sources import Source
from .stages import Stage, silent
from .surveying import survey
from .table import Table

CHUNK_ROWS = 500_000


class Part(Protocol):
    """Some whole episodes of a log, as plain data that can travel to another process."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def tables(self, *, chunk_rows: int = CHUNK_ROWS) -> Iterator[Table]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """The rows between two positions, which are whole episodes that lie together."""

    pieces: Pieces
    columns: Columns
    names: tuple[str, ...]
    start: int
    stop: int
    limit: MemoryLimit

    def tables(self, *, chunk_rows: int = CHUNK_ROWS) -> Iterator[Table]:
        rows = batches(self.pieces, self.names, self.start, self.stop, chunk_rows)
        for table, keys in whole_episodes(rows, self.columns, self.limit):
            yield in_step_order(table, keys, self.columns)


@dataclasses.dataclass(frozen=True, eq=False)
class LogRows:
    """A log that was opened: what is known of it, and its rows as often as they are asked for."""

    pieces: Pieces
    columns: Columns
    limit: MemoryLimit
    cuts: tuple[int, ...] = ()
    exchanged: Exchanged | None = None

    @property
    def name(self) -> str:
        """What the user calls the log."""
        return self.pieces.name

    @property
    def num_rows(self) -> int:
        return self.pieces.rows

    @property
    def schema(self) -> pl.Schema:
        return self.pieces.schema

    def parts(self, names: Sequence[str]) -> list[Part]:
        """Parts that can be read independently of each other; together they are the log."""
        wanted = tuple(dict.fromkeys([*names, *identifying(self.columns, self.schema)]))
        self.pieces.require(wanted)
        if self.exchanged is None:
            return [
                Stretch(self.pieces, self.columns, wanted, start, stop, self.limit)
                for start, stop in itertools.pairwise(self.cuts)
            ]
        buckets = map(self.exchanged.stretches, range(self.exchanged.buckets))
        return [Bucket(self.pieces, self.columns, wanted, one, self.limit) for one in buckets if one]

    def tables(self, names: Sequence[str], *, chunk_rows: int = CHUNK_ROWS) -> Iterator[Table]:
        """All whole episodes, about `chunk_rows` rows at a time; the next are read while these are used."""
        return ahead(table for part in self.parts(names) for table in part.tables(chunk_rows=chunk_rows))


def ahead(tables: Iterator[Table]) -> Iterator[Table]:
    """The same tables, each read while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, tables, None)
        while (table := waiting.result()) is not None:
            waiting = pool.submit(next, tables, None)
            yield table


@contextlib.contextmanager
def open_rows(
    source: Source,
    columns: Columns,
    *,
    names: Sequence[str] | None = None,
    format: Format | None = None,
    limit: MemoryLimit,
    scratch: Path | None = None,
    engine: Engine | None = None,
    stage: Stage = silent,
) -> Iterator[LogRows]:
    """Find the files of a log and their columns, and bring the rows of each episode together.

    Where they lie together already, nothing is written. Otherwise the columns `names` (all, if none are
    named) go to a folder in `scratch`, and only these can be asked for. The folder is removed at the end.
    """
    pieces = survey(source, format, limit)
    if pieces.rows == 0:
        raise LogError("the log has no rows.", expected="at least one episode with one step")
    known = identifying(columns, pieces.schema)
    pieces.require([*known, *(names or ())])
    hold_freed()
    stage("looking at the order of the rows")
    cuts = cuts_between_episodes(pieces, columns, limit)
    if cuts is not None:
        yield LogRows(pieces, columns, limit, cuts)
        return
    kept = tuple(dict.fromkeys([*known, *(pieces.schema if names is None else names)]))
    with scratch_folder(scratch) as folder:
        stage(f"bringing the rows of each episode together in {folder}")
        exchanged = exchange(pieces, columns, kept, folder, limit, engine or Threads())
        stage("reading the log")
        yield LogRows(pieces, columns, limit, exchanged=exchanged)
