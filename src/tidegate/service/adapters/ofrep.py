"""OpenFeature's remote evaluation protocol: a gate is a flag whose variants are candidate and safe.

Everybody gets the same variant, so the context is checked and not looked at.
"""

import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from .. import presenting, registry, standing
from ..naming import PATTERN
from ..state import Reader, Shared, State, refusals
from ..tags import as_it_was, headers_of, tag_of

router = APIRouter(prefix="/ofrep/v1/evaluate", tags=["adapters"])
STATIC, DEFAULT = "STATIC", "DEFAULT"
CONTEXT: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {"context": {"type": ["object", "null"]}}}
            }
        },
    }
}


class Flag(BaseModel):
    """A flag that was evaluated."""

    key: str
    value: str
    reason: str
    variant: str
    metadata: dict[str, str | int]


class Flags(BaseModel):
    """All flags."""

    flags: list[Flag]


class Failed(BaseModel):
    """Why a flag was not evaluated."""

    key: str
    errorCode: str
    errorDetails: str


class BulkFailed(BaseModel):
    """Why no flag was evaluated."""

    errorCode: str
    errorDetails: str


@router.post(
    "/flags/{key}",
    response_model=Flag,
    responses={**refusals(), 400: {"model": Failed}, 404: {"model": Failed}},
    openapi_extra=CONTEXT,
)
async def evaluate(key: str, request: Request, shared: Shared, _: Reader) -> Response:
    """Which policy a gate says to run, as a flag."""
    wrong = problem(await request.body())
    if wrong is not None:
        return JSONResponse({"key": key, **wrong}, 400)
    flag = await run_in_threadpool(_one, shared, key)
    if flag is None:
        details = "there is no gate of this name."
        return JSONResponse({"key": key, "errorCode": "FLAG_NOT_FOUND", "errorDetails": details}, 404)
    return JSONResponse(flag)


@router.post(
    "/flags",
    response_model=Flags,
    responses={
        **refusals(),
        304: {"description": "As it was."},
        400: {"model": BulkFailed},
    },
    openapi_extra=CONTEXT,
)
async def evaluate_all(
    request: Request,
    shared: Shared,
    _: Reader,
    known: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """All gates as flags; 304 if nothing has changed since the answer with this ETag."""
    wrong = problem(await request.body())
    if wrong is not None:
        return JSONResponse(wrong, 400)
    body = json.dumps({"flags": await run_in_threadpool(_all, shared)}).encode()
    tag = tag_of(body)
    return as_it_was(known, tag) or Response(body, media_type="application/json", headers=headers_of(tag))


def problem(body: bytes) -> dict[str, str] | None:
    """What is wrong with a request, in the protocol's words; None if nothing is."""
    try:
        asked = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        return {"errorCode": "PARSE_ERROR", "errorDetails": "the body is not JSON."}
    if not isinstance(asked, dict):
        return {"errorCode": "PARSE_ERROR", "errorDetails": "the body is not a JSON object."}
    if not isinstance(asked.get("context", {}), dict | None):
        return {"errorCode": "INVALID_CONTEXT", "errorDetails": "the context is not an object."}
    return None


def _one(shared: State, key: str) -> dict[str, Any] | None:
    if re.fullmatch(PATTERN.strip("^$"), key) is None:
        return None
    with shared.database.reading() as connection:
        gate = registry.find(connection, key)
        return None if gate is None else _flag(connection, gate, shared.database.now())


def _all(shared: State) -> list[dict[str, Any]]:
    now = shared.database.now()
    with shared.database.reading() as connection:
        return [_flag(connection, gate, now) for gate in registry.all_gates(connection)]


def _flag(connection: Connection, gate: registry.Gate, now: str) -> dict[str, Any]:
    found = presenting.policy_summary(connection, gate, now)
    names = ("version", "evaluation", "until")
    told = {name: found[name] for name in names if found[name] is not None}
    fallen_back = found["policy"] == standing.SAFE and found["until"] is None
    return {
        "key": gate.name,
        "value": found["policy"],
        "reason": DEFAULT if fallen_back else STATIC,
        "variant": found["policy"],
        "metadata": {**told, "explanation": found["reason"]},
    }
