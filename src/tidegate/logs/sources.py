"""From a path, a glob, standard input or a frame to one table, and to where its rows came from."""

import dataclasses
import glob
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from ..errors import LogError
from .formats import Format, format_of, parse
from .frames import is_frame, polars_frame
from .minari_datasets import is_minari, minari_frame
from .places import Places, joined, one_part

Source: TypeAlias = str | Path | Sequence[str | Path] | Any


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rows as the user gave them."""

    frame: pl.DataFrame
    places: Places
    name: str


def read_table(source: Source, format: Format | str | None = None) -> Table:
    """Read a source whole; the format is told by the file's name or its first bytes."""
    if is_minari(source):
        frame = minari_frame(source)
        return Table(frame, one_part("", frame.height, base=0), "the Minari dataset")
    if is_frame(source):
        frame = polars_frame(source)
        return Table(frame, one_part("", frame.height, base=0), "the frame")
    if isinstance(source, str) and source == "-":
        return _parsed(sys.stdin.buffer.read(), "standard input", format)
    paths = source_paths(source)
    tables = [_parsed(_bytes(path), path.name, format or format_of(path)) for path in paths]
    return tables[0] if len(tables) == 1 else _stacked(tables)


def source_paths(source: Source) -> list[Path]:
    """The files that a path, a glob or a list of both names, each glob in the order of names."""
    if isinstance(source, str | Path):
        source = [source]
    if not isinstance(source, Sequence) or not all(isinstance(one, str | Path) for one in source):
        raise LogError(
            f"cannot read a log from {type(source).__name__}.",
            expected="a path, a glob, '-', a pandas or polars frame, or a Minari dataset",
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
    found = sorted(Path(one) for one in glob.glob(name, recursive=True) if Path(one).is_file())
    if not found:
        raise LogError(
            f"there is no file {name}.", remedy="Check the path; a glob must match some file."
        )
    return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror or error}.") from error


def _parsed(content: bytes, name: str, format: Format | str | None) -> Table:
    frame, rows = parse(content, name, format)
    places = Places((name,), (0,), rows)
    return Table(frame, places, name)


def _stacked(tables: list[Table]) -> Table:
    first = tables[0]
    for table in tables[1:]:
        different = set(table.frame.columns) ^ set(first.frame.columns)
        if different:
            raise LogError(
                f"{table.name} has other columns than {first.name}: {sorted(different)}.",
                expected="the same columns in every file",
            )
    frame = _concatenated([table.frame.select(first.frame.columns) for table in tables])
    places = joined([table.places for table in tables])
    return Table(frame, places, f"{first.name} and {len(tables) - 1} more")


def _concatenated(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """One under the other; a column that is text in one file is text in all, and is judged later."""
    text = {name for frame in frames for name, kind in frame.schema.items() if kind == pl.String}
    unlike = [name for name in text if any(frame.schema[name] != pl.String for frame in frames)]
    frames = [
        frame.with_columns(pl.col(name).cast(pl.String) for name in unlike) for frame in frames
    ]
    try:
        return pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise LogError(
            f"the files hold different types in one column ({error}).",
            expected="the same types in every file",
        ) from error
