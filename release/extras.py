"""Does pip find versions for each extra, and for all together? It installs nothing: `make extras`."""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]


def main() -> int:
    """Ask for each, then for all, as our pins have them and as a user would get them."""
    content = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    extras = list(content["project"]["optional-dependencies"])
    wrong = 0
    for asked in [*extras, ",".join(extras)]:
        for pins in (["-c", str(PROJECT / "constraints.txt")], []):
            done = subprocess.run(
                [*PIP, *pins, f"{PROJECT}[{asked}]"], capture_output=True, text=True, check=False
            )
            print(f"{asked}{' (pinned)' if pins else ''}: {'no' if done.returncode else 'yes'}", flush=True)
            if done.returncode:
                wrong += 1
                print(done.stderr)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
