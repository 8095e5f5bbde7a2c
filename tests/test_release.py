"""What is said of a release in several places is the same in all of them."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidegate

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = dict(re.findall(r"^([a-z-]+):[^=\n]*?(?:## *(.*))?$", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def test_version_and_date_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert citation["version"] == tidegate.__version__
    assert newest[1] == f"{tidegate.__version__} ({citation['date-released']})"
    assert citation["license"] == PROJECT["license"]
    used = re.findall(r"tidegate@v([\w.]+)", (ROOT / "docs/how-to/service-adapters.md").read_text())
    assert used == [tidegate.__version__]


def test_pythons_agree() -> None:
    """What the metadata promises is what the workflow tests and `make dist` tries."""
    named = [one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    tried = re.search(r"^VERSIONS = \((.+)\)$", (ROOT / "release/dist.py").read_text(), re.MULTILINE)
    assert tried is not None
    assert re.findall(r"[\d.]+", tried[1]) == named
    (workflow,) = [yaml.safe_load(one.read_text()) for one in WORKFLOWS if one.stem == "checks"]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def requirements(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Names and lower bounds."""
    for line in lines:
        name, bound = line.split(">=")
        yield name, bound


def test_every_dependency_is_pinned() -> None:
    pinned = (ROOT / "constraints.txt").read_text().lower()
    for name, _ in requirements(PROJECT["dependencies"]):
        assert re.search(rf"^{name}==", pinned, re.MULTILINE), name


def test_the_oldest_versions_are_those_that_are_declared() -> None:
    """What `make lowest` tests is what pyproject.toml promises."""
    declared = set(requirements(PROJECT["dependencies"]))
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tested = {tuple(line.split("==")) for line in lines if not line.startswith("#")}
    assert declared <= tested
    assert {name for name, _ in tested - declared} <= {"jaxlib"}  # which comes with JAX


def test_an_import_loads_nothing_that_is_large() -> None:
    """Nothing beside the standard library but the package, which loads names when they are used."""
    code = "import sys; before = {*sys.modules}; import tidegate; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"tidegate", "lazy_loader"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_make_runs(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    commands = [one["run"] for job in workflow["jobs"].values() for one in job["steps"] if "run" in one]
    assert {"make test", "make lowest", "make dist", "make docs"} <= set(commands)
    for command in commands:
        assert command.removeprefix("make ") in TARGETS, command


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_is_one_that_github_takes(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= form.keys()
    assert {one["type"] for one in form["body"]} <= FIELDS
    ids = [one["id"] for one in form["body"] if one["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 0
    assert all("label" in one["attributes"] for one in form["body"] if one["type"] != "markdown")


def test_help_lists_what_make_can_do() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS.keys()
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target, about in TARGETS.items():
        assert (re.search(rf"^{target} +\S", said, re.MULTILINE) is not None) == bool(about), target


def test_clean_removes_every_environment() -> None:
    folders = re.findall(r"^(\w+) [?:]= \.venv", MAKEFILE, re.MULTILINE)
    cleaned = MAKEFILE[MAKEFILE.index("\nclean:") :]
    assert len(folders) > 5
    assert all(f"$({name})" in cleaned for name in folders)
