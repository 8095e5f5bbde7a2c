"""Which policy runs now, and what changes it: releases, approvals, rollbacks. Nothing here computes."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from ..reasons import Status
from . import audit, schema
from .database import stamp
from .definitions import GateDefinition, Mode
from .refusals import Conflict, NotAllowed

CANDIDATE, SAFE = "candidate", "safe"
APPROVED, REJECTED = "approved", "rejected"
STEP_BACK = datetime.timedelta(minutes=5)  # by which a clock may be corrected unnoticed


@dataclasses.dataclass(frozen=True)
class Standing:
    """The policy that runs, why, and by which evaluation; `version` is that of its definition."""

    policy: str
    reason: str
    version: int
    evaluation: str | None
    until: str | None = None


def newest(connection: Connection, gate: Row[Any]) -> Row[Any] | None:
    """The newest decision that counts: of the present version, no dry run, asked after any rollback."""
    table = schema.evaluations
    asked = select(*schema.light).where(
        table.c.gate == gate.id,
        table.c.version == gate.version,
        table.c.sequence > gate.barrier,
        table.c.decision.is_not(None),
        table.c.dry_run.is_(False),
    )
    return connection.execute(asked.order_by(table.c.decision.desc()).limit(1)).first()


def standing(connection: Connection, gate: Row[Any], definition: GateDefinition, now: str) -> Standing:
    """Which policy runs now."""
    if definition.mode is Mode.RELEASE:
        return _released(connection, gate)
    found = newest(connection, gate)
    if found is None:
        return Standing(SAFE, "nothing has been decided yet.", gate.version, None)
    over = why_over(found, now)
    if over is not None:
        return Standing(SAFE, over, gate.version, found.id)
    said = approval(connection, found.id) if definition.needs_approval(found.window) else None
    status = effective_status(found, definition, said)
    if status is Status.PASS:
        reason = "the newest decision deploys the candidate."
        return Standing(CANDIDATE, reason, gate.version, found.id, found.expires_at)
    return Standing(
        SAFE, "the newest decision keeps the safe policy.", gate.version, found.id, found.expires_at
    )


def why_over(evaluation: Row[Any], now: str) -> str | None:
    """Why a decision is no longer good; None if it is.

    One from a time that the clock has yet to reach was made before the clock was set back, and would be good
    for too long.
    """
    if not now < evaluation.expires_at:
        return f"the decision was good until {evaluation.expires_at}."
    latest = datetime.datetime.fromisoformat(now) + STEP_BACK
    if evaluation.decided_at > stamp(latest):
        return f"the decision was made at {evaluation.decided_at}, and the clock has been set back since."
    return None


def approval(connection: Connection, evaluation: str) -> Row[Any] | None:
    """What a person said about an evaluation."""
    table = schema.approvals
    return connection.execute(select(table).where(table.c.evaluation == evaluation)).first()


def effective_status(
    evaluation: Row[Any], definition: GateDefinition, approval: Row[Any] | None
) -> Status | None:
    """What a machine may act on: a pass that waits for a person is inconclusive, a rejected one fails."""
    if evaluation.decision is None:
        return None
    status = Status(evaluation.status)
    if status is not Status.PASS or not definition.needs_approval(evaluation.window):
        return status
    if approval is None:
        return Status.INCONCLUSIVE
    return Status.PASS if approval.state == APPROVED else Status.FAIL


@dataclasses.dataclass(frozen=True)
class Word:
    """What a person says about a decision."""

    state: str
    comment: str
    by: str
    at: str


def approve(
    connection: Connection, gate: Row[Any], definition: GateDefinition, evaluation: Row[Any], word: Word
) -> None:
    """What a person says, once, about a decision that waits for it. It takes effect in this transaction."""
    if word.by not in definition.approvers:
        raise NotAllowed(
            f"'{word.by}' is not among the approvers of '{gate.name}'.", expected="the token of an approver"
        )
    _require_waiting(connection, gate, definition, evaluation, word.at)
    connection.execute(insert(schema.approvals).values(evaluation=evaluation.id, **vars(word)))
    told = {"evaluation": evaluation.id, "state": word.state, "comment": word.comment}
    audit.append(connection, word.at, "approval.given", gate.name, word.by, told)
    if word.state == APPROVED:
        settle(connection, gate, definition, evaluation, word.at, word.by)


def settle(
    connection: Connection, gate: Row[Any], definition: GateDefinition, evaluation: Row[Any], at: str, by: str
) -> None:
    """A pass, approved if need be, goes in force where the gate releases; one in force already stays.

    What was asked before a rollback releases nothing after it, and neither does the window of a release.
    """
    releases = definition.mode is Mode.RELEASE and gate.in_force is None and evaluation.window is None
    if not releases or evaluation.sequence <= gate.barrier:
        return
    values = {
        "in_force": evaluation.id,
        "released_after": gate.batches,
        "watched": gate.batches,
        "watch_state": None,
    }
    connection.execute(update(schema.gates).where(schema.gates.c.id == gate.id).values(values))
    told = {"evaluation": evaluation.id, "after_batch": gate.batches}
    audit.append(connection, at, "policy.released", gate.name, by, told)


def roll_back(
    connection: Connection,
    gate: Row[Any],
    definition: GateDefinition,
    at: str,
    by: str,
    reason: str,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    """Back to the safe policy from the next request on, until a later evaluation; the gate must be locked."""
    now = standing(connection, gate, definition, at)
    if now.policy != CANDIDATE:
        raise Conflict(f"the safe policy runs at '{gate.name}', so there is nothing to roll back.")
    told = {"evaluation": now.evaluation, "reason": reason, "evidence": evidence}
    _end(connection, gate, at, by, "policy.rolled_back", told)


def warn(connection: Connection, gate: Row[Any], at: str, by: str, told: Mapping[str, Any]) -> None:
    """Something that may become a rollback is told; which policy runs stays as it is."""
    audit.append(connection, at, "policy.warned", gate.name, by, told)


def withdraw(connection: Connection, gate: Row[Any], at: str, by: str) -> None:
    """What is released ends, because the gate is about to ask something else."""
    if gate.in_force is not None:
        _end(connection, gate, at, by, "policy.withdrawn", {"evaluation": gate.in_force})


def _end(
    connection: Connection, gate: Row[Any], at: str, by: str, kind: str, told: Mapping[str, Any]
) -> None:
    table = schema.evaluations
    last = connection.execute(select(func.max(table.c.sequence)).where(table.c.gate == gate.id)).scalar()
    values = {
        "in_force": None, "released_after": None, "watched": None, "watch_state": None, "barrier": last or 0,
    }  # fmt: skip
    connection.execute(update(schema.gates).where(schema.gates.c.id == gate.id).values(values))
    audit.append(connection, at, kind, gate.name, by, told)


def _released(connection: Connection, gate: Row[Any]) -> Standing:
    if gate.in_force is None:
        return Standing(SAFE, "nothing is released.", gate.version, None)
    table = schema.evaluations
    version = connection.execute(select(table.c.version).where(table.c.id == gate.in_force)).scalar_one()
    return Standing(CANDIDATE, "the candidate is released, and watched.", version, gate.in_force)


def _require_waiting(
    connection: Connection, gate: Row[Any], definition: GateDefinition, evaluation: Row[Any], now: str
) -> None:
    if evaluation.dry_run or evaluation.status != Status.PASS.value:
        what = "a dry run" if evaluation.dry_run else evaluation.status
        raise Conflict(f"the evaluation is {what}: nothing waits for an approval.")
    if definition.only_warns(evaluation.window):
        raise Conflict("the evaluation is of a window of what is released already: it only warns.")
    said = approval(connection, evaluation.id)
    if said is not None:
        raise Conflict(
            f"the evaluation was {said.state} by '{said.by}' already.", remedy="Roll back instead."
        )
    latest = newest(connection, gate)
    if latest is None or latest.id != evaluation.id:
        raise Conflict("since this evaluation, the gate has decided again, been redefined or rolled back.")
    over = why_over(evaluation, now)
    if over is not None:
        raise Conflict(over, remedy="Evaluate again.")
