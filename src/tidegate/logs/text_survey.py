"""The types and the rows of a file of text, found a block at a time.

The types are those that the whole file has if it is held (`formats`): first those that a sample suggests, if
all rows can be read with them; else those that all rows suggest; else text, or what Python finds.
What all rows suggest is found on witnesses: a row for every different block, with its types.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Integers
from .dsjson import needed, require_one_slot
from .engines import Threads
from .formats import (
    COPIES,
    MARK,
    PARSER_ERRORS,
    RECORD_BYTES,
    SAMPLE,
    TEXT_COPIES,
    VALUE_BYTES,
    Format,
    check_fields,
    check_utf8,
    dropped,
    empty_file,
    filled_lines,
    plain_json,
    record,
    require_table,
    separator_of,
    series,
)
from .memory import MemoryLimit
from .parquet_footer import VIEW_BYTES
from .texts import Text, blocks, opened, require_short

HEADER_PIECE = 2**20  # bytes: a file may be one endless line

WITNESSES: dict[Any, Any] = {
    pl.Boolean: True, pl.Int64: 1, pl.Int128: 10**20, pl.Float64: 1.5, pl.Null: None,
}  # fmt: skip


def surveyed_text(path: str, name: str, packed: bool, format: Format, limit: MemoryLimit) -> Text:
    """Read the whole file once, or a few times if its first rows mislead."""
    nothing = np.zeros(1, np.int64)
    text = Text(path, name, packed, format, pl.Schema(), nothing, nothing, nothing[:0])
    return (_csv if format is Format.CSV else _json)(text, limit)


def _csv(text: Text, limit: MemoryLimit) -> Text:
    text = _with_header(text, limit)
    for types in (_sampled, _inferred):
        with contextlib.suppress(*PARSER_ERRORS):
            kinds = types(text, limit)
            if kinds is not None:
                return _counted(dataclasses.replace(text, kinds=kinds), limit)
    _require_fields(text, limit)
    names = pl.read_csv(text.header, separator=text.separator, infer_schema=False).columns
    return _counted(dataclasses.replace(text, kinds=pl.Schema(dict.fromkeys(names, pl.String()))), limit)


def _with_header(text: Text, limit: MemoryLimit) -> Text:
    """The first row, with the blank lines before it."""
    with opened(text.path, text.name, text.packed) as stream:
        content = b""
        while not content.strip() or not content.endswith(b"\n") or content.count(b'"') % 2:
            line = stream.readline(HEADER_PIECE)
            if not line:
                break
            content += line
            require_short(content, text.name, True, limit)
    check_utf8(content, text.name)
    if not content.removeprefix(MARK).strip():
        raise empty_file(text.name)
    begins = np.array([len(content)])
    header = content.removeprefix(MARK)
    header = header if header.endswith(b"\n") else header + b"\n"
    return dataclasses.replace(text, begins=begins, header=header, separator=separator_of(header.decode()))


def _sampled(text: Text, limit: MemoryLimit) -> pl.Schema | None:
    """The types of the first rows; None if a column has no value there."""
    content, rows = text.header, 0
    for block, _ in _blocks(text, limit):
        content, rows = content + block, rows + block.count(b"\n")
        limit.require(TEXT_COPIES * len(content), f"the first {rows:,} rows of {text.name}")
        if rows > SAMPLE:
            break
    head = pl.read_csv(content, separator=text.separator, infer_schema_length=SAMPLE, n_rows=SAMPLE)
    if head.height and any(head[one].null_count() == head.height for one in head.columns):
        return None
    return head.schema


def _inferred(text: Text, limit: MemoryLimit) -> pl.Schema:
    """The types that all rows together suggest."""

    def witness(block: bytes) -> bytes:
        frame = pl.read_csv(text.header + block, separator=text.separator, infer_schema_length=None)
        return text.separator.join(_cell(frame[name]) for name in frame.columns).encode() + b"\n"

    witnesses = dict.fromkeys(Threads().map(witness, (block for block, _ in _blocks(text, limit))))
    content = text.header + b"".join(witnesses)
    return pl.read_csv(content, separator=text.separator, infer_schema_length=None).schema


def _cell(column: pl.Series) -> str:
    """A cell of the column's type; none if it holds nothing."""
    if column.null_count() == len(column):
        return ""
    return str(WITNESSES.get(column.dtype, "text")).replace("True", "true")


def _blocks(text: Text, limit: MemoryLimit) -> Iterator[tuple[bytes, int]]:
    """The blocks behind the header, and how many lines are before each."""
    lines = text.header.count(b"\n")
    with opened(text.path, text.name, text.packed) as stream:
        stream.seek(int(text.begins[0]))
        for block in blocks(stream, text.name, quoted=text.format is Format.CSV, limit=limit):
            check_utf8(block, text.name, lines)
            yield block, lines
            lines += block.count(b"\n")


