"""Which files of a folder are the log, where the folder is a Delta or an Iceberg table.

Such a folder also holds files of rows that were replaced or deleted; the table's own log says which are live.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import LogError, SettingsError

DELTA_LOG, ICEBERG_LOG = "_delta_log", "metadata"
# What a file then holds is not what the table says: rows that are deleted, names that were changed.
NOT_AS_WRITTEN = {"deletionVectors": "deletion vectors", "columnMapping": "mapped column names"}


def table_files(folder: Path) -> list[Path] | None:
    """The live files of a table, in the order of their names; None if the folder is none."""
    for marks, files in ((_is_delta, _delta_files), (_is_iceberg, _iceberg_files)):
        if marks(folder):
            found = sorted(files(folder))
            if not found:
                raise LogError(f"the table {folder} has no rows.", expected="one row per step")
            return found
    return None


def _is_delta(folder: Path) -> bool:
    return (folder / DELTA_LOG).is_dir()


def _delta_files(folder: Path) -> list[Path]:
    table = _opened("Delta", folder, lambda: import_module("deltalake").DeltaTable(str(folder)))
    features = {*(table.protocol().reader_features or ())}
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    for one in sorted(features & NOT_AS_WRITTEN.keys()):
        raise _not_as_written("Delta", folder, NOT_AS_WRITTEN[one])
    return [*map(_path, table.file_uris())]


def _is_iceberg(folder: Path) -> bool:
    return (folder / ICEBERG_LOG).is_dir() and any(folder.glob(f"{ICEBERG_LOG}/*.metadata.json"))


def _iceberg_files(folder: Path) -> list[Path]:
    newest = max(folder.glob(f"{ICEBERG_LOG}/*.metadata.json"), key=_version)

    def opened() -> list[Any]:
        table = import_module("pyiceberg.table").StaticTable.from_metadata(str(newest))
        return [*table.scan().plan_files()]

    tasks = _opened("Iceberg", folder, opened)
    if any(task.delete_files for task in tasks):
        raise _not_as_written("Iceberg", folder, "files of deleted rows")
    return [_path(task.file.file_path) for task in tasks]


def _version(path: Path) -> int:
    """The number that the name of the metadata begins with, as in 00003-… or v3."""
    number = re.match(r"v?(\d+)", path.name)
    return int(number[1]) if number else -1


def _opened(kind: str, folder: Path, open_table: Callable[[], Any]) -> Any:
    try:
        return open_table()
    except ImportError as error:
        raise SettingsError(
            f"{folder} is a table of {kind}, whose reader is not installed.",
            remedy="pip install 'tidegate[lake]'",
        ) from error
    except Exception as error:  # whatever the reader raises
        raise LogError(
            f"{folder} cannot be read as a table of {kind} ({str(error).strip().splitlines()[0]}).",
            remedy="Name its live files, as in 'folder/*.parquet', or write the table again.",
        ) from error


def _not_as_written(kind: str, folder: Path, what: str) -> LogError:
    return LogError(
        f"the table {folder} of {kind} has {what}.",
        expected="files that hold the rows of the table as they stand",
        remedy="Write the rows to a new table, or as Parquet files.",
    )


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path) if uri.startswith("file://") else uri)
