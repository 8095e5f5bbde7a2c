"""The chain: whole, ordered by itself, and nothing in the tables is otherwise."""

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from tidegate import SoftmaxPolicy
from tidegate.policies import policy_values
from tidegate.service import accepting, audit, deciding, evaluations, registry, standing, uploads
from tidegate.service.answers import Asked
from tidegate.service.database import Database, opened, sqlite_url
from tidegate.service.definitions import definition_of
from tidegate.service.proving import prove

from .serving import DEFINITION, NDJSON, RELEASE, rows


@dataclasses.dataclass
class Clock:
    """A clock that can be set."""

    moment: datetime.datetime = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.moment

    def step(self, **length: float) -> None:
        self.moment += datetime.timedelta(**length)


def send(database: Database, gate: str, frame: pl.DataFrame) -> None:
    body = frame.write_ndjson().encode()
    accepting.accept(database, gate, body, NDJSON, Asked.of(gate, None), "test")


def decide(database: Database, gate: str) -> str:
    answer = evaluations.request(database, gate, False, Asked.of(gate, None), "test")
    while deciding.work(database, "worker"):
        pass
    return str(answer.body["data"]["id"])


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return opened(tmp_path / "data")


@pytest.fixture
def decided(database: Database) -> Database:
    """A gate with two batches, a budget, a release, and a rollback."""
    definition = {**DEFINITION, **RELEASE, "budget": "team"}
    registry.define(database, "one", definition_of(definition), "test")
    for first in (0, 150):
        send(database, "one", rows(150, first))
    decide(database, "one")
    with database.writing() as connection:
        gate = registry.current(connection, "one", lock=True)
        standing.roll_back(connection, gate.row, gate.definition, database.now(), "test", "enough")
    return database


def test_a_chain_that_nobody_touched_holds_and_its_decisions_replay(decided: Database) -> None:
    proof = prove(decided, "all")
    assert proof.holds, proof.lines
    assert proof.entries == 7
    assert "bit for bit" in proof.replays[0]
    assert prove(decided, None, proof.head).holds
    assert not prove(decided, None, f"{proof.entries}:{'0' * 64}").holds


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET content = replace(content, '150', '151') WHERE kind = 'episodes.ingested'",
        "UPDATE audit SET at = '2020-01-01T00:00:00.000Z' WHERE sequence = 3",
        "UPDATE audit SET \"by\" = 'somebody else' WHERE kind = 'policy.rolled_back'",
        "DELETE FROM audit WHERE sequence = 4",
        "DELETE FROM audit WHERE sequence = (SELECT max(sequence) FROM audit)",
        "UPDATE batches SET content = x'00' WHERE number = 2",
        "DELETE FROM batches WHERE number = 2",
        "UPDATE evaluations SET status = 'fail'",
        "UPDATE evaluations SET record = (SELECT content FROM batches LIMIT 1)",
        "UPDATE definitions SET content = replace(content, '0.05', '0.06')",
        "UPDATE gates SET in_force = 'e'",
        "UPDATE grants SET level = level / 2",
        "DELETE FROM grants",
    ],
)
def test_whatever_is_changed_is_found(decided: Database, change: str) -> None:
    with decided.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    with decided.writing() as connection:
        assert connection.execute(text(change)).rowcount
    assert not prove(decided).holds


class AtWork(Database):
    """Episodes come in between the walk along the chain and the look at its end."""

    def snapshot(self) -> Any:
        send(self, "one", rows(10, 1_000))
        return super().snapshot()


def test_a_service_at_work_is_proven_like_one_that_rests(decided: Database) -> None:
    proof = prove(AtWork(decided.url))
    assert proof.holds, proof.lines
    assert proof.entries == 8


def test_a_clock_that_is_set_back_disorders_nothing(tmp_path: Path) -> None:
    clock = Clock()
    database = Database(sqlite_url(tmp_path), clock)
    database.upgrade()
    registry.define(database, "one", definition_of(DEFINITION), "test")
    for first in range(0, 300, 100):
        send(database, "one", rows(100, first))
        clock.step(hours=-5)
    early = decide(database, "one")
    clock.step(days=-1)
    late = decide(database, "one")
    with database.reading() as connection:
        entries = audit.entries(connection)
        gate = registry.current(connection, "one")
        newest = standing.newest(connection, gate.row)
    assert [one.sequence for one in entries] == list(range(1, len(entries) + 1))
    assert [one.at for one in entries] == sorted((one.at for one in entries), reverse=True)
    assert prove(database).holds
    assert newest is not None
    assert newest.id == late != early


def test_a_decision_runs_out(tmp_path: Path) -> None:
    clock = Clock()
    database = Database(sqlite_url(tmp_path), clock)
    database.upgrade()
    registry.define(database, "one", definition_of({**DEFINITION, "valid_for": "12h"}), "test")
    send(database, "one", rows(300))
    decide(database, "one")
    with database.reading() as connection:
        gate = registry.current(connection, "one")
        assert _runs(connection, gate, database.now()) == "candidate"
        clock.step(hours=12)
        assert _runs(connection, gate, database.now()) == "safe"


def _runs(connection: Connection, gate: registry.Gate, now: str) -> str:
    return standing.standing(connection, gate.row, gate.definition, now).policy


class Away(Database):
    """The database goes away after some writing."""

    left = 1

    def writing(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OperationalError("", {}, Exception("gone"))
        return super().writing()


def test_a_database_that_goes_away_decides_nothing(database: Database) -> None:
    """The claim was written, and the level of the budget was not: the evaluation is computed again."""
    registry.define(database, "one", definition_of({**DEFINITION, "budget": "team"}), "test")
    send(database, "one", rows(300))
    answer = evaluations.request(database, "one", False, Asked.of("one", None), "test")
    with pytest.raises(OperationalError):
        deciding.work(Away(database.url), "first")
    with database.writing() as connection:
        found = evaluations.of_id(connection, answer.body["data"]["id"])
        assert found.status == evaluations.WAITING
        evaluations.release(connection, "first", crashed=False)
    assert deciding.work(database, "second")
    with database.reading() as connection:
        assert evaluations.of_id(connection, found.id).status == "pass"


def test_a_batch_that_cannot_be_read_ends_in_an_error_and_not_in_a_loop(database: Database) -> None:
    registry.define(database, "one", definition_of(DEFINITION), "test")
    send(database, "one", rows(300))
    with database.writing() as connection:
        connection.execute(text("UPDATE batches SET content = x'00'"))
    evaluation = decide(database, "one")
    with database.reading() as connection:
        assert evaluations.of_id(connection, evaluation).status == "error"


def test_a_decision_of_an_uploaded_policy_replays(database: Database) -> None:
    policy = policy_values(SoftmaxPolicy([0.0, 2.0]))
    sha256 = uploads.store_policy(database, json.dumps(policy).encode(), "test")
    values = {**DEFINITION, "candidate": f"policy:sha256:{sha256}", "candidate_from": "elsewhere"}
    registry.define(database, "filed", definition_of(values), "test")
    send(database, "filed", rows(300))
    evaluation = decide(database, "filed")
    with database.reading() as connection:
        assert evaluations.of_id(connection, evaluation).status == "pass"
    assert prove(database, evaluation).holds
