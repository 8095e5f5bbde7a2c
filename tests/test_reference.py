"""Pages of the reference that are made from the code are as the code has them, and nothing is missing."""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
IMPORT = re.compile(r"^from (tidegate[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def test_the_reference_is_not_stale() -> None:
    command = [sys.executable, str(DOCS / "make_reference.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_that_a_page_imports_is_in_the_reference() -> None:
    imported = {
        (module, name)
        for path in DOCS.rglob("*.md")
        for module, names in IMPORT.findall(path.read_text())
        for name in re.findall(r"\w+", names)
    }
    assert len(imported) > 20
    for module, name in imported:
        page = (DOCS / "reference" / "api" / f"{module}.md").read_text()
        assert f"\n::: {module}.{name}\n" in page, (module, name)
