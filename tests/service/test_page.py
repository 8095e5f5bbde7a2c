"""The page without a browser: what is shown and to whom, and what is escaped."""

import datetime
import re

from tidegate.service import audit, tokens
from tidegate.service.app import make_app
from tidegate.service.database import Database, utc_now
from tidegate.service.page import answering

from .serving import DEFINITION, NDJSON, Server, released, rows
from .visiting import Addresses, client_of, signed_in, visitor

HOSTILE = "<script>alert('x')</script> & \"quoted\" 😀"
ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp;"


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
    assert (wrong.status_code, "This address does not accept such a request" in wrong.text) == (405, True)
    signed_in(quiet, client)
    answers = [client.get("/audit") for _ in range(4)]
    busy = answers[-1]
    assert (busy.status_code, "Too many requests" in busy.text) == (429, True)
    assert int(busy.headers["Retry-After"]) >= 1
    for answer in (lost, wrong, busy):
        assert answer.headers["Content-Security-Policy"] == answering.POLICY


def test_the_page_is_not_in_the_openapi_document(server: Server) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert not [
        one for one in paths if not one.startswith(("/v1/", "/ofrep/v1/", "/healthz", "/readyz", "/metrics"))
    ]
