"""Events: signed as receivers of Standard Webhooks expect, at least once, tried again, given up, counted."""

import base64
import contextlib
import datetime
import json
import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tidegate.errors import SettingsError
from tidegate.service import audit
from tidegate.service.database import Database
from tidegate.service.evaluations import clock
from tidegate.service.events import configured, endpoints, outbox, posting, queue, signing
from tidegate.service.events.sender import Sender
from tidegate.service.paging import Page
from tidegate.service.refusals import NotFound

from .adapting import new_token
from .receiving import Got, Say, receiving
from .serving import RELEASE, Server, rows, running


def happen(database: Database, kind: str = "policy.rolled_back", gate: str = "g") -> None:
    with database.writing() as connection:
        audit.append(connection, database.now(), kind, gate, "somebody", {"evaluation": None, "reason": "é"})


def to(database: Database, url: str, **more: Any) -> str:
    secret = signing.new_secret()
    endpoints.define(database, endpoints.webhook("place", url, secret, **more), "somebody")
    return secret


def states(database: Database) -> list[tuple[str, int]]:
    with database.reading() as connection:
        found = outbox.shown(connection, Page())
    return [(one["state"], one["attempts"]) for event in found for one in event["deliveries"]]


def run(sender: Sender) -> int:
    """Deliver all that is due; how many attempts that took."""
    return sum(1 for _ in iter(sender.turn, False))


def of_type(name: str, got: list[Got]) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, (one.body for one in got)) if one["type"] == name]


