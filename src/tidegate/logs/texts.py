"""Text that is not held: CSV and JSON lines, packed or not, cut into blocks of whole lines.

What a survey has found once (`text_survey`) says where each block begins and which types its columns have.
So any rows can be read again without those before; those of a packed file by unpacking what is before.
"""

import contextlib
import dataclasses
import gzip
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
import polars as pl

from ..arrays import Integers
from ..errors import LogError
from .dsjson import event_columns
from .formats import Format, filled_lines, record, series
from .memory import MemoryLimit, in_words
from .table import POSITION

TEXTS = {Format.CSV, Format.JSONL, Format.DSJSON}
BLOCK = 2**23  # bytes that are parsed at a time, about
LONGEST = 2**26  # of a row; a quote that is never closed would make the rest of the file one row
Stream: TypeAlias = IO[bytes] | gzip.GzipFile


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """A file of text and where its blocks begin.

    Block i holds the bytes from `begins[i]` to `begins[i + 1]` of the unpacked text, and the rows from
    `firsts[i]` to `firsts[i + 1]`. `blank` are the rows that are none of the log, such as blank lines of CSV.
    Of JSON lines that polars cannot parse, each line is a record that Python parses.
    """

    path: str
    name: str
    packed: bool
    format: Format
    kinds: pl.Schema
    begins: Integers
    firsts: Integers
    blank: Integers
    header: bytes = b""
    separator: str = ","
    records: bool = False

    @property
    def columns(self) -> pl.Schema:
        """The columns of the log that the text holds."""
        if self.format is not Format.DSJSON:
            return self.kinds
        return pl.DataFrame(schema=self.kinds).select(**event_columns(self.kinds)).schema

    @property
    def span(self) -> int:
        return int(self.firsts[-1])

    def frames(self, names: Sequence[str], start: int, stop: int) -> Iterator[pl.DataFrame]:
        """The rows from one to another that are not blank, block by block, each with its number."""
        first = int(np.searchsorted(self.firsts, start, side="right")) - 1
        with opened(self.path, self.name, self.packed) as stream:
            stream.seek(int(self.begins[first]))
            for block in range(first, self.begins.size - 1):
                begin, end = (int(one) for one in self.firsts[block : block + 2])
                if begin >= stop:
                    return
                content = stream.read(int(self.begins[block + 1] - self.begins[block]))
                frame = self._selected(content, names)
                if frame.height != end - begin:
                    raise LogError(f"{self.name} has changed while it was read.", remedy="Read it again.")
                yield self._placed(frame, begin, max(begin, start), min(end, stop))

    def _placed(self, frame: pl.DataFrame, begin: int, start: int, stop: int) -> pl.DataFrame:
        rows = np.arange(start, stop)
        blank = self.blank[slice(*np.searchsorted(self.blank, [start, stop]))]
        if blank.size:
            rows = np.setdiff1d(rows, blank, assume_unique=True)
        kept = frame[start - begin : stop - begin] if blank.size == 0 else frame[rows - begin]
        return kept.with_columns(pl.Series(POSITION, rows))

    def _selected(self, content: bytes, names: Sequence[str]) -> pl.DataFrame:
        """These columns of the log."""
        if self.format is not Format.DSJSON:
            return self.parsed(content, names)
        columns = event_columns(self.kinds)
        wanted = {name: columns[name] for name in names}
        roots = dict.fromkeys(root for one in wanted.values() for root in one.meta.root_names())
        return self.parsed(content, [*roots]).with_columns(**wanted)

    def parsed(self, content: bytes, names: Sequence[str]) -> pl.DataFrame:
        """The rows of a block, blank ones too; of no column, one, for the sake of its rows."""
        wanted = pl.Schema({name: self.kinds[name] for name in names or [*self.kinds][:1]})
        if self.format is Format.CSV:
            return parsed_csv(self.header + content, self.separator, wanted)
        lines = filled_lines(content)
        if self.records:
            found = [record(line, self.name) for line in lines]
            return pl.DataFrame(
                [series(name, [one.get(name) for one in found], wanted[name]) for name in wanted]
            )
        return pl.read_ndjson(content, schema=wanted) if lines else pl.DataFrame(schema=wanted)


def parsed_csv(content: bytes, separator: str, kinds: pl.Schema) -> pl.DataFrame:
    """The columns of these types; the content begins with the header."""
    return pl.read_csv(
        content, separator=separator, columns=kinds.names(), schema_overrides=kinds, infer_schema=False
    ).select(kinds.names())


@contextlib.contextmanager
def opened(path: str, name: str, packed: bool) -> Iterator[Stream]:
    """The text of a file as a stream."""
    try:
        with gzip.open(path, "rb") if packed else open(path, "rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        if packed:
            raise LogError(f"{name} is damaged: {error}.", expected="a whole gzip file") from error
        raise LogError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error


def blocks(stream: Stream, name: str, *, quoted: bool, limit: MemoryLimit) -> Iterator[bytes]:
    """The rest of the stream, cut between rows; in `quoted` text, a line break between quotes is none."""
    rest, size = b"", min(BLOCK, max(limit.total // 8, 2**16))
    while piece := stream.read(size):
        content = rest + piece
        end = _cut(content, quoted)
        if end == 0:
            require_short(content, name, quoted, limit)
        else:
            yield content[:end]
        rest = content[end:]
    if rest:
        yield rest


def _cut(content: bytes, quoted: bool) -> int:
    """Behind the last row that ends in this text; 0 if none does."""
    end = content.rfind(b"\n") + 1
    while quoted and end and content.count(b'"', 0, end) % 2:
        end = content.rfind(b"\n", 0, content.rfind(b'"', 0, end)) + 1
    return end


def require_short(content: bytes, name: str, quoted: bool, limit: MemoryLimit) -> None:
    """A row that has not ended yet is no part of a log."""
    limit.require(len(content), f"a row of {name}")
    if len(content) > LONGEST:
        raise LogError(
            f"a row of {name} goes on for more than {in_words(LONGEST)}.",
            expected="one row per step" + (", with balanced quotes" if quoted else ""),
        )
