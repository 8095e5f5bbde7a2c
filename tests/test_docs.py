"""Every example in the docs and the README runs as written and prints what the page shows."""

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import jax
import pytest

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
ALL_PAGES = [PROJECT / "README.md", *sorted(DOCS.rglob("*.md"))]
LESSONS = sorted([*(DOCS / "tutorials").glob("*.md"), *(DOCS / "how-to").glob("*.md")])
ELSEWHERE = {"service-adapters"}  # each recipe is held against a server by tests/service/test_adapters_*.py
PAGES = [
    PROJECT / "README.md",
    DOCS / "explanation/problem.md",
    *(page for page in LESSONS if page.stem not in ELSEWHERE),
]
SEARCHED = {
    "contextual-policy"
}  # where a search ends depends on how it was compiled: words alone are compared
ARCHIVES = PROJECT / ".venv-streams" / "archives"
WANTS = {
    "serving": (shutil.which("node"), "the page runs node"),
    "open-bandit": ([*ARCHIVES.glob("obp-*.whl")], "`make .venv-streams/.done` was not run"),
    "stale-model": ([*ARCHIVES.glob("scikit-multiflow-*")], "`make .venv-streams/.done` was not run"),
}
# Every other block of the tutorials and how-to guides runs.
INSTALLS = "it installs a package"
ONLY_SHOWN = {
    ("stale-model", "make .venv-streams/.done"): "it downloads 50 MB; `make unit` has done so before",
    (
        "repeated-tests",
        "python benchmarks/repeated_tests.py",
    ): "a study that takes hours, behind the table below it",
    (
        "service",
        "pip install 'tidegate[serve]'",
    ): "it installs, and serves until it is stopped: the page's comment serves",
    ("service", "gate.example.org {"): "a file of Caddy, which the tests do not have",
    ("cluster", "pip install 'tidegate[ray]'"): "it installs a package and names a cluster",
    ("gymnasium", "pip install 'tidegate[gymnasium]'"): INSTALLS,
    ("gymnasium-world", "pip install 'tidegate[gymnasium]'"): INSTALLS,
    ("live-gate", "pip install 'tidegate[serve]'"): INSTALLS,
}

EXPIRY = re.compile(r"good until (?:[-\d]+ [\d:]+ UTC|a week from now)")
BORDERS = re.compile("[\u2500-\u257f]+")  # of tables, as wide as their numbers
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WRITTEN = re.compile(r"<text[^>]*>([^<]*)</text>")
FENCE = re.compile(r"^( *```[^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def _outputs() -> ModuleType:
    """What runs the pages: docs/make_outputs.py, which no package holds."""
    spec = importlib.util.spec_from_file_location("make_outputs", DOCS / "make_outputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outputs = _outputs()


def same(printed: str, shown: str, *, numbers: bool = True) -> bool:
    """Equal words, whatever the date and a table's borders; numbers may move a little with the processor."""
    printed, shown = (EXPIRY.sub("good until", BORDERS.sub(" ", text)) for text in (printed, shown))
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return not numbers or all(float(a) == pytest.approx(float(b), rel=0.25, abs=0.1) for a, b in pairs)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_runs_as_written_and_prints_and_draws_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, why = WANTS.get(path.stem, (True, ""))
    if not there:
        pytest.skip(why)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # what a page downloads was fetched before
    monkeypatch.setenv("PIP_FIND_LINKS", str(ARCHIVES))
    if path.stem in SEARCHED:
        monkeypatch.setenv("XLA_FLAGS", "")  # compiled as a user's commands are: a search is that sensitive
    page = path.read_text()
    with jax.enable_x64(False):
        new = outputs.renewed(page, tmp_path)
    for shown, printed in zip(SHOWN.findall(page), SHOWN.findall(new), strict=True):
        alike = same(printed, shown, numbers=path.stem not in SEARCHED)
        assert alike, f"the page shows\n{shown}\nbut it is\n{printed}"
    for picture, drawn in outputs.pictures(page, tmp_path).items():
        kept = (path.parent / picture).read_text()
        assert same(" ".join(WRITTEN.findall(drawn)), " ".join(WRITTEN.findall(kept))), picture


def _runs(fence: str, content: str) -> bool:
    """Whether a block is run, saved as a file, or compared with what was printed."""
    saved = fence == "```toml" and outputs.NAME.match(content)
    return fence in {"```python", "```sh", "```text"} or bool(saved)


def test_blocks_that_are_only_shown_are_listed() -> None:
    shown = {
        (page.stem, content.splitlines()[0].partition("  ")[0])
        for page in LESSONS
        if page.stem not in ELSEWHERE
        for fence, content in FENCE.findall(page.read_text())
        if not _runs(fence, content)
    }
    assert shown == set(ONLY_SHOWN)


def test_pictures_of_the_tutorials_are_drawn_by_their_pages() -> None:
    for page in (DOCS / "tutorials").glob("*.md"):
        text = page.read_text()
        code = "".join(content for fence, content in FENCE.findall(text) if fence == "```python")
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
            assert f'"{picture}"' in code, (page.name, picture)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```sh\npython -c 'raise OSError'\n```", "OSError"),  # exit code 1, but not KEEP
        ("```sh\ntidegate gate nowhere.csv --candidate column:new_prob\n```", "nowhere.csv"),
        ("```sh\ncat nothing | grep something\n```", "grep something"),
        ("```python\nprint(1)\n```\n\n```sh\ntrue\n```", "does not show"),
    ],
)
def test_what_fails_or_is_not_shown_ends_a_page(page: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=said):
        outputs.renewed(f"# Page\n\n{page}\n", tmp_path)


def test_a_block_in_a_comment_runs_and_what_differs_is_renewed(tmp_path: Path) -> None:
    page = "<!--\n```python\none = 1\n```\n-->\n\n```python\nprint(one)\n```\n\n```text\n2\n```\n"
    assert outputs.renewed(page, tmp_path) == page.replace("2", "1")


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
