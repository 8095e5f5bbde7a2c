"""Bytes of Parquet, Arrow, CSV or JSON lines -> a polars frame, or an error that names the row."""

import codecs
import contextlib
import csv
import enum
import gzip
import io
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from ..arrays import Integers
from ..errors import LogError
from .memory import MemoryLimit, in_words
from .parquet_footer import OBJECT_BYTES, VIEW_BYTES, decoded_size, footer_length

GZIP = b"\x1f\x8b"
PARSER_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
PIECE = 2**22  # bytes that are read, unpacked or decoded at a time
COPIES = 2  # of a table while it is decoded and sorted
# Bytes of memory per byte of text, which is kept while it is parsed; lists hold a number per two bytes.
TEXT_COPIES, LIST_COPIES = 3, 8
# Bytes of a line, and of a value in it, that Python parses because polars cannot.
RECORD_BYTES, VALUE_BYTES = 300, 100
PART = "read a part of the log"
SAMPLE = 10_000  # rows that tell the types of a CSV file; to look at all is ten times slower


class Format(enum.Enum):
    """How a file is written."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSONL = "JSON lines"
    ARROW = "Arrow IPC"


_SUFFIXES = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET,
    ".csv": Format.CSV, ".tsv": Format.CSV,
    ".jsonl": Format.JSONL, ".ndjson": Format.JSONL,
    ".arrow": Format.ARROW, ".feather": Format.ARROW, ".ipc": Format.ARROW,
}  # fmt: skip


def format_of(path: Path) -> Format | None:
    """The format that a file's name suggests; None if it suggests none."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def parse(
    content: bytes, name: str, format: Format | None, limit: MemoryLimit
) -> tuple[pl.DataFrame, Integers]:
    """A frame, and the number of each of its rows in the file; its size is estimated before it is parsed."""
    content = _unzipped(content, name, limit)
    if not content or content.isspace():
        raise LogError(f"{name} is empty.", expected="a table with one row per step")
    kind = format or _guess(content)
    with reading(name, kind):
        if kind is Format.PARQUET:
            _require_decoded(content, name, limit)
            frame = pl.read_parquet(io.BytesIO(content))
        elif kind is Format.ARROW:
            limit.require(COPIES * len(content), name, remedy=PART)
            frame = pl.read_ipc(io.BytesIO(content))
        else:
            content = content.removeprefix(b"\xef\xbb\xbf")
            _check_utf8(content, name)
            frame = (_csv if kind is Format.CSV else _jsonl)(content, name, limit)
    rows = np.arange(frame.height)
    if kind is Format.CSV and frame.width:
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        rows = rows[~blank]
    return (frame, rows) if rows.size == frame.height else (frame[rows], rows)


def _guess(content: bytes) -> Format:
    if content.startswith(b"PAR1"):
        return Format.PARQUET
    if content.startswith(b"ARROW1"):
        return Format.ARROW
    return Format.JSONL if content.lstrip().startswith(b"{") else Format.CSV


def bounded_read(stream: IO[bytes] | gzip.GzipFile, name: str, limit: MemoryLimit, packed: str = "") -> bytes:
    """All of a stream, if there is room for its text and the table in it."""
    pieces, size = [], 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size * COPIES > limit.left:
            raise limit.exceeded(
                f"{name}{packed} has more than {in_words(size)}, and its table would take as much again; "
                "reading was stopped there.",
                remedy=PART,
            )
    return b"".join(pieces)


def _unzipped(content: bytes, name: str, limit: MemoryLimit) -> bytes:
    if not content.startswith(GZIP):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return bounded_read(stream, name, limit, f" ({in_words(len(content))} packed)")
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{name} is damaged: {error}.", expected="a whole gzip file") from error


def _require_decoded(content: bytes, name: str, limit: MemoryLimit) -> None:
    limit.require(footer_length(content) * OBJECT_BYTES, f"the footer of {name}")
    size = decoded_size(content)
    if size is None:
        scan = pl.scan_parquet(io.BytesIO(content))
        rows, columns = int(scan.select(pl.len()).collect().item()), len(scan.collect_schema())
        needed = rows * columns * VIEW_BYTES
    else:
        rows, columns, needed = size.rows, size.columns, size.bytes
    _require_table(rows, columns, len(content) + COPIES * needed, name, limit)


def _require_table(rows: int, columns: int, needed: float, name: str, limit: MemoryLimit) -> None:
    limit.require(needed, f"{name} with {rows:,} rows of {columns:,} columns", remedy=PART)


@contextlib.contextmanager
def reading(name: str, kind: Format) -> Iterator[None]:
    """Whatever the parser raises becomes one error that names the file."""
    try:
        yield
    except LogError:
        raise
    except (*PARSER_ERRORS, ValueError, OverflowError, OSError) as error:
        cause = str(error).strip().split("\n")[0] or type(error).__name__
        raise LogError(
            f"{name} cannot be read as {kind.value} ({cause}).",
            expected="a whole file with one row per step",
            remedy="Write the file again, or name its format if the name misleads.",
        ) from error


