"""The pieces of a log too large to be read whole: its files, how each is scanned, where its rows begin.

A scan is lazy: polars reads only the columns and the rows that are asked for. Whatever the format, the rows
are counted from the first of the first piece to the last of the last: that count is a row's position.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl

from .formats import PARSER_ERRORS, Format, reading
from .table import Places, Table

POSITION = "__position"  # of a row among all rows of the log
SEEKABLE = {Format.PARQUET, Format.ARROW}  # a row in the middle is found without reading those before


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """One file, or a frame in memory, and the position of its first row.

    `span` counts all its rows, `rows` those that are not blank lines of a text. `kinds` are the types that
    its columns were found to have; `hive` are the types of those that its folders name.
    """

    name: str
    path: str
    format: Format
    kinds: pl.Schema
    span: int
    rows: int
    first: int = 0
    separator: str = ","
    hive: pl.Schema | None = None
    frame: pl.DataFrame | None = None

    @property
    def seekable(self) -> bool:
        return self.frame is not None or self.format in SEEKABLE

    def scan(self, names: Sequence[str], schema: pl.Schema, start: int, stop: int) -> pl.LazyFrame:
        """The rows from one position to another, each with its position, in the types of the log."""
        part = _scanned(self).slice(start - self.first, stop - start)
        if self.format is Format.CSV and self.frame is None:
            part = part.filter(~pl.all_horizontal(pl.all().exclude(POSITION).is_null()))
        position = pl.col(POSITION).cast(pl.Int64) + self.first
        return part.select(position, *(pl.col(name).cast(schema[name]) for name in dict.fromkeys(names)))


def _scanned(piece: Piece) -> pl.LazyFrame:
    if piece.frame is not None:
        return piece.frame.lazy().with_row_index(POSITION)
    return SCANS[piece.format](piece)


def _parquet(piece: Piece) -> pl.LazyFrame:
    return pl.scan_parquet(
        piece.path,
        row_index_name=POSITION,
        glob=False,
        hive_partitioning=bool(piece.hive),
        hive_schema=piece.hive,
    )


def _arrow(piece: Piece) -> pl.LazyFrame:
    return pl.scan_ipc(piece.path, row_index_name=POSITION, glob=False, hive_partitioning=False)


# A new format is one more line here, and one in `surveying`.
SCANS: dict[Format, Callable[[Piece], pl.LazyFrame]] = {
    Format.PARQUET: _parquet,
    Format.ARROW: _arrow,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """All pieces of a log, in order, and the types of its columns in all of them."""

    all: tuple[Piece, ...]
    schema: pl.Schema
    name: str

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.all)

    @property
    def span(self) -> int:
        return self.all[-1].first + self.all[-1].span

    def places(self, positions: pl.Series) -> Places:
        """Where the user finds the rows at these positions."""
        names, firsts = tuple(one.name for one in self.all), tuple(one.first for one in self.all)
        base = 0 if self.all[0].frame is not None else 1
        return Places(names, firsts, positions.to_numpy(), base=base)

    def table(self, frame: pl.DataFrame) -> Table:
        """Rows with their positions as a table that knows where its rows are."""
        return Table(frame.drop(POSITION), self.places(frame[POSITION]), self.name)

    def within(self, start: int, stop: int) -> Iterator[tuple[Piece, int, int]]:
        """The pieces that hold the positions from `start` to `stop`, and which of these each holds."""
        for piece in self.all:
            low, high = max(start, piece.first), min(stop, piece.first + piece.span)
            if low < high:
                yield piece, low, high

    def require(self, names: Sequence[str]) -> None:
        """Every named column exists."""
        empty = pl.DataFrame(schema=self.schema)
        Table(empty, Places((), (), np.arange(0)), self.name).require(names)


def batches(pieces: Pieces, names: Sequence[str], start: int, stop: int, rows: int) -> Iterator[Table]:
    """The rows from one position to another, in order, about so many at a time; small files share a table."""
    for seekable, group in itertools.groupby(pieces.within(start, stop), lambda one: one[0].seekable):
        for frame in (_sought if seekable else _streamed)(group, names, pieces.schema, rows):
            yield pieces.table(frame)


Within: TypeAlias = tuple[Piece, int, int]  # a piece, and from which position to which


def _sought(
    parts: Iterable[Within], names: Sequence[str], schema: pl.Schema, rows: int
) -> Iterator[pl.DataFrame]:
    waiting, count = list[Within](), 0
    for piece, start, stop in parts:
        while start < stop:
            end = min(stop, start + rows - count)
            waiting.append((piece, start, end))
            count, start = count + end - start, end
            if count == rows:
                yield _collected(waiting, names, schema)
                waiting, count = [], 0
    if waiting:
        yield _collected(waiting, names, schema)


def _collected(parts: Sequence[Within], names: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    try:
        return pl.concat([piece.scan(names, schema, *ends) for piece, *ends in parts]).collect()
    except PARSER_ERRORS:
        for piece, *ends in parts:  # which file was it?
            with reading(piece.name, piece.format):
                piece.scan(names, schema, *ends).collect()
        raise


def _streamed(
    parts: Iterable[Within], names: Sequence[str], schema: pl.Schema, rows: int
) -> Iterator[pl.DataFrame]:
    for piece, start, stop in parts:
        with reading(piece.name, piece.format):
            lazy = piece.scan(names, schema, start, stop)
            yield from lazy.collect_batches(chunk_size=rows, lazy=True, engine="streaming")
