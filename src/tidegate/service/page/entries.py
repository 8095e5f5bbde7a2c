"""The audit log as people read it: the newest entry first, each in words."""

import dataclasses
import json
from typing import Any

from sqlalchemy import Connection, select

from ...reports.numbers import count
from .. import audit, schema

PAGE = 50


@dataclasses.dataclass(frozen=True)
class Line:
    """An entry, what it says, and all that it holds."""

    entry: audit.Entry
    said: str
    evaluation: str | None
    content: str
    linked: bool  # to the entry below it on the page, by hash


@dataclasses.dataclass(frozen=True)
class Trail:
    """A page of entries; `older` and `newer` are what to ask for next."""

    lines: tuple[Line, ...]
    head: audit.Head
    older: int | None
    newer: int | None
    whole: bool  # whether every hash on this page is right


def trail(connection: Connection, before: int | None, gate: str | None, most: int = PAGE) -> Trail:
    """The entries before a number, or the newest."""
    table, head = schema.audit, audit.head(connection)
    asked = select(table).order_by(table.c.sequence.desc()).limit(most + 1)
    if before is not None:
        asked = asked.where(table.c.sequence < before)
    if gate is not None:
        asked = asked.where(table.c.gate == gate)
    found = [audit.entry_of(row) for row in connection.execute(asked)]
    shown, rest = found[:most], found[most:]
    follows = [*found[1:], None][: len(shown)]
    lines = tuple(_line(one, below) for one, below in zip(shown, follows, strict=True))
    return Trail(
        lines,
        head,
        shown[-1].sequence if rest else None,
        _newer(connection, shown, gate, most) if before is not None and shown else None,
        all(one.entry.proven and one.linked for one in lines),
    )


def _line(one: audit.Entry, below: audit.Entry | None) -> Line:
    neighbours = below is not None and below.sequence + 1 == one.sequence
    return Line(
        one,
        _said(one),
        one.content.get("evaluation"),
        json.dumps(one.content, indent=1, ensure_ascii=False),
        not neighbours or (below is not None and below.sha256 == one.previous),
    )


def _newer(connection: Connection, shown: list[audit.Entry], gate: str | None, most: int) -> int | None:
    """Before which number the page of newer entries is; None if there are none."""
    table = schema.audit
    asked = select(table.c.sequence).where(table.c.sequence > shown[0].sequence)
    if gate is not None:
        asked = asked.where(table.c.gate == gate)
    newer = list(connection.execute(asked.order_by(table.c.sequence).limit(most)).scalars())
    return newer[-1] + 1 if newer else None


def _said(one: audit.Entry) -> str:
    told = one.content
    match one.kind:
        case "gate.defined":
            return f"Version {told['version']} was defined."
        case "episodes.ingested":
            return f"{count(told['episodes'], 'episode')} came in (batch {told['batch']})."
        case "evaluation.requested":
            return "A dry run was asked for." if told.get("dry_run") else "A decision was asked for."
        case "evaluation.decided":
            return _decided(told)
        case "approval.given":
            return f"A decision was {told['state']}{_because(told.get('comment'))}"
        case "policy.released":
            return "The candidate was released."
        case "policy.rolled_back":
            return f"Back to the safe policy{_because(told.get('reason'))}"
        case "policy.warned":
            return f"Warning: {told['sentence']}"
        case "policy.withdrawn":
            return "The release ended: the gate asks something else."
        case "token.created":
            return f"The token '{told['name']}' was made ({told['scopes']})."
        case "token.revoked":
            return f"The token '{told['name']}' was revoked."
        case "policy.uploaded":
            return "A policy file was uploaded."
        case _:
            return one.kind.replace(".", " ").replace("_", " ").capitalize() + "."


def _decided(told: dict[str, Any]) -> str:
    dry = " (dry run)" if told.get("dry_run") else ""
    verdict = f": {told['verdict']}" if told.get("verdict") else ""
    return f"Decided {told['status']}{verdict}{dry}."


def _because(text: Any) -> str:
    return f": {text}" if text else "."
