"""The audit log."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from .. import audit, presenting
from ..naming import PATTERN
from ..state import Reader, Shared, refusals
from . import shapes

router = APIRouter(prefix="/v1", tags=["audit"])


@router.get("/audit", response_model=shapes.AuditAnswer, responses=refusals())
def show_audit(
    shared: Shared,
    _: Reader,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    gate: Annotated[str | None, Query(pattern=PATTERN)] = None,
) -> dict[str, Any]:
    """The entries after a number, in order; each holds the hash of the one before."""
    with shared.database.reading() as connection:
        found = audit.entries(connection, after, limit, gate)
    data = [presenting.entry_data(one) for one in found]
    return {"data": data, "next": data[-1]["sequence"] if data else after}
