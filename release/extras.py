"""Do the extras install, alone and together, and do what they are for? `make extras`.

Run it with the interpreter of an environment that has the core and nothing else. pip is asked whether it
finds versions for every extra and for all of them, as our pins have them and as a user would get them. What
a user may want is then installed on top of the core, each alone and all together, and tried. Of `gpu` only
the versions are looked up: it is large, and trying it takes a GPU.
"""

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
TRIALS = PROJECT / "release" / "smoke_extras.py"
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
PINS = ["-c", str(PROJECT / "constraints.txt")]
TRIED = ("serve", "sign", "gymnasium", "minari", "lake", "ray")


def main() -> int:
    """Look up, install, try; the exit code is 1 if anything failed."""
    content = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    extras = list(content["project"]["optional-dependencies"])
    found = [looked_up(asked, pins) for asked in [*extras, ",".join(extras)] for pins in (PINS, [])]
    return int(not all([*found, *(tried([extra]) for extra in TRIED), tried(list(TRIED))]))


def looked_up(asked: str, pins: list[str]) -> bool:
    """Whether pip finds versions; nothing is installed."""
    command = [sys.executable, *PIP, "--dry-run", *pins, f"{PROJECT}[{asked}]"]
    return said(f"{asked}{' (pinned)' if pins else ''}: versions", command)


def tried(extras: list[str]) -> bool:
    """Whether they install where the core is, and work: an environment of their own that sees the core."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (own,) = Path(folder).glob("lib/python*/site-packages")
        (own / "core.pth").write_text(sysconfig.get_path("purelib"))
        python = f"{folder}/bin/python"
        name = ",".join(extras)
        install = [python, *PIP, *PINS, f"tidegate[{name}]"]
        return said(f"{name}: installs", install) and said(f"{name}: works", [python, str(TRIALS), *extras])


def said(what: str, command: list[str]) -> bool:
    """Print whether a command succeeds, and what it said if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(f"{what}: {'no' if done.returncode else 'yes'}", flush=True)
    if done.returncode:
        print(done.stdout, done.stderr, flush=True)
    return not done.returncode


if __name__ == "__main__":
    sys.exit(main())
