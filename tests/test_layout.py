"""The shape of the package: data flows down the file list, edges import the root, never the reverse."""

import ast
import re
import tomllib
from pathlib import Path

import tidegate

ROOT = Path(tidegate.__file__).parent
PROJECT = ROOT.parent.parent
# The order in which the data flows.
FLOW = [
    "errors", "arrays", "door", "episodes", "policies", "returns", "basis",
    "trend", "bootstrap", "value_models", "dependence", "periods", "scales", "verdicts", "performance",
    "trend_models", "action_table", "candidate", "records", "paired", "budget", "safety", "multiplicity",
    "guardrails", "loop",
    "drivers", "presets", "theory", "findings", "trend_tests", "goodness", "support",
    "diagnostics", "backtesting", "planning",
]  # fmt: skip
EDGES = {
    "simulators", "experiments", "reports", "logs", "workflows", "cli", "cli_logs", "__init__",
    "__main__",
}  # fmt: skip


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_every_root_file_has_its_place() -> None:
    names = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    assert names - {"__pycache__"} == set(FLOW) | EDGES


def test_a_root_file_imports_only_files_above_it() -> None:
    for place, name in enumerate(FLOW):
        assert _imports(ROOT / f"{name}.py") <= set(FLOW[:place]), name


def test_public_names_exist_and_types_agree_with_the_lazy_table() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    source = (ROOT / "__init__.py").read_text()
    typed = set(re.findall(r"import (\w+) as \1", source))
    assert typed == set(tidegate.__all__) - {"__version__"}


def test_versions_agree() -> None:
    version = tidegate.__version__
    assert f"version: {version}" in (PROJECT / "CITATION.cff").read_text()
    assert f"## {version}" in (PROJECT / "CHANGELOG.md").read_text()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    pinned = (PROJECT / "constraints.txt").read_text().lower()
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert re.search(rf"^{name}==", pinned, re.MULTILINE), name
