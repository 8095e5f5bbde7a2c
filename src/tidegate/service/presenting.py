"""Rows as clients see them: plain JSON values."""

import dataclasses
import json
from typing import Any

from sqlalchemy import Connection, Row

from ..reasons import Status, Verdict
from . import registry, standing, uploads
from .audit import Entry
from .definitions import GateDefinition
from .evaluations import WAITING

AWAITED = "the candidate passed the tests, and a person has to approve it."
NOTHING: dict[str, Any] = {
    "id": None, "status": Status.ERROR.value, "verdict": None, "reason": "NO_DECISION",
    "sentence": "there is no decision that is still good. Ask for an evaluation.", "advantage": None,
    "p_value": None, "alpha": None, "rules": [], "budget": None, "log_sha256": None, "record_sha256": None,
    "record_url": None, "dry_run": False, "window": None, "decided_at": None, "expires_at": None,
    "approval": None, "computed": None, "url": None, "created_at": None,
}  # fmt: skip


def evaluation_data(
    connection: Connection, row: Row[Any], gate: str, definition: GateDefinition
) -> dict[str, Any]:
    """An evaluation; with `status` as a machine may act on it, and `computed` as the record has it."""
    said = standing.approval(connection, row.id) if definition.needs_approval(row.window) else None
    found: dict[str, Any] = {} if row.summary is None else json.loads(row.summary)
    data = {
        **{name: found.get(name) for name in NOTHING},
        "id": row.id,
        "gate": gate,
        "version": row.version,
        "status": row.status,
        "rules": found.get("rules", []),
        "log_sha256": row.log_sha256,
        "record_sha256": row.record_sha256,
        "record_url": None if row.record_sha256 is None else f"/v1/evaluations/{row.id}/record",
        "url": f"/v1/evaluations/{row.id}",
        "dry_run": row.dry_run,
        "window": row.window,
        "created_at": row.at,
        "decided_at": row.decided_at,
        "expires_at": row.expires_at,
    }
    if row.status == WAITING:
        return data
    data["computed"] = {"status": row.status, "verdict": found.get("verdict")}
    return _approved(data, row, definition, said)


def gate_data(connection: Connection, gate: registry.Gate, now: str) -> dict[str, Any]:
    """A gate: its definition, how much it has seen, what runs, and what the watch of that says."""
    row = gate.row
    return {
        "name": gate.name,
        "version": gate.version,
        "sha256": gate.sha256,
        "defined_at": gate.at,
        "defined_by": gate.by,
        "definition": gate.definition.model_dump(mode="json"),
        "batches": row.batches,
        "episodes": row.episodes,
        "steps": row.steps,
        "policy": policy_summary(connection, gate, now),
        "watch": None if row.watch_state is None else json.loads(row.watch_state)["signal"],
        "url": f"/v1/gates/{gate.name}",
    }


def policy_summary(connection: Connection, gate: registry.Gate, now: str) -> dict[str, Any]:
    """Which policy runs now, without its file."""
    found = standing.standing(connection, gate.row, gate.definition, now)
    definition = registry.definition_of_version(connection, gate, found.version)
    spec = definition.candidate if found.policy == standing.CANDIDATE else definition.safe
    return {
        "gate": gate.name,
        "policy": found.policy,
        "spec": spec,
        "version": found.version,
        "evaluation": found.evaluation,
        "reason": found.reason,
        "until": found.until,
    }


def with_file(connection: Connection, summary: dict[str, Any]) -> dict[str, Any]:
    """The policy that runs now, with its file if it is one."""
    kind, _, name = summary["spec"].partition(":sha256:")
    file = uploads.policy_content(connection, name) if kind == "policy" else None
    return {**summary, "file": None if file is None else json.loads(file)}


def verdict_data(connection: Connection, gate: registry.Gate, now: str) -> dict[str, Any]:
    """The newest decision that is still good; it is never computed here."""
    found = standing.newest(connection, gate.row)
    if found is None or standing.why_over(found, now) is not None:
        return {**NOTHING, "gate": gate.name, "version": gate.version}
    return evaluation_data(connection, found, gate.name, gate.definition)


def entry_data(entry: Entry) -> dict[str, Any]:
    """An entry of the audit log."""
    return dataclasses.asdict(entry)


def _approved(
    data: dict[str, Any], row: Row[Any], definition: GateDefinition, said: Row[Any] | None
) -> dict[str, Any]:
    """What a person's word makes of a pass, as one more rule."""
    if row.status != Status.PASS.value or not definition.needs_approval(row.window) or row.dry_run:
        return data
    status = standing.effective_status(row, definition, said)
    assert status is not None
    sentence = AWAITED if said is None else f"{said.state} by {said.by}: {said.comment}"
    rule = {"name": "approval", "status": status.value, "reason": sentence}
    answer = (
        None if said is None else {"state": said.state, "by": said.by, "at": said.at, "comment": said.comment}
    )
    data = {**data, "status": status.value, "rules": [*data["rules"], rule]}
    data["approval"] = answer or {"state": "pending", "by": None, "at": None, "comment": ""}
    if status is not Status.PASS:
        reason = "NOT_APPROVED" if said is None else "REJECTED"
        data |= {"verdict": Verdict.KEEP.name, "reason": reason, "sentence": sentence}
    return data
