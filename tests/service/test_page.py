"""The page without a browser: who gets in, what is escaped, what each answer forbids, what is shown."""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tidegate.service import audit, tokens
from tidegate.service.app import make_app
from tidegate.service.database import Database, sqlite_url, utc_now
from tidegate.service.limits import RateLimit
from tidegate.service.page import answering, sessions, signing

from .serving import DEFINITION, NDJSON, RELEASE, Server, rows
from .visiting import Addresses, Visitor, client_of, visitor

HOSTILE = "<script>alert('x')</script> & \"quoted\" 😀"
ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp;"
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


def released(server: Server, gate: str, **definition: object) -> str:
    server.put(gate, **RELEASE, **definition)
    server.send(gate, rows(300))
    evaluation = server.evaluate(gate)
    server.decided(evaluation)
    return evaluation


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Database]:
    """A database of its own, for what no request can bring about."""
    database = Database(sqlite_url(tmp_path))
    database.upgrade()
    yield database
    database.close()


def signed_in(database: Database, client: httpx.Client, scopes: str = "read", life: str = "1h") -> str:
    token = tokens.new_token(database, f"visitor-{scopes.replace(',', '-')}", scopes.split(","), life)
    shown = re.search(r'value="([0-9a-f]{64})"', client.get("/sign-in").text)
    assert shown is not None
    answer = client.post(
        "/sign-in", data={"form_token": shown[1], "token": token}, headers={"Origin": "http://testserver"}
    )
    assert "Signed in as" in answer.text
    return token


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


def test_the_report_is_shown_with_nothing_to_run_or_load(server: Server) -> None:
    evaluation = released(server, "reported")
    found = visitor(server, "reporter")
    page = found.see(f"/evaluations/{evaluation}/report")
    policy = page.answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "script" not in policy
    assert not [
        one for one in Addresses(page.text).found if not one.startswith(("#", f"/evaluations/{evaluation}"))
    ]
    assert "The bound that decides" in page.text
    assert found.see(f"/evaluations/{evaluation}").text.count(f"/evaluations/{evaluation}/report") == 1


def test_hostile_words_are_shown_as_words(server: Server) -> None:
    server.put("hostile", guardrail=["<b>harm</b>:0.05"], candidate="column:<i>new</i>")
    evaluation = released(server, "commented", approvers=["hostile-approver"])
    found = visitor(server, "hostile-approver", "read,approve")
    token = found.see(f"/evaluations/{evaluation}").form_token
    said = found.send(f"/evaluations/{evaluation}/approval", token, state="approved", comment=HOSTILE)
    assert said.status_code == 303, said.text
    sent = {"evaluation": evaluation, "comment": HOSTILE}
    assert found.send("/gates/commented/roll-back", token, **sent).status_code == 303
    for place in ("/gates/commented", "/audit?gate=commented", f"/evaluations/{evaluation}"):
        text = found.see(place).text
        assert ESCAPED in text, place
        assert "<script" not in text, place
    text = found.see("/gates/hostile").text
    assert "&lt;b&gt;harm&lt;/b&gt;:0.05" in text
    assert "<b>harm" not in text
    assert "<i>new" not in text
    assert "<i>" not in found.see("/gates/%3Ci%3E").text


def test_a_hostile_name_in_the_store_is_shown_as_a_word(quiet: Database) -> None:
    """No request can bring such names in. If one got there, it still would be a word."""
    client = client_of(make_app(quiet))
    signed_in(quiet, client)
    with quiet.writing() as connection:
        audit.append(connection, HOSTILE, f"kind.{HOSTILE}", HOSTILE, HOSTILE, {"<b>": HOSTILE})
    text = client.get("/audit").text
    assert ESCAPED in text
    assert "<script" not in text
    assert "all hashes hold" in text


def test_a_changed_entry_is_seen(quiet: Database) -> None:
    client = client_of(make_app(quiet))
    signed_in(quiet, client)
    tokens.new_token(quiet, "second", ["read"])
    with quiet.writing() as connection:
        connection.exec_driver_sql(
            'UPDATE audit SET content = \'{"name":"x","scopes":""}\' WHERE sequence = 1'
        )
    text = client.get("/audit").text
    assert "a hash does not hold" in text
    assert text.count("Its hash does not hold.") == 1


def numbers(text: str) -> list[int]:
    """Of the entries on a page."""
    return [int(one) for one in re.findall(r'<td role="cell" class="r"><data value="(\d+)"', text)]


