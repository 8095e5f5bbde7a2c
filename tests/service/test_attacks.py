"""What somebody with bad intentions, or bad luck, may send; each of these did harm once, or could have."""

import datetime
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import polars as pl
import pytest
from sqlalchemy import insert, select, update

from tidegate.service import evaluations, registry, schema, standing, tokens
from tidegate.service.answers import Asked
from tidegate.service.app import make_app
from tidegate.service.config import configure
from tidegate.service.database import Database, opened, stamp
from tidegate.service.definitions import definition_of
from tidegate.service.events import queue
from tidegate.service.events.queue import Outcome
from tidegate.service.events.tables import deliveries, endpoints, events
from tidegate.service.limits import MOST_JSON, BodyLimit
from tidegate.service.proving import prove

from .serving import DEFINITION, PARQUET, Server, parquet, rows
from .serving import token as make_token


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_body_is_not_parsed_for_a_stranger(server: Server) -> None:
    """JSON is parsed before the token is looked at, so it must be small; rows may wait for the token."""
    body, headers = b'"' + b"x" * MOST_JSON + b'"', {"Content-Type": "application/json"}
    for method, place in (("PUT", "/v1/gates/any"), ("POST", "/v1/adapters/mlflow/any")):
        answer = httpx.request(method, server.url + place, content=body, headers=headers)
        assert code(answer) == (413, "too_large")
    for method, place in (("POST", "/v1/gates/any/episodes"), ("PUT", "/v1/policies")):
        answer = httpx.request(method, server.url + place, content=body, headers=headers)
        assert code(answer) == (401, "no_token")


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 200_000, b"\x00"])
def test_what_is_no_json_is_unfit(server: Server, body: bytes) -> None:
    answer = server.http.put("/v1/gates/any", content=body, headers={"Content-Type": "application/json"})
    assert code(answer) == (422, "unfit")


@pytest.mark.parametrize(
    ("place", "body"),
    [("evaluations", {"dryrun": True}), ("rollback", {"reason": "it hurts"})],
)
def test_a_word_that_means_nothing_is_not_passed_over(
    server: Server, place: str, body: dict[str, object]
) -> None:
    server.put("typo")
    assert code(server.http.post(f"/v1/gates/typo/{place}", json=body)) == (422, "unfit")


@pytest.mark.parametrize(("place", "seconds"), [("/v1/policies", 0.4), ("/v1/gates/any", 0.2)])
def test_a_body_that_does_not_come_is_given_up(database: Database, place: str, seconds: float) -> None:
    token = tokens.first_token(database)
    app = BodyLimit(make_app(database), seconds=0.2, bulk_seconds=0.4)

    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await anyio.sleep(0.05)

    async def ask() -> tuple[httpx.Response, float]:
        headers, began = {"Authorization": f"Bearer {token}"}, time.monotonic()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return await client.put(place, content=drops()), time.monotonic() - began

    answer, took = anyio.run(ask)
    assert code(answer) == (408, "too_slow")
    assert seconds <= took < seconds + 5


def test_a_method_that_is_not_served_is_told_which_are(server: Server) -> None:
    for place, methods in (("gates/any", "GET, PUT"), ("endpoints/any", "DELETE, PUT"), ("audit", "GET")):
        answer = server.http.request("OPTIONS", f"/v1/{place}")
        assert (code(answer), answer.headers["Allow"]) == ((405, "not_served"), methods)


def test_a_small_file_that_claims_to_be_huge_is_refused(server: Server) -> None:
    """A kilobyte per million rows: each column holds one value."""
    server.put("bomb")
    one = rows(1)
    bomb = pl.DataFrame({name: pl.repeat(one[name][0], 40_000_000, eager=True) for name in one.columns})
    body = parquet(bomb)
    assert len(body) < 2**20
    headers = {"Content-Type": PARQUET}
    answer = server.http.post("/v1/gates/bomb/episodes", content=body, headers=headers)
    assert code(answer) == (422, "unfit")
    assert "40,000,000 rows" in answer.json()["error"]["sentence"]


@pytest.mark.parametrize(
    "spec", ["python:os:system", "policy:/etc/passwd", "policy:sha256:x", "PYTHON:os:system", " python:a:b"]
)
@pytest.mark.parametrize("role", ["candidate", "safe"])
def test_no_definition_names_code_or_a_path(server: Server, tmp_path: Path, role: str, spec: str) -> None:
    assert code(server.put("code", **{role: spec}))[0] == 422
    table = {"candidate": "column:c", "lookahead": 10, role: spec}
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    (tmp_path / "gates.toml").write_text("\n".join(["[gates.code]", *lines]))
    with pytest.raises(Exception, match=r"policy|Policy|cannot read"):
        configure(opened(tmp_path / "data"), tmp_path / "gates.toml")


@pytest.mark.parametrize("file", [{"kind": "python", "function": "os:system"}, {"python": "os:system"}, []])
def test_no_uploaded_file_names_code(server: Server, file: object) -> None:
    assert code(server.http.put("/v1/policies", json=file)) == (422, "unfit")


def test_a_comment_that_a_database_cannot_keep_is_unfit(server: Server) -> None:
    server.put("comment")
    answer = server.http.post("/v1/gates/comment/rollback", json={"comment": "a\0b"})
    assert code(answer) == (422, "unfit")


