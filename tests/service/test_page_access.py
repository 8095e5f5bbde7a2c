"""Who gets in at the page, with what, and what each answer forbids."""

import datetime
import re

import pytest

from tidegate.service import tokens
from tidegate.service.app import make_app
from tidegate.service.database import Database, utc_now
from tidegate.service.limits import RateLimit
from tidegate.service.page import answering, sessions, signing

from .serving import Server, released
from .visiting import Addresses, Visitor, client_of, signed_in, visitor

PAGES = (
    "/",
    "/audit",
    "/gates/seen",
    "/gates/seen/roll-back",
    "/sign-in",
    "/nowhere",
    "/gates/no-such",
    "/gates/%3Cb%3E",
)


def test_nobody_sees_anything_before_signing_in(server: Server) -> None:
    stranger = Visitor(server)
    for place in ("/", "/audit", "/gates/any", "/gates/any/roll-back", "/evaluations/" + 36 * "a"):
        answer = stranger.http.get(place)
        assert answer.status_code == 303, place
        assert answer.headers["Location"].startswith("/sign-in")
    assert stranger.sign_in("tdg_wrong").status_code == 401
    assert stranger.http.get("/").status_code == 303
    cookies = stranger.http.get("/sign-in").headers.get("set-cookie", "")
    assert not cookies  # it has one already, which opens nothing


def test_the_cookie_is_for_this_page_alone_and_its_secret_is_nowhere(server: Server) -> None:
    found = Visitor(server)
    set_cookie = found.http.get("/sign-in").headers["Set-Cookie"]
    before = found.http.cookies["tidegate"]
    for flag in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert flag in set_cookie
    assert found.sign_in(server.token, "/audit").headers["Location"] == "/audit"
    after = found.http.cookies["tidegate"]
    assert after != before  # whoever planted the first one knows nothing
    page = found.see("/")
    assert after not in page.text
    assert server.token not in page.text
    stored = b"".join(one.read_bytes() for one in server.data.glob("tidegate.sqlite*"))
    assert after.encode() not in stored


def test_after_signing_in_visitors_go_to_pages_of_this_service_only() -> None:
    for place in (
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/sign-out",
    ):
        assert signing.local(place) == "/"
    for place in ("/", "/audit?before=3&gate=a.b", "/gates/ranking", "/evaluations/0-1/report"):
        assert signing.local(place) == place


def test_signing_out_ends_the_session_in_the_store_too(server: Server) -> None:
    found = visitor(server, "leaver")
    kept = found.http.cookies["tidegate"]
    assert found.send("/sign-out", found.see("/").form_token).status_code == 303
    assert found.http.get("/").status_code == 303
    found.http.cookies.set("tidegate", kept)
    assert found.http.get("/").status_code == 303


def test_a_session_ends_with_its_token_and_after_half_a_day(quiet: Database) -> None:
    for life, later in (("1h", 61), ("90d", 12 * 60 + 1)):
        moved = datetime.timedelta()
        quiet.clock = lambda: utc_now() + moved  # noqa: B023
        token = tokens.new_token(quiet, f"life-{life}", ["read"], life)
        secret = sessions.start(quiet, token)
        assert sessions.holder_in(quiet, secret) is not None
        moved = datetime.timedelta(minutes=later)
        assert sessions.holder_in(quiet, secret) is None
    quiet.clock = utc_now
    secret = sessions.start(quiet, tokens.new_token(quiet, "revoked", ["read"]))
    tokens.revoke(quiet, "revoked")
    assert sessions.holder_in(quiet, secret) is None


def test_forms_from_elsewhere_are_refused(server: Server) -> None:
    evaluation = released(server, "forged")
    found, other = visitor(server, "careful", "read,approve,decide"), visitor(server, "other", "read")
    place, good = "/gates/forged/roll-back", found.see("/gates/forged/roll-back").form_token
    asked = {"evaluation": evaluation, "comment": "x"}
    for origin in (None, "null", "https://evil.example", "http://127.0.0.1:1", f"{server.url}.evil.example"):
        assert found.send(place, good, origin, **asked).status_code == 403, origin
    for token in ("", "0" * 64, other.see("/audit").form_token):
        assert found.send(place, token, **asked).status_code == 403
    headers = {"Origin": server.url, "Sec-Fetch-Site": "same-site"}
    assert found.http.post(place, data={"form_token": good, **asked}, headers=headers).status_code == 403
    for where in ("/sign-in", "/sign-out", "/gates/forged/decide", f"/evaluations/{evaluation}/approval"):
        assert found.send(where, "0" * 64, state="approved", token=server.token).status_code == 403, where
    assert server.policy("forged")["policy"] == "candidate"
    assert found.send(place, good, **asked).status_code == 303
    assert server.policy("forged")["policy"] == "safe"


def test_a_form_that_is_too_much_is_refused(server: Server) -> None:
    headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
    for body, status in (("a=b&" * 50, 422), ("a=" + "b" * 70_000, 413)):
        assert server.http.post("/sign-in", content=body, headers=headers).status_code == status


def test_who_comes_from_another_site_keeps_the_cookie(server: Server) -> None:
    """Browsers hold a strict cookie back then; an answer that set another would end the session."""
    answer = Visitor(server).http.get("/audit", headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
    assert 'href="/audit"' in answer.text


def test_every_page_is_strict_and_loads_nothing_from_elsewhere(server: Server) -> None:
    evaluation = released(server, "seen", approvers=["nobody"])
    found = visitor(server, "seer", "read,approve")
    for place in (*PAGES, f"/evaluations/{evaluation}"):
        page = found.see(place)
        for name, value in answering.HEADERS.items():
            assert page.answer.headers[name] == value, (place, name)
        for word in ("script-src", "unsafe", "*", "http:", "data:"):
            assert word not in answering.POLICY
        addresses = Addresses(page.text)
        assert not addresses.active, place
        assert not addresses.external, (place, addresses.external)
        assert page.text.count("<h1") == page.text.count("<main") == 1
        assert '<html lang="en">' in page.text
        assert 'class="skip" href="#main"' in page.text
    style = re.search(r'href="(/page/style\.css[^"]*)"', found.see("/").text)
    assert style is not None
    sheet = found.see(style[1])
    assert sheet.answer.headers["Content-Type"].startswith("text/css")
    assert "url(" not in sheet.text
    assert "prefers-color-scheme: dark" in sheet.text
    assert found.see("/page/icon.svg").answer.headers["Content-Type"] == "image/svg+xml"


def test_tokens_without_read_see_nothing(quiet: Database) -> None:
    client = client_of(make_app(quiet))
    signed_in(quiet, client, "ingest")
    assert client.get("/").status_code == 403


def test_tokens_are_not_guessed_at_speed(quiet: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "ATTEMPTS", RateLimit(1.0))
    client, statuses = client_of(make_app(quiet)), []
    shown = re.search(r'value="([0-9a-f]{64})"', client.get("/sign-in").text)
    assert shown is not None
    for _ in range(4):
        form = {"form_token": shown[1], "token": "tdg_guess"}
        statuses.append(
            client.post("/sign-in", data=form, headers={"Origin": "http://testserver"}).status_code
        )
    assert statuses == [401, 401, 429, 429]


def test_behind_tls_the_cookie_is_secure(quiet: Database) -> None:
    client = client_of(make_app(quiet), "https://gate.example")
    cookie = client.get("/sign-in").headers["Set-Cookie"]
    assert cookie.startswith("__Host-tidegate=")
    assert "Secure" in cookie
