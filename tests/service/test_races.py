"""Two who act at the same moment: one of them is first, and the other is told so."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import update

from tidegate.service import audit, evaluations, registry, schema, standing
from tidegate.service.answers import Asked
from tidegate.service.database import Database
from tidegate.service.definitions import definition_of
from tidegate.service.refusals import Conflict

from .serving import DEFINITION, RELEASE

GATE = "raced"
TURNS = 6


def passed(database: Database) -> str:
    """An evaluation that waits for anna or ben, at a gate of mode release."""
    definition = {**DEFINITION, **RELEASE, "approvers": ["anna", "ben"]}
    registry.define(database, GATE, definition_of(definition), "test")
    answer = evaluations.request(database, GATE, False, Asked.of(GATE, None), "test")
    evaluation = str(answer.body["data"]["id"])
    with database.writing() as connection:
        entry = audit.append(connection, database.now(), "evaluation.decided", None, "test", {})
        later = {"decided_at": database.now(), "expires_at": "2999-01-01T00:00:00.000Z"}
        told = {"status": "pass", "decision": entry.sequence, "summary": "{}", **later}
        connection.execute(
            update(schema.evaluations).where(schema.evaluations.c.id == evaluation).values(told)
        )
    return evaluation


def say(database: Database, evaluation: str, state: str, who: str) -> None:
    with database.writing() as connection:
        gate = registry.current(connection, GATE, lock=True)
        row = evaluations.of_id(connection, evaluation, lock=True)
        word = standing.Word(state, "", who, database.now())
        standing.approve(connection, gate.row, gate.definition, row, word)


def roll_back(database: Database) -> None:
    with database.writing() as connection:
        gate = registry.current(connection, GATE, lock=True)
        standing.roll_back(connection, gate.row, gate.definition, database.now(), "test", "it hurts")


def at_once(*acts: Callable[[], Any]) -> list[bool]:
    """Which of them were done, when all begin at the same moment; the others are conflicts."""
    barrier, done = threading.Barrier(len(acts)), [False] * len(acts)

    def run(number: int) -> None:
        barrier.wait()
        try:
            acts[number]()
            done[number] = True
        except Conflict:
            pass

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return done


def kinds(database: Database, *wanted: str) -> list[str]:
    return [one.kind for one in audit.all_entries(database) if one.kind in wanted]


def runs(database: Database) -> str:
    with database.reading() as connection:
        gate = registry.current(connection, GATE)
        return standing.standing(connection, gate.row, gate.definition, database.now()).policy


def test_of_two_words_about_a_decision_one_counts(database: Database) -> None:
    for turn in range(TURNS):
        evaluation = passed(database)
        done = at_once(
            partial(say, database, evaluation, "approved", "anna"),
            partial(say, database, evaluation, "rejected", "ben"),
        )
        assert sum(done) == 1
        assert len(kinds(database, "approval.given")) == turn + 1
        assert runs(database) == ("candidate" if done[0] else "safe")
        if done[0]:
            roll_back(database)


def test_a_release_is_taken_back_once(database: Database) -> None:
    for turn in range(TURNS):
        say(database, passed(database), "approved", "anna")
        assert sum(at_once(*[partial(roll_back, database)] * 3)) == 1
        assert len(kinds(database, "policy.rolled_back")) == turn + 1


def test_a_new_definition_and_an_approval_leave_no_release_of_the_old_one(database: Database) -> None:
    """Whoever is first: what runs afterwards was never approved for the definition that holds."""
    for turn in range(TURNS):
        evaluation = passed(database)
        other = {**DEFINITION, **RELEASE, "approvers": ["anna"], "candidate": f"column:other{turn}"}
        at_once(
            partial(say, database, evaluation, "approved", "anna"),
            partial(registry.define, database, GATE, definition_of(other), "test"),
        )
        assert runs(database) == "safe"
        released = kinds(database, "policy.released", "policy.withdrawn")
        assert released.count("policy.released") == released.count("policy.withdrawn")
