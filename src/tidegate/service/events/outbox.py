"""An audit entry becomes an event and its deliveries, in the transaction of the entry."""

import json
import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, insert, select

from ...reasons import Status, Verdict
from .. import schema
from ..definitions import GateDefinition
from ..paging import Page
from .tables import ACTIVE, PENDING, deliveries, endpoints, events

if TYPE_CHECKING:
    from ..audit import Entry

TYPES = {
    "gate.defined": "gate.defined",
    "evaluation.decided": "gate.evaluated",
    "approval.given": "gate.approved",
    "policy.released": "gate.released",
    "policy.rolled_back": "gate.rolled_back",
    "policy.withdrawn": "gate.withdrawn",
    "policy.warned": "gate.warning",
}
REJECTED = "gate.rejected"
ALL_TYPES = (*TYPES.values(), REJECTED)


def note(connection: Connection, entry: "Entry") -> None:
    """Make the event of an entry, if it is one that others may want to hear of."""
    kind = TYPES.get(entry.kind)
    if kind is None or entry.gate is None:
        return
    if kind == "gate.approved" and entry.content["state"] == "rejected":
        kind = REJECTED
    data = {"gate": entry.gate, "by": entry.by, "audit_sequence": entry.sequence, **entry.content}
    if kind == "gate.evaluated":
        data |= _acted_on(connection, entry)
    if "evaluation" in entry.content:
        data["url"] = f"/v1/evaluations/{entry.content['evaluation']}"
    body = {"type": kind, "timestamp": entry.at, "data": data}
    row = {
        "sequence": entry.sequence,
        "id": f"evt_{uuid.uuid4().hex}",
        "type": kind,
        "gate": entry.gate,
        "at": entry.at,
        "body": json.dumps(body, separators=(",", ":"), allow_nan=False),
    }
    connection.execute(insert(events).values(row))
    wanted = [one.name for one in _wanting(connection, kind, entry.gate)]
    if wanted:
        first = {"state": PENDING, "attempts": 0, "due": 0.0, "lease": 0.0, "claim": 0, "problem": ""}
        rows = [{"event": entry.sequence, "endpoint": name, **first} for name in wanted]
        connection.execute(insert(deliveries), rows)


def shown(connection: Connection, page: Page) -> list[dict[str, Any]]:
    """The events of a page, with what became of their deliveries."""
    found = page.rows(connection, events)
    numbers = [one.sequence for one in found]
    told: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers}
    sent = select(deliveries).where(deliveries.c.event.in_(numbers)).order_by(deliveries.c.endpoint)
    for row in connection.execute(sent):
        told[row.event].append(_shown(row))
    return [
        {"sequence": one.sequence, "id": one.id, **json.loads(one.body), "deliveries": told[one.sequence]}
        for one in found
    ]


def _wanting(connection: Connection, kind: str, gate: str) -> list[Row[Any]]:
    found = connection.execute(select(endpoints).where(endpoints.c.state == ACTIVE))
    return [one for one in found if kind in (one.types.split() or ALL_TYPES) and one.gate in (None, gate)]


def _acted_on(connection: Connection, entry: "Entry") -> dict[str, Any]:
    """What a machine may act on: a pass that waits for a person is inconclusive, as in the verdict."""
    content = entry.content
    computed = {"status": content["status"], "verdict": content["verdict"]}
    if content["status"] != Status.PASS.value or content["dry_run"]:
        return {"computed": computed, "awaits_approval": False}
    gates, table = schema.gates, schema.definitions
    asked = select(table.c.content).join(gates, gates.c.id == table.c.gate)
    asked = asked.where(gates.c.name == entry.gate, table.c.version == content["version"])
    definition = GateDefinition.model_validate_json(connection.execute(asked).scalar_one())
    awaits = definition.needs_approval(content["window"])
    held = {"status": Status.INCONCLUSIVE.value, "verdict": Verdict.KEEP.name} if awaits else {}
    return {"computed": computed, "awaits_approval": awaits, **held}


def _shown(row: Row[Any]) -> dict[str, Any]:
    names = ("endpoint", "state", "attempts", "status", "problem", "at")
    return {name: getattr(row, name) for name in names}
