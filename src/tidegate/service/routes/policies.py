"""Policy files."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from .. import uploads
from ..state import Admin, Shared, refusals
from . import shapes

router = APIRouter(prefix="/v1/policies", tags=["policies"])
FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A policy's file, as `tidegate improve` writes it.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.put("", response_model=shapes.UploadedAnswer, responses=refusals(507), openapi_extra=FILE)
async def upload(request: Request, shared: Shared, who: Admin) -> dict[str, Any]:
    """Store a policy's file; a definition names it by the `spec` in the answer."""
    content = await request.body()
    sha256 = await run_in_threadpool(uploads.store_policy, shared.database, content, who.name)
    return {"data": {"sha256": sha256, "spec": f"policy:sha256:{sha256}"}}
