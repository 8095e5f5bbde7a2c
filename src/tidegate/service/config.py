"""The service's file: its gates, and by `events.configured` its endpoints and registries."""

import logging
import tomllib
from pathlib import Path
from typing import Any

from sqlalchemy.exc import IntegrityError

from ..errors import SettingsError
from . import registry, uploads
from .database import Database
from .definitions import definition_of
from .events import configured

log = logging.getLogger("tidegate.service")
TABLES = ("gates", "endpoints", "mlflow")
CONFIG = "config"  # who defines what stands in the file


def configure(database: Database, path: Path) -> None:
    """Define the gates of a file; a policy that it names by its path is uploaded."""
    for name, values in read_definitions(path).items():
        try:
            gate, changed = _defined(database, name, values, path.parent)
        except SettingsError as error:
            told = {"expected": error.expected, "remedy": error.remedy}
            raise SettingsError(error.what, where=f"{path}, [gates.{name}]", **told) from error
        log.info("gate %s: version %s%s", name, gate.version, " is new" if changed else "")
    configured.configure(database, path, CONFIG)


def read_definitions(path: Path) -> dict[str, dict[str, Any]]:
    """The gates of a TOML file, by name: each a table under [gates]."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}.") from error
    unknown = sorted(set(content) - set(TABLES))
    if unknown:
        raise SettingsError(
            f"{path} has a table '{unknown[0]}', which means nothing.", expected=", ".join(TABLES)
        )
    gates = content.get("gates")
    if not isinstance(gates, dict) or not all(isinstance(one, dict) for one in gates.values()):
        raise SettingsError(f"{path} defines no gates.", expected="tables such as [gates.ranking]")
    return gates


def _defined(
    database: Database, name: str, values: dict[str, Any], folder: Path
) -> tuple[registry.Gate, bool]:
    for role in ("candidate", "safe"):
        kind, _, file = str(values.get(role, "")).partition(":")
        if kind == "policy" and not file.startswith("sha256:"):
            values[role] = f"policy:sha256:{_uploaded(database, folder / file)}"
    definition = definition_of(values)
    try:
        return registry.define(database, name, definition, CONFIG)
    except IntegrityError:  # another server that starts has just done the same
        return registry.define(database, name, definition, CONFIG)


def _uploaded(database: Database, path: Path) -> str:
    try:
        return uploads.store_policy(database, path.read_bytes(), CONFIG)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
