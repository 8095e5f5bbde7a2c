"""The last guard of the memory limit: what no estimate foresaw is stopped, with a sentence."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ..logs.memory import RAISE_IT, MemoryLimit, in_words

OWN = 3 * 2**29  # what the program itself may take: compiled programs, and the libraries that load on the way
INTERVAL = 0.05  # seconds
STATM = Path("/proc/self/statm")
MMAP_THRESHOLD, LARGE_BLOCK = -3, 4 * 2**20  # the first is glibc's name of the parameter


@contextlib.contextmanager
def memory_watched(limit: MemoryLimit, say: Callable[[str], None]) -> Iterator[None]:
    """End the process with exit code 2 if it grows by more than the limit meanwhile; on Linux only."""
    _return_large_blocks()
    start, done = _resident(), threading.Event()
    if start is None:
        yield
        return
    watch = threading.Thread(target=_watch, args=(start + limit.total + OWN, limit, done, say), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(most: int, limit: MemoryLimit, done: threading.Event, say: Callable[[str], None]) -> None:
    while not done.wait(INTERVAL):
        size = _resident()
        if size is not None and size > most:
            say(
                f"tidegate: nothing was decided, because the process has grown to {in_words(size)}. "
                f"Expected at most {in_words(limit.total)} for the log, and {in_words(OWN)} for the program "
                f"itself. {RAISE_IT}, or use a part of the log.\n"
            )
            os._exit(2)  # an exception would wait for the very call that takes the memory


def _return_large_blocks() -> None:
    """Let large arrays go back to the system when they are freed, where glibc would keep their memory."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE_BLOCK)


def _resident() -> int | None:
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
