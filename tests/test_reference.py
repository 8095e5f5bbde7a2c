"""Pages of the reference that are made from the code are as the code has them."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent


def test_the_reference_is_not_stale() -> None:
    command = [sys.executable, str(PROJECT / "docs" / "make_reference.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
