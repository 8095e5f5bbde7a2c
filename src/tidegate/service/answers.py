"""Idempotency: the first answer to a request is kept in the transaction of what the request did."""

import dataclasses
import hashlib
import json
from typing import Any

from sqlalchemy import Connection, insert, select

from . import schema
from .refusals import Conflict, Unfit

MOST = 200  # characters of a key


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a client gets; `repeated` if it is what the client got before."""

    status: int
    body: dict[str, Any]
    repeated: bool = False


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that a client may repeat: where it went, the client's key, and the hash of its content."""

    place: str
    key: str | None
    request: str

    @classmethod
    def of(cls, place: str, key: str | None, *content: bytes) -> "Asked":
        if key is not None and not (0 < len(key) <= MOST and key.isprintable()):
            raise Unfit("the Idempotency-Key cannot be used.", expected=f"1 to {MOST} printable characters")
        sha = hashlib.sha256()
        for one in content:
            sha.update(len(one).to_bytes(8, "big") + one)
        return cls(place, key, sha.hexdigest())

    def earlier(self, connection: Connection) -> Answer | None:
        """The answer that this request got before, if there was one."""
        table = schema.answers
        if self.key is None:
            return None
        row = connection.execute(
            select(table).where(table.c.place == self.place, table.c.key == self.key)
        ).first()
        if row is None:
            return None
        if row.request != self.request:
            raise Conflict(
                "this Idempotency-Key was used for another request.",
                remedy="Take a new key for each request, and the same one only to repeat it.",
            )
        return Answer(row.status, json.loads(row.body), repeated=True)

    def keep(self, connection: Connection, answer: Answer) -> Answer:
        """Keep the answer for whoever repeats the request."""
        if self.key is not None:
            row = {**vars(self), "status": answer.status, "body": json.dumps(answer.body)}
            connection.execute(insert(schema.answers).values(row))
        return answer
