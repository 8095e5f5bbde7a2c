"""Compiled programs are kept in the user's cache folder: most of a command's time is compiling them.

`TIDEGATE_CACHE` names another folder, or is `off`. Programs are kept by version, since those of another would
never be used. A program that is loaded is code that runs, so the folder must belong to the user alone.
"""

import os
import shutil
import sys
from pathlib import Path

from .. import __version__
from ..errors import SettingsError
from .printing import tell

VARIABLE, OFF = "TIDEGATE_CACHE", "off"


def cache_folder() -> Path | None:
    """Where compiled programs are kept, for all versions; None if they are not."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return None if given.strip().lower() in ("", OFF) else Path(given)
    homes = {"darwin": Path.home() / "Library" / "Caches", "win32": os.environ.get("LOCALAPPDATA")}
    base = homes.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidegate"


def keep_programs() -> None:
    """Let JAX load programs from the cache folder, and leave there what it compiles."""
    import jax

    folder = cache_folder()
    arranged = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if folder is None or arranged:
        return
    try:
        programs = folder / f"{__version__}-jax-{jax.__version__}"
        programs.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_own(programs)
    except (OSError, SettingsError) as error:
        tell(f"tidegate: compiled programs are not kept ({error}).")
        return
    for name, value in {
        "jax_compilation_cache_dir": str(programs),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def require_own(folder: Path) -> None:
    """Nobody else may put programs here."""
    from ..arrays import owned

    if not owned(folder):
        raise SettingsError(
            f"{folder} can be written by others", remedy=f"Name a folder of your own in {VARIABLE}."
        )


def size(folder: Path) -> int:
    """The bytes that the programs take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def clear() -> int:
    """Remove the programs of all versions; how many bytes they took."""
    folder = cache_folder()
    if folder is None or not folder.exists():
        return 0
    freed = size(folder)
    for version in folder.iterdir():
        if version.is_dir() and "-jax-" in version.name:
            shutil.rmtree(version)
    return freed
