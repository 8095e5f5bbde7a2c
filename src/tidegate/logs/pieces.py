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
from .table import POSITION as POSITION
from .table import Places, Table
from .texts import Text

SEEKABLE = {Format.PARQUET, Format.ARROW}  # a row in the middle is found without reading those before


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """One file, or a frame in memory, and the position of its first row.

    `span` counts all its rows, `rows` those that are not blank lines of a text. `kinds` are the types that
    its columns were found to have; `folders` are the columns that its folders name, and their one value.
    """

    name: str
    path: str
    format: Format
    kinds: pl.Schema
    span: int
    rows: int
    first: int = 0
    folders: tuple[tuple[str, str | None], ...] = ()
    frame: pl.DataFrame | None = None
    text: Text | None = None

    @property
    def seekable(self) -> bool:
        """Whether its rows can be read without those before."""
        return self.text is None or not self.text.packed

    def scan(self, names: Sequence[str], schema: pl.Schema, start: int, stop: int) -> pl.LazyFrame:
        """The rows from one position to another, each with its position, in the types of the log."""
        if self.text is not None:
            own = self._own(names)
            found = [*self.text.frames(own, start - self.first, stop - self.first)]
            return self._typed(pl.concat(found).lazy(), names, schema)
        part = _scanned(self).slice(start - self.first, stop - start)
        return self._typed(part, names, schema)

    def stream(
        self, names: Sequence[str], schema: pl.Schema, start: int, stop: int, rows: int
    ) -> Iterator[pl.DataFrame]:
        """The same rows of a text, about so many at a time."""
        assert self.text is not None
        waiting, count = list[pl.DataFrame](), 0
        for frame in self.text.frames(self._own(names), start - self.first, stop - self.first):
            waiting.append(frame)
            count += frame.height
            if count >= rows:
                yield self._typed(pl.concat(waiting).lazy(), names, schema).collect()
                waiting, count = [], 0
        if waiting:
            yield self._typed(pl.concat(waiting).lazy(), names, schema).collect()

    def _own(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that the file itself holds."""
        return [name for name in dict.fromkeys(names) if name not in dict(self.folders)]

    def _typed(self, part: pl.LazyFrame, names: Sequence[str], schema: pl.Schema) -> pl.LazyFrame:
        values = [pl.lit(value, pl.String).alias(name) for name, value in self.folders]
        position = pl.col(POSITION).cast(pl.Int64) + self.first
        typed = (pl.col(name).cast(schema[name]) for name in dict.fromkeys(names))
        return part.with_columns(values).select(position, *typed)


def _scanned(piece: Piece) -> pl.LazyFrame:
    if piece.frame is not None:
        return piece.frame.lazy().with_row_index(POSITION)
    return SCANS[piece.format](piece)


def _parquet(piece: Piece) -> pl.LazyFrame:
    return pl.scan_parquet(piece.path, row_index_name=POSITION, glob=False, hive_partitioning=False)


def _arrow(piece: Piece) -> pl.LazyFrame:
    return pl.scan_ipc(piece.path, row_index_name=POSITION, glob=False, hive_partitioning=False)


# A new format is one more line here. Text is read by `texts`.
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
        self.empty.require(names)

    @property
    def empty(self) -> Table:
        """The columns without rows."""
        return Table(pl.DataFrame(schema=self.schema), Places((), (), np.arange(0)), self.name)


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
            yield from piece.stream(names, schema, start, stop, rows)
