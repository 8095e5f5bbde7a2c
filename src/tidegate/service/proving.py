"""Is the audit log whole, does everything stored agree with it, and do decisions follow from their logs?"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, func, select

from ..commands.grants import against_ledger
from ..commands.verification import Outcome, verify
from ..errors import SettingsError
from ..gates.ledger import Grant
from ..record import SEAL, record_hash, restored
from . import audit, budgets, deciding, evaluations, registry, schema, uploads
from .audit import Entry
from .database import Database

SHOWN = 10
ALL = "all"
Faults = Iterator[str]


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was looked at, and what is wrong with it."""

    entries: int
    head: str
    faults: tuple[str, ...]
    replays: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.faults

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer first, then its details."""
        if self.holds:
            first = f"The audit log is whole: {self.entries:,} entries; the last is {self.head}."
        else:
            first = f"The audit log does not hold: {len(self.faults):,} faults in {self.entries:,} entries."
        more = len(self.faults) - SHOWN
        rest = (f"… and {more:,} more.",) if more > 0 else ()
        return (first, *self.faults[:SHOWN], *rest, *self.replays)


def prove(database: Database, replay: str | None = None, noted: str | None = None) -> Proof:
    """Walk the chain, and compare it with the tables; replay one decision, or all, from the stored log."""
    walk = _Walk()
    faults: list[str] = []
    for entry in audit.all_entries(database):
        faults += walk.faults(entry)
        with database.reading() as connection:
            faults += _against_tables(connection, entry)
    with database.snapshot() as connection:  # a service at work adds entries all the time
        for entry in audit.rest(connection, walk.last.sequence):
            faults += (*walk.faults(entry), *_against_tables(connection, entry))
        faults += walk.ends(connection)
    if noted is not None:
        faults += walk.lacks(noted)
    replays = [] if replay is None else list(_replayed(database, replay))
    faults += [line for line, confirmed in replays if not confirmed]
    lines = tuple(line for line, confirmed in replays if confirmed)
    return Proof(walk.last.sequence, f"{walk.last.sequence}:{walk.last.sha256}", tuple(faults), lines)


class _Walk:
    """The chain as far as it was read, and what it says is in force."""

    def __init__(self) -> None:
        self.last = audit.Head(0, audit.START)
        self.hashes: dict[int, str] = {}
        self.counts: dict[str, int] = {}
        self.in_force: dict[str | None, str | None] = {}

    def faults(self, entry: Entry) -> Faults:
        if entry.sequence != self.last.sequence + 1:
            yield f"entry {self.last.sequence + 1} is missing."
        if entry.previous != self.last.sha256:
            yield f"entry {entry.sequence} does not follow from the one before it."
        if not entry.proven:
            yield f"entry {entry.sequence} was changed: its hash does not match."
        self.last = audit.Head(entry.sequence, entry.sha256)
        self.hashes[entry.sequence] = entry.sha256
        self.counts[entry.kind] = self.counts.get(entry.kind, 0) + 1
        if entry.kind == "policy.released":
            self.in_force[entry.gate] = entry.content["evaluation"]
        elif entry.kind in ("policy.rolled_back", "policy.withdrawn"):
            self.in_force[entry.gate] = None

    def ends(self, connection: Connection) -> Faults:
        """What the tables have beyond the chain."""
        if self.last.sequence == 0:
            yield "there is no entry: no service has been at work here."
        if audit.head(connection) != self.last:
            yield "the chain's end is missing: its head is another entry."
        counted = {
            "episodes.ingested": select(func.count()).select_from(schema.batches),
            "gate.defined": select(func.count()).select_from(schema.definitions),
            "approval.given": select(func.count()).select_from(schema.approvals),
            "token.created": select(func.count()).select_from(schema.tokens),
            "token.revoked": select(func.count(schema.tokens.c.revoked_at)),
            "policy.uploaded": select(func.count()).select_from(schema.policy_files),
            "evaluation.decided": select(func.count(schema.evaluations.c.decision)),
        }
        for kind, asked in counted.items():
            found, told = connection.execute(asked).scalar_one(), self.counts.get(kind, 0)
            if found != told:
                yield f"the log tells {told:,} times of {kind}, and the tables hold {found:,}."
        for gate in connection.execute(select(schema.gates.c.name, schema.gates.c.in_force)):
            if gate.in_force != self.in_force.get(gate.name):
                yield f"the log does not tell what is in force at '{gate.name}'."

    def lacks(self, noted: str) -> Faults:
        """Whether an entry that was noted before is not in the chain."""
        number, _, sha256 = noted.partition(":")
        if not number.isdigit() or len(sha256) != 64:
            raise SettingsError(f"the head is '{noted}'.", expected="N:SHA256, as `audit verify` prints it")
        if self.hashes.get(int(number)) != sha256:
            yield f"entry {number} is not the one that was noted: the chain has been rewritten."


def _against_tables(connection: Connection, entry: Entry) -> Faults:
    check = _CHECKS.get(entry.kind)
    if check is not None:
        for fault in check(connection, entry):
            yield f"entry {entry.sequence}: {fault}"


def _batch(connection: Connection, entry: Entry) -> Faults:
    table, told = schema.batches, entry.content
    asked = select(table.c.content).join(schema.gates, schema.gates.c.id == table.c.gate)
    where = (schema.gates.c.name == entry.gate, table.c.number == told["batch"])
    content = connection.execute(asked.where(*where)).scalar()
    if content is None or hashlib.sha256(bytes(content)).hexdigest() != told["sha256"]:
        yield f"batch {told['batch']} of '{entry.gate}' is not what was ingested."


def _definition(connection: Connection, entry: Entry) -> Faults:
    table, told = schema.definitions, entry.content
    asked = select(table.c.content).join(schema.gates, schema.gates.c.id == table.c.gate)
    where = (schema.gates.c.name == entry.gate, table.c.version == told["version"])
    content = connection.execute(asked.where(*where)).scalar()
    if content is None or hashlib.sha256(content.encode()).hexdigest() != told["sha256"]:
        yield f"version {told['version']} of '{entry.gate}' is not what was defined."


def _policy(connection: Connection, entry: Entry) -> Faults:
    sha256 = entry.content["sha256"]
    if hashlib.sha256(uploads.policy_content(connection, sha256)).hexdigest() != sha256:
        yield "the policy's file was changed."


def _token(connection: Connection, entry: Entry) -> Faults:
    table, told = schema.tokens, entry.content
    row = connection.execute(select(table).where(table.c.name == told["name"])).first()
    stored = None if row is None else {name: getattr(row, name) for name in told}
    if stored != told:
        yield f"the token '{told['name']}' may something else now."


def _revoked(connection: Connection, entry: Entry) -> Faults:
    table, name = schema.tokens, entry.content["name"]
    if connection.execute(select(table.c.revoked_at).where(table.c.name == name)).scalar() != entry.at:
        yield f"the token '{name}' is valid again."


def _approval(connection: Connection, entry: Entry) -> Faults:
    table, told = schema.approvals, entry.content
    row = connection.execute(select(table).where(table.c.evaluation == told["evaluation"])).first()
    stored = None if row is None else (row.state, row.comment, row.by)
    if stored != (told["state"], told["comment"], entry.by):
        yield "the approval is another now."


def _decision(connection: Connection, entry: Entry) -> Faults:
    table, told = schema.evaluations, entry.content
    row = connection.execute(select(table).where(table.c.id == told["evaluation"])).first()
    if row is None or row.record is None:
        yield f"the evaluation {told['evaluation']} has no record."
        return
    content = _record(row.record)
    same = (row.status, row.decision, row.record_sha256) == (
        told["status"],
        entry.sequence,
        told["record_sha256"],
    )
    if not same or record_hash(content) != content.get(SEAL) or content.get(SEAL) != told["record_sha256"]:
        yield f"the record of {row.id} is not the one that was decided."
    elif told["budget"] is not None:
        yield from _granted(connection, content, told["budget"]["name"])


def _record(stored: bytes) -> dict[str, Any]:
    """A stored record; of what cannot be read, nothing."""
    try:
        found = json.loads(zlib.decompress(bytes(stored)))
    except (zlib.error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _granted(connection: Connection, content: dict[str, Any], budget: str) -> Faults:
    """The ledger must know of the test; a question that was asked twice was answered by the first record."""
    grant = restored(Grant, content["budget"])
    wrong = against_ledger(content, grant, budgets.ledger(connection, budget))
    for where, recorded, known in wrong:
        if where != SEAL:
            yield f"{where} is {recorded} in the record, and {known} in the budget '{budget}'."


_CHECKS: dict[str, Callable[[Connection, Entry], Faults]] = {
    "episodes.ingested": _batch,
    "gate.defined": _definition,
    "policy.uploaded": _policy,
    "token.created": _token,
    "token.revoked": _revoked,
    "approval.given": _approval,
    "evaluation.decided": _decision,
}


def _replayed(database: Database, wanted: str) -> Iterator[tuple[str, bool]]:
    table = schema.evaluations
    asked = select(table.c.id).where(table.c.record.is_not(None)).order_by(table.c.decision)
    with database.reading() as connection:
        known = [row.id for row in connection.execute(asked)]
    chosen = known if wanted == ALL else [one for one in known if one == wanted]
    if not chosen and wanted != ALL:
        raise SettingsError(f"there is no decided evaluation {wanted}.")
    for one in chosen:
        yield _replay(database, one)


def _replay(database: Database, evaluation: str) -> tuple[str, bool]:
    """Decide again from the stored batches: the same numbers, bit for bit?"""
    with database.reading() as connection:
        row = evaluations.of_id(connection, evaluation)
        if row.log_sha256 is None:
            return f"Evaluation {evaluation}: nothing was decided, so nothing is replayed.", True
        definition = registry.definition_at(connection, row.gate, row.version)
        contents = uploads.policy_contents(connection, definition)
        frame = deciding.stored_log(connection, row, definition, contents)
        table = schema.evaluations
        record = connection.execute(select(table.c.record).where(table.c.id == evaluation)).scalar_one()
    content = _record(record)
    with deciding.in_folder_of(contents):
        found = verify(content, frame)
    word = "replayed" if found.confirmed else "not confirmed"
    same = found.outcome is Outcome.IDENTICAL
    sentence = "the stored log gives the same verdict and the same numbers, bit for bit." if same else ""
    return f"Evaluation {evaluation} {word}: {sentence or found.outcome.value}", found.confirmed
