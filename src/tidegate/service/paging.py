"""A page of what is numbered in order, as entries of the audit log and events are."""

import dataclasses
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import Connection, Row, Table, select

from .naming import PATTERN


@dataclasses.dataclass(frozen=True)
class Page:
    """The rows after a number, at most so many; of one gate, or of all."""

    after: Annotated[int, Query(ge=0, le=2**62)] = 0
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100
    gate: Annotated[str | None, Query(pattern=PATTERN)] = None

    def rows(self, connection: Connection, table: Table) -> list[Row[Any]]:
        """The rows of this page, in order."""
        asked = select(table).where(table.c.sequence > self.after).order_by(table.c.sequence)
        chosen = asked if self.gate is None else asked.where(table.c.gate == self.gate)
        return list(connection.execute(chosen.limit(self.limit)))

    def answer(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """What a client gets; `next` is what to ask after."""
        return {"data": data, "next": data[-1]["sequence"] if data else self.after}


Asked = Annotated[Page, Depends()]
