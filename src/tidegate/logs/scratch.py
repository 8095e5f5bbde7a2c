"""A folder for what does not fit into memory: announced, bounded, and gone at the end, however that comes."""

import contextlib
import shutil
import signal
import tempfile
import threading
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
    with _termination_waits():
        try:
            yield folder
        finally:
            _removed(folder)


@contextlib.contextmanager
def _termination_waits() -> Iterator[None]:
    """A request to end the process first interrupts it, so that it can tidy up, and then ends it.

    Whoever handles such requests otherwise, or works in another thread, has to interrupt by other means.
    """
    told: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        told.append(number)
        raise KeyboardInterrupt

    ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and _in_main_thread()
    if ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if ours and _in_main_thread() and signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if told:
                signal.raise_signal(signal.SIGTERM)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


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