def test_what_an_endpoint_answers_cannot_stop_the_queue(database: Database) -> None:
    first = {"state": "pending", "attempts": 0, "due": 0.0, "lease": 0.0, "claim": 0, "problem": ""}
    with database.writing() as connection:
        known = {"url": "http://127.0.0.1:9", "secret": "", "types": "", "settings": "{}", "state": "active"}
        row = {"name": "bad", "kind": "webhook", **known, "at": "", "by": ""}
        connection.execute(insert(endpoints).values(row))
        told = {"sequence": 1, "id": "evt", "type": "gate.defined", "gate": "one", "at": "", "body": "{}"}
        connection.execute(insert(events).values(told))
        connection.execute(insert(deliveries).values(event=1, endpoint="bad", **first))
    with database.writing() as connection:
        delivery = queue.claim(connection)
        assert delivery is not None
        failed = Outcome(False, None, "BadStatusLine: \0\ud800\x1b[31m")
        assert queue.settle(connection, delivery, failed, database.now(), queue.SCHEDULE) == "pending"
    with database.reading() as connection:
        assert connection.execute(select(deliveries.c.problem)).scalar_one() == "BadStatusLine:    [31m"


def test_a_lease_from_a_clock_that_was_ahead_is_over(database: Database) -> None:
    """The clock was an hour ahead when a worker took an evaluation, and died."""
    registry.define(database, "one", definition_of(DEFINITION), "test")
    evaluations.request(database, "one", False, Asked.of("one", None), "test")
    with database.writing() as connection:
        assert evaluations.claim(connection, "gone") is not None
        assert evaluations.claim(connection, "other") is None
        ahead = update(schema.evaluations).values(lease=evaluations.clock(connection) + 3_600)
        connection.execute(ahead)
        claim = evaluations.claim(connection, "other")
        assert claim is not None
        assert claim.number == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tokens SET scopes = 'admin' WHERE name = 'reader'",
        "UPDATE tokens SET expires_at = NULL WHERE name = 'reader'",
        "UPDATE tokens SET revoked_at = NULL WHERE name = 'ended'",
        "INSERT INTO tokens (name, sha256, scopes, at) VALUES ('mine', 'x', 'admin', '2026')",
        "INSERT INTO policy_files (sha256, content, at) VALUES ('x', 'y', '2026')",
    ],
)
def test_a_token_or_file_that_was_slipped_in_is_found(tmp_path: Path, change: str) -> None:
    database = opened(tmp_path / "data")
    for name in ("reader", "ended"):
        tokens.new_token(database, name, "read")
    tokens.revoke(database, "ended")
    assert prove(database).holds
    with database.writing() as connection:
        connection.exec_driver_sql(change)
    assert not prove(database).holds


def cut_off(database: Database) -> None:
    """Take the last entry away, and set the head back, as if it had never been."""
    with database.writing() as connection:
        last = connection.execute(select(schema.audit).order_by(schema.audit.c.sequence.desc())).first()
        assert last is not None
        connection.exec_driver_sql(f"DELETE FROM audit WHERE sequence = {last.sequence}")
        values = {"sequence": last.sequence - 1, "sha256": last.previous}
        connection.execute(update(schema.audit_head).values(values))


def test_a_chain_that_was_cut_off_at_its_end_is_found(tmp_path: Path) -> None:
    """By what the tables hold beyond it; and by the head that somebody noted, whatever was cut."""
    database = opened(tmp_path / "data")
    tokens.new_token(database, "one", "read")
    tokens.new_token(database, "two", "read")
    noted = prove(database).head
    cut_off(database)
    assert not prove(database).holds
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM tokens WHERE name = 'two'")
    assert prove(database).holds
    assert not prove(database, None, noted).holds


def passing(server: Server, gate: str, **definition: object) -> str:
    server.put(gate, **definition)
    server.send(gate, rows(300))
    evaluation = server.evaluate(gate)
    assert server.decided(evaluation)["computed"]["status"] == "pass"
    return evaluation


def test_nobody_repeats_the_word_of_another_approver(server: Server) -> None:
    anna, bob = (make_token(server, name, "approve") for name in ("word-anna", "word-bob"))
    evaluation = passing(server, "word", approvers=["word-anna"])
    place, said = f"/v1/evaluations/{evaluation}/approval", {"state": "approved"}

    def say(who: dict[str, str], key: str) -> httpx.Response:
        return server.http.post(place, json=said, headers={**who, "Idempotency-Key": key})

    assert code(say(bob, "k")) == (403, "not_allowed")
    assert say(anna, "k").status_code == 200
    assert say(anna, "k").headers["Idempotent-Replayed"] == "true"
    assert code(say(bob, "k")) == (409, "conflict")


def test_the_tag_of_a_policy_changes_with_every_rollback(server: Server) -> None:
    passing(server, "tags")
    place, tags = "/v1/gates/tags/policy", []
    for turn in range(2):
        tags.append(server.http.get(place).headers["ETag"])
        assert server.http.post("/v1/gates/tags/rollback", json={"comment": str(turn)}).status_code == 200
        back = server.http.get(place, headers={"If-None-Match": tags[-1]})
        assert (back.status_code, back.json()["data"]["policy"]) == (200, "safe")
        again = server.decided(server.evaluate("tags"))
        assert again["status"] == "pass"
        back = server.http.get(place, headers={"If-None-Match": ", ".join(tags)})
        assert (back.status_code, back.json()["data"]["evaluation"]) == (200, again["id"])
    assert len(set(tags)) == 2


def test_a_decision_from_before_the_clock_was_set_back_counts_no_more(server: Server) -> None:
    """It would be good for as long as the clock was ahead."""
    evaluation = passing(server, "ahead-of-time")
    database = Database(server.database)
    with database.reading() as connection:
        row = evaluations.of_id(connection, evaluation)
    database.close()
    decided = datetime.datetime.fromisoformat(row.decided_at)
    for minutes, over in ((0, False), (-4, False), (-6, True), (-60 * 24 * 365, True)):
        now = stamp(decided + datetime.timedelta(minutes=minutes))
        assert (standing.why_over(row, now) is not None) is over
