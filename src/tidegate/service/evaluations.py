"""The queue of evaluations: asked for, claimed by one worker, decided once.

A claim is a lease by the database's own clock, which a worker renews while it computes, and a number that
grows with every claim. A decision is written only under the number of the last claim. So of two workers that
believe in the same claim one writes, and of a worker that died the lease runs out.
"""

import dataclasses
import uuid
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, or_, select, text, update

from . import audit, batches, registry, schema
from .answers import Answer, Asked
from .database import Database
from .definitions import Mode
from .refusals import NotFound

WAITING = "in_progress"
LEASE = 20.0  # seconds; renewed in a quarter of it
MOST_CRASHES = 3
ACCEPTED = 202
WINDOW = "window"  # who asks, where nobody did


@dataclasses.dataclass(frozen=True)
class Claim:
    """The right to decide one evaluation."""

    evaluation: Row[Any]
    number: int

    @property
    def id(self) -> str:
        return str(self.evaluation.id)


def request(database: Database, name: str, dry_run: bool, asked: Asked, by: str) -> Answer:
    """Put an evaluation of all that is stored now into the queue."""
    with database.writing() as connection:
        gate = registry.current(connection, name, lock=True)
        earlier = asked.earlier(connection)
        if earlier is not None:
            return earlier
        evaluation = put(connection, gate, dry_run, database.now(), by)
        body = {"data": {"id": evaluation, "status": WAITING, "url": f"/v1/evaluations/{evaluation}"}}
        return asked.keep(connection, Answer(ACCEPTED, body))


def put(connection: Connection, gate: registry.Gate, dry_run: bool, at: str, by: str) -> str:
    """Put an evaluation of all that is stored into the queue, in a transaction of the caller's."""
    evaluation = _insert(connection, gate, gate.row.batches, None, dry_run, by, at)
    told = {"evaluation": evaluation, "version": gate.version, "dry_run": dry_run}
    audit.append(connection, at, "evaluation.requested", gate.name, by, told)
    return evaluation


def enqueue_window(
    connection: Connection, gate: registry.Gate, batch: int, before: int, total: int, at: str
) -> None:
    """A batch that completes a window asks for an evaluation; one that still waits takes this batch too.

    Whoever sends many windows at once gets one decision, about the newest: nobody acts on the others.
    """
    length = gate.definition.episodes_per_window
    window = total // length
    watched = gate.definition.mode is Mode.CONTINUOUS or gate.row.in_force is not None
    if not watched or window <= before // length:
        return
    first = batches.first_of_history(connection, gate.id, batch, gate.definition.history)
    table = schema.evaluations
    moved = (
        update(table)
        .where(
            table.c.gate == gate.id,
            table.c.version == gate.version,
            table.c.window.is_not(None),
            table.c.status == WAITING,
            table.c.claim == 0,
            table.c.sequence > gate.row.barrier,
        )
        .values(window=window, from_batch=first, through_batch=batch, at=at)
    )
    if not connection.execute(moved).rowcount:
        _insert(connection, gate, batch, window, False, WINDOW, at)


def claim(connection: Connection, worker: str) -> Claim | None:
    """The oldest evaluation that nobody is at work on, for this worker."""
    table, now = schema.evaluations, clock(connection)
    asked = (
        light()
        .where(table.c.status == WAITING, lapsed(table.c.lease, now, LEASE))
        .order_by(table.c.sequence)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = connection.execute(asked).first()
    if row is None:
        return None
    values = {"worker": worker, "claim": row.claim + 1, "lease": now + LEASE}
    connection.execute(update(table).where(table.c.sequence == row.sequence).values(values))
    return Claim(row, row.claim + 1)


def renew(connection: Connection, claim: Claim) -> bool:
    """Keep the claim; False if somebody else has it, or the evaluation is decided."""
    lease = clock(connection) + LEASE
    return bool(connection.execute(_held(claim).values(lease=lease)).rowcount)


def hold(connection: Connection, claim: Claim) -> bool:
    """Whether the claim still stands; if so, it does until the transaction ends."""
    table = schema.evaluations
    asked = select(table.c.sequence).where(
        table.c.id == claim.id, table.c.claim == claim.number, table.c.status == WAITING
    )
    return connection.execute(asked.with_for_update()).first() is not None


def decide(connection: Connection, claim: Claim, values: dict[str, Any]) -> None:
    """Write the decision; the claim must be held in this transaction."""
    connection.execute(_held(claim).values(**values, lease=0.0))


def release(connection: Connection, worker: str, *, crashed: bool) -> int:
    """Give back what a worker that has ended was at; how many crashes one of them has seen now."""
    table = schema.evaluations
    mine = (table.c.worker == worker, table.c.status == WAITING)
    more = 1 if crashed else 0
    connection.execute(update(table).where(*mine).values(lease=0.0, crashes=table.c.crashes + more))
    return int(connection.execute(select(func.max(table.c.crashes)).where(*mine)).scalar() or 0)


def release_all(connection: Connection) -> None:
    """Give back every claim: for the one server of an embedded database, when it starts."""
    connection.execute(
        update(schema.evaluations).where(schema.evaluations.c.status == WAITING).values(lease=0.0)
    )


def waiting(connection: Connection) -> int:
    """How many evaluations are not decided."""
    table = schema.evaluations
    return int(
        connection.execute(
            select(func.count()).select_from(table).where(table.c.status == WAITING)
        ).scalar_one()
    )


def of_id(connection: Connection, evaluation: str, *, lock: bool = False) -> Row[Any]:
    """An evaluation without its record, or a refusal."""
    asked = light().where(schema.evaluations.c.id == evaluation)
    row = connection.execute(asked.with_for_update() if lock else asked).first()
    if row is None:
        raise NotFound("there is no such evaluation.")
    return row


def of_gate(connection: Connection, gate: int, limit: int, before: int | None = None) -> list[Row[Any]]:
    """The evaluations of a gate, the newest first."""
    table = schema.evaluations
    asked = light().where(table.c.gate == gate).order_by(table.c.sequence.desc()).limit(limit)
    found = asked if before is None else asked.where(table.c.sequence < before)
    return list(connection.execute(found))


def light() -> Select[Any]:
    """All columns but the record, which may be large."""
    return select(*schema.light)


def clock(connection: Connection) -> float:
    """Seconds by the clock that all servers share: the database's."""
    if connection.dialect.name == "sqlite":
        return float(connection.execute(text("SELECT (julianday('now') - 2440587.5) * 86400")).scalar_one())
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def lapsed(lease: Any, now: float, length: float) -> Any:
    """Whether a lease has run out; one that is longer than leases are is of a clock that was set back."""
    return or_(lease < now, lease > now + length + 1)


def _held(claim: Claim) -> Any:
    table = schema.evaluations
    return update(table).where(
        table.c.id == claim.id, table.c.claim == claim.number, table.c.status == WAITING
    )


def _insert(
    connection: Connection,
    gate: registry.Gate,
    batch: int,
    window: int | None,
    dry_run: bool,
    by: str,
    at: str,
) -> str:
    evaluation = str(uuid.uuid4())
    row = {
        "id": evaluation,
        "gate": gate.id,
        "version": gate.version,
        "window": window,
        "from_batch": batches.first_of_history(connection, gate.id, batch, gate.definition.history),
        "through_batch": batch,
        "dry_run": dry_run,
        "by": by,
        "at": at,
        "status": WAITING,
    }
    connection.execute(insert(schema.evaluations).values(row))
    return evaluation
