"""Does an installed Tidegate work? `release/dist.py` runs this outside the project.

python smoke.py VERSION FILE…      the version, and the files that must be in the package beside its code
"""

import csv
import importlib.resources
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path


def main(version: str, files: list[str]) -> None:
    """Import it, ask its version, look for its files, and let it decide."""
    import tidegate

    assert "site-packages" in tidegate.__file__, tidegate.__file__
    assert tidegate.__version__ == version
    package = importlib.resources.files("tidegate")
    missing = [name for name in files if not (package / name).is_file()]
    assert not missing, missing
    with tempfile.TemporaryDirectory() as folder:
        gate(Path(folder), version)


def gate(folder: Path, version: str) -> None:
    """The command, as it was installed, on a log whose second action is the better one."""
    command = str(Path(sys.executable).with_name("tidegate"))
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"tidegate {version}", said
    with (folder / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "action", "behavior_prob", "reward", "new_prob"])
        draw = random.Random(0)
        for episode in range(400):
            action = draw.randrange(2)
            rows.writerow([episode, action, 0.5, action + draw.gauss(0, 0.1), (0.1, 0.9)[action]])
    asked = [command, "gate", "log.csv", "--candidate", "column:new_prob", "--lookahead", "20"]
    asked += ["--report", "gate.html"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((folder / "decision.json").read_text())["verdict"] == "DEPLOY"
    assert "<html" in (folder / "gate.html").read_text()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
    print("it works")
