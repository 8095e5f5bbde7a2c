"""Bytes of Parquet, CSV or JSON lines -> a polars frame, or an error that names the row."""

import contextlib
import csv
import enum
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Integers
from ..errors import LogError, SettingsError

GZIP = b"\x1f\x8b"


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
    """The format that a file's name tells; None if it tells none."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def parse(content: bytes, name: str, format: Format | str | None) -> tuple[pl.DataFrame, Integers]:
    """A frame, and the number of each of its rows in the file."""
    content = _unzipped(content, name)
    if not content.strip():
        raise LogError(f"{name} is empty.", expected="a table with one row per step")
    kind = _checked(format) or _guess(content)
    with reading(name, kind):
        frame = _PARSERS[kind](content, name)
    if kind is Format.CSV:
        return _without_blank_rows(frame)
    return frame, np.arange(frame.height)


def _checked(format: Format | str | None) -> Format | None:
    if format is None or isinstance(format, Format):
        return format
    members = {member.name.lower(): member for member in Format}
    if format.lower() not in members:
        raise SettingsError(f"the format is '{format}'", expected=f"one of {', '.join(members)}")
    return members[format.lower()]


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
    """Whatever the parser meets in a damaged file is the file's fault, not the user's to debug."""
    try:
        yield
    except LogError:
        raise
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        ValueError,
        OverflowError,
    ) as error:
        cause = str(error).strip().split("\n")[0] or type(error).__name__
        raise LogError(
            f"{name} cannot be read as {kind.value} ({cause}).",
            expected="a whole file with one row per step",
            remedy="Write the file again, or name its format if the name misleads.",
        ) from error


def _parquet(content: bytes, name: str) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(content))


def _csv(content: bytes, name: str) -> pl.DataFrame:
    content = content.removeprefix(b"\xef\xbb\xbf")
    _check_utf8(content, name)
    separator = _separator(content)
    with contextlib.suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return pl.read_csv(content, separator=separator, infer_schema_length=None)
    _check_fields(content, name, separator)
    # Text in every column: the row that is no number is named when the column is used.
    return pl.read_csv(content, separator=separator, infer_schema=False)


def _separator(content: bytes) -> str:
    header = content.split(b"\n", 1)[0].decode()
    return next((mark for mark in ",\t;" if mark in header), ",")


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
        reader = csv.reader(
            io.StringIO(content.decode(), newline=""), delimiter=separator, strict=True
        )
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


def _without_blank_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, Integers]:
    if frame.width == 0:
        return frame, np.arange(frame.height)
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    rows = np.flatnonzero(filled)
    return (frame, rows) if rows.size == frame.height else (frame[rows], rows)


def _jsonl(content: bytes, name: str) -> pl.DataFrame:
    _check_utf8(content, name)
    lines = [line for line in content.splitlines() if line.strip()]
    # polars skips lines that are no objects; then the rows must be counted in Python.
    if all(line.lstrip().startswith(b"{") for line in lines):
        with contextlib.suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
            frame = pl.read_ndjson(content, infer_schema_length=None)
            if frame.height == len(lines):
                return frame
    return _from_records([_record(line, row, name) for row, line in enumerate(lines, start=1)])


def _record(line: bytes, row: int, name: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(
            f"the line is not JSON: {error}.",
            where=f"{name}, row {row}",
            expected="one object per line",
            remedy="Write each step as one object on one line.",
        ) from error
    if not isinstance(record, dict):
        raise LogError(
            f"the line holds {type(record).__name__}.",
            where=f"{name}, row {row}",
            expected="one object per line, with the columns as its keys",
        )
    return record


def _from_records(records: list[dict[str, Any]]) -> pl.DataFrame:
    names = list(dict.fromkeys(name for record in records for name in record))
    return pl.DataFrame(
        {name: series(name, [record.get(name) for record in records]) for name in names}
    )


def series(name: str, values: list[Any]) -> pl.Series:
    """Numbers as numbers; anything else as text, so that a later check can show it."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pl.Series(name, values, pl.Boolean)
    if kinds == {int}:
        with contextlib.suppress(OverflowError, TypeError, pl.exceptions.PolarsError):
            return pl.Series(name, values, pl.Int64)
    if kinds <= {int, float}:
        # A number beyond 64 bits is infinite, and is refused as such where a number is used.
        return pl.Series(name, [None if v is None else _float(v) for v in values], pl.Float64)
    return pl.Series(name, [None if v is None else _text(v) for v in values], pl.String)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text.encode(errors="replace").decode()


_PARSERS: dict[Format, Callable[[bytes, str], pl.DataFrame]] = {
    Format.PARQUET: _parquet,
    Format.CSV: _csv,
    Format.JSONL: _jsonl,
}
