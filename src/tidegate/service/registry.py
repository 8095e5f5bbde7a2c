"""Gates: their definitions, version by version."""

import dataclasses
import functools
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, select, update

from . import audit, schema, standing, uploads
from .database import Database
from .definitions import GateDefinition
from .naming import require_name
from .refusals import Conflict, NotFound


@dataclasses.dataclass(frozen=True)
class Gate:
    """A gate as it is now: its row, and the definition of its newest version."""

    row: Row[Any]
    definition: GateDefinition
    sha256: str
    at: str
    by: str

    @property
    def id(self) -> int:
        return int(self.row.id)

    @property
    def name(self) -> str:
        return str(self.row.name)

    @property
    def version(self) -> int:
        return int(self.row.version)


def define(database: Database, name: str, definition: GateDefinition, by: str) -> tuple[Gate, bool]:
    """A new gate, or a new version of one; the same definition again changes nothing.

    A version with another mode, candidate or safe policy withdraws what is released: it is another question.
    """
    require_name("a gate", name)
    with database.writing() as connection:
        uploads.policy_contents(connection, definition)  # all of which are there
        known = find(connection, name, lock=True)
        if known is not None and known.definition == definition:
            return known, False
        at, version = database.now(), 1 if known is None else known.version + 1
        require_budget(connection, definition)
        if known is None:
            connection.execute(insert(schema.gates).values(name=name, version=version))
        else:
            connection.execute(
                update(schema.gates).where(schema.gates.c.id == known.id).values(version=version)
            )
            if _asks_otherwise(known.definition, definition):
                standing.withdraw(connection, known.row, at, by)
        row = _row(connection, name)
        values = {"gate": row.id, "version": version, "content": definition.text}
        stored = {**values, "sha256": definition.sha256, "at": at, "by": by}
        connection.execute(insert(schema.definitions).values(stored))
        told = {"version": version, "sha256": definition.sha256}
        audit.append(connection, at, "gate.defined", name, by, told)
        return current(connection, name), True


def current(connection: Connection, name: str, *, lock: bool = False) -> Gate:
    """The gate of this name; with `lock`, nobody else changes it until the transaction ends."""
    gate = find(connection, name, lock=lock)
    if gate is None:
        raise NotFound(f"there is no gate '{name[:64]}'.", remedy="Define it: PUT /v1/gates/NAME.")
    return gate


def find(connection: Connection, name: str, *, lock: bool = False) -> Gate | None:
    """The gate of this name, if there is one."""
    if lock:  # first, so that the definition is that of the row as it is then
        connection.execute(select(schema.gates.c.id).where(schema.gates.c.name == name).with_for_update())
    row = connection.execute(_WITH_DEFINITION.where(schema.gates.c.name == name)).first()
    return None if row is None else _gate(row)


def of_id(connection: Connection, gate: int) -> Gate:
    """The gate of this number."""
    return _gate(connection.execute(_WITH_DEFINITION.where(schema.gates.c.id == gate)).one())


def all_gates(connection: Connection) -> list[Gate]:
    """All gates, by name."""
    return [_gate(row) for row in connection.execute(_WITH_DEFINITION.order_by(schema.gates.c.name))]


def definition_at(connection: Connection, gate: int, version: int) -> GateDefinition:
    """The definition that a gate had in one of its versions."""
    table = schema.definitions
    asked = select(table.c.content).where(table.c.gate == gate, table.c.version == version)
    return parsed(connection.execute(asked).scalar_one())


def definition_of_version(connection: Connection, gate: Gate, version: int) -> GateDefinition:
    """The same, without a question to the database if it is the present version."""
    return gate.definition if version == gate.version else definition_at(connection, gate.id, version)


@functools.lru_cache(256)
def parsed(text: str) -> GateDefinition:
    """A stored definition."""
    return GateDefinition.model_validate_json(text)


def require_budget(connection: Connection, definition: GateDefinition) -> None:
    """The error budget that a definition names is there, with the same plan; a new one is started."""
    if definition.plan is None:
        return
    table, plan = schema.budgets, definition.plan
    values = {"alpha": definition.alpha, "rule": plan.rule.value, "tests": plan.tests}
    row = connection.execute(select(table).where(table.c.name == definition.budget)).first()
    if row is None:
        connection.execute(insert(table).values(name=definition.budget, **values))
    elif {name: getattr(row, name) for name in values} != values:
        raise Conflict(
            f"the budget '{definition.budget}' is of α = {row.alpha:g}, {row.rule} over {row.tests} tests.",
            expected="the same at every gate that shares it",
            remedy="Ask for the same, or name another budget.",
        )


def _row(connection: Connection, name: str) -> Row[Any]:
    return connection.execute(select(schema.gates).where(schema.gates.c.name == name)).one()


_WITH_DEFINITION = select(
    schema.gates, *(schema.definitions.c[name] for name in ("content", "sha256", "at", "by"))
).join(
    schema.definitions,
    and_(
        schema.definitions.c.gate == schema.gates.c.id,
        schema.definitions.c.version == schema.gates.c.version,
    ),
)


def _gate(row: Row[Any]) -> Gate:
    return Gate(row, parsed(row.content), row.sha256, row.at, row.by)


def _asks_otherwise(before: GateDefinition, now: GateDefinition) -> bool:
    return (before.mode, before.specs) != (now.mode, now.specs)
