"""Run the blocks of a page and compare what they print with what the page shows.

python docs/make_outputs.py docs/tutorials/contextual-policy.md           exit code 1 if something differs
python docs/make_outputs.py --write docs/tutorials/contextual-policy.md   put what they print into the page

The blocks of a page run in order, in one empty folder. A block of python or toml whose first line is a
comment with a file's name is saved there; any other block of python runs in the page's one session; a block
of sh is run; a block of text after it holds its standard output, in a terminal of 100 columns. A picture
that the page shows and a block has drawn belongs beside the page.
"""

import contextlib
import difflib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"# ([\w.-]+\.(?:py|toml))\n")
PICTURE = re.compile(r"!\[[^]]*\]\(([\w-]+\.svg)\)")


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
    return done.stdout


def told(code: str, names: dict[str, Any]) -> str:
    """What a block of Python prints in the session that holds these names."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "<page>", "exec"), names)
    return output.getvalue()


def lasting(printed: str) -> str:
    """Without what the day of the run decides, and without blanks that nobody sees."""
    known = re.sub(r"good until [-\d]+ [\d:]+ UTC", "good until a week from now", printed)
    return "".join(f"{line.rstrip()}\n" for line in known.splitlines())


def renewed(page: str, folder: Path) -> str:
    """The page with the outputs that its commands give now."""
    printed, names = "", {"__name__": "page"}

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
            printed = lasting(run(content, folder))
        elif named:
            (folder / named[1]).write_text(content)
        elif kind == "python":
            printed = lasting(told(content, names))
        return block[0]

    with contextlib.chdir(folder):
        return BLOCK.sub(replaced, page)


def pictures(page: str, folder: Path) -> dict[str, str]:
    """The pictures of a page that its blocks have drawn."""
    drawn = {name: folder / name for name in PICTURE.findall(page)}
    return {name: path.read_text() for name, path in drawn.items() if path.exists()}


def changed(path: Path, new: str) -> bool:
    """Whether a file is not as it would be now, with the difference on standard output."""
    old = path.read_text() if path.exists() else ""
    if path.suffix == ".svg":
        sys.stdout.write(f"{path} is drawn otherwise now\n" if new != old else "")
    else:
        lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(path), "now")
        sys.stdout.writelines(lines)
    return new != old


def main(arguments: list[str]) -> int:
    """Check or rewrite the pages that are named."""
    write = "--write" in arguments
    different = False
    for path in (Path(one) for one in arguments if one != "--write"):
        page = path.read_text()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "docs").symlink_to(Path(__file__).resolve().parent)
            files = {path: renewed(page, folder)}
            files |= {path.parent / one: svg for one, svg in pictures(page, folder).items()}
        for file, content in files.items():
            different |= changed(file, content)
            if write:
                file.write_text(content)
    return int(different and not write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
