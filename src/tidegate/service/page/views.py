"""What the pages show of a gate: which policy runs, the newest decision, and what it waits for."""

import dataclasses
import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select

from ...reasons import Status
from ...reports.numbers import count
from .. import evaluations, presenting, registry, schema, standing
from ..audit import entry_of
from ..definitions import Mode
from ..tokens import Scope
from .history import History, history
from .visitors import Visitor

MOMENT = timedelta(seconds=30)  # episodes that came since then are news
FEW = 40  # decisions in the small picture of a gate


@dataclasses.dataclass(frozen=True)
class Wait:
    """What a gate waits for, in words; episodes as so many of so many."""

    kind: str
    words: str
    done: int = 0
    of: int = 0


@dataclasses.dataclass(frozen=True)
class GateView:
    """A gate as it is now."""

    gate: registry.Gate
    policy: dict[str, Any]
    latest: dict[str, Any] | None
    wait: Wait
    past: History
    pending: str | None  # the decision that waits for a person
    for_you: bool  # whether the visitor may approve it
    fresh: bool  # whether episodes came in a moment ago

    @property
    def status(self) -> str | None:
        if self.latest is None or self.latest["id"] == self.pending:
            return None if self.latest is None else "pending"
        return str(self.latest["status"])

    @property
    def busy(self) -> bool:
        """Whether the page may look different in a moment."""
        return self.fresh or self.wait.kind == "computing"


def gate_view(
    connection: Connection, gate: registry.Gate, now: str, visitor: Visitor, most: int = FEW
) -> GateView:
    """All about a gate that its pages show."""
    policy = presenting.policy_summary(connection, gate, now)
    wait, row = waits_for(connection, gate, now, policy["policy"]), pending(connection, gate, now)
    return GateView(
        gate,
        policy,
        latest(connection, gate),
        wait,
        history(connection, gate, policy["policy"], most),
        None if row is None else str(row.id),
        row is not None and may_approve(visitor, gate),
        _fresh(connection, gate, now),
    )


def may_approve(visitor: Visitor, gate: registry.Gate) -> bool:
    """Whether the visitor is an approver of the gate, with the scope for it."""
    return visitor.may(Scope.APPROVE) and visitor.who.name in gate.definition.approvers


def latest(connection: Connection, gate: registry.Gate) -> dict[str, Any] | None:
    """The newest decision that was not a dry run, of whatever version."""
    table = schema.evaluations
    asked = (
        evaluations.light()
        .where(table.c.gate == gate.id, table.c.decision.is_not(None), table.c.dry_run.is_(False))
        .order_by(table.c.decision.desc())
        .limit(1)
    )
    row = connection.execute(asked).first()
    return None if row is None else evaluation(connection, gate, row)


def evaluation(connection: Connection, gate: registry.Gate, row: Row[Any]) -> dict[str, Any]:
    """An evaluation as clients see it."""
    definition = registry.definition_at(connection, gate.id, row.version)
    return presenting.evaluation_data(connection, row, gate.name, definition)


def pending(connection: Connection, gate: registry.Gate, now: str) -> Row[Any] | None:
    """The decision that a person has to approve, if one waits."""
    row = standing.newest(connection, gate.row)
    needed = row is not None and gate.definition.needs_approval(row.window)
    if row is None or not needed or row.status != Status.PASS.value:
        return None
    waits = standing.why_over(row, now) is None and standing.approval(connection, row.id) is None
    return row if waits else None


def waits_for(connection: Connection, gate: registry.Gate, now: str, runs: str) -> Wait:
    """What has to happen before anything changes at a gate."""
    if computing(connection, gate) is not None:
        return Wait("computing", "a decision that is being computed")
    if pending(connection, gate, now) is not None:
        return Wait("approval", f"an approval by {' or '.join(gate.definition.approvers)}")
    if not gate.row.episodes:
        return Wait("episodes", "its first episodes", 0, gate.definition.episodes_per_window)
    if gate.definition.mode is Mode.CONTINUOUS or runs == standing.CANDIDATE:
        return _window(gate)
    return Wait("request", "somebody to ask for a decision")


def computing(connection: Connection, gate: registry.Gate) -> str | None:
    """An evaluation that is not decided yet."""
    table = schema.evaluations
    asked = select(table.c.id).where(table.c.gate == gate.id, table.c.status == evaluations.WAITING)
    found = connection.execute(asked.limit(1)).scalar()
    return None if found is None else str(found)


def versions(connection: Connection, gate: registry.Gate) -> list[Row[Any]]:
    """The definitions of a gate, the newest first."""
    table = schema.definitions
    asked = select(table).where(table.c.gate == gate.id).order_by(table.c.version.desc()).limit(50)
    return list(connection.execute(asked))


def definition_rows(gate: registry.Gate) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """What a definition says, and what it leaves at the default."""
    values, fields = gate.definition.model_dump(mode="json"), type(gate.definition).model_fields
    plain = {
        name: json.loads(json.dumps(one.default, default=list))
        for name, one in fields.items()
        if not one.is_required()
    }
    own = [(name, one) for name, one in values.items() if name not in plain or plain[name] != one]
    rest = [(name, one) for name, one in values.items() if name in plain and plain[name] == one]
    return own, rest


def rollback_of(connection: Connection, gate: registry.Gate) -> Any:
    """The newest entry about the gate's policy, if it says that it was rolled back."""
    table = schema.audit
    kinds = ("policy.rolled_back", "policy.released", "evaluation.decided")
    asked = (
        select(table)
        .where(table.c.gate == gate.name, table.c.kind.in_(kinds))
        .order_by(table.c.sequence.desc())
        .limit(1)
    )
    row = connection.execute(asked).first()
    return entry_of(row) if row is not None and row.kind == kinds[0] else None


def _fresh(connection: Connection, gate: registry.Gate, now: str) -> bool:
    batch = schema.batches.c
    asked = select(batch.at).where(batch.gate == gate.id, batch.number == gate.row.batches)
    at = connection.execute(asked).scalar()
    return at is not None and datetime.fromisoformat(now) - datetime.fromisoformat(at) < MOMENT


def _window(gate: registry.Gate) -> Wait:
    length = gate.definition.episodes_per_window
    done = gate.row.episodes % length
    left = count(length - done, "more episode")
    return Wait("episodes", f"{left}, for window {gate.row.episodes // length + 1:,}", done, length)
