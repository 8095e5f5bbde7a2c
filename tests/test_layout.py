"""The shape of the package: data flows down the file list; folders import the root, never the reverse."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tidegate

ROOT = Path(tidegate.__file__).parent
PROJECT = ROOT.parent.parent
ENTRANCES = {"__init__", "__main__"}
MOST_FILES, MOST_NAMES, MOST_BRANCHES = 25, 45, 3


def reading_order() -> tuple[list[str], list[str]]:
    """The root files and the folders, as the package's own docstring lists them."""
    files, folders = (
        re.findall(r"^    (\w+) ", part, re.MULTILINE)
        for part in str(tidegate.__doc__).split("The folders are the outer layers")
    )
    return files, folders


FILES, FOLDERS = reading_order()


def imported(path: Path) -> Iterator[str]:
    """Every module of the package that a file imports: relative at any depth, inside functions too."""
    package = ["tidegate", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            yield from (".".join([*module, one.name]) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def homes(path: Path) -> set[str]:
    """The root files and folders that a file imports; `from . import name` of a name is the package."""
    found = (one.split(".") for one in imported(path) if one.startswith("tidegate."))
    known = {*FILES, *FOLDERS, *ENTRANCES}
    return {parts[1] for parts in found if parts[1] in known}


def test_every_file_has_its_place() -> None:
    names = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    assert names - {"__pycache__"} == {*FILES, *FOLDERS, *ENTRANCES}


def test_a_root_file_imports_only_files_above_it() -> None:
    for place, name in enumerate(FILES):
        assert homes(ROOT / f"{name}.py") <= set(FILES[:place]), name


def test_folders_form_layers() -> None:
    for place, name in enumerate(FOLDERS):
        for path in (ROOT / name).rglob("*.py"):
            allowed = {*FILES, *FOLDERS[: place + 1]}
            assert homes(path) <= allowed, path.relative_to(ROOT)


def test_the_root_is_short() -> None:
    assert len(FILES) <= MOST_FILES


def test_only_the_command_line_knows_of_typer_and_rich() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] != "cli":
            found = {one.split(".")[0] for one in imported(path)}
            assert not found & {"typer", "rich"}, path.relative_to(ROOT)


def test_nobody_asks_which_test_it_is() -> None:
    """A test is an object: what differs between tests is asked of it, not of its class."""
    kinds = ("TwoBounds", "Paired", "Multiscale")
    asks = re.compile(
        rf"isinstance\([^)]*\b(?:{'|'.join(kinds)})\b|type\([^)]*test\)|case (?:{'|'.join(kinds)})\b"
        r"|\.has_p_value"
    )
    branches = re.compile(r"\b(?:if|elif|match|and|or)\b")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        for line in path.read_text().splitlines()
        if asks.search(line) and branches.search(line)
    ]
    assert len(found) <= MOST_BRANCHES, found


def test_time_knows_the_future_in_one_place() -> None:
    """Nobody but the axis adds a lookahead to a time, or counts back from one."""
    sums = re.compile(r"lookahead\b\s*[+-]|[+-]\s*(?:[\w.]+\.)?lookahead\b|\bhorizon\b\s*[+-]\s*\w")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        if path.name != "basis.py"
        for line in path.read_text().splitlines()
        if sums.search(line) and not line.lstrip().startswith(("#", '"'))
    ]
    assert not found, found


def test_public_names_are_few_and_each_is_on_a_page() -> None:
    names = [name for name in dir(tidegate) if name != "__version__"]
    assert 0 < len(names) <= MOST_NAMES
    pages = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    for name in names:
        assert getattr(tidegate, name) is not None
        assert re.search(rf"\b{name}\b", text), name
