"""A folder for what does not fit into memory: announced, bounded, and gone at the end, however that comes."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import LogError
from .memory import in_words

PREFIX = "tidegate-rows-"
SPARE = 0.05  # of the disk stays free: the rest of the machine writes there too


@contextlib.contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A new folder in `parent`, or where the system keeps such things; removed with all that is in it."""
    place = parent or Path(tempfile.gettempdir())
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    except OSError as error:
        raise LogError(
            f"no scratch files can be written to {place}: {error.strerror or error}.",
            remedy="Name a folder on a disk with room, as in `scratch='/data/scratch'`.",
        ) from error
    try:
        yield folder
    finally:
        _removed(folder)


def _removed(folder: Path) -> None:
    """Remove the folder; an interruption meanwhile waits until that is done."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def require_space(folder: Path, needed: float, what: str) -> None:
    """The disk has room for this many bytes."""
    disk = shutil.disk_usage(folder)
    free = disk.free - SPARE * disk.total
    if needed > free:
        raise LogError(
            f"{what} would take about {in_words(needed)} of scratch space in {folder.parent}, "
            f"and {in_words(max(0.0, free))} are to spare.",
            expected=f"a folder with at least {in_words(needed)} to spare",
            remedy="Name one, as in `scratch='/data/scratch'`; or sort the log by episode and step, "
            "and no scratch space is needed.",
        )


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that fills up meanwhile is an error with a remedy."""
    try:
        yield
    except OSError as error:
        raise LogError(
            f"a scratch file in {folder.parent} cannot be written: {error.strerror or error}.",
            remedy="Name a folder on a disk with room, as in `scratch='/data/scratch'`.",
        ) from error
