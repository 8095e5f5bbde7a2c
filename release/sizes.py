"""How long `import tidegate` takes, how large an installation is, and what each extra adds: `make sizes`.

python release/sizes.py [--write]      --write puts the table into docs/reference/install.md

Run it with the interpreter of an environment that has the core and nothing else. What an extra adds is
what pip would install for it there: each package is unpacked in a scratch folder and counted.

The aim was 600 MB. JAX with what it needs takes more than that alone, so the limit is on all the rest.
"""

import importlib.metadata
import json
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "reference" / "install.md"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PINS = ["-c", str(PROJECT / "constraints.txt")]
EXTRAS = ("serve", "sign", "gymnasium", "minari", "lake", "ray", "gpu")
MEASURED = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.DOTALL)
TOOLS = ("pip", "setuptools", "_distutils", "distutils")
RUNS = 10
JAX = ("jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy")
MOST_SECONDS, MOST_BYTES = 0.1, 350e6
# Of the processor, so that whatever else the machine does is not counted.
TIMED = "import time; t = time.process_time(); import tidegate; print(time.process_time() - t)"


def main(arguments: list[str]) -> int:
    """Measure, print, and keep if asked."""
    seconds, core, jax = import_seconds(), core_bytes(), jax_bytes()
    lines = [
        "| what | |",
        "|---|---|",
        f"| processor time of `import tidegate`, median of {RUNS} | {1000 * seconds:.0f} ms |",
        f"| the core with all that it needs, installed | {_megabytes(core)} |",
        f"| of this, JAX with SciPy and NumPy, which it needs | {_megabytes(jax)} |",
        f"| what pip downloads for it | {_megabytes(downloaded_bytes())} |",
        *(f"| `tidegate[{extra}]` adds | {_added(extra)} |" for extra in EXTRAS),
    ]
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments == ["--write"]:
        PAGE.write_text(MEASURED.sub(lambda _: f"\n{table}\n", PAGE.read_text()))
    if seconds > MOST_SECONDS:
        print(f"The import takes longer than {1000 * MOST_SECONDS:.0f} ms.")
    if core - jax > MOST_BYTES:
        print(f"The core without JAX is larger than {_megabytes(int(MOST_BYTES))}.")
    return int(seconds > MOST_SECONDS or core - jax > MOST_BYTES)


def import_seconds() -> float:
    """The median of fresh processes; the first, which may compile, is not counted."""
    found = [float(_said([sys.executable, "-c", TIMED])) for _ in range(RUNS + 1)]
    return statistics.median(found[1:])


def core_bytes() -> int:
    """What lies in the environment, without pip and what came with it."""
    folder = Path(sysconfig.get_path("purelib"))
    return sum(_size(path) for path in folder.iterdir() if not path.name.lower().startswith(TOOLS))


def jax_bytes() -> int:
    """What JAX and its own requirements take of that."""
    files = [one for name in JAX for one in importlib.metadata.files(name) or ()]
    return sum(Path(str(one.locate())).lstat().st_size for one in files)


def downloaded_bytes() -> int:
    """The archives that pip fetches for the core."""
    with tempfile.TemporaryDirectory() as folder:
        _said([*PIP, "download", "--quiet", *PINS, "--dest", folder, *_project()["dependencies"]])
        return _size(Path(folder))


def _added(extra: str) -> str:
    packages = _packages(extra)
    with tempfile.TemporaryDirectory() as folder:
        _said([*PIP, "install", "--quiet", "--no-deps", "--target", folder, *packages])
        return f"{_megabytes(_size(Path(folder)))} in {len(packages)} packages"


def _packages(extra: str) -> list[str]:
    """What pip would install for an extra, beside what is there."""
    wanted = _project()["optional-dependencies"][extra]
    said = _said([*PIP, "install", "--quiet", "--dry-run", "--report", "-", *PINS, *wanted])
    listed = [one["metadata"] for one in json.loads(said)["install"]]
    return [f"{one['name']}=={one['version']}" for one in listed]


def _project() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return content


def _size(path: Path) -> int:
    return sum(one.lstat().st_size for one in [path, *path.rglob("*")] if one.is_file())


def _megabytes(amount: int) -> str:
    return f"{amount / 1e6:,.0f} MB"


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