def test_a_signature_is_that_of_the_specification_and_of_its_python_package() -> None:
    """The example of the specification: https://github.com/standard-webhooks, its `v1` test vector."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    found = signing.signature(signing.key_of(secret), "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    moment = datetime.datetime.fromtimestamp(1614265330, datetime.UTC)
    assert found == Webhook(secret).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", moment, body.decode())


@pytest.mark.parametrize(
    "secret", ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_short", "whsec_" + "!" * 40]
)
def test_a_secret_that_cannot_sign_is_refused(secret: str) -> None:
    with pytest.raises(SettingsError, match="cannot sign"):
        signing.key_of(secret)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://host/x", "http://", "http://user:word@host/", "http://ho st/", "x",
        "http://host\r\nX: y/", "http://[::1", "http://host:99999999/", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_only_addresses_of_the_web_without_passwords_are_endpoints(url: str) -> None:
    with pytest.raises(SettingsError, match="address cannot be used"):
        endpoints.require_url(url)


def test_an_event_is_delivered_once_and_verified_by_its_receiver(database: Database) -> None:
    with receiving() as receiver:
        secret = to(database, receiver.url + "/hooks?a=b")
        happen(database)
        sender = Sender(database)
        assert run(sender) == 1
        assert run(sender) == 0
        (got,) = receiver.got
    said = Webhook(secret).verify(got.body, got.headers)
    assert got.path == "/hooks?a=b"
    assert said["type"] == "gate.rolled_back"
    assert said["data"]["gate"] == "g"
    assert said["data"]["reason"] == "é"
    with pytest.raises(WebhookVerificationError):
        Webhook(signing.new_secret()).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(got.body.replace(b"somebody", b"nobody!!"), got.headers)
    assert states(database) == [("delivered", 1)]


def test_a_failed_delivery_is_tried_again_with_the_same_id_and_body(database: Database) -> None:
    answers = iter([Say(500), Say(302, (("Location", "/elsewhere"),)), Say(200)])
    with receiving(lambda _: next(answers)) as receiver:
        secret = to(database, receiver.url)
        happen(database)
        assert run(Sender(database, schedule=(0.0, 0.0, 0.0))) == 3
        assert {(one.path, one.headers["webhook-id"], one.body) for one in receiver.got} == {
            ("/", receiver.got[0].headers["webhook-id"], receiver.got[0].body)
        }
    for one in receiver.got:
        Webhook(secret).verify(one.body, one.headers)
    assert states(database) == [("delivered", 3)]


def test_an_event_is_given_up_after_the_last_try_and_can_be_tried_again(database: Database) -> None:
    answer = Say(503)
    with receiving(lambda _: answer) as receiver:
        to(database, receiver.url)
        happen(database)
        sender = Sender(database, schedule=(0.0, 0.0))
        assert run(sender) == 3
        assert states(database) == [("dead", 3)]
        answer = Say(200)
        with database.writing() as connection:
            event = outbox.shown(connection, Page(limit=1))[0]["id"]
            assert queue.retry(connection, event) == 1
        assert run(sender) == 1
    assert states(database) == [("delivered", 1)]
    with database.writing() as connection, pytest.raises(NotFound):
        queue.retry(connection, "evt_" + "0" * 32)


def test_waits_grow_and_what_the_endpoint_asks_for_is_heard(database: Database) -> None:
    with receiving(lambda _: Say(429, (("Retry-After", "3600"),))) as receiver:
        to(database, receiver.url)
        happen(database)
        sender = Sender(database)
        assert run(sender) == 1
        with database.reading() as connection:
            due = connection.exec_driver_sql("SELECT due FROM deliveries").scalar_one()
            assert 3590 < due - clock(connection) < 3601
        assert run(sender) == 0
    assert states(database) == [("pending", 1)]


def test_an_endpoint_that_is_gone_gets_nothing_more(database: Database) -> None:
    with receiving(lambda _: Say(410)) as receiver:
        to(database, receiver.url)
        happen(database)
        happen(database)
        assert run(Sender(database)) == 1
        happen(database)
        assert run(Sender(database)) == 0
    assert states(database) == [("dead", 1), ("dead", 0)]


def test_an_endpoint_gets_only_what_it_asked_for(database: Database) -> None:
    with receiving() as receiver:
        to(database, receiver.url, types=("gate.rolled_back",), gate="g")
        happen(database, "policy.released")
        happen(database, gate="other")
        happen(database, "episodes.ingested")
        happen(database)
        assert run(Sender(database)) == 1
    with pytest.raises(SettingsError, match="no events of the type"):
        endpoints.webhook("place", "http://host", signing.new_secret(), ("gate.eaten",))
    with pytest.raises(SettingsError, match="registry's name"):
        endpoints.webhook("mlflow.g", "http://host", signing.new_secret())


def test_nothing_is_sent_of_what_did_not_happen(database: Database) -> None:
    to(database, "http://127.0.0.1:9")
    with contextlib.suppress(ZeroDivisionError), database.writing() as connection:
        audit.append(connection, database.now(), "policy.released", "g", "somebody", {})
        raise ZeroDivisionError
    with database.reading() as connection:
        assert outbox.shown(connection, Page()) == []
    assert states(database) == []


def test_a_slow_endpoint_holds_up_only_itself(database: Database) -> None:
    held = threading.Event()
    with receiving(lambda _: Say(200 if held.wait(20) else 500)) as slow, receiving() as quick:
        secret = signing.new_secret()
        for name, place in (("slow", slow), ("quick", quick)):
            endpoints.define(database, endpoints.webhook(name, place.url, secret), "somebody")
        for _ in range(6):
            happen(database)
        sender = Sender(database)
        sender.start()
        quick.wait(lambda got: len(got) == 6)
        slow.wait(bool)
        assert len(_ids(slow.got)) < 6  # one, perhaps more on a machine that is slow itself
        held.set()
        slow.wait(lambda got: len(_ids(got)) == 6)
        sender.stop()


def _ids(got: list[Got]) -> set[str]:
    return {one.headers["webhook-id"] for one in got}


def test_an_answer_that_never_ends_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "TIMEOUT", 0.5)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def drip() -> None:
            one, _ = door.accept()
            with one, contextlib.suppress(OSError):
                one.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not done.wait(0.05):
                    one.sendall(b" ")

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        outcome, _ = posting.attempt("POST", f"http://127.0.0.1:{door.getsockname()[1]}", b"{}", {})
    done.set()
    assert (outcome.delivered, outcome.status) == (True, 200)
    assert time.monotonic() - began < 10


def test_an_attempt_at_nothing_says_what_is_wrong() -> None:
    outcome, _ = posting.attempt("POST", "http://127.0.0.1:9/", b"", {})
    assert not outcome.delivered
    assert "refused" in outcome.problem


def test_the_file_names_endpoints_and_their_secrets_lie_elsewhere(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gates.toml"
    file.write_text(
        '[endpoints.pager]\nurl = "http://host/x"\nsecret_env = "PAGER"\ntypes = ["gate.warning"]\n'
    )
    with pytest.raises(SettingsError, match="PAGER, which is not set"):
        configured.configure(database, file, "config")
    secret = signing.new_secret()
    monkeypatch.setenv("PAGER", secret)
    configured.configure(database, file, "config")
    with database.reading() as connection:
        (shown,) = endpoints.listed(connection)
        entries = audit.entries(connection)
    assert shown["types"] == ["gate.warning"]
    assert secret not in json.dumps([shown, [one.content for one in entries]])
    file.write_text('[endpoints.pager]\nurl = "http://host/x"\nsecert = "x"\n')
    with pytest.raises(SettingsError, match=r"endpoints\.pager\.secert"):
        configured.configure(database, file, "config")


def recipe(kind: str) -> str:
    """The block of a kind in what the page says about events."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "service-adapters.md"
    found = re.search(rf"^## Events$.*?^```{kind}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("kind", ["gate.rolled_back", "gate.warning"])
def test_the_recipe_believes_what_we_signed_and_looks_at_the_type(kind: str) -> None:
    secret, moment = signing.new_secret(), str(int(time.time()))
    body = json.dumps({"type": kind})
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": moment,
        "webhook-signature": signing.signature(signing.key_of(secret), "msg_1", moment, body.encode()),
    }
    names = {"secret": secret, "body": body, "headers": headers}
    if kind == "gate.rolled_back":
        exec(recipe("python"), names)
        return
    with pytest.raises(AssertionError):
        exec(recipe("python"), names)