def test_the_audit_log_is_paged_without_gaps(quiet: Database) -> None:
    client = client_of(make_app(quiet))
    signed_in(quiet, client)
    with quiet.writing() as connection:
        for number in range(120):
            audit.append(connection, quiet.now(), "made.up", "a" if number % 2 else "b", "tester", {})
    seen, place, back = [], "/audit", []
    while place:
        text = client.get(place).text
        seen += numbers(text)
        older = re.search(r'href="(/audit\?before=\d+)">Older', text)
        back.append(re.search(r'href="(/audit\?before=\d+)">Newer', text))
        place = older[1] if older else ""
    assert seen == list(range(121, 0, -1))
    assert back[0] is None
    assert back[-1] is not None
    assert numbers(client.get(back[-1][1]).text) == list(range(71, 21, -1))
    only = client.get("/audit", params={"gate": "a"}).text
    assert only.count("tester") == 50
    assert "gate=a" in only


def test_buttons_are_for_those_who_may_press_them(server: Server) -> None:
    waiting = released(server, "buttons", approvers=["presser"])
    running = released(server, "running-buttons")
    reader, other, presser = (
        visitor(server, name, scopes)
        for name, scopes in (
            ("onlooker", "read"),
            ("other-approver", "read,approve"),
            ("presser", "read,approve,decide"),
        )
    )
    for found, may_approve, may_roll_back in (
        (reader, False, False),
        (other, False, True),
        (presser, True, True),
    ):
        assert ("Approve</button>" in found.see(f"/evaluations/{waiting}").text) is may_approve
        assert ("Waiting for you" in found.see("/").text) is may_approve
        assert ("Roll back…" in found.see("/gates/running-buttons").text) is may_roll_back
    assert "Decide now" in presser.see("/gates/buttons").text
    assert "Decide now" not in reader.see("/gates/buttons").text
    token = reader.see("/").form_token
    for place, fields in (
        (f"/evaluations/{waiting}/approval", {"state": "approved"}),
        ("/gates/running-buttons/roll-back", {"evaluation": running}),
        ("/gates/buttons/decide", {}),
    ):
        answer = reader.send(place, token, **fields)
        assert answer.status_code == 403
        assert "This is not allowed" in answer.text
    assert (
        other.send(
            f"/evaluations/{waiting}/approval", other.see("/").form_token, state="approved"
        ).status_code
        == 403
    )
    assert reader.http.get("/gates/running-buttons/roll-back").status_code == 403


def test_a_person_approves_once_and_rolls_back_what_was_shown(server: Server) -> None:
    evaluation = released(server, "approved-by-hand", approvers=["speaker"])
    speaker = visitor(server, "speaker", "read,approve")
    assert "waits for approval" in speaker.see("/gates/approved-by-hand").text
    place, token = f"/evaluations/{evaluation}/approval", speaker.see("/").form_token
    assert speaker.send(place, token, state="perhaps").status_code == 422
    assert speaker.send(place, token, state="approved", comment="x" * 2001).status_code == 422
    answer = speaker.send(place, token, state="approved", comment="looks right")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/evaluations/{evaluation}")
    assert "Approved. The decision holds" in speaker.see(f"/evaluations/{evaluation}").text
    assert "Approved. The decision holds" not in speaker.see(f"/evaluations/{evaluation}").text  # said once
    assert server.policy("approved-by-hand")["policy"] == "candidate"
    again = speaker.send(place, token, state="rejected")
    assert again.status_code == 409
    assert "approved by" in again.text
    stale = speaker.send("/gates/approved-by-hand/roll-back", token, evaluation="another", comment="")
    assert stale.status_code == 409
    assert server.policy("approved-by-hand")["policy"] == "candidate"
    done = speaker.send("/gates/approved-by-hand/roll-back", token, evaluation=evaluation, comment="it hurts")
    assert done.headers["Location"] == "/gates/approved-by-hand"
    text = speaker.see("/gates/approved-by-hand").text
    assert "Rolled back. The safe policy runs" in text
    assert "it hurts" in text
    assert server.policy("approved-by-hand")["policy"] == "safe"
    assert "nothing to roll back" in speaker.see("/gates/approved-by-hand/roll-back").text


