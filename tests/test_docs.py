"""Every example in the docs and the README runs as written and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import jax
import pytest

PROJECT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/tutorials/getting-started.md",
    "docs/how-to/choosing.md",
    "docs/how-to/guardrails.md",
    "docs/how-to/repeated-tests.md",
    "docs/how-to/calendar-time.md",
    "docs/how-to/watch.md",
]
EXPIRY = re.compile(r"good until [-\d]+ [\d:]+ UTC")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def same(printed: str, shown: str) -> bool:
    """Equal words, whatever the date; numbers may move a little with the processor."""
    printed, shown = (EXPIRY.sub("good until", text) for text in (printed, shown))
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=0.25, abs=0.1) for a, b in pairs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).stem)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|text)\n(.*?)```", (PROJECT / page).read_text(), re.DOTALL)
    assert any(kind == "python" for kind, _ in blocks)
    names: dict[str, Any] = {}
    printed = ""
    with jax.enable_x64(False):
        for kind, content in blocks:
            if kind == "text":
                assert same(printed, content), f"the page shows\n{content}\nbut it is\n{printed}"
                printed = ""
                continue
            assert not printed, f"output that the page does not show:\n{printed}"
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(content, page, "exec"), names)
            printed = EXPIRY.sub("good until a week from now", output.getvalue())


def test_links_between_pages_lead_somewhere() -> None:
    for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_links_to_the_algorithms() -> None:
    """File and line of entry of Algorithms 1, 2 and 3."""
    linked = re.findall(r"\[`(\w+)`\]\((src/[\w/.]+)#L(\d+)\)", (PROJECT / "README.md").read_text())
    assert [name for name, *_ in linked] == ["fit_trend", "percentile_t_interval", "spin_step"]
    for name, path, line in linked:
        text = (PROJECT / path).read_text().splitlines()
        assert text[int(line) - 1].startswith(f"def {name}("), name


def test_the_files_that_the_symbols_name_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (PROJECT / "docs/reference/symbols.md").read_text())
    assert len(named) > 50
    for name in named:
        assert (PROJECT / "src/tidegate" / name).is_file(), name


CITATION = re.compile(r"\b([A-Z][\w\'’]+)(?: et al\.)?,? \(?((?:18|19|20)\d\d)\b(?!-)")
NOT_CITED = {"NeurIPS", "ICML", "November", "EPYC", "Bellevue"}


def test_everybody_who_is_cited_is_in_the_references() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]
    known = [
        line for line in (PROJECT / "docs/explanation/references.md").read_text().splitlines() if "(" in line
    ]
    found = {
        one
        for path in (*pages, *(PROJECT / "src").rglob("*.py"))
        if path.name != "references.md"
        for one in CITATION.findall(path.read_text())
        if one[0] not in NOT_CITED
    }
    assert len(found) > 30
    for author, year in found:
        assert any(author in line and f"({year})" in line for line in known), (author, year)
