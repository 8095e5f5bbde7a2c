"""From whatever names a log to its pieces: which files, which columns, how many rows; nothing whole."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from ..errors import LogError
from .formats import Format, format_of, reading
from .frames import frame_in_memory, minari_frame
from .pieces import Piece, Pieces
from .sources import Source, source_paths, stacked


def survey(source: Source, format: Format | None = None) -> Pieces:
    """The pieces of a path, a glob, a list of them, a folder of partitions, or a frame."""
    for reader, name in ((minari_frame, "the Minari dataset"), (frame_in_memory, "the frame")):
        frame = reader(source)
        if frame is not None:
            one = Piece("", "", Format.ARROW, frame.schema, frame.height, frame.height, frame=frame)
            return Pieces((one,), frame.schema, name)
    files = [file for one in _listed(source) for file in _files(one)]
    hive = _hive_kinds([file.folders for file in files])
    return joined([_piece(file, format, hive) for file in files])


def joined(pieces: Sequence[Piece]) -> Pieces:
    """Piece after piece as one log, its columns in types that fit all of them."""
    firsts = [0, *itertools.accumulate(piece.span for piece in pieces)]
    placed = tuple(dataclasses.replace(one, first=first) for one, first in zip(pieces, firsts, strict=False))
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return Pieces(placed, _common(pieces), pieces[0].name + more)


@dataclasses.dataclass(frozen=True)
class _File:
    """A file, what the user calls it, and the columns that the folders above it name, as in day=3."""

    path: Path
    name: str
    folders: tuple[tuple[str, str], ...] = ()


def _listed(source: Source) -> Sequence[Source]:
    return source if isinstance(source, list | tuple) else [source]


def _files(source: Source) -> list[_File]:
    if not (isinstance(source, str | Path) and Path(source).is_dir()):
        return [_File(path, path.name) for path in source_paths(source)]
    folder = Path(source)
    paths = sorted(path for path in folder.rglob("*") if format_of(path) and path.is_file())
    inside = [path.relative_to(folder) for path in paths]
    seen = [one for one in inside if not any(part.startswith((".", "_")) for part in one.parts)]
    if not seen:
        raise LogError(f"the folder {source} holds no log.", expected="files such as *.parquet in it")
    return [_File(folder / one, one.as_posix(), _partition(one)) for one in seen]


def _partition(path: Path) -> tuple[tuple[str, str], ...]:
    parts = (part.partition("=") for part in path.parts[:-1])
    return tuple((name, value) for name, mark, value in parts if mark)


def _hive_kinds(folders: Sequence[tuple[tuple[str, str], ...]]) -> pl.Schema:
    """The types of the columns that folders name: whole numbers if all of them are, else text."""
    values: dict[str, list[str]] = {}
    for name, value in itertools.chain.from_iterable(folders):
        values.setdefault(name, []).append(value)
    return pl.Schema(
        {name: pl.Int64() if all(map(_is_whole, found)) else pl.String() for name, found in values.items()}
    )


def _is_whole(text: str) -> bool:
    return text.isdecimal() and str(int(text)) == text


def _piece(file: _File, format: Format | None, hive: pl.Schema) -> Piece:
    kind = format or format_of(file.path)
    if kind not in SURVEYS:
        raise LogError(
            f"{file.name} cannot be read a part at a time.",
            expected="Parquet, Arrow IPC, CSV or JSON lines",
            remedy="Convert it, or name its format if the name misleads.",
        )
    own = pl.Schema({name: hive[name] for name, _ in file.folders})
    with reading(file.name, kind):
        return SURVEYS[kind](file.path, file.name, own)


def _parquet(path: Path, name: str, hive: pl.Schema) -> Piece:
    lazy = pl.scan_parquet(path, glob=False, hive_partitioning=bool(hive), hive_schema=hive or None)
    rows = int(lazy.select(pl.len()).collect().item())
    return Piece(name, str(path), Format.PARQUET, lazy.collect_schema(), rows, rows, hive=hive or None)


def _arrow(path: Path, name: str, hive: pl.Schema) -> Piece:
    lazy = pl.scan_ipc(path, glob=False, hive_partitioning=False)
    rows = int(lazy.select(pl.len()).collect().item())
    return Piece(name, str(path), Format.ARROW, lazy.collect_schema(), rows, rows)


# A new format is one more line here, and one in `pieces`.
SURVEYS: dict[Format, Callable[[Path, str, pl.Schema], Piece]] = {
    Format.PARQUET: _parquet,
    Format.ARROW: _arrow,
}


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
