"""Bytes of Parquet, CSV or JSON lines -> a polars frame, or an error that names the row."""

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
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Integers
from ..errors import LogError

GZIP = b"\x1f\x8b"
PARSER_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
SAMPLE = 10_000  # rows that tell the types of a CSV file; to look at all is ten times slower


class Format(enum.Enum):
    """How a file is written."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSONL = "JSON lines"


_SUFFIXES = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET,
    ".csv": Format.CSV, ".tsv": Format.CSV,
    ".jsonl": Format.JSONL, ".ndjson": Format.JSONL,
}  # fmt: skip


def format_of(path: Path) -> Format | None:
    """The format that a file's name suggests; None if it suggests none."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def parse(content: bytes, name: str, format: Format | None) -> tuple[pl.DataFrame, Integers]:
    """A frame, and the number of each of its rows in the file."""
    content = _unzipped(content, name)
    if not content or content.isspace():
        raise LogError(f"{name} is empty.", expected="a table with one row per step")
    kind = format or _guess(content)
    with reading(name, kind):
        if kind is Format.PARQUET:
            frame = pl.read_parquet(io.BytesIO(content))
        else:
            content = content.removeprefix(b"\xef\xbb\xbf")
            _check_utf8(content, name)
            frame = _csv(content, name) if kind is Format.CSV else _jsonl(content, name)
    rows = np.arange(frame.height)
    if kind is Format.CSV and frame.width:
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        rows = rows[~blank]
    return (frame, rows) if rows.size == frame.height else (frame[rows], rows)


def _guess(content: bytes) -> Format:
    if content.startswith(b"PAR1"):
        return Format.PARQUET
    return Format.JSONL if content.lstrip().startswith(b"{") else Format.CSV


def _unzipped(content: bytes, name: str) -> bytes:
    if not content.startswith(GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{name} is damaged: {error}.", expected="a whole gzip file") from error


@contextlib.contextmanager
def reading(name: str, kind: Format) -> Iterator[None]:
    """Whatever the parser raises becomes one error that names the file."""
    try:
        yield
    except LogError:
        raise
    except (*PARSER_ERRORS, ValueError, OverflowError) as error:
        cause = str(error).strip().split("\n")[0] or type(error).__name__
        raise LogError(
            f"{name} cannot be read as {kind.value} ({cause}).",
            expected="a whole file with one row per step",
            remedy="Write the file again, or name its format if the name misleads.",
        ) from error


def _csv(content: bytes, name: str) -> pl.DataFrame:
    header = io.BytesIO(content).readline().decode()
    separator = next((mark for mark in ",\t;" if mark in header), ",")
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
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LogError(
            f"byte {content[error.start]:#04x} is not UTF-8.",
            where=f"{name}, line {line}",
            expected="text in UTF-8",
            remedy="Convert the file, as in: iconv -f latin1 -t utf-8.",
        ) from error


def _check_fields(content: bytes, name: str, separator: str) -> None:
    try:
        reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator, strict=True)
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


def _jsonl(content: bytes, name: str) -> pl.DataFrame:
    lines = [line for line in content.splitlines() if line.strip()]
    # polars skips lines that are not objects; then the rows must be counted in Python.
    if all(line.lstrip().startswith(b"{") for line in lines):
        with contextlib.suppress(*PARSER_ERRORS):
            frame = pl.read_ndjson(content, infer_schema_length=None)
            if frame.height == len(lines):
                return frame
    records = [_record(line, f"{name}, row {row}") for row, line in enumerate(lines, start=1)]
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([series(one, [record.get(one) for record in records]) for one in names])


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
