"""Which files of a folder, on a disk or in a store, are the log, if it is a Delta or an Iceberg table.

Such a folder also holds files of rows that were replaced or deleted; the table's own log says which are live.
"""

import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl

from ..errors import LogError, SettingsError
from .formats import PARSER_ERRORS
from .urls import CREDENTIALS, is_url

DELTA_LOG, ICEBERG_LOG = "_delta_log/*.json", "metadata/*.metadata.json"
# What a file then holds is not what the table says: rows that are deleted, names that were changed.
NOT_AS_WRITTEN = {"deletionVectors": "deletion vectors", "columnMapping": "mapped column names"}
# What polars and the reader of Delta take from the environment by themselves, and that of Iceberg does not.
STORE = {"AWS_ENDPOINT_URL": "s3.endpoint", "AWS_REGION": "s3.region"}
ICEBERG_DATA = "data"  # the folder of a table's files
WILD = "*?["  # what a pattern of names has
FILE = "file"
REWRITE = "Write the rows to a new table, or as Parquet files."


def table_files(place: str) -> list[str] | None:
    """The live files of a table, in the order of their names; None if the folder is none, nor part of one."""
    for log, files in ((DELTA_LOG, _delta_files), (ICEBERG_LOG, _iceberg_files)):
        if _listed(place, log, first=True):
            found = sorted(files(place))
            if not found:
                raise LogError(f"the table {place} has no rows.", expected="one row per step")
            return found
    refuse_part_of_table(f"{place.rstrip('/')}/")
    return None


def refuse_part_of_table(place: str) -> None:
    """A pattern, or a folder inside a table, also names files of rows that were replaced."""
    plain = re.split(f"[{re.escape(WILD)}]", place)[0]
    folder = plain.rpartition("/")[0] or "/" if "/" in plain else "."
    while not _is_table(folder):
        above, _, inner = folder.rstrip("/").rpartition("/")
        if not above or not (inner == ICEBERG_DATA or "=" in inner):
            return
        folder = above
    raise LogError(
        f"{place} is a part of the table {folder}, which may hold rows that were replaced or deleted.",
        expected="a whole table, whose own log says which rows are live",
        remedy=f"Name the table itself, {folder}.",
    )


def _is_table(place: str) -> bool:
    return any(_listed(place, log, first=True) for log in (DELTA_LOG, ICEBERG_LOG))


def _listed(place: str, pattern: str, *, first: bool = False) -> list[str]:
    """The files of a folder with such a name; only one of them, if the `first` is enough."""
    if not is_url(place):
        return [str(path) for path in Path(place).glob(pattern)]
    lines = pl.scan_lines(
        f"{place.rstrip('/')}/{pattern}", n_rows=1 if first else None, include_file_paths=FILE
    )
    try:
        found: list[str] = lines.select(pl.col(FILE).unique()).collect()[FILE].to_list()
    except (*PARSER_ERRORS, OSError) as error:
        raise LogError(
            f"{place} cannot be listed ({str(error).strip().splitlines()[0]}).",
            expected="a folder in a store",
            remedy=CREDENTIALS,
        ) from error
    return found


def _delta_files(place: str) -> list[str]:
    table = _opened("Delta", place, lambda: import_module("deltalake").DeltaTable(place))
    features = {*(table.protocol().reader_features or ())}
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    for one in sorted(features & NOT_AS_WRITTEN.keys()):
        raise _not_as_written("Delta", place, NOT_AS_WRITTEN[one])
    return [*map(_path, table.file_uris())]


def _iceberg_files(place: str) -> list[str]:
    newest = max(_listed(place, ICEBERG_LOG), key=_version)

    def opened() -> list[Any]:
        given = {name: os.environ[key] for key, name in STORE.items() if key in os.environ}
        table = import_module("pyiceberg.table").StaticTable.from_metadata(newest, given)
        return [*table.scan().plan_files()]

    tasks = _opened("Iceberg", place, opened)
    if any(task.delete_files for task in tasks):
        raise _not_as_written("Iceberg", place, "files of deleted rows")
    return [_path(task.file.file_path) for task in tasks]


def _version(path: str) -> int:
    """The number that the name of the metadata begins with, as in 00003-… or v3."""
    number = re.match(r"v?(\d+)", path.rsplit("/", 1)[-1])
    return int(number[1]) if number else -1


def _opened(kind: str, place: str, open_table: Callable[[], Any]) -> Any:
    try:
        return open_table()
    except ImportError as error:
        raise SettingsError(
            f"{place} is a table of {kind}, whose reader is not installed.",
            remedy="pip install 'tidegate[lake]'",
        ) from error
    except Exception as error:  # whatever the reader raises
        raise LogError(
            f"{place} cannot be read as a table of {kind} ({str(error).strip().splitlines()[0]}).",
            remedy=CREDENTIALS if is_url(place) else REWRITE,
        ) from error


def _not_as_written(kind: str, place: str, what: str) -> LogError:
    return LogError(
        f"the table {place} of {kind} has {what}.",
        expected="files that hold the rows of the table as they stand",
        remedy=REWRITE,
    )


def _path(uri: str) -> str:
    return unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
