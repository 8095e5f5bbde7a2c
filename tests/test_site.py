"""The documentation as a site: all pages, no dead links, nothing from the network, search on a plain disk."""

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from .service.test_browser import FLAGS, chromium

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
SCRIPT = DOCS / "make_site.py"
LONGEST = 60  # seconds

pytest.importorskip("zensical", reason="the extra `docs` is not installed")


@pytest.fixture(scope="module")
def make_site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_site", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _built(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, which has to be built in time and without a fault."""
    folder = tmp_path_factory.mktemp("site")
    start = time.perf_counter()
    done = _built(folder)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < LONGEST
    return folder / "site"


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path, make_site: ModuleType) -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    navigation = json.dumps(make_site.navigation_of(site.parent / "pages"))
    for page in pages:
        assert f'"{page}"' in navigation, page
        assert (site / page).with_suffix(".html").is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a page](nowhere.md)", "nowhere.md"),
        ("[an anchor](tutorials/first.md#nowhere)", "#nowhere"),
        ("[a file](../src/nowhere.py)", "../src/nowhere.py leads nowhere"),
        ("![a picture](https://example.org/a.png)", "would fetch https://example.org/a.png"),
        ('<div class="mermaid">graph LR</div>', "has a mermaid"),
        ("::: tidegate.nowhere", "nowhere"),
    ],
)
def test_what_is_dead_or_remote_ends_the_build(tmp_path: Path, text: str, message: str) -> None:
    first = tmp_path / "docs" / "tutorials" / "first.md"
    first.parent.mkdir(parents=True)
    first.write_text("# First\n")
    (tmp_path / "docs" / "index.md").write_text(
        f"# Home\n\nThe [first](tutorials/first.md#first).\n\n{text}\n"
    )
    done = _built(tmp_path / "built", "--docs", str(tmp_path / "docs"))
    assert done.returncode == 1
    assert message in done.stderr


def test_a_page_without_an_entry_comes_after_those_that_have_one(
    tmp_path: Path, make_site: ModuleType
) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "docs" / "tutorials" / "new.md").write_text("# A new page\n")
    tutorials = make_site.navigation_of(tmp_path / "docs")[1]["Tutorials"]
    assert {"A new page": "tutorials/new.md"} in tutorials[1:]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_search_and_dark_mode_work_for_pages_on_a_disk(site: Path, scheme: str) -> None:
    path = chromium()
    driver = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_context(color_scheme=scheme).new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        red = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        assert (int(red) < 64) == (scheme == "dark")
        page.keyboard.press("/")
        page.keyboard.type("guardrail margin", delay=50)
        page.get_by_text("Guardrails: better, and nothing else worse").last.wait_for()
        assert all(one.startswith(("file:", "data:", "about:")) for one in asked), asked
        browser.close()
