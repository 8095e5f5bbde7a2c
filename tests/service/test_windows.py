"""Windows: when one is full, what it may decide, and that a new definition counts its own."""

from sqlalchemy import insert, select, text, update

from tidegate.service import evaluations, registry, schema
from tidegate.service.database import Database
from tidegate.service.definitions import definition_of

from .serving import DEFINITION, RELEASE, Server, rows
from .serving import token as make_token
from .test_audit import send

COUNTS = ("batches", "episodes", "steps", "barrier", "watch_lease")  # which gates had before


def windows(database: Database) -> list[tuple[int, int]]:
    """The version and the number of each window that was asked about."""
    table = schema.evaluations.c
    with database.reading() as connection:
        found = connection.execute(select(table.version, table.window).order_by(table.sequence))
        return [(one.version, one.window) for one in found]


def test_longer_windows_have_numbers_that_shorter_ones_had(database: Database) -> None:
    registry.define(database, "one", definition_of({**DEFINITION, "window": 20}), "test")
    for first in range(0, 60, 20):
        send(database, "one", rows(20, first))
        with database.writing() as connection:
            assert evaluations.claim(connection, "worker") is not None
    registry.define(database, "one", definition_of({**DEFINITION, "window": 30}), "test")
    send(database, "one", rows(30, 60))
    assert windows(database) == [(1, 1), (1, 2), (1, 3), (2, 3)]


def test_tables_from_before_are_brought_up_to_date_with_what_they_hold(database: Database) -> None:
    """Down to the tables of the third migration, and up again."""
    with database.writing() as connection:
        for table in reversed(schema.metadata.sorted_tables):
            connection.execute(text(f"DROP TABLE {table.name}"))
        connection.execute(text("DROP TABLE alembic_version"))
    database.upgrade("0003")
    row = {"version": 1, "window": 3, "from_batch": 1, "through_batch": 1, "dry_run": False, "by": "test"}
    with database.writing() as connection:
        gate = {"id": 1, "name": "'one'", "version": 1} | dict.fromkeys(COUNTS, 0)
        words = f"INSERT INTO gates ({', '.join(gate)}) VALUES ({', '.join(map(str, gate.values()))})"
        connection.execute(text(words))
        connection.execute(insert(schema.evaluations).values(id="e", gate=1, at="", status="pass", **row))
        said = {"state": "approved", "comment": "fine", "by": "anna", "at": "now"}
        connection.execute(insert(schema.approvals).values(evaluation="e", **said))
    database.upgrade()
    again = {**row, "version": 2, "id": "f", "gate": 1, "at": "", "status": "pass"}
    with database.writing() as connection:
        connection.execute(insert(schema.evaluations).values(again))
        approval = connection.execute(select(schema.approvals)).one()
        assert connection.execute(update(schema.evaluations).values(status="fail")).rowcount == 2
    assert approval._asdict() == {"evaluation": "e", **said}
    assert windows(database) == [(1, 3), (2, 3)]


def test_a_window_of_a_release_waits_for_nobody(server: Server) -> None:
    """It only warns: what is approved runs already."""
    gate, who = "window-release", make_token(server, "window-anna", "approve,read")
    server.put(gate, **RELEASE, approvers=["window-anna"], window=100)
    server.send(gate, rows(300))
    released = server.evaluate(gate)
    assert server.decided(released)["status"] == "inconclusive"
    word = {"state": "approved"}
    place = f"/v1/evaluations/{released}/approval"
    assert server.http.post(place, json=word, headers=who).status_code == 200
    server.send(gate, rows(100, 300))
    newest = server.http.get(f"/v1/gates/{gate}/evaluations").json()["data"][0]
    found = server.decided(newest["id"])
    assert (found["window"], found["status"], found["approval"]) == (4, "pass", None)
    assert server.http.get(f"/v1/gates/{gate}/verdict").json()["data"]["status"] == "pass"
    answer = server.http.post(f"/v1/evaluations/{found['id']}/approval", json=word, headers=who)
    assert (answer.status_code, "only warns" in answer.json()["error"]["what"]) == (409, True)
    assert server.policy(gate)["evaluation"] == released
