"""The page in a real Chromium, the system's own: nothing is downloaded, and without one this is skipped."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from .serving import RELEASE, Server, rows, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDTHS = (500, 360)


def chromium() -> str:
    """Where the system's browser is."""
    named = os.environ.get("TIDEGATE_CHROMIUM")
    found = [named] if named else [path for one in NAMES if (path := shutil.which(one))]
    if not found:
        pytest.skip("there is no Chromium: install one (Debian: apt-get install chromium)")
    return found[0]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A browser without a window."""
    path = chromium()
    driver = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with driver.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def served(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with gates in every state that a page shows."""
    with running(Path(tmp_path_factory.mktemp("browser")) / "data") as server:
        for gate in ("by-mouse", "by-keyboard", "waiting"):
            server.put(gate, **RELEASE, approvers=["first"])
        server.put("running", **RELEASE)
        server.put("empty-with-a-rather-long-name-that-fills-the-whole.line-or-more")
        for gate in ("by-mouse", "by-keyboard", "waiting", "running"):
            server.send(gate, rows(300))
            server.decided(server.evaluate(gate))
        yield server


@pytest.fixture
def context(browser: "Browser", served: Server) -> Iterator["BrowserContext"]:
    """A browser of somebody new; whatever a page complains of, or loads from elsewhere, fails the test."""
    found = browser.new_context(base_url=served.url, viewport={"width": 1100, "height": 800})
    found.set_default_timeout(20_000)
    complaints: list[str] = []
    found.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    found.on("weberror", lambda error: complaints.append(str(error.error)))
    home = urlsplit(served.url).netloc
    found.on(
        "request", lambda sent: complaints.append(sent.url) if urlsplit(sent.url).netloc != home else None
    )
    yield found
    found.close()
    assert not complaints


def signed_in(context: "BrowserContext", server: Server, place: str = "/") -> "Page":
    page = context.new_page()
    page.goto(place)
    page.get_by_label("Token").fill(server.token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("status").get_by_text("You are signed in.").wait_for()
    return page


def places(server: Server) -> list[str]:
    """One page of each kind."""
    listed = server.http.get("/v1/gates/waiting/evaluations").json()["data"]
    evaluation = f"/evaluations/{listed[0]['id']}"
    gates = ["/gates/running", "/gates/empty-with-a-rather-long-name-that-fills-the-whole.line-or-more"]
    return ["/", *gates, "/gates/running/roll-back", evaluation, f"{evaluation}/report", "/audit"]


def test_sign_in_see_a_decision_approve_it_and_roll_back(context: "BrowserContext", served: Server) -> None:
    page = signed_in(context, served)
    assert urlsplit(page.url).path == "/"
    page.get_by_role("link", name="Approve or reject the decision of by-mouse").click()
    assert "waits for approval" in page.get_by_role("heading", level=1).inner_text()
    page.get_by_role("link", name="Read the whole report").click()
    page.get_by_role("heading", name="The bound that decides").wait_for()
    page.get_by_role("link", name="Back to the decision").click()  # and the session is still there
    page.get_by_label("Comment").fill("looks <b>right</b>")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("status").get_by_text("Approved.").wait_for()
    assert "By this decision, the candidate runs now." in page.get_by_role("main").inner_text()
    assert "looks <b>right</b>" in page.get_by_role("main").inner_text()
    assert served.policy("by-mouse")["policy"] == "candidate"
    page.get_by_role("link", name="Roll back").click()
    page.get_by_role("heading", name="Roll by-mouse back?").wait_for()
    page.get_by_label("Why?").fill("it hurts")
    page.get_by_role("button", name="Roll back to the safe policy").click()
    page.get_by_role("status").get_by_text("Rolled back.").wait_for()
    assert "it hurts" in page.get_by_role("main").inner_text()
    assert served.policy("by-mouse")["policy"] == "safe"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("status").get_by_text("You are signed out.").wait_for()
    page.goto("/audit")
    assert urlsplit(page.url).path == "/sign-in"


def focused(page: "Page") -> str:
    return str(page.evaluate("document.activeElement.innerText || document.activeElement.id"))


def tab_to(page: "Page", words: str) -> None:
    """Press Tab until something with these words has the focus, which must be seen."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if words in focused(page):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", words
            return
    raise AssertionError(f"Tab does not lead to {words}")


def test_everything_can_be_done_with_the_keyboard_alone(context: "BrowserContext", served: Server) -> None:
    page = context.new_page()
    page.goto("/")
    assert focused(page) == "token"
    page.keyboard.type(served.token)
    page.keyboard.press("Enter")
    page.get_by_role("status").get_by_text("You are signed in.").wait_for()
    page.goto("/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    assert page.get_by_role("link", name="Skip to the content").is_visible()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to(page, "the decision of by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evaluations/*")
    tab_to(page, "comment")
    page.keyboard.type("fine")
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    page.get_by_role("status").get_by_text("Approved.").wait_for()
    assert focused(page).startswith("Approved.")  # where a screen reader goes on
    tab_to(page, "Roll back")
    page.keyboard.press("Enter")
    page.wait_for_url("**/roll-back")
    tab_to(page, "Roll back to the safe policy")
    page.keyboard.press("Space")
    page.get_by_role("status").get_by_text("Rolled back.").wait_for()
    assert served.policy("by-keyboard")["policy"] == "safe"


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_a_phone(context: "BrowserContext", served: Server, width: int) -> None:
    page = signed_in(context, served)
    page.set_viewport_size({"width": width, "height": 800})
    for place in places(served):
        page.goto(place)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, (place, over)


def test_it_is_dark_for_those_who_want_it_dark(context: "BrowserContext", served: Server) -> None:
    page = signed_in(context, served)
    for place in places(served):
        seen, lightness = [], []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(place)
            seen.append(page.screenshot())
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            lightness.append(sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))))
        assert seen[0] != seen[1], place
        assert lightness[0] > 600 > 150 > lightness[1], place


def test_a_screen_reader_finds_its_way(context: "BrowserContext", served: Server) -> None:
    page = signed_in(context, served)
    for place in places(served):
        page.goto(place)
        assert page.get_by_role("heading", level=1).count() == 1, place
        unnamed = page.evaluate(
            "[...document.querySelectorAll('svg')]"
            ".filter(one => !one.closest('[aria-hidden=true], [role=img]')).length"
        )
        assert unnamed == 0, place
        if not place.endswith("report"):
            assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1, place
            assert page.get_by_role("navigation", name="Main").count() == 1, place
            assert page.get_by_role("status").count() == 1, place
    page.goto("/gates/running")
    assert page.get_by_role("img", name="Forecast advantage of the candidate at 1 decision").count() == 1
    for width in (1100, 500):
        page.set_viewport_size({"width": width, "height": 800})
        table = page.get_by_role("table", name="Decisions")
        assert (
            table.get_by_role("columnheader").count()
            == table.get_by_role("row").nth(1).get_by_role("cell").count()
        )
    page.get_by_text("The same as a table").click()
    assert "+0." in page.get_by_role("region", name="The advantage over time, as a table").inner_text()


def test_the_style_sheet_and_forms_are_allowed_and_scripts_are_not(
    browser: "Browser", served: Server
) -> None:
    context = browser.new_context(base_url=served.url)
    page = signed_in(context, served)
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text))
    page.goto("/")
    page.evaluate("document.body.setAttribute('onclick', 'window.hit = 1'); document.body.click()")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 2'}))"
    )
    assert page.evaluate("window.hit") is None
    assert any("Content Security Policy" in one for one in refused)
    context.close()
