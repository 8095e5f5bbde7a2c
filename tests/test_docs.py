"""Every example in the docs and the README runs as written and prints what the page shows."""

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

PROJECT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/tutorials/getting-started.md",
    "docs/explanation/problem.md",
    "docs/how-to/choosing.md",
    "docs/how-to/guardrails.md",
    "docs/how-to/repeated-tests.md",
    "docs/how-to/calendar-time.md",
    "docs/how-to/watch.md",
    "docs/how-to/azure-personalizer.md",
    "docs/how-to/missing-propensities.md",
    "docs/how-to/large-logs.md",
    pytest.param(
        "docs/how-to/serving.md",
        marks=pytest.mark.skipif(not shutil.which("node"), reason="the page runs node"),
    ),
]
ALL_PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
EXPIRY = re.compile(r"good until (?:[-\d]+ [\d:]+ UTC|a week from now)")
BORDERS = re.compile("[\u2500-\u257f]+")
STRICT = "trap '(( $? < 2 )) || echo FAILED: $BASH_COMMAND' ERR\n"  # exit code 1 is KEEP
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def _outputs() -> ModuleType:
    """What renews the tutorials: docs/make_outputs.py, which no package holds."""
    spec = importlib.util.spec_from_file_location("make_outputs", PROJECT / "docs/make_outputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outputs = _outputs()


def same(printed: str, shown: str) -> bool:
    """Equal words, whatever the date and a table's borders; numbers may move a little with the processor."""
    printed, shown = (EXPIRY.sub("good until", BORDERS.sub(" ", text)) for text in (printed, shown))
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=0.25, abs=0.1) for a, b in pairs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).stem)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order, in one folder: `python` here, `sh` in a shell; `bash` is only shown.

    A block that begins with a file's name is saved. What `python` prints must be shown; what `sh` prints may.
    """
    monkeypatch.chdir(tmp_path)
    blocks = outputs.BLOCK.findall((PROJECT / page).read_text())
    assert any(kind in ("python", "sh") for kind, _ in blocks)
    names: dict[str, Any] = {}
    printed, owed = "", False
    with jax.enable_x64(False):
        for kind, content in blocks:
            if kind == "text":
                assert same(printed, content), f"the page shows\n{content}\nbut it is\n{printed}"
                printed, owed = "", False
                continue
            assert not owed, f"output that the page does not show:\n{printed}"
            if named := outputs.NAME.match(content):
                (tmp_path / named[1]).write_text(content)
            elif kind == "sh":
                printed = outputs.lasting(outputs.run(STRICT + content, tmp_path))
                assert "FAILED" not in printed, printed
            elif kind == "python":
                printed = outputs.told(content, names)
                owed = bool(printed)


def test_links_between_pages_lead_somewhere() -> None:
    for page in ALL_PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def _links_to_source(page: Path) -> list[tuple[str, Path, int]]:
    """Links such as [`fit_trend`](src/tidegate/trend.py#L98): name, file, line."""
    found = re.findall(r"\[`(\w+)`\]\(([\w/.]+\.py)#L(\d+)\)", page.read_text())
    return [(name, page.parent / path, int(line)) for name, path, line in found]


def test_links_to_source_name_the_line_where_it_begins() -> None:
    for page in ALL_PAGES:
        for name, path, line in _links_to_source(page):
            begins = re.match(rf"(def|class) {name}\b", path.read_text().splitlines()[line - 1])
            assert begins, f"{page.name}: {name} does not begin at line {line} of {path.name}"


def test_the_algorithms_are_linked() -> None:
    """Algorithms 1, 2 and 3, from the README and from the page about the paper."""
    entries = ["fit_trend", "percentile_t_interval", "spin_step"]
    assert [name for name, *_ in _links_to_source(PROJECT / "README.md")] == entries
    linked = [name for name, *_ in _links_to_source(PROJECT / "docs/explanation/paper.md")]
    assert [name for name in linked if name in entries] == entries


def test_the_files_that_the_symbols_name_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (PROJECT / "docs/reference/symbols.md").read_text())
    assert len(named) > 50
    for name in named:
        assert (PROJECT / "src/tidegate" / name).is_file(), name


CITATION = re.compile(r"\b([A-Z][\w\'’]+)(?: et al\.)?,? \(?((?:18|19|20)\d\d)\b(?!-)")
NOT_CITED = {"NeurIPS", "ICML", "November", "EPYC", "Bellevue"}


def test_everybody_who_is_cited_is_in_the_references() -> None:
    known = [
        line for line in (PROJECT / "docs/explanation/references.md").read_text().splitlines() if "(" in line
    ]
    found = {
        one
        for path in (*ALL_PAGES, *(PROJECT / "src").rglob("*.py"))
        if path.name != "references.md"
        for one in CITATION.findall(path.read_text())
        if one[0] not in NOT_CITED
    }
    assert len(found) > 30
    for author, year in found:
        assert any(author in line and f"({year})" in line for line in known), (author, year)


def test_references_say_where_they_are() -> None:
    lines = (PROJECT / "docs/explanation/references.md").read_text().splitlines()
    for line in (one for one in lines if one.startswith("- ")):
        assert "](https://" in line or "(no DOI" in line, line


def test_the_glossary_has_each_term_once() -> None:
    page = (PROJECT / "docs/explanation/glossary.md").read_text()
    terms = [
        term
        for line in re.findall(r"^- (\*\*.*?):", page, re.M)
        for term in re.findall(r"\*\*(.+?)\*\*", line)
    ]
    assert len(terms) > 70
    assert sorted(terms) == sorted(set(terms))
