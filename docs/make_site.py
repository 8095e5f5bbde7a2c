"""Build the documentation as a site that needs no network: `make docs`.

python docs/make_site.py [FOLDER] [--docs DOCS]     the site goes to FOLDER/site, by default build/docs/site

The pages are copied beside a configuration to which their navigation is added, and so are the files of the
project that they link to. Warnings, dead links, dead anchors and whatever would be fetched from the network
end the build with exit code 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parent
SECTIONS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "experiments": "Experiments",
    "api": "Python",
    "project": "Project",
}
PROJECT_PAGES = {
    PROJECT / "CHANGELOG.md": "project/changelog.md",
    PROJECT / "CONTRIBUTING.md": "project/contributing.md",
}
PICTURES = {".svg", ".png"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)  # for those who write pages, and for what runs them
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
FETCHED = {"src", "srcset", "data", "poster", "xlink:href"}
REMOTE = re.compile(r"(?:https?:)?//")
CSS_ADDRESS = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""")
LOADS_MORE = {"mermaid", "glightbox", "pyodide"}  # classes for which the theme's script asks the network


def main(arguments: list[str]) -> int:
    """Build, then look at what was built."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site that needs no network.")
    parser.add_argument("folder", nargs="?", type=Path, default=PROJECT / "build" / "docs")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    given = parser.parse_args(arguments)
    site = built(given.docs.resolve(), given.folder.resolve())
    if site is None:
        return 1
    problems = [*faults(site)]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages in {site}, {len(problems)} problems")
    return 1 if problems else 0


def built(docs: Path, folder: Path) -> Path | None:
    """The site of these pages, or None after an error or a warning, which is printed."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    stage(docs, pages)
    configuration = (DOCS / "site" / "zensical.toml").read_text()
    navigation = json.dumps(navigation_of(pages), separators=(", ", " = "))  # TOML's inline tables
    with_navigation = configuration.replace("[project]\n", f"[project]\nnav = {navigation}\n", 1)
    (folder / "zensical.toml").write_text(with_navigation)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "zensical.toml")]
    source = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}  # for mkdocstrings
    done = subprocess.run(command, cwd=folder, env=source, capture_output=True, text=True, check=False)
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    if done.returncode == 0 and "warning" not in said.lower():
        return folder / "site"
    print(said.partition("Traceback")[0], file=sys.stderr)
    return None


def stage(docs: Path, pages: Path) -> None:
    """Copy the pages, their pictures, and the files that they link to."""
    places = {path: str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    if docs == DOCS:
        places |= PROJECT_PAGES
    for path in docs.rglob("*"):
        if path.suffix in PICTURES:
            places[path] = str(path.relative_to(docs))
    for path in [path for path in places if path.suffix == ".md"]:
        for target in linked_files(path):
            within = target.is_relative_to(docs)
            places.setdefault(target, str(target.relative_to(docs) if within else f"files/{name_of(target)}"))
    for path, place in places.items():
        copy = pages / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(relinked(path, place, places))
        else:
            shutil.copyfile(path, copy)
    assets = pages / "assets"
    assets.mkdir()
    shutil.copyfile(DOCS / "site" / "iframe-worker.js", assets / "iframe-worker.js")


def name_of(path: Path) -> Path:
    """A file's name within the project."""
    return path.relative_to(PROJECT)


def linked_files(page: Path) -> Iterator[Path]:
    """The files of the project that a page links to; what is not there is for the build to find."""
    for match in LINK.finditer(page.read_text()):
        target = (page.parent / match[2]).resolve()
        if not REMOTE.match(match[2]) and target.is_file():
            yield target


def relinked(page: Path, place: str, places: dict[Path, str]) -> str:
    """The text of a page as readers get it, with links that are right where its copy lies."""

    def moved(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        if target not in places:
            return match[0]
        up = "../" * place.count("/")
        return f"{match[1]}{up}{places[target]}{match[3] or ''}{match[4]}"

    return LINK.sub(moved, COMMENT.sub("", page.read_text()))


def navigation_of(pages: Path) -> list[dict[str, Any]]:
    """Every page: the folders in their order, in each of them the pages of the list, then all others."""
    order = tomllib.loads((DOCS / "site" / "order.toml").read_text())
    folders = [name for name in SECTIONS if (pages / name).is_dir()]
    return [{"Home": "index.md"}, *({SECTIONS[name]: section(pages, name, order)} for name in folders)]


def section(pages: Path, name: str, order: dict[str, list[str]]) -> list[Any]:
    """The entries of a folder, the folders in it last."""
    first = order.get(name, [])

    def place(path: Path) -> tuple[int, str]:
        return (first.index(path.stem) if path.stem in first else len(first), title(path))

    found = sorted((pages / name).glob("*.md"), key=place)
    inner = [path for path in sorted((pages / name).iterdir()) if any(path.glob("*.md"))]
    nested = [
        {SECTIONS.get(one.name, one.name): section(pages, f"{name}/{one.name}", order)} for one in inner
    ]
    return [*({title(path): str(path.relative_to(pages))} for path in found), *nested]


def title(page: Path) -> str:
    """The heading of a page, as a plain text."""
    heading = HEADING.search(page.read_text())
    return heading[1].replace("`", "") if heading else page.stem


class Page(HTMLParser):
    """What can be linked to in a page, what it links to, and what a browser would fetch for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.classes: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        if "href" in values:
            (self.links if tag == "a" else self.fetched).append(values["href"])
        self.fetched += [values[name] for name in FETCHED & set(values)]


def faults(site: Path) -> Iterator[str]:
    """Links and anchors that lead nowhere, and everything that a browser would ask the network for."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin at the root of whatever serves it
            continue
        name = path.relative_to(site)
        yield from (f"{name} would fetch {one}" for one in page.fetched if REMOTE.match(one))
        yield from (f"{name} has a {one}, which asks the network" for one in LOADS_MORE & page.classes)
        yield from (f"{name}: {one} leads nowhere" for one in dead(path, page.links + page.fetched, pages))
    for path in site.rglob("*.css"):
        found = CSS_ADDRESS.findall(path.read_text())
        yield from (f"{path.relative_to(site)} would fetch {one}" for one in found if REMOTE.match(one))


def dead(path: Path, links: Iterable[str], pages: dict[Path, Page]) -> Iterator[str]:
    """The links of a page that lead to no file or no anchor of the site."""
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        wanted = unquote(parts.fragment)
        if not target.is_file() or (wanted and target in pages and wanted not in pages[target].names):
            yield link


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
