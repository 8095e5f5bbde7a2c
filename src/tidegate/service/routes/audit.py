"""The audit log."""

from typing import Any

from fastapi import APIRouter

from .. import audit, presenting
from ..paging import Asked
from ..state import Reader, Shared, refusals
from . import shapes

router = APIRouter(prefix="/v1", tags=["audit"])


@router.get("/audit", response_model=shapes.AuditAnswer, responses=refusals())
def show_audit(shared: Shared, _: Reader, page: Asked) -> dict[str, Any]:
    """The entries after a number, in order; each holds the hash of the one before."""
    with shared.database.reading() as connection:
        return page.answer([presenting.entry_data(one) for one in audit.entries(connection, page)])
