"""MLflow's registry webhook: a new version of a model asks for an evaluation, or waits for the next one.

MLflow signs `delivery id.timestamp.body` with the secret's own bytes. A request is believed if its signature
is right and its time is near; one that is repeated is known by its model and version.
"""

import dataclasses
import hmac
import json
import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel
from sqlalchemy import Row, insert, select
from starlette.concurrency import run_in_threadpool

from .. import evaluations, registry
from ..database import Database
from ..events import endpoints, signing
from ..events.tables import ACTIVE, model_versions
from ..refusals import NoToken, Unfit
from ..state import GateName, Shared, refusals

router = APIRouter(prefix="/v1/adapters/mlflow", tags=["adapters"])
TOLERANCE = 300  # seconds
BY = "mlflow"
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "What MLflow sends: entity, action, timestamp, data.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class Heard(BaseModel):
    """What became of a message."""

    gate: str
    model: str | None
    version: str | None
    evaluation: str | None
    reason: str


class HeardAnswer(BaseModel):
    """A message was heard."""

    data: Heard


@dataclasses.dataclass(frozen=True)
class Message:
    """A signed request."""

    delivery: str
    timestamp: str
    signature: str
    body: bytes

    def proven(self, secret: str, now: float) -> bool:
        """Whether it was signed with the secret, a short time ago; compared in constant time."""
        expected = signing.signature(secret.encode(), self.delivery, self.timestamp, self.body)
        given = self.signature.split()
        right = [hmac.compare_digest(expected.encode(), one.encode()) for one in given]
        fresh = re.fullmatch(r"\d{1,12}", self.timestamp, re.ASCII) is not None
        return any(right) and fresh and abs(now - int(self.timestamp)) <= TOLERANCE


@router.post("/{gate}", response_model=HeardAnswer, responses=refusals(404, 507), openapi_extra=BODY)
async def hear(
    gate: GateName,
    request: Request,
    shared: Shared,
    signature: Annotated[str, Header(alias="X-MLflow-Signature", max_length=1_000)] = "",
    timestamp: Annotated[str, Header(alias="X-MLflow-Timestamp", max_length=20)] = "",
    delivery: Annotated[str, Header(alias="X-MLflow-Delivery-Id", max_length=200)] = "",
) -> dict[str, Any]:
    """A model registry reports a model; a new version of the gate's model asks for a decision."""
    body = await request.body()
    message = Message(delivery, timestamp, signature, body)
    heard = await run_in_threadpool(_heard, shared.database, gate, message)
    shared.wake()
    return {"data": {"gate": gate, **heard}}


def _heard(database: Database, gate: str, message: Message) -> dict[str, Any]:
    link = _link(database, gate, message)
    said = _json(message.body)
    data, settings = said.get("data"), json.loads(link.settings)
    created = (said.get("entity"), said.get("action")) == ("model_version", "created")
    if not created or not isinstance(data, dict) or data.get("name") != settings["model"]:
        reason = f"only new versions of '{settings['model']}' are decided on."
        return {"model": None, "version": None, "evaluation": None, "reason": reason}
    version = str(data.get("version", ""))
    if re.fullmatch(r"\d{1,18}", version, re.ASCII) is None:
        raise Unfit("the version of the model is not a number.", expected="as MLflow sends it")
    evaluation = _noted(database, gate, settings["model"], version, evaluate=settings["evaluate"])
    reason = "an evaluation decides." if evaluation else "the gate's next evaluation decides."
    return {"model": settings["model"], "version": version, "evaluation": evaluation, "reason": reason}


def _link(database: Database, gate: str, message: Message) -> Row[Any]:
    """The registry of a gate, if the message is its; nobody learns which gates have one."""
    with database.reading() as connection:
        link = endpoints.find(connection, endpoints.RESERVED + gate)
    secret = link.secret if link is not None and link.state == ACTIVE else signing.new_secret()
    if not message.proven(secret, time.time()) or link is None:
        raise NoToken(
            "the message was not signed by the gate's registry, or is too old.",
            expected="X-MLflow-Signature, X-MLflow-Timestamp and X-MLflow-Delivery-Id, as MLflow sends them",
        )
    return link


def _noted(database: Database, gate: str, model: str, version: str, *, evaluate: bool) -> str | None:
    """The evaluation of a version; it is asked for in the transaction that notes the version."""
    table = model_versions
    with database.writing() as connection:
        found = registry.current(connection, gate, lock=True)
        this = (table.c.gate == gate, table.c.model == model, table.c.version == version)
        known = connection.execute(select(table).where(*this)).first()
        if known is not None:
            return None if known.evaluation is None else str(known.evaluation)
        at = database.now()
        evaluation = evaluations.put(connection, found, False, at, BY) if evaluate else None
        row = {"gate": gate, "model": model, "version": version, "evaluation": evaluation, "at": at}
        connection.execute(insert(table).values(**row, promoted=False))
        return evaluation


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unfit("the message is not a JSON object.", expected="entity, action, timestamp, data")
    return said
