"""From whatever names a log to its pieces: which files, which columns, how many rows; nothing whole."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

import polars as pl

from ..errors import LogError
from .formats import GZIP, HEAD, PARSER_ERRORS, Format, empty_file, format_of, guess, parse, reading
from .frames import frame_in_memory, minari_frame
from .lake import WILD, refuse_part_of_table, table_files
from .memory import MemoryLimit
from .pieces import POSITION, SCANS, Piece, Pieces
from .sources import Source, bytes_of, source_paths, stacked, told_apart
from .text_survey import surveyed_text
from .texts import TEXTS, opened
from .urls import CREDENTIALS, is_url

LOCAL = "file://"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what a folder is called in place of a missing value


def survey(source: Source, format: Format | None, limit: MemoryLimit) -> Pieces:
    """The pieces of a path, a glob, a list of them, a folder of partitions, or a frame."""
    for reader, name in ((minari_frame, "the Minari dataset"), (frame_in_memory, "the frame")):
        frame = reader(source)
        if frame is not None:
            one = Piece("", "", Format.ARROW, frame.schema, frame.height, frame.height, frame=frame)
            return Pieces((one,), frame.schema, name)
    found = [file for one in _listed(source) for file in _files(one, format)]
    names = told_apart([file.name for file in found], [file.path for file in found])
    files = [dataclasses.replace(file, name=name) for file, name in zip(found, names, strict=True)]
    hive = _hive_kinds([file.folders for file in files])
    return joined([_piece(file, format, hive, limit) for file in files])


def joined(pieces: Sequence[Piece]) -> Pieces:
    """Piece after piece as one log, its columns in types that fit all of them."""
    firsts = [0, *itertools.accumulate(piece.span for piece in pieces)]
    placed = tuple(dataclasses.replace(one, first=first) for one, first in zip(pieces, firsts, strict=False))
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return Pieces(placed, _common(pieces), pieces[0].name + more)


Folders: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclasses.dataclass(frozen=True)
class _File:
    """A file, what the user calls it, and the columns that the folders above it name, as in day=3."""

    path: str
    name: str
    folders: Folders = ()


def _listed(source: Source) -> Sequence[Source]:
    return source if isinstance(source, list | tuple) else [source]


def _files(source: Source, format: Format | None) -> list[_File]:
    if is_url(source):
        return _stored(str(source), format)
    if source == "-":
        raise LogError(
            "standard input can be read only once, so not in parts.",
            remedy="Save it to a file first, or leave out `stream`, `engine` and `workers`.",
        )
    if not (isinstance(source, str | Path) and Path(source).is_dir()):
        return [_File(str(path), path.name) for path in source_paths(source)]
    folder = Path(source).absolute()
    live = table_files(str(folder))
    paths = _visible(folder) if live is None else [Path(one) for one in live]
    inside = [path.relative_to(folder) if path.is_relative_to(folder) else path for path in paths]
    if not inside:
        raise LogError(f"the folder {source} holds no log.", expected="files such as *.parquet in it")
    return [_File(str(folder / one), one.as_posix(), _partition(one)) for one in inside]


def _visible(folder: Path) -> list[Path]:
    """The log files in a folder and below, in the order of their names."""
    paths = sorted(path for path in folder.rglob("*") if format_of(path) and path.is_file())
    hidden = (".", "_")
    return [
        path for path in paths if not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
    ]


def _stored(url: str, format: Format | None) -> list[_File]:
    """The files of a URL, which may have a glob or name a folder; polars finds them."""
    kind = format or format_of(Path(url)) or Format.PARQUET
    local = unquote(url.removeprefix(LOCAL)) if url.startswith(LOCAL) else None
    if local is not None and (kind in TEXTS or Path(local).is_dir()):
        return _files(local, format)
    if kind not in LISTED:
        raise LogError(
            f"{url} holds {kind.value}, which cannot be read where it is stored.",
            expected="Parquet or Arrow IPC at a URL",
            remedy="Copy it to a disk, or convert it.",
        )
    files = _live_files(url) or _listed_files(url, kind)
    return [_File(one, Path(one).name, _partition(Path(one))) for one in files]


def _live_files(url: str) -> list[str] | None:
    """Those of a table; None if the URL names other files."""
    if set(WILD) & set(url):
        refuse_part_of_table(url)
        return None
    one_file = format_of(Path(url)) is not None and not url.endswith("/")
    return None if one_file else table_files(url)


def _listed_files(url: str, kind: Format) -> list[str]:
    try:
        found = LISTED[kind](url).group_by(POSITION, maintain_order=True).len().collect()
    except (*PARSER_ERRORS, OSError) as error:
        raise LogError(
            f"{url} cannot be read as {kind.value} ({str(error).strip().splitlines()[0]}).",
            expected="files in a store",
            remedy=CREDENTIALS,
        ) from error
    return found[POSITION].to_list()


# How files at URLs are listed: with a column of the file that each row is in.
LISTED: dict[Format, Callable[[str], pl.LazyFrame]] = {
    Format.PARQUET: lambda url: pl.scan_parquet(url, include_file_paths=POSITION, hive_partitioning=False),
    Format.ARROW: lambda url: pl.scan_ipc(url, include_file_paths=POSITION, hive_partitioning=False),
}


def _partition(path: Path) -> Folders:
    parts = (unquote(part).partition("=") for part in path.parts[:-1])
    return tuple((name, None if value == NO_VALUE else value) for name, mark, value in parts if mark)


def _hive_kinds(folders: Sequence[Folders]) -> pl.Schema:
    """The types of the columns that folders name: whole numbers if all of them are, else text."""
    values: dict[str, list[str]] = {}
    for name, value in itertools.chain.from_iterable(folders):
        values.setdefault(name, []).extend([] if value is None else [value])
    return pl.Schema(
        {name: pl.Int64() if all(map(_is_whole, found)) else pl.String() for name, found in values.items()}
    )


def _is_whole(text: str) -> bool:
    return text.isdecimal() and str(int(text)) == text


def _piece(file: _File, format: Format | None, hive: pl.Schema, limit: MemoryLimit) -> Piece:
    kind, packed = _kind(file, format)
    with reading(file.name, kind):
        piece = _read(file, kind, packed, limit)
    own = {name: hive[name] for name, _ in file.folders}
    return dataclasses.replace(piece, kinds=pl.Schema({**piece.kinds, **own}), folders=file.folders)


def _kind(file: _File, format: Format | None) -> tuple[Format, bool]:
    """The format of a file, and whether it is packed."""
    known = format or format_of(Path(file.path))
    if is_url(file.path):
        return known or Format.PARQUET, False
    with opened(file.path, file.name, packed=False) as stream:
        head = stream.read(HEAD)
    packed = head.startswith(GZIP)
    if packed:
        with opened(file.path, file.name, packed=True) as stream:
            head = stream.read(HEAD)
    if not head or (head.isspace() and len(head) < HEAD):
        raise empty_file(file.name)
    return guess(head, known), packed


def _read(file: _File, kind: Format, packed: bool, limit: MemoryLimit) -> Piece:
    path, name = file.path, file.name
    if kind in TEXTS:
        text = surveyed_text(path, name, packed, kind, limit)
        return Piece(name, path, kind, text.columns, text.span, text.span - text.blank.size, text=text)
    if packed:  # its table of contents is at the end: all of it must be unpacked
        frame = parse(bytes_of(Path(path), limit), name, kind, limit)[0]
        return Piece(name, path, kind, frame.schema, frame.height, frame.height, frame=frame)
    piece = Piece(name, path, kind, pl.Schema(), 0, 0)
    lazy = SCANS[kind](piece)
    rows = int(lazy.select(pl.len()).collect().item())
    kinds = {name: one for name, one in lazy.collect_schema().items() if name != POSITION}
    return dataclasses.replace(piece, kinds=pl.Schema(kinds), span=rows, rows=rows)


def _common(pieces: Sequence[Piece]) -> pl.Schema:
    """The types that fit all pieces, found on tables without rows."""
    common, first = pl.DataFrame(schema=pieces[0].kinds), pieces[0]
    known = {_spelled(first.kinds)}
    for piece in pieces[1:]:
        if (spelled := _spelled(piece.kinds)) not in known:
            known.add(spelled)
            common = stacked([common, pl.DataFrame(schema=piece.kinds)], [first.name, piece.name])
    return common.schema


def _spelled(kinds: pl.Schema) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(kind)) for name, kind in kinds.items())