def test_the_file_of_the_recipe_names_an_endpoint(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER_SECRET", signing.new_secret())
    (tmp_path / "gates.toml").write_text(recipe("toml"))
    configured.configure(database, tmp_path / "gates.toml", "config")
    with database.reading() as connection:
        (shown,) = endpoints.listed(connection)
    assert shown["types"] == ["gate.rolled_back", "gate.warning"]


def test_events_of_a_gate_arrive_and_are_listed_with_their_deliveries(server: Server) -> None:
    with receiving() as receiver:
        asked = {"url": receiver.url, "gate": "told"}
        made = server.http.put("/v1/endpoints/told", json=asked)
        assert made.status_code == 201
        secret = made.json()["data"]["secret"]
        assert server.http.put("/v1/endpoints/told", json=asked).json()["data"]["secret"] is None
        server.put("told", **RELEASE, approvers=["first"])
        server.send("told", rows(300))
        evaluation = server.evaluate("told")
        server.decided(evaluation)
        word = {"state": "approved", "comment": "go"}
        assert server.http.post(f"/v1/evaluations/{evaluation}/approval", json=word).status_code == 200
        server.http.post("/v1/gates/told/rollback", json={"comment": "hurts"})
        got = receiver.wait(lambda got: len(got) == 5)
        listed = settled(server, "told")
        assert server.http.delete("/v1/endpoints/told").status_code == 204
        assert server.http.delete("/v1/endpoints/told").status_code == 404
    said = {Webhook(secret).verify(one.body, one.headers)["type"] for one in got}
    types = ["gate.defined", "gate.evaluated", "gate.approved", "gate.released", "gate.rolled_back"]
    assert said == set(types)
    (decided,) = of_type("gate.evaluated", got)
    assert decided["data"]["status"] == "inconclusive"
    assert decided["data"]["awaits_approval"]
    assert decided["data"]["computed"] == {"status": "pass", "verdict": "DEPLOY"}
    assert server.http.get(decided["data"]["url"]).status_code == 200
    assert [one["type"] for one in listed] == types
    assert {one["deliveries"][0]["state"] for one in listed} == {"delivered"}
    assert (
        'tidegate_event_deliveries{endpoint="told",state="delivered"} 5.0' in server.http.get("/metrics").text
    )
    everything = server.http.get("/v1/endpoints").text + server.http.get("/v1/audit?limit=1000").text
    assert secret not in everything
    assert base64.b64encode(signing.key_of(secret)).decode() not in everything


def settled(server: Server, gate: str) -> list[dict[str, Any]]:
    """The events of a gate, when all that was sent is written down."""
    while True:
        found: list[dict[str, Any]] = server.http.get("/v1/events", params={"gate": gate}).json()["data"]
        if all(one["state"] != "pending" for event in found for one in event["deliveries"]):
            return found


def test_only_an_administrator_says_where_events_go(server: Server) -> None:
    found = new_token(server, "watcher", "read", "ingest", "decide", "approve")
    headers = {"Authorization": f"Bearer {found}"}
    assert server.http.get("/v1/events", headers=headers).status_code == 200
    assert server.http.get("/v1/endpoints", headers=headers).status_code == 403
    asked = {"url": "http://127.0.0.1:9"}
    assert server.http.put("/v1/endpoints/mine", headers=headers, json=asked).status_code == 403
    for wrong in ({"url": "file:///etc/passwd"}, {**asked, "secret": "whsec_x"}, {**asked, "types": ["x"]}):
        assert server.http.put("/v1/endpoints/mine", json=wrong).status_code == 422


def test_an_event_outlives_a_server_that_is_killed_before_it_is_delivered(tmp_path: Path) -> None:
    held = threading.Event()
    with receiving(lambda _: Say(200 if held.wait(20) else 500)) as receiver:
        with running(tmp_path / "data") as server:
            secret = server.http.put("/v1/endpoints/e", json={"url": receiver.url}).json()["data"]["secret"]
            server.put("g")
            receiver.wait(lambda got: len(got) == 1)  # it was committed, and is on its way
            server.end(signal.SIGKILL)
        held.set()
        with running(tmp_path / "data", server.token) as again:
            got = receiver.wait(lambda got: len(got) == 2)
            assert settled(again, "g")[0]["deliveries"][0]["state"] == "delivered"
    assert got[0].headers["webhook-id"] == got[1].headers["webhook-id"]
    assert [Webhook(secret).verify(one.body, one.headers)["type"] for one in got] == ["gate.defined"] * 2
