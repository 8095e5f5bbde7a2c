"""Deliveries: which one is due, whose it is, and what became of it.

A claim is a lease by the database's clock and a number, as for evaluations. An endpoint has one request at a
time, so that a slow one holds up only itself.
"""

import dataclasses
import random
from typing import Any

from sqlalchemy import Connection, Row, select, update

from ..evaluations import clock, lapsed
from ..refusals import NotFound
from . import endpoints as places
from .tables import ACTIVE, DEAD, DELIVERED, GONE, PENDING, deliveries, endpoints, events

LEASE = 90.0  # seconds, longer than any attempt takes
LONGEST = 12 * 3600.0
SCHEDULE = (5.0, 30.0, 120.0, 600.0, 3600.0, 2 * 3600.0, 5 * 3600.0, LONGEST, LONGEST, LONGEST, LONGEST)
JITTER = 0.2


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one attempt."""

    delivered: bool
    status: int | None = None
    problem: str = ""
    wait: float = 0.0
    """Seconds that the endpoint asks to wait at least."""
    gone: bool = False
    """The endpoint wants no more events at all."""


@dataclasses.dataclass(frozen=True)
class Delivery:
    """The right to try one delivery."""

    row: Row[Any]
    event: Row[Any]
    endpoint: Row[Any]
    claim: int


def due(connection: Connection) -> bool:
    """Whether anything is to be sent now."""
    return _next(connection, clock(connection), lock=False) is not None


def claim(connection: Connection) -> Delivery | None:
    """The delivery that has been due for longest, to an endpoint that is not at work on one."""
    now = clock(connection)
    row = _next(connection, now, lock=True)
    if row is None:
        return None
    connection.execute(_this(row).values(claim=row.claim + 1, lease=now + LEASE))
    event = connection.execute(select(events).where(events.c.sequence == row.event)).one()
    endpoint = connection.execute(select(endpoints).where(endpoints.c.name == row.endpoint)).one()
    return Delivery(row, event, endpoint, row.claim + 1)


def settle(
    connection: Connection, delivery: Delivery, outcome: Outcome, at: str, schedule: tuple[float, ...]
) -> str | None:
    """Write what became of an attempt, under its claim; the state that the delivery is in now."""
    attempts = delivery.row.attempts + 1
    values: dict[str, Any] = {
        "attempts": attempts,
        "lease": 0.0,
        "at": at,
        "status": outcome.status,
        "problem": "".join(one if one.isprintable() else " " for one in outcome.problem[:200]),
    }
    if outcome.delivered:
        values["state"] = DELIVERED
    elif outcome.gone or attempts > len(schedule):
        values["state"] = DEAD
    else:
        wait = max(schedule[attempts - 1] * (1 + JITTER * random.random()), min(outcome.wait, LONGEST))
        values |= {"state": PENDING, "due": clock(connection) + wait}
    held = _this(delivery.row).where(deliveries.c.claim == delivery.claim, deliveries.c.state == PENDING)
    if not connection.execute(held.values(values)).rowcount:
        return None
    if outcome.gone:
        places.end(connection, delivery.endpoint.name, GONE, "the endpoint wants no more events.")
    return str(values["state"])


def release_all(connection: Connection) -> None:
    """Give back every claim: for the one server of an embedded database, when it starts."""
    connection.execute(update(deliveries).where(deliveries.c.state == PENDING).values(lease=0.0))


def retry(connection: Connection, event: str) -> int:
    """Try all deliveries of an event that failed so far again, from the start; how many there are."""
    number = connection.execute(select(events.c.sequence).where(events.c.id == event)).scalar()
    if number is None:
        raise NotFound("there is no such event.")
    active = select(endpoints.c.name).where(endpoints.c.state == ACTIVE)
    again = (
        update(deliveries)
        .where(deliveries.c.event == number, deliveries.c.endpoint.in_(active))
        .where(deliveries.c.state != DELIVERED)
    )
    return connection.execute(again.values(state=PENDING, attempts=0, due=0.0)).rowcount


def _next(connection: Connection, now: float, *, lock: bool) -> Row[Any] | None:
    other = deliveries.alias()
    busy = select(other.c.endpoint).where(other.c.state == PENDING, ~lapsed(other.c.lease, now, LEASE))
    asked = (
        select(deliveries)
        .where(deliveries.c.state == PENDING, deliveries.c.due <= now)
        .where(lapsed(deliveries.c.lease, now, LEASE))
        .where(deliveries.c.endpoint.not_in(busy))
        .order_by(deliveries.c.due, deliveries.c.event)
        .limit(1)
    )
    return connection.execute(asked.with_for_update(skip_locked=True) if lock else asked).first()


def _this(row: Row[Any]) -> Any:
    return update(deliveries).where(deliveries.c.event == row.event, deliveries.c.endpoint == row.endpoint)
