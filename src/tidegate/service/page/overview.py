"""The list of gates; the style sheet and the icon of all pages."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from .. import registry
from ..state import Shared
from . import answering, views
from .chart import SMALL, chart
from .visitors import SignedIn

REFRESH = 5  # seconds
KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}

router = APIRouter()
Refreshed = Annotated[str, Query(alias="refresh", pattern="^(on|off)$")]


@router.get("/")
def show(request: Request, shared: Shared, found: SignedIn, refresh: Refreshed = "on") -> Response:
    """All gates: what runs, what was decided last, what each waits for."""
    now = shared.database.now()
    with shared.database.reading() as connection:
        gates = [views.gate_view(connection, one, now, found) for one in registry.all_gates(connection)]
    values = {
        "section": "gates",
        "gates": gates,
        "charts": {one.gate.name: chart(one.past, SMALL) for one in gates},
        "busy": any(one.busy for one in gates),
        "refresh": REFRESH if refresh == "on" and any(one.busy for one in gates) else 0,
        "address": str(request.base_url).rstrip("/"),
    }
    return answering.rendered(request, "gates.html", found, values)


@router.get("/page/style.css")
def style() -> Response:
    """The style sheet; its address changes with it."""
    headers = {**answering.HEADERS, **KEPT}
    return Response(answering.style_sheet(), media_type="text/css", headers=headers)


@router.get("/page/icon.svg")
def icon() -> Response:
    """The picture in the browser's tab."""
    drawn = (answering.HERE / "icon.svg").read_text()
    headers = {**answering.HEADERS, "Cache-Control": "public, max-age=86400"}
    return Response(drawn, media_type="image/svg+xml", headers=headers)