def test_an_empty_gate_says_what_to_do_and_a_decision_is_asked_for(server: Server) -> None:
    server.put("asked")
    asker = visitor(server, "asker", "read,decide")
    text = asker.see("/gates/asked").text
    assert "tidegate push log.parquet --gate asked" in text
    assert "Decide now" not in text
    server.send("asked", rows(300))
    page = asker.see("/gates/asked")
    assert "/v1/gates/asked/evaluations" in page.text
    assert asker.send("/gates/asked/decide", page.form_token).headers["Location"] == "/gates/asked"
    listed = server.http.get("/v1/gates/asked/evaluations").json()["data"]
    assert len(listed) == 1
    server.decided(listed[0]["id"])
    page = asker.see("/gates/asked")
    assert (
        'role="img" aria-label="Forecast advantage of the candidate at 1 decision, from 300 episodes'
        in page.text
    )


def test_pages_load_themselves_anew_only_while_something_goes_on(quiet: Database) -> None:
    client, again = client_of(make_app(quiet)), '<meta http-equiv="refresh" content="5">'
    token = signed_in(quiet, client, "admin", "90d")
    sent = {"Authorization": f"Bearer {token}"}
    client.put("/v1/gates/live", json=DEFINITION, headers=sent)
    assert again not in client.get("/").text
    body, medium = rows(30).write_ndjson(), {"Content-Type": NDJSON}
    assert client.post("/v1/gates/live/episodes", content=body, headers={**sent, **medium}).status_code == 201
    for place in ("/", "/gates/live"):
        assert again in client.get(place).text
        assert again not in client.get(place, params={"refresh": "off"}).text
    quiet.clock = lambda: utc_now() + datetime.timedelta(seconds=31)
    assert again not in client.get("/").text
    decide = "/gates/live/decide"
    shown = re.search(r'value="([0-9a-f]{64})"', client.get("/gates/live").text)
    assert shown is not None
    for _ in range(2):  # pressed twice, asked for once
        client.post(decide, data={"form_token": shown[1]}, headers={"Origin": "http://testserver"})
    listed = client.get("/v1/gates/live/evaluations", headers=sent).json()["data"]
    assert len(listed) == 1
    for place in ("/", "/gates/live", f"/evaluations/{listed[0]['id']}"):
        text = client.get(place).text
        assert again in text
        assert "being computed" in text


def test_what_nobody_foresaw_has_the_shape_of_every_other_error(quiet: Database) -> None:
    client = client_of(make_app(quiet))
    token = signed_in(quiet, client)

    def broken() -> datetime.datetime:
        raise ZeroDivisionError

    quiet.clock = broken
    told = client.get("/v1/gates", headers={"Authorization": f"Bearer {token}"})
    assert (told.status_code, told.json()["error"]["code"]) == (500, "broken")
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 500
    assert "Something went wrong in the service" in page.text
    assert "ZeroDivisionError" not in told.text + page.text


def test_without_gates_the_page_says_how_to_make_one(quiet: Database) -> None:
    client = client_of(make_app(quiet))
    signed_in(quiet, client)
    text = client.get("/").text
    assert "There is no gate yet" in text
    assert "curl -X PUT http://testserver/v1/gates/ranking" in text


def test_refusals_wear_the_same_dress_and_programs_get_json(quiet: Database) -> None:
    client = client_of(make_app(quiet, rate=1.0))
    assert client.get("/nowhere").json()["error"]["code"] == "not_served"
    lost = client.get("/nowhere", headers={"Accept": "text/html"})
    assert (lost.status_code, "There is nothing here" in lost.text) == (404, True)
    assert client.get("/v1/nowhere", headers={"Accept": "text/html"}).json()["error"]["code"] == "not_served"
    assert client.get("/v1/gates").json()["error"]["code"] == "no_token"
    wrong = client.request("DELETE", "/audit")
    assert (wrong.status_code, "This address cannot be asked in this way" in wrong.text) == (405, True)
    signed_in(quiet, client)
    answers = [client.get("/audit") for _ in range(4)]
    busy = answers[-1]
    assert (busy.status_code, "Too many requests" in busy.text) == (429, True)
    assert int(busy.headers["Retry-After"]) >= 1
    for answer in (lost, wrong, busy):
        assert answer.headers["Content-Security-Policy"] == answering.POLICY


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


def test_the_page_is_not_in_the_openapi_document(server: Server) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert not [
        one for one in paths if not one.startswith(("/v1/", "/ofrep/v1/", "/healthz", "/readyz", "/metrics"))
    ]
