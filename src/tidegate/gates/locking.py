"""One process at a time: a lock beside a file, which the system lifts when its holder dies."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from ..errors import SettingsError

PATIENCE = 3600.0  # seconds: a gate on a large log with many past dates takes minutes
PAUSE = 0.02
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Hold the lock of this file; in here, it may be asked for again.

    Other processes and threads wait, and their `waiting` is told so. When a holder is killed, the next
    one gets the lock at once: PATH.lock may stay behind, and means nothing.
    """
    if path in _held.get():
        yield
        return
    release = _take(path, waiting)
    token = _held.set(_held.get() | {path})
    try:
        yield
    finally:
        _held.reset(token)
        release()


def _take(path: Path, waiting: Callable[[str], object]) -> Callable[[], None]:
    """Take the lock; the answer gives it back."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        return _system_lock(lock, path, waiting)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise SettingsError(f"cannot write the lock file {lock}: {error.strerror or error}.") from error
    lock.unlink(missing_ok=True)
    return _exclusive_file(path.with_name(f"{path.name}.held"))


def _system_lock(lock: Path, path: Path, waiting: Callable[[str], object]) -> Callable[[], None]:
    deadline, descriptor = time.monotonic() + PATIENCE, _attempt(lock)
    if descriptor is None:
        waiting(f"waiting for another gate that uses {path}")
    while descriptor is None:
        if time.monotonic() > deadline:
            raise SettingsError(
                f"another gate has been using {path} for {PATIENCE / 60:g} minutes.",
                remedy="Let it finish, or end it; then ask again.",
            )
        time.sleep(PAUSE)
        descriptor = _attempt(lock)
    held = descriptor

    def release() -> None:
        lock.unlink(missing_ok=True)  # first, so that those who wait see that this one is no longer valid
        os.close(held)

    return release


def _attempt(lock: Path) -> int | None:
    """The open lock file, locked; None while another process holds it."""
    try:
        import fcntl
    except ImportError as error:  # Windows
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from error
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # held, or removed by its holder a moment ago
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _exclusive_file(held: Path) -> Callable[[], None]:
    """For file systems without locks: whoever creates this file holds the lock until it is removed."""
    try:
        held.touch(exist_ok=False)
    except FileExistsError as error:
        age = time.time() - held.stat().st_mtime
        raise SettingsError(
            f"{held} has existed for {age:.0f} seconds: another gate is at work, or one was killed. "
            "This file system has no locks that end with their holder.",
            remedy="If no other gate is running, remove that file and ask again.",
        ) from error
    return lambda: held.unlink(missing_ok=True)
