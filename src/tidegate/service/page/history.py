"""What a gate has decided over time, what people and the watch did beside it, and which policy ran."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, select

from ...reasons import Status
from .. import audit, registry, schema, standing
from ..definitions import Mode

MOST = 120
EVENTS = {
    "policy.released": "released",
    "policy.rolled_back": "rolled back",
    "policy.withdrawn": "withdrawn",
    "approval.given": "approval",
    "gate.defined": "new definition",
}
ENDS = ("policy.rolled_back", "policy.withdrawn", "gate.defined")


@dataclasses.dataclass(frozen=True)
class Point:
    """One decision: on how many episodes, what it forecast, what came of it."""

    sequence: int
    evaluation: str
    episodes: int
    at: str
    forecast: float | None
    lower: float | None
    status: str
    deploys: bool  # at once, without a person


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened beside the decisions."""

    sequence: int
    episodes: int
    at: str
    by: str
    kind: str
    content: dict[str, Any]

    @property
    def said(self) -> str:
        word = EVENTS[self.kind]
        return str(self.content["state"]) if word == "approval" else word


@dataclasses.dataclass(frozen=True)
class Span:
    """From when to when a policy ran, in episodes."""

    first: int
    last: int
    policy: str


@dataclasses.dataclass(frozen=True)
class History:
    """The newest decisions of a gate, in order, and what happened since the first of them."""

    points: tuple[Point, ...]
    events: tuple[Event, ...]
    spans: tuple[Span, ...]


def history(connection: Connection, gate: registry.Gate, runs: str, most: int = MOST) -> History:
    """What happened at a gate; `runs` is the policy that runs now."""
    points = _points(connection, gate, most)
    events = _events(connection, gate, points[0].sequence if points else 0)
    return History(points, events, tuple(_spans(gate, points, events, runs)))


def _points(connection: Connection, gate: registry.Gate, most: int) -> tuple[Point, ...]:
    table, batch = schema.evaluations.c, schema.batches.c
    names = ("id", "version", "window", "status", "decision", "decided_at", "expires_at", "summary")
    asked = (
        select(*(table[name] for name in names), batch.total, schema.approvals.c.state)
        .outerjoin(schema.batches, (batch.gate == table.gate) & (batch.number == table.through_batch))
        .outerjoin(schema.approvals, schema.approvals.c.evaluation == table.id)
        .where(table.gate == gate.id, table.decision.is_not(None), table.dry_run.is_(False))
        .order_by(table.decision.desc())
        .limit(most)
    )
    return tuple(_point(connection, gate, row) for row in reversed(connection.execute(asked).all()))


def _point(connection: Connection, gate: registry.Gate, row: Row[Any]) -> Point:
    definition = registry.definition_at(connection, gate.id, row.version)
    said = None if row.state is None else row
    status = standing.effective_status(row, definition, said)
    advantage = (json.loads(row.summary) if row.summary else {}).get("advantage") or {}
    return Point(
        row.decision,
        row.id,
        row.total or 0,
        row.decided_at,
        advantage.get("forecast"),
        advantage.get("lower"),
        str(status),
        row.status == Status.PASS and not definition.needs_approval(row.window),
    )


def _events(connection: Connection, gate: registry.Gate, first: int) -> tuple[Event, ...]:
    table = schema.audit
    asked = (
        select(table)
        .where(table.c.gate == gate.name, table.c.kind.in_(EVENTS), table.c.sequence >= first)
        .order_by(table.c.sequence.desc())
        .limit(MOST)
    )
    found = map(audit.entry_of, reversed(connection.execute(asked).all()))
    return tuple(
        Event(one.sequence, _stored(connection, gate, one.sequence), one.at, one.by, one.kind, one.content)
        for one in found
    )


def _stored(connection: Connection, gate: registry.Gate, sequence: int) -> int:
    """How many episodes the gate had when an entry was made."""
    table = schema.audit
    asked = (
        select(table.c.content)
        .where(table.c.gate == gate.name, table.c.kind == "episodes.ingested", table.c.sequence < sequence)
        .order_by(table.c.sequence.desc())
        .limit(1)
    )
    content = connection.execute(asked).scalar()
    if content is None:
        return 0
    batch = schema.batches.c
    total = select(batch.total).where(batch.gate == gate.id, batch.number == json.loads(content)["batch"])
    return int(connection.execute(total).scalar() or 0)


def _spans(
    gate: registry.Gate, points: tuple[Point, ...], events: tuple[Event, ...], runs: str
) -> Iterator[Span]:
    """Who ran between one turn and the next; the last span is that of the policy that runs now."""
    turns = sorted([*_turns_of_points(gate, points), *_turns_of_events(gate, events)])
    if not points:
        return
    place, now = points[0].episodes, standing.SAFE
    if gate.definition.mode is Mode.RELEASE and turns and turns[0][2] == standing.SAFE:
        now = standing.CANDIDATE  # what ended had begun before the first decision shown
    for _, episodes, policy in turns:
        if policy != now:
            if episodes > place:
                yield Span(place, episodes, now)
            place, now = max(place, episodes), policy
    end = max(gate.row.episodes, place)
    if end > place:
        yield Span(place, end, runs)


def _turns_of_points(gate: registry.Gate, points: tuple[Point, ...]) -> Iterator[tuple[int, int, str]]:
    if gate.definition.mode is Mode.CONTINUOUS:
        for one in points:
            yield one.sequence, one.episodes, standing.CANDIDATE if one.deploys else standing.SAFE


def _turns_of_events(gate: registry.Gate, events: tuple[Event, ...]) -> Iterator[tuple[int, int, str]]:
    for one in events:
        approved = one.kind == "approval.given" and one.content["state"] == standing.APPROVED
        if one.kind == "policy.released" or (approved and gate.definition.mode is Mode.CONTINUOUS):
            yield one.sequence, one.episodes, standing.CANDIDATE
        if one.kind in ENDS:
            yield one.sequence, one.episodes, standing.SAFE
