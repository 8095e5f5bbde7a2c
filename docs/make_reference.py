"""The pages of the reference that are made from the code.

python docs/make_reference.py             exit code 1 if one of them is stale, missing or left over
python docs/make_reference.py --write     write them anew
"""

import difflib
import sys
from pathlib import Path

from generated.api import api_pages
from generated.columns import columns_page
from generated.commands import commands_page
from generated.gates import gates_page
from generated.http import http_page
from generated.records import records_page, schema_file
from generated.words import NOTICE

SCHEMA = "record.schema.json"
FOLDER = Path(__file__).resolve().parent / "reference"


def pages() -> dict[str, str]:
    """All pages that are made from the code, by their file's name."""
    return {
        "commands.md": commands_page(),
        "columns.md": columns_page(),
        "gates.md": gates_page(),
        "http.md": http_page(),
        "record.md": records_page(),
        SCHEMA: schema_file(),
        **api_pages(),
    }


def stored() -> dict[str, str]:
    """What is there now."""
    found = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.*")}
    return {name: text for name, text in found.items() if NOTICE in text or name == SCHEMA}


def main(arguments: list[str]) -> int:
    """Check or rewrite."""
    new, old = pages(), stored()
    if arguments == ["--write"]:
        for name in old.keys() - new.keys():
            (FOLDER / name).unlink()
        for name, text in new.items():
            (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(text)
        return 0
    for name in sorted(new.keys() | old.keys()):
        before, after = (texts.get(name, "").splitlines(True) for texts in (old, new))
        sys.stdout.writelines(difflib.unified_diff(before, after, f"{name} as stored", "as the code has it"))
    if new != old:
        print("\nThe reference is stale: run `make reference`.")
    return int(new != old)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
