"""The audit log, a page at a time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from .. import registry
from ..naming import PATTERN
from ..state import Shared
from . import answering
from .entries import trail
from .visitors import SignedIn

router = APIRouter()


@router.get("/audit")
def show(
    request: Request,
    shared: Shared,
    found: SignedIn,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    gate: Annotated[str, Query(pattern=f"^$|{PATTERN}")] = "",
) -> Response:
    """Entries before a number, the newest first; of one gate or of all."""
    with shared.database.reading() as connection:
        page = trail(connection, before, gate or None)
        names = [one.name for one in registry.all_gates(connection)]
    values = {"section": "audit", "page": page, "gate": gate, "names": names, "before": before}
    return answering.rendered(request, "audit.html", found, values)
