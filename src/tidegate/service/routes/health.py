"""Whether the service lives and works, and its numbers for Prometheus."""

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from .. import audit
from ..refusals import NotReady
from ..state import Reader, Shared, refusals
from . import shapes

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=shapes.Health)
async def healthz() -> dict[str, Any]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", response_model=shapes.Health, responses={503: refusals()[503]})
def readyz(shared: Shared) -> dict[str, Any]:
    """The database answers, and the worker lives."""
    with shared.database.reading() as connection:
        audit.head(connection)
    if not shared.ready():
        raise NotReady("the worker is being started.")
    return {"status": "ok"}


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **refusals()})
def metrics(shared: Shared, _: Reader) -> Response:
    """Numbers for Prometheus; with a token, because they show how much is going on."""
    return Response(shared.metrics.text(), media_type=CONTENT_TYPE_LATEST)