def _csv(content: bytes, name: str, limit: MemoryLimit) -> pl.DataFrame:
    header = io.BytesIO(content).readline().decode()
    separator = next((mark for mark in ",\t;" if mark in header), ",")
    # A short row is filled up to the header's columns, so rows × columns count, not the text.
    rows, columns = _lines(content) - 1, header.count(separator) + 1
    needed = TEXT_COPIES * len(content) + COPIES * VIEW_BYTES * rows * columns
    _require_table(rows, columns, needed, name, limit)
    for sample in (SAMPLE, None):
        with contextlib.suppress(*PARSER_ERRORS):
            frame = pl.read_csv(content, separator=separator, infer_schema_length=sample)
            head = frame.head(SAMPLE)
            # A column that is empty in all sampled rows was taken for text; it may hold numbers.
            if sample is None or all(head[one].null_count() < head.height for one in head.columns):
                return frame
    _check_fields(content, name, separator)
    # Text in every column: the row that is not a number is named when the column is used.
    return pl.read_csv(content, separator=separator, infer_schema=False)


def _check_utf8(content: bytes, name: str) -> None:
    """Piece by piece: as one text, a single rare character would make every letter take four bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(content) + 1, PIECE):
        piece = content[start : start + PIECE]
        try:
            decoder.decode(piece, final=start + PIECE > len(content))
        except UnicodeDecodeError as error:
            at = start + len(piece) - len(error.object) + error.start
            raise LogError(
                f"byte {content[at]:#04x} is not UTF-8.",
                where=f"{name}, line {content.count(bytes([10]), 0, at) + 1}",
                expected="text in UTF-8",
                remedy="Convert the file, as in: iconv -f latin1 -t utf-8.",
            ) from error


def _lines(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n"))


def _check_fields(content: bytes, name: str, separator: str) -> None:
    try:
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")
        reader = csv.reader(text, delimiter=separator, strict=True)
        header = next(reader, [])
        for row, fields in enumerate(reader, start=1):
            if len(fields) > len(header):
                raise LogError(
                    f"the row has {len(fields)} fields.",
                    where=f"{name}, row {row}",
                    expected=f"{len(header)}, as in the header",
                    remedy="Quote text that holds the separator.",
                )
    except csv.Error as error:
        raise LogError(
            f"the file is not CSV: {error}.",
            where=f"{name}, line {reader.line_num}",
            expected="balanced quotes",
        ) from error


def _jsonl(content: bytes, name: str, limit: MemoryLimit) -> pl.DataFrame:
    rows = _lines(content)
    limit.require(TEXT_COPIES * len(content) + VALUE_BYTES * rows, f"{name} with {rows:,} lines", remedy=PART)
    _require_columns(content, rows, name, limit)
    lines = [line for line in content.splitlines() if line.strip()]
    # polars skips lines that are not objects; then the rows must be counted in Python.
    if all(line.lstrip().startswith(b"{") for line in lines):
        with contextlib.suppress(*PARSER_ERRORS):
            frame = pl.read_ndjson(content, infer_schema_length=None)
            if frame.height == len(lines):
                return frame
    needed = RECORD_BYTES * rows + VALUE_BYTES * content.count(b":") + TEXT_COPIES * len(content)
    limit.require(needed, f"{name}, whose lines differ in shape,", remedy="write it as Parquet")
    records = [_record(line, f"{name}, row {row}") for row, line in enumerate(lines, start=1)]
    names = dict.fromkeys(name for record in records for name in record)
    _require_table(rows, len(names), needed + COPIES * VIEW_BYTES * rows * len(names), name, limit)
    return pl.DataFrame([series(one, [record.get(one) for record in records]) for one in names])


def _require_columns(content: bytes, rows: int, name: str, limit: MemoryLimit) -> None:
    """A line that names a new column gives every row a cell of it."""
    try:
        schema = pl.scan_ndjson(io.BytesIO(content), infer_schema_length=None).collect_schema()
    except PARSER_ERRORS:
        return
    cells = sum(_cells(kind) for kind in schema.values())
    copies = LIST_COPIES if any(kind.is_nested() for kind in schema.values()) else TEXT_COPIES
    needed = copies * len(content) + VALUE_BYTES * rows + COPIES * VIEW_BYTES * rows * cells
    _require_table(rows, len(schema), needed, name, limit)


def _cells(kind: Any) -> int:
    """The numbers and texts in one row of a column; those in lists are counted by the text they take."""
    return sum(_cells(field.dtype) for field in kind.fields) if isinstance(kind, pl.Struct) else 1


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(
            f"the line is not JSON: {error}.",
            where=where,
            expected="one object per line",
            remedy="Write each step as one object on one line.",
        ) from error
    if not isinstance(record, dict):
        raise LogError(
            f"the line holds {type(record).__name__}.",
            where=where,
            expected="one object per line, with the columns as its keys",
        )
    return record


def series(name: str, values: list[Any]) -> pl.Series:
    """Numbers as numbers; anything else as text, so that a later check can show it."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pl.Series(name, values, pl.Boolean)
    if kinds == {int}:
        with contextlib.suppress(OverflowError, TypeError, pl.exceptions.PolarsError):
            return pl.Series(name, values, pl.Int64)
    numeric = kinds <= {int, float}
    convert, kind = (_float, pl.Float64) if numeric else (_text, pl.String)
    return pl.Series(name, [None if value is None else convert(value) for value in values], kind)


def _float(value: float) -> float:
    """A number beyond 64 bits is infinite, and is refused as such where a number is used."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(value: Any) -> str:
    return str(value).encode(errors="replace").decode()


@contextlib.contextmanager
def without_panic_text() -> Iterator[None]:
    """Drop what polars' threads print about a damaged file; the `LogError` says it better.

    For the command line: the standard error of the whole process is held back meanwhile, and is
    passed on at the end unless a thread has panicked.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            text = held.read()
            if b"panicked at" not in text:
                os.write(2, text)
