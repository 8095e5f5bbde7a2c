"""From a path, a glob, standard input, a frame or a Minari dataset to one table."""

import collections
import glob
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from ..errors import LogError
from .formats import COPIES, PART, Format, bounded_read, format_of, parse
from .frames import frame_in_memory, minari_frame
from .lake import refuse_part_of_table
from .memory import MemoryLimit, memory_limit
from .table import Places, Table

Source: TypeAlias = str | Path | Sequence[str | Path] | Any


def read_table(source: Source, format: Format | None = None, limit: MemoryLimit | None = None) -> Table:
    """Read the whole source; the file's name or its first bytes tell the format."""
    limit = limit or memory_limit()
    for reader, name in ((minari_frame, "the Minari dataset"), (frame_in_memory, "the frame")):
        frame = reader(source)
        if frame is not None:
            return Table(frame, Places(("",), (0,), np.arange(frame.height), base=0), name)
    if isinstance(source, str) and source == "-":
        names = ["standard input"]
        content = bounded_read(sys.stdin.buffer, names[0], limit)
        read = [parse(content, names[0], format, limit)]
    else:
        paths = source_paths(source)
        names, read = told_apart([path.name for path in paths], [*map(str, paths)]), []
        for path, name in zip(paths, names, strict=True):
            read.append(parse(bytes_of(path, limit), name, format or format_of(path), limit))
            limit = limit.beside(COPIES * int(read[-1][0].estimated_size()))
    counts = [int(rows.max(initial=-1)) + 1 for _, rows in read]
    firsts = tuple(int(one) for one in np.cumsum([0, *counts[:-1]]))
    rows = np.concatenate([rows + first for (_, rows), first in zip(read, firsts, strict=True)])
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    frame = stacked([frame for frame, _ in read], names)
    return Table(frame, Places(tuple(names), firsts, rows), names[0] + more)


def told_apart(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    """What files are called in messages: by their names, or by their paths if two have the same name."""
    counts = collections.Counter(names)
    return [name if counts[name] == 1 else path for name, path in zip(names, paths, strict=True)]


def source_paths(source: Source) -> list[Path]:
    """The files that a path, a glob or a list of both names, each glob in the order of names."""
    if isinstance(source, str | Path):
        source = [source]
    if not isinstance(source, Sequence) or not all(isinstance(one, str | Path) for one in source):
        raise LogError(
            f"cannot read a log from {type(source).__name__}.",
            expected="a path, a glob, '-', a frame, columns by name, an EpisodeLog, or a Minari dataset",
        )
    paths = [path for one in source for path in _matches(str(one))]
    if not paths:
        raise LogError("no file was named.", expected="at least one file")
    return paths


def _matches(name: str) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if path.is_dir():
        raise LogError(f"{name} is a folder.", remedy=f"Name its files, as in '{name}/*.parquet'.")
    refuse_part_of_table(name)
    found = sorted(Path(one) for one in glob.glob(name, recursive=True) if Path(one).is_file())
    if not found:
        raise LogError(f"there is no file {name}.", remedy="Check the path; a glob must match some file.")
    return found


def bytes_of(path: Path, limit: MemoryLimit) -> bytes:
    """All of a file, if there is room for its text and the table in it."""
    try:
        limit.require(COPIES * path.stat().st_size, path.name, remedy=PART)
        return path.read_bytes()
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror or error}.") from error


def stacked(frames: Sequence[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
    """One below the other; a column that is text in one file is text in all, and is checked later."""
    first = frames[0]
    for frame, name in zip(frames, names, strict=True):
        different = set(frame.columns) ^ set(first.columns)
        if different:
            raise LogError(
                f"{name} does not have the same columns as {names[0]}: {sorted(different)}.",
                expected="the same columns in every file",
            )
    text = {name for frame in frames for name, kind in frame.schema.items() if kind == pl.String}
    unlike = [name for name in text if any(frame.schema[name] != pl.String for frame in frames)]
    casts = [pl.col(name).cast(pl.String) for name in unlike]
    try:
        return pl.concat(
            [frame.select(first.columns).with_columns(casts) for frame in frames],
            how="vertical_relaxed",
        )
    except pl.exceptions.PolarsError as error:
        raise LogError(
            f"the files hold different types in one column: {_clash(frames, names)}.",
            expected="the same types in every file",
        ) from error


def _clash(frames: Sequence[pl.DataFrame], names: Sequence[str]) -> str:
    """The first column whose types no type fits, and two files that differ."""
    for column in frames[0].columns:
        kinds = [frame.schema[column] for frame in frames]
        for kind, name in zip(kinds, names, strict=True):
            pair = [pl.DataFrame(schema={column: one}) for one in (kinds[0], kind)]
            try:
                pl.concat(pair, how="vertical_relaxed")
            except pl.exceptions.PolarsError:
                return f"'{column}' is {kinds[0]} in {names[0]}, and {kind} in {name}"
    return "no type fits all of them"
