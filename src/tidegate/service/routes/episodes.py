"""Episodes in."""

import functools
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse

from .. import accepting
from ..answers import Asked
from ..ingest import MEDIA
from ..state import GateName, Ingester, Key, Shared, refusals
from . import shapes

router = APIRouter(prefix="/v1/gates", tags=["episodes"])
ROWS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Rows as files have them: one step each, episodes whole.",
        "content": {medium: {"schema": {"type": "string", "format": "binary"}} for medium in MEDIA},
    }
}


@router.post(
    "/{gate}/episodes",
    status_code=201,
    response_model=shapes.BatchAnswer,
    responses=refusals(404, 409, 415, 507),
    openapi_extra=ROWS,
)
async def ingest(
    gate: GateName,
    request: Request,
    shared: Shared,
    who: Ingester,
    key: Key = None,
    content_type: Annotated[str, Header()] = "",
) -> JSONResponse:
    """Store episodes: all rows of the request or none. When this answers, they are on the disk."""
    body = await request.body()
    asked = Asked.of(f"/v1/gates/{gate}/episodes", key, content_type.encode(), body)
    accept = functools.partial(accepting.accept, shared.database, gate, body, content_type, asked, who.name)
    answer = await to_thread.run_sync(accept, limiter=shared.accepting)
    shared.wake()
    return repeated(answer)


def repeated(answer: Any) -> JSONResponse:
    """An answer, marked if it was given before."""
    headers = {"Idempotent-Replayed": "true"} if answer.repeated else {}
    return JSONResponse(answer.body, answer.status, headers)
