"""The watch of what was released: the place where new episodes of a gate in force are looked at.

`note` runs in the transaction of every ingested batch and must stay quick: it marks the gate. `watch` runs in
the worker, outside of any transaction, when a marked gate has batches that the watch has not seen.
"""

import json
from typing import Any

from sqlalchemy import Connection, select, update

from . import registry, schema
from .database import Database


def note(connection: Connection, gate: registry.Gate, batch: int) -> None:
    """A batch has come in. What is to be watched follows from the tables, so there is nothing to mark yet."""


def pending(connection: Connection) -> list[str]:
    """The gates in force that have batches which the watch has not seen."""
    table = schema.gates
    seen = select(table.c.name).where(table.c.in_force.is_not(None), table.c.watched < table.c.batches)
    return [row.name for row in connection.execute(seen)]


def watch(database: Database, name: str) -> bool:
    """Look at the batches that came since the last look; whether the release was rolled back.

    The state of the watch is `watch_state`, JSON values of its own; it and `watched` are written in the
    transaction that may roll back, so that no batch is looked at twice or never.
    """
    with database.writing() as connection:
        gate = registry.current(connection, name, lock=True)
        if gate.row.in_force is None:
            return False
        keep(connection, gate, gate.row.batches, state(gate))
    return False


def state(gate: registry.Gate) -> Any:
    """What the watch carried over; None at first."""
    return None if gate.row.watch_state is None else json.loads(gate.row.watch_state)


def keep(connection: Connection, gate: registry.Gate, batch: int, state: Any) -> None:
    """What the watch carries over, and how far it has seen."""
    values = {"watched": batch, "watch_state": json.dumps(state)}
    connection.execute(update(schema.gates).where(schema.gates.c.id == gate.id).values(values))
