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
from .dsjson import event_columns, is_dsjson, no_decision, require_one_slot
from .memory import MemoryLimit, in_words
from .parquet_footer import OBJECT_BYTES, VIEW_BYTES, decoded_size, footer_length
from .table import POSITION

GZIP = b"\x1f\x8b"
MARK = b"\xef\xbb\xbf"  # that some programs put before text
PARSER_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
PIECE = 2**22  # bytes that are read, unpacked or decoded at a time
COPIES = 2  # of a table while it is decoded and sorted
# Bytes of memory per byte of text, which is kept while it is parsed; lists hold a number per two bytes.
TEXT_COPIES, LIST_COPIES = 3, 8
# Bytes of a line, and of a value in it, that Python parses because polars cannot.
RECORD_BYTES, VALUE_BYTES = 300, 100
PART = "read a part of the log"
HEAD = 2**12  # bytes that tell the format
SAMPLE = 10_000  # rows that tell the types of a CSV file; to look at all is ten times slower


class Format(enum.Enum):
    """How a file is written."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSONL = "JSON lines"
    DSJSON = "dsjson"
    ARROW = "Arrow IPC"


_SUFFIXES = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET,
    ".csv": Format.CSV, ".tsv": Format.CSV,
    ".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".dsjson": Format.DSJSON,
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
    text = content.removeprefix(MARK)
    if not text or text.isspace():
        raise empty_file(name)
    kind = guess(content, format)
    with reading(name, kind):
        if kind is Format.PARQUET:
            _require_decoded(content, name, limit)
            frame = pl.read_parquet(io.BytesIO(content))
        elif kind is Format.ARROW:
            limit.require(COPIES * len(content), name, remedy=PART)
            frame = pl.read_ipc(io.BytesIO(content))
        else:
            check_utf8(text, name)
            frame = (_csv if kind is Format.CSV else _jsonl)(text, name, limit)
    rows = np.delete(np.arange(frame.height), dropped(kind, frame))
    if kind is Format.DSJSON:
        require_one_slot(frame.schema, name)
        frame = frame.select(**event_columns(frame.schema))
    return (frame, rows) if rows.size == frame.height else (frame[rows], rows)


def dropped(kind: Format, frame: pl.DataFrame) -> Integers:
    """The rows that are none of the log: blank lines of CSV, lines of dsjson that are no decisions."""
    if kind is Format.CSV and frame.width:
        which = pl.all_horizontal(pl.all().is_null())
    elif kind is Format.DSJSON:
        which = no_decision(frame.schema)
    else:
        return np.arange(0)
    return np.asarray(frame.with_columns(which.alias(POSITION))[POSITION].arg_true().to_numpy(), np.int64)


def empty_file(name: str) -> LogError:
    """The error for a file without a row and a header."""
    return LogError(f"{name} is empty.", expected="a table with one row per step")


def guess(content: bytes, format: Format | None) -> Format:
    """The format that was named, or that the first bytes of a file suggest; events tell by their keys."""
    if format is None and content.startswith(b"PAR1"):
        return Format.PARQUET
    if format is None and content.startswith(b"ARROW1"):
        return Format.ARROW
    lines = format is None and content.removeprefix(MARK).lstrip().startswith(b"{")
    kind = format or (Format.JSONL if lines else Format.CSV)
    return Format.DSJSON if kind is Format.JSONL and is_dsjson(content[:HEAD]) else kind


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
    require_table(rows, columns, len(content) + COPIES * needed, name, limit)


def require_table(rows: int, columns: int, needed: float, name: str, limit: MemoryLimit) -> None:
    """There is room for a table of this size."""
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
    separator = separator_of(header)
    # A short row is filled up to the header's columns, so rows × columns count, not the text.
    rows, columns = _lines(content) - 1, header.count(separator) + 1
    needed = TEXT_COPIES * len(content) + COPIES * VIEW_BYTES * rows * columns
    require_table(rows, columns, needed, name, limit)
    for sample in (SAMPLE, None):
        with contextlib.suppress(*PARSER_ERRORS):
            frame = pl.read_csv(content, separator=separator, infer_schema_length=sample)
            head = frame.head(SAMPLE)
            # A column that is empty in all sampled rows was taken for text; it may hold numbers.
            if sample is None or all(head[one].null_count() < head.height for one in head.columns):
                return frame
    check_fields(content, name, separator)
    # Text in every column: the row that is not a number is named when the column is used.
    return pl.read_csv(content, separator=separator, infer_schema=False)


def separator_of(header: str) -> str:
    """What stands between the names of the columns."""
    return next((mark for mark in ",\t;" if mark in header), ",")


def check_utf8(content: bytes, name: str, lines_before: int = 0) -> None:
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
                where=f"{name}, line {lines_before + content.count(bytes([10]), 0, at) + 1}",
                expected="text in UTF-8",
                remedy="Convert the file, as in: iconv -f latin1 -t utf-8.",
            ) from error


def _lines(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n"))


def check_fields(
    content: bytes, name: str, separator: str, *, rows_before: int = 0, lines_before: int = 0
) -> int:
    """No row has more fields than the header, with which the content begins, and quotes are balanced.

    The number of the last row.
    """
    row, line = rows_before, lines_before + 1
    try:
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")
        reader = csv.reader(text, delimiter=separator, strict=True)
        header = next(reader, [])
        line = lines_before + reader.line_num + 1
        for row, fields in enumerate(reader, start=rows_before + 1):
            line = lines_before + reader.line_num + 1
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
            where=f"{name}, line {line}",
            expected="balanced quotes",
        ) from error
    return row


def _jsonl(content: bytes, name: str, limit: MemoryLimit) -> pl.DataFrame:
    rows = _lines(content)
    limit.require(TEXT_COPIES * len(content) + VALUE_BYTES * rows, f"{name} with {rows:,} lines", remedy=PART)
    frame = plain_json(content, name, limit)
    if frame is not None:
        return frame
    lines = filled_lines(content)
    needed = RECORD_BYTES * rows + VALUE_BYTES * content.count(b":") + TEXT_COPIES * len(content)
    limit.require(needed, f"{name}, whose lines differ in shape,", remedy="write it as Parquet")
    records = [record(line, f"{name}, row {row}") for row, line in enumerate(lines, start=1)]
    names = dict.fromkeys(name for one in records for name in one)
    require_table(rows, len(names), needed + COPIES * VIEW_BYTES * rows * len(names), name, limit)
    return pl.DataFrame([series(name, [one.get(name) for one in records]) for name in names])


def plain_json(content: bytes, name: str, limit: MemoryLimit) -> pl.DataFrame | None:
    """Lines as polars parses them; None if it cannot, or would skip lines that are not objects."""
    lines = filled_lines(content)
    if not lines:
        return pl.DataFrame()
    with contextlib.suppress(*PARSER_ERRORS):
        schema = pl.scan_ndjson(io.BytesIO(content), infer_schema_length=None).collect_schema()
        _require_cells(content, schema, name, limit)
        if all(line.lstrip().startswith(b"{") for line in lines):
            frame = pl.read_ndjson(content, schema=schema)
            return frame if frame.height == len(lines) else None
    return None


def filled_lines(content: bytes) -> list[bytes]:
    """The lines that are not blank."""
    return [line for line in content.splitlines() if line.strip()]


def _require_cells(content: bytes, schema: pl.Schema, name: str, limit: MemoryLimit) -> None:
    """A line that names a new column gives every row a cell of it."""
    rows, cells = _lines(content), sum(_cells(kind) for kind in schema.values())
    copies = LIST_COPIES if any(kind.is_nested() for kind in schema.values()) else TEXT_COPIES
    needed = copies * len(content) + VALUE_BYTES * rows + COPIES * VIEW_BYTES * rows * cells
    require_table(rows, len(schema), needed, name, limit)


def _cells(kind: Any) -> int:
    """The numbers and texts in one row of a column; those in lists are counted by the text they take."""
    return sum(_cells(field.dtype) for field in kind.fields) if isinstance(kind, pl.Struct) else 1


def record(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line."""
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


def series(name: str, values: list[Any], kind: Any = None) -> pl.Series:
    """Numbers as numbers; anything else as text, so that a later check can show it. Or all as one `kind`."""
    kind = kind or _kind_of(values)
    if kind in (pl.Boolean, pl.Int64):
        return pl.Series(name, values, kind)
    convert = _float if kind == pl.Float64 else _text
    return pl.Series(name, [None if value is None else convert(value) for value in values], kind)


def _kind_of(values: list[Any]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pl.Boolean()
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pl.Int64()
    return pl.Float64() if kinds <= {int, float} else pl.String()


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
