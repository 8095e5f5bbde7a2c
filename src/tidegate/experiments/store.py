"""A study on disk: a manifest, one part per finished job, and at the end one table of rows.

Parts are written under another name and then renamed, so that a part that exists is whole. A study that
was interrupted goes on with the parts it lacks.
"""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Values
from ..errors import SettingsError
from ..record import versions
from .engines import Job
from .sweep import Columns


class Store:
    """The folder of one study."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.parts = folder, folder / "parts"
        self.parts.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        path = folder / "manifest.json"
        settings = json.loads(json.dumps(settings, default=_manifest_value))
        self.manifest: dict[str, Any] = {"settings": settings, "commit": _commit(), "seconds": 0.0}
        if path.exists():
            self.manifest = json.loads(path.read_text())
        if self.manifest["settings"] != settings:
            raise SettingsError(
                f"{folder} holds a study with other settings.",
                expected="the same command as before, to go on with it",
                remedy="Choose another --out, or remove that folder.",
            )
        self.seconds_before = float(self.manifest["seconds"])
        self.note()

    def note(self, **facts: Any) -> None:
        """Bring the manifest up to date."""
        self.manifest.update(
            facts,
            versions=versions(),
            seconds=self.seconds_before + time.monotonic() - self.started,
        )
        text = json.dumps(self.manifest, indent=1)
        _write(self.folder / "manifest.json", lambda path: path.write_text(text))

    def has(self, job: Job) -> bool:
        return self._part(job).exists()

    def save(self, job: Job, columns: Columns) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, allow_pickle=False, **columns)

        _write(self._part(job), write)
        self.note()

    def load(self, jobs: Sequence[Job]) -> Columns:
        """All rows, in the order of the jobs."""
        parts = []
        for job in jobs:
            with np.load(self._part(job)) as part:
                parts.append(dict(part))
        names = list(dict.fromkeys(name for part in parts for name in part))
        return {name: np.concatenate([part.get(name, _missing(part)) for part in parts]) for name in names}

    def _part(self, job: Job) -> Path:
        return self.parts / f"{job.name}.npz"


def write_parquet(columns: Columns, path: Path) -> None:
    """One row per run."""
    import polars

    _write(path, polars.DataFrame(dict(columns)).write_parquet)


def _missing(part: Columns) -> Values:
    return np.full(len(next(iter(part.values()))), np.nan)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """All at once: a reader finds the whole file or none."""
    scratch = path.with_suffix(".tmp")
    write(scratch)
    scratch.replace(path)


def _manifest_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **dataclasses.asdict(value)}
    return str(value)


def _commit() -> str | None:
    """The commit of the source tree, if this is one."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