def _counted(text: Text, limit: MemoryLimit) -> Text:
    """All blocks parsed with the types that are known: where each begins, and which rows are blank."""

    def blank(block: bytes) -> tuple[int, int, Integers]:
        rows = block.count(b"\n") + 1
        room = TEXT_COPIES * len(block) + COPIES * VIEW_BYTES * rows * len(text.kinds)
        require_table(rows, len(text.kinds), room, f"a part of {text.name}", limit)
        frame = text.parsed(block, text.kinds.names())
        return len(block), frame.height, dropped(text.format, frame)

    found = [*Threads().map(blank, (block for block, _ in _blocks(text, limit)))]
    text = _placed(text, [size for size, _, _ in found], [rows for _, rows, _ in found])
    gone = [empty + first for (_, _, empty), first in zip(found, text.firsts.tolist(), strict=False)]
    return dataclasses.replace(text, blank=np.concatenate([text.blank, *gone]))


def _placed(text: Text, sizes: Sequence[int], rows: Sequence[int]) -> Text:
    """Where blocks of these sizes, with so many rows, begin."""
    begins = np.cumsum([int(text.begins[0]), *sizes], dtype=np.int64)
    return dataclasses.replace(text, begins=begins, firsts=np.cumsum([0, *rows], dtype=np.int64))


def _require_fields(text: Text, limit: MemoryLimit) -> None:
    """No row has more fields than the header."""
    rows, own = 0, text.header.count(b"\n")
    for block, lines in _blocks(text, limit):
        content = text.header + block
        rows = check_fields(content, text.name, text.separator, rows_before=rows, lines_before=lines - own)


def _json(text: Text, limit: MemoryLimit) -> Text:
    text = dataclasses.replace(text, begins=np.array([_mark(text)]))
    return _plain(text, limit) or _records(text, limit)


def _mark(text: Text) -> int:
    """The length of the mark that some programs put before text."""
    with opened(text.path, text.name, text.packed) as stream:
        return len(MARK) if stream.read(len(MARK)) == MARK else 0


def _plain(text: Text, limit: MemoryLimit) -> Text | None:
    """Lines that polars parses, in the types that all of them suggest; None if it cannot parse one."""

    def read(block: bytes) -> tuple[int, int, pl.Schema] | None:
        frame = plain_json(block, text.name, limit)
        return None if frame is None else (len(block), frame.height, frame.schema)

    found = list[tuple[int, int, pl.Schema]]()
    for one in Threads().map(read, (block for block, _ in _blocks(text, limit))):
        if one is None:
            return None
        found.append(one)
    if not any(rows for _, rows, _ in found):
        raise empty_file(text.name)
    with contextlib.suppress(*PARSER_ERRORS):
        witnesses = dict.fromkeys(_witness(kinds) for _, _, kinds in found)
        kinds = pl.read_ndjson(b"".join(witnesses), infer_schema_length=None).schema
        text = dataclasses.replace(text, kinds=kinds)
        if text.format is Format.DSJSON:
            require_one_slot(kinds, text.name)
            return _counted(dataclasses.replace(text, kinds=needed(kinds)), limit)
        if all(one == kinds for _, rows, one in found if rows):
            return _placed(text, [size for size, _, _ in found], [rows for _, rows, _ in found])
        return _counted(text, limit)
    return None


def _witness(kinds: pl.Schema) -> bytes:
    """A line with a value of each type."""
    return json.dumps({name: _value(kind) for name, kind in kinds.items()}).encode() + b"\n"


def _value(kind: Any) -> Any:
    """A value of this type."""
    if isinstance(kind, pl.Struct):
        return {field.name: _value(field.dtype) for field in kind.fields}
    if isinstance(kind, pl.List):
        return [] if kind.inner == pl.Null else [_value(kind.inner)]
    return WITNESSES.get(kind, "text")


def _records(text: Text, limit: MemoryLimit) -> Text:
    """Lines that Python parses, in the types of the values that it finds."""
    witnesses: dict[str, dict[Any, Any]] = {}
    rows = 0
    for block, _ in _blocks(text, limit):
        lines = filled_lines(block)
        room = RECORD_BYTES * len(lines) + VALUE_BYTES * block.count(b":") + TEXT_COPIES * len(block)
        limit.require(room, f"{text.name}, whose lines differ in shape,", remedy="write it as Parquet")
        for line in lines:
            rows += 1
            for name, value in record(line, f"{text.name}, row {rows}").items():
                wide = isinstance(value, int) and not -(2**63) <= value < 2**63
                witnesses.setdefault(name, {})[type(value), wide] = value
    kinds = {name: series(name, [*found.values()]).dtype for name, found in witnesses.items()}
    if text.format is Format.DSJSON:
        require_one_slot(pl.Schema(kinds), text.name)
    return _counted(dataclasses.replace(text, kinds=pl.Schema(kinds), records=True), limit)
