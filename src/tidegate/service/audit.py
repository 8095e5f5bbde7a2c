"""The audit log: entries that each hold the hash of the one before, so that none can be changed unseen.

An entry is made in the transaction of what it tells, so neither is ever there without the other. Its number
follows from the chain. The clock only labels it: one that is set back disorders nothing. Whoever can write to
the database could write a whole new chain; note the head from time to time in another place, and let `verify`
compare.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from . import schema
from .database import Database
from .events import outbox
from .paging import Page

START = "0" * 64
MOST = 1_000  # entries that are read at once
FIRST = Page(limit=MOST)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One thing that happened; `content` is plain JSON values."""

    sequence: int
    at: str
    kind: str
    gate: str | None
    by: str
    content: dict[str, Any]
    previous: str
    sha256: str

    @property
    def proven(self) -> bool:
        """Whether the hash is that of the entry."""
        return self.sha256 == _hash({name: one for name, one in vars(self).items() if name != "sha256"})


@dataclasses.dataclass(frozen=True)
class Head:
    """The last entry's number and hash."""

    sequence: int
    sha256: str


def append(
    connection: Connection, at: str, kind: str, gate: str | None, by: str, content: Mapping[str, Any]
) -> Entry:
    """Add an entry. Do it last in a transaction: until the end, everybody else who writes waits."""
    before = head(connection, lock=True)
    values: dict[str, Any] = {
        "sequence": before.sequence + 1,
        "at": at,
        "kind": kind,
        "gate": gate,
        "by": by,
        "content": dict(content),
        "previous": before.sha256,
    }
    entry = Entry(**values, sha256=_hash(values))
    row = {**dataclasses.asdict(entry), "content": _written(entry.content)}
    connection.execute(insert(schema.audit).values(row))
    connection.execute(update(schema.audit_head).values(sequence=entry.sequence, sha256=entry.sha256))
    outbox.note(connection, entry)
    return entry


def head(connection: Connection, *, lock: bool = False) -> Head:
    """Where the chain ends."""
    found = select(schema.audit_head.c.sequence, schema.audit_head.c.sha256)
    row = connection.execute(found.with_for_update() if lock else found).one()
    return Head(row.sequence, row.sha256)


def entries(connection: Connection, page: Page = FIRST) -> list[Entry]:
    """The entries of a page, in order."""
    return [entry_of(row) for row in page.rows(connection, schema.audit)]


def all_entries(database: Database, after: int = 0) -> Iterator[Entry]:
    """Every entry, a page at a time."""
    while True:
        with database.reading() as connection:
            found = entries(connection, Page(after, MOST))
        yield from found
        if len(found) < MOST:
            return
        after = found[-1].sequence


def rest(connection: Connection, after: int) -> Iterator[Entry]:
    """Every entry that follows a number, in one transaction."""
    while found := entries(connection, Page(after, MOST)):
        yield from found
        after = found[-1].sequence


def entry_of(row: Row[Any]) -> Entry:
    """An entry as it was written."""
    values = row._asdict()
    return Entry(**{**values, "content": json.loads(values["content"])})


def _written(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _hash(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_written(values).encode()).hexdigest()
