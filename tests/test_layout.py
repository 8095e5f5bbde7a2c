"""The shape of the package: data flows down the file list, edges import the root, never the reverse."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import tidegate

ROOT = Path(tidegate.__file__).parent
PROJECT = ROOT.parent.parent
ENTRANCES = {"__init__", "__main__", "cli", "cli_logs"}


def reading_order() -> tuple[list[str], list[str]]:
    """The root files and the folders, as the package's own docstring lists them."""
    files, folders = str(tidegate.__doc__).split("Folders are the edges")
    names = re.findall(r"^    (\w+) ", files, re.MULTILINE)
    return names, re.findall(r"^    (\w+(?:  \w+)*)$", folders, re.MULTILINE)[0].split()


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
            assert homes(path) <= {*FILES, *FOLDERS[: place + 1]}, path.relative_to(ROOT)


def test_public_names_are_few_and_exist() -> None:
    names = [name for name in dir(tidegate) if name != "__version__"]
    assert 0 < len(names) <= 45
    for name in names:
        assert getattr(tidegate, name) is not None


def test_versions_agree() -> None:
    version = tidegate.__version__
    assert f"version: {version}" in (PROJECT / "CITATION.cff").read_text()
    assert f"## {version}" in (PROJECT / "CHANGELOG.md").read_text()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    pinned = (PROJECT / "constraints.txt").read_text().lower()
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert re.search(rf"^{name}==", pinned, re.MULTILINE), name
