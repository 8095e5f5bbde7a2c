"""The stored records, their hashes, and the machine that made them."""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import jax

FOLDER = Path(__file__).parent
CPU = Path("/proc/cpuinfo")
# What another processor's order of adding up may change: last bits, which a search in single precision
# carries through thousands of steps.
ROUNDING = {"live_loop": 1e-2, "study_batch": 1e-2}
LAST_BITS = 1e-6


def text_of(content: Any) -> str:
    """One line per entry of the record, so that a change is seen in a diff."""
    return json.dumps(content, indent=0, allow_nan=False) + "\n"


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def machine() -> str:
    """What may change the last bits of a sum: the processor's instructions and the compiler's version."""
    lines = CPU.read_text().splitlines() if CPU.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    words = f"{platform.machine()} {' '.join(sorted(flags.split()))} {jax.__version__}"
    return hashlib.sha256(words.encode()).hexdigest()


def hashes() -> dict[str, str]:
    """The hash of each stored record, and the machine."""
    lines = (line.split() for line in (FOLDER / "hashes.txt").read_text().splitlines())
    return {name: value for value, name in lines}


def write_hashes(names: list[str]) -> None:
    found = {name: hashlib.sha256(path_of(name).read_bytes()).hexdigest() for name in names}
    found["machine"] = machine()
    lines = [f"{value}  {name}\n" for name, value in found.items()]
    (FOLDER / "hashes.txt").write_text("".join(lines))


def tolerance(name: str) -> float | None:
    """None, for the same bits, on a machine like the one that stored them."""
    return None if hashes()["machine"] == machine() else ROUNDING.get(name, LAST_BITS)
