"""Flagger's webhooks: may the canary be promoted, must it be rolled back?

Flagger sends no headers of ours, only the `metadata` of its webhook; so the token may come in there, under
the name that Flagger's own examples give it. It needs the scope read alone, as nothing is changed here.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from sqlalchemy import Connection, select

from ...reasons import Status
from .. import presenting, registry, schema, standing
from ..refusals import Conflict, NoToken
from ..state import Credentials, GateName, Shared, refusals
from ..tokens import Holder, Scope, holder_of

router = APIRouter(prefix="/v1/adapters/flagger", tags=["adapters"])
TOKEN = "token"
MOST_METADATA = 100


class Call(BaseModel):
    """What Flagger sends; newer versions send more, which is not needed."""

    name: str = Field(description="The canary.", max_length=300)
    namespace: str = Field(description="Its namespace.", max_length=300)
    phase: str = Field("", description="Its phase.", max_length=100)
    metadata: dict[str, str] | None = Field(
        None, description="The webhook's metadata; `token` is one with the scope read.",
        max_length=MOST_METADATA,
    )  # fmt: skip


class Allowed(BaseModel):
    """What Flagger may do, and why."""

    gate: str
    policy: str
    reason: str
    evaluation: str | None


class AllowedAnswer(BaseModel):
    """Yes."""

    data: Allowed


def caller(said: Call, shared: Shared, given: Credentials) -> Holder:
    """Who asks: by the header if there is one, else by the metadata."""
    token = given.credentials if given is not None else (said.metadata or {}).get(TOKEN)
    if not token:
        raise NoToken("there is no token.", expected="metadata.token in the webhook of the canary")
    with shared.database.reading() as connection:
        found = holder_of(connection, token, shared.database.now())
    shared.limit.take(found.id)
    found.require(Scope.READ)
    return found


Caller = Annotated[Holder, Depends(caller)]


@router.post("/{gate}/confirm-promotion", response_model=AllowedAnswer, responses=refusals(404, 409))
def confirm_promotion(gate: GateName, shared: Shared, _: Caller) -> dict[str, Any]:
    """200 if the candidate is the policy to run now; else 409 with the reason, and Flagger waits."""
    with shared.database.reading() as connection:
        found = registry.current(connection, gate)
        now = presenting.policy_summary(connection, found, shared.database.now())
        verdict = presenting.verdict_data(connection, found, shared.database.now())
    if now["policy"] != standing.CANDIDATE:
        raise Conflict(f"not to be promoted: {now['reason']}", remedy=str(verdict["sentence"]))
    return {"data": now}


@router.post("/{gate}/rollback", response_model=AllowedAnswer, responses=refusals(404, 409))
def rollback(gate: GateName, shared: Shared, _: Caller) -> dict[str, Any]:
    """200, on which Flagger rolls back, if the gate's last word is a fail or a rollback; else 409."""
    with shared.database.reading() as connection:
        found = registry.current(connection, gate)
        now = presenting.policy_summary(connection, found, shared.database.now())
        verdict = presenting.verdict_data(connection, found, shared.database.now())
        taken_back = _taken_back(connection, found)
    if now["policy"] == standing.CANDIDATE or not (taken_back or verdict["status"] == Status.FAIL.value):
        raise Conflict(f"nothing to roll back: {now['reason']}")
    reason = taken_back or str(verdict["sentence"])
    return {"data": {**now, "reason": reason, "evaluation": now["evaluation"] or verdict["id"]}}


def _taken_back(connection: Connection, gate: registry.Gate) -> str | None:
    """Why the candidate was taken back, if nothing was decided, released or defined since."""
    if standing.newest(connection, gate.row) is not None:
        return None
    kinds = ("policy.rolled_back", "policy.released", "gate.defined")
    asked = select(schema.audit).where(schema.audit.c.gate == gate.name, schema.audit.c.kind.in_(kinds))
    last = connection.execute(asked.order_by(schema.audit.c.sequence.desc()).limit(1)).first()
    if last is None or last.kind != kinds[0]:
        return None
    return f"the candidate was rolled back at {last.at} by {last.by}."
