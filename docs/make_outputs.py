"""Run the blocks of a page and compare what they print with what the page shows.

python docs/make_outputs.py docs/tutorials/contextual-policy.md           exit code 1 if something differs
python docs/make_outputs.py --write docs/tutorials/contextual-policy.md   put what they print into the page

The blocks of a page run in order, in one folder that holds what a page needs of a clone and nothing else. A
block of python or toml whose first line is a comment with a file's name is saved there; any other block of
python runs in the page's one session; a block of sh is run, and each of its commands must end with exit code
0, those of tidegate with 0 or 1, which is KEEP. A block of text shows the standard output of the block before
it, in a terminal of 100 columns; what python prints must be shown. Blocks in other languages are only shown.
A block in a comment of the page is run as well: it makes what the reader has and we do not, such as a log.
Port 8400 becomes any free one. A picture that the page shows and a block has drawn belongs beside the page.
"""

import contextlib
import difflib
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
CLONE = ("docs", "benchmarks", "Makefile", "constraints.txt", ".venv-streams")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"# ([\w.-]+\.(?:py|toml))\n")
PICTURE = re.compile(r"!\[[^]]*\]\(([\w-]+\.svg)\)")
STRICT = """trap 'code=$?; if [[ $code != 1 || $BASH_COMMAND != tidegate* ]]; then
  echo "$BASH_COMMAND" > .failed; exit; fi' ERR
"""
PORT = "8400"


def prepare(folder: Path) -> None:
    """What a page may ask of a clone."""
    for name in CLONE:
        if (PROJECT / name).exists():
            (folder / name).symlink_to(PROJECT / name)


def run(command: str, folder: Path) -> str:
    """What a block of shell commands prints."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", STRICT + command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    failed = folder / ".failed"
    if failed.exists():
        raise SystemExit(f"A command failed: {failed.read_text()}{done.stdout}")
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


def free_port() -> str:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@contextlib.contextmanager
def session(folder: Path) -> Iterator[None]:
    """In this folder, with this Python's commands; what a page sets in the environment ends with it."""
    before = dict(os.environ)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before["PATH"]])
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def renewed(page: str, folder: Path) -> str:
    """The page with the outputs that its commands give now."""
    printed, owed, names = "", False, {"__name__": "page"}
    port = free_port()

    def replaced(block: re.Match[str]) -> str:
        nonlocal printed, owed
        kind, content = block[1], block[2].replace(PORT, port)
        if kind == "text":
            shown, printed, owed = printed.replace(port, PORT), "", False
            return f"```text\n{shown}```"
        if owed:
            raise SystemExit(f"output that the page does not show:\n{printed}")
        named = NAME.match(content)
        if kind == "sh":
            printed = lasting(run(content, folder))
        elif named:
            (folder / named[1]).write_text(content)
        elif kind == "python":
            printed = lasting(told(content, names))
            owed = bool(printed)
        return block[0]

    prepare(folder)
    with session(folder):
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
            files = {path: renewed(page, Path(name))}
            files |= {path.parent / one: svg for one, svg in pictures(page, Path(name)).items()}
        for file, content in files.items():
            different |= changed(file, content)
            if write:
                file.write_text(content)
    return int(different and not write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
