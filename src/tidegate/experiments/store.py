"""A study on disk: a manifest, one part per finished job, and at the end one table of rows.

A part that exists is whole. A study that was interrupted goes on with the parts it lacks, but not with
another version of the package: its rows would not be of one study.
"""

import dataclasses
import json
import logging
import subprocess
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Values
from ..errors import SettingsError
from ..record import differences, versions, write_whole, writing
from .engines import Job
from .sweep import Columns

logger = logging.getLogger(__name__)


class Store:
    """The folder of one study."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.parts = folder, folder / "parts"
        self.parts.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        settings = json.loads(json.dumps(settings, default=_manifest_value))
        software: dict[str, Any] = {"commit": _commit(), "versions": versions()}
        self.manifest: dict[str, Any] = {"settings": settings, **software, "seconds": 0.0}
        if self._manifest_path.exists():
            self.manifest = _read_manifest(self._manifest_path)
            _require_same_study(folder, self.manifest, settings, software["versions"]["tidegate"])
            self._go_on(software)
        self.seconds_before = float(self.manifest["seconds"])
        self.note()

    @property
    def _manifest_path(self) -> Path:
        return self.folder / "manifest.json"

    def _go_on(self, software: dict[str, Any]) -> None:
        """Say what has changed since the study was begun, here and in the manifest."""
        begun = {name: self.manifest[name] for name in software}
        known = [(place, old, new) for place, old, new in differences(begun, software) if old and new]
        changes = [f"{place} {old}, now {new}" for place, old, new in known]
        if changes:
            logger.warning("%s was begun with %s.", self.folder, "; ".join(changes))
            others = self.manifest.setdefault("resumed_with", [])
            others += [software] * (software not in others)

    def note(self, **facts: Any) -> None:
        """Bring the manifest up to date."""
        seconds = self.seconds_before + time.monotonic() - self.started
        self.manifest.update(facts, seconds=seconds)
        write_whole(self._manifest_path, json.dumps(self.manifest, indent=1) + "\n")

    def has(self, job: Job) -> bool:
        return self._part(job).exists()

    def save(self, job: Job, columns: Columns) -> None:
        with writing(self._part(job)) as file:
            np.savez(file, allow_pickle=False, **columns)
        self.note()

    def load(self, jobs: Sequence[Job]) -> Columns:
        """All rows, in the order of the jobs."""
        parts = [_read_part(self._part(job)) for job in jobs]
        names = list(dict.fromkeys(name for part in parts for name in part))
        return {name: np.concatenate([part.get(name, _missing(part)) for part in parts]) for name in names}

    def _part(self, job: Job) -> Path:
        return self.parts / f"{job.name}.npz"


def write_parquet(columns: Columns, path: Path) -> None:
    """One row per run."""
    import polars

    with writing(path) as file:
        polars.DataFrame(dict(columns)).write_parquet(file)


def _missing(part: Columns) -> Values:
    return np.full(len(next(iter(part.values()))), np.nan)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        for name in ("settings", "commit", "versions", "seconds"):
            manifest[name]
        return manifest
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SettingsError(
            f"{path} is not the manifest of a study: {error!r}.",
            remedy="Choose another folder, or remove that one.",
        ) from error


def _require_same_study(
    folder: Path, manifest: dict[str, Any], settings: dict[str, Any], version: str
) -> None:
    begun = manifest["versions"].get("tidegate")
    if begun != version:
        raise SettingsError(
            f"{folder} holds a study that was begun with Tidegate {begun}, and this is Tidegate {version}.",
            expected="one version for all rows of a study",
            remedy=f"Go on with Tidegate {begun}, choose another folder, or remove that one.",
        )
    for place, old, new in differences(manifest["settings"], settings):
        raise SettingsError(
            f"{folder} holds a study with other settings: {place} was {old!s:.80}, and is {new!s:.80} now.",
            expected="the same command as before, to go on with it",
            remedy="Choose another folder, or remove that one.",
        )


def _read_part(path: Path) -> Columns:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as part:
            return dict(part)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SettingsError(
            f"{path} is damaged: {error}.", remedy="Remove it and start again: it is computed once more."
        ) from error


def _manifest_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **dataclasses.asdict(value)}
    return str(value)


def _commit() -> str | None:
    """The last commit of the package, if it is under version control."""
    command = ["git", "-C", str(Path(__file__).parents[1]), "log", "-1", "--format=%H", "--", "."]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
