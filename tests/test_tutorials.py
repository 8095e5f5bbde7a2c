"""Every tutorial runs as written, from its first block to its last, and prints and draws what it shows.

Those that download something are left out; `python docs/make_outputs.py PAGE` runs them.
"""

import re
import runpy
from pathlib import Path

import jax
import pytest

from .test_docs import NUMBER, PROJECT, same

TUTORIALS = PROJECT / "docs/tutorials"
DOWNLOADS = {"open-bandit", "stale-model"}
IN_ONE_SESSION = {"getting-started"}  # test_docs.py
SEARCHED = {
    "contextual-policy"
}  # where a search ends depends on how it was compiled: words alone are compared
PAGES = sorted({page.stem for page in TUTORIALS.glob("*.md")} - DOWNLOADS - IN_ONE_SESSION)
LINES = re.compile("[\u2500-\u257f]+")  # of tables, as wide as their numbers
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WRITTEN = re.compile(r"<text[^>]*>([^<]*)</text>")


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "XLA_FLAGS", ""
    )  # the commands of a page compile as a user's do: a search is that sensitive
    outputs = runpy.run_path(str(PROJECT / "docs/make_outputs.py"))
    page = (TUTORIALS / f"{name}.md").read_text()
    (tmp_path / "docs").symlink_to(PROJECT / "docs")
    with jax.enable_x64(False):
        new = outputs["renewed"](page, tmp_path)
    for shown, printed in zip(SHOWN.findall(page), SHOWN.findall(new), strict=True):
        shown, printed = LINES.sub(" ", shown), LINES.sub(" ", printed)
        if name in SEARCHED:
            shown, printed = NUMBER.sub("#", shown), NUMBER.sub("#", printed)
        assert same(printed, shown), f"the page shows\n{shown}\nbut it is\n{printed}"
    for picture, drawn in outputs["pictures"](page, tmp_path).items():
        kept = (TUTORIALS / picture).read_text()
        assert same(" ".join(WRITTEN.findall(drawn)), " ".join(WRITTEN.findall(kept))), picture
