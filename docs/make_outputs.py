"""Run the shell commands of a page and compare what they print with what the page shows.

python docs/make_outputs.py docs/tutorials/contextual-policy.md           exit code 1 if something differs
python docs/make_outputs.py --write docs/tutorials/contextual-policy.md   put what they print into the page

The blocks of a page run in order, in one empty folder. A block of python or toml whose first line is a
comment with a file's name is saved there; a block of sh is run; a block of text after it holds its
standard output, in a terminal of 100 columns.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"# ([\w.-]+\.(?:py|toml))\n")


def run(command: str, folder: Path) -> str:
    """What a block of shell commands prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    printed = re.sub(r"good until [-\d]+ [\d:]+ UTC", "good until a week from now", done.stdout)
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def renewed(page: str, folder: Path) -> str:
    """The page with the outputs that its commands give now."""
    printed = ""

    def replaced(block: re.Match[str]) -> str:
        nonlocal printed
        kind, content = block.groups()
        if kind == "text":
            shown, printed = printed, ""
            return f"```text\n{shown}```"
        if printed:
            raise SystemExit(f"output that the page does not show:\n{printed}")
        named = NAME.match(content)
        if kind == "sh":
            printed = run(content, folder)
        elif named:
            (folder / named[1]).write_text(content)
        return block[0]

    return BLOCK.sub(replaced, page)


def main(arguments: list[str]) -> int:
    """Check or rewrite the pages that are named."""
    write = "--write" in arguments
    different = 0
    for path in (Path(one) for one in arguments if one != "--write"):
        page = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "docs").symlink_to(Path(__file__).resolve().parent)
            new = renewed(page, Path(folder))
        different += new != page
        sys.stdout.writelines(
            difflib.unified_diff(page.splitlines(True), new.splitlines(True), str(path), "now")
        )
        if write:
            path.write_text(new)
    return 0 if write else min(different, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
