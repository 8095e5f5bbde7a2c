"""How much memory a log may take: asked before anything of its size is allocated."""

import contextlib
import ctypes
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..errors import LogError, SettingsError
from ..inputs import shown

VARIABLE = "TIDEGATE_MEMORY_LIMIT"
FALLBACK = 4 * 2**30  # where the machine does not say how much is free
MOST = 2**63  # more bytes than any machine can address
SHARE = 0.5  # of the free memory, unless the user sets a limit
_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
RAISE_IT = f"Set another limit with `memory_limit` or {VARIABLE} if the machine has the memory"


@dataclasses.dataclass(frozen=True)
class MemoryLimit:
    """The most bytes that a log and what is computed from it may take; `taken` are in use already."""

    total: int
    taken: int = 0

    @property
    def left(self) -> int:
        return max(0, self.total - self.taken)

    def beside(self, taken: int) -> "MemoryLimit":
        """The same limit with this much more in use."""
        return dataclasses.replace(self, taken=self.taken + taken)

    def require(self, needed: float, what: str, *, where: str = "", remedy: str = "") -> None:
        """There is room for this many bytes, which `what` would take."""
        if needed > self.left:
            beside = f", beside the {in_words(self.taken)} already in use" if self.taken else ""
            raise self.exceeded(
                f"{what} would take about {in_words(needed)} of memory{beside}.", where, remedy
            )

    def exceeded(self, what: str, where: str = "", remedy: str = "") -> LogError:
        """The error for something that does not fit."""
        rest = f"; or {remedy}" if remedy else ""
        return LogError(
            what, where=where, expected=f"at most {in_words(self.total)}", remedy=f"{RAISE_IT}{rest}."
        )


def memory_limit(given: int | str | None = None) -> MemoryLimit:
    """The limit that was given, else `TIDEGATE_MEMORY_LIMIT`, else half of what is free."""
    if given is not None:
        return MemoryLimit(size_of("the memory limit", given))
    set_outside = os.environ.get(VARIABLE)
    if set_outside:
        return MemoryLimit(size_of(VARIABLE, set_outside))
    return MemoryLimit(int(SHARE * free_memory()))


def size_of(name: str, given: int | str) -> int:
    """A number of bytes, or text with a unit, as in 500MB, 4GB or 4GiB."""
    text = str(given).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or not 1 <= (size := float(match[1]) * unit) < MOST:
        raise SettingsError(f"{name} is {shown(given)}.", expected="a size such as 500MB, 4GB or 4GiB")
    return int(size)


def in_words(size: float) -> str:
    """A number of bytes, as in 4.2 GB."""
    for name in ("TB", "GB", "MB", "KB"):
        if size >= _UNITS[name]:
            return f"{size / _UNITS[name]:.3g} {name}"
    return f"{size:.0f} bytes"


def free_memory(root: Path = Path("/")) -> int:
    """What the machine has free, or what the process's control groups leave it, if that is less."""
    found = [*_available(root), *_group_rooms(root)]
    return min(found, default=round(FALLBACK / SHARE))


def hold_freed() -> None:
    """Keep what is freed for what comes next: a system that clears each page takes a tenth of the time.

    The C library of GNU does so with blocks up to the size of the largest that was ever freed, and 32 MiB.
    """
    np.empty(2**25 - 2**12, np.uint8)


def give_back() -> None:
    """Let the system have what was freed: the C library keeps it, hundreds of megabytes after a long log."""
    with contextlib.suppress(OSError, AttributeError):  # only GNU's has this
        ctypes.CDLL(None).malloc_trim(0)


def _available(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _group_rooms(root: Path) -> Iterator[int]:
    """What each control group above the process leaves free, in both versions of the interface."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        groups = [Path(path.lstrip("/")), *Path(path.lstrip("/")).parents]
        if controllers == "":
            folders = [root / "sys/fs/cgroup" / one for one in groups]
            names = ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            folders = [root / "sys/fs/cgroup/memory" / one for one in groups]
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        for folder in folders:
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                yield max(0, limit - used)


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []
