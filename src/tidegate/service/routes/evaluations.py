"""Decisions out: ask for one, look at it, approve it."""

import json
import zlib
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from .. import evaluations, presenting, registry, schema, standing
from ..answers import Answer, Asked
from ..refusals import NotFound
from ..state import Approver, Decider, GateName, Key, Reader, Shared, refusals
from . import shapes
from .episodes import repeated

router = APIRouter(prefix="/v1", tags=["evaluations"])
EvaluationId = Annotated[str, Path(pattern=r"^[0-9a-f-]{36}$", description="The evaluation.")]


class Request(BaseModel):
    """How to evaluate."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = Field(False, description="Decide, and let nothing follow from it.")


class Word(BaseModel):
    """What a person says about a decision."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["approved", "rejected"]
    comment: shapes.Comment = ""


@router.post(
    "/gates/{gate}/evaluations",
    status_code=202,
    response_model=shapes.StartedAnswer,
    responses=refusals(404, 409, 507),
)
def evaluate(
    gate: GateName, shared: Shared, who: Decider, asked: Request | None = None, key: Key = None
) -> JSONResponse:
    """Decide again on all episodes that are stored now; the answer says where to look."""
    dry_run = asked is not None and asked.dry_run
    request = Asked.of(f"/v1/gates/{gate}/evaluations", key, str(dry_run).encode())
    answer = evaluations.request(shared.database, gate, dry_run, request, who.name)
    shared.wake()
    return repeated(answer)


@router.get("/gates/{gate}/evaluations", response_model=shapes.EvaluationList, responses=refusals(404))
def list_evaluations(
    gate: GateName,
    shared: Shared,
    _: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """The newest evaluations of a gate."""
    with shared.database.reading() as connection:
        found = registry.current(connection, gate)
        rows = evaluations.of_gate(connection, found.id, limit)
        return {"data": [_data(connection, row) for row in rows]}


@router.get("/evaluations/{id}", response_model=shapes.EvaluationAnswer, responses=refusals(404))
def show_evaluation(id: EvaluationId, shared: Shared, _: Reader) -> dict[str, Any]:
    """An evaluation, decided or in progress."""
    with shared.database.reading() as connection:
        return {"data": _data(connection, evaluations.of_id(connection, id))}


@router.get("/evaluations/{id}/record", responses=refusals(404))
def show_record(id: EvaluationId, shared: Shared, _: Reader) -> Response:
    """The whole record of a decision, as `tidegate gate --json` prints it."""
    table = schema.evaluations
    with shared.database.reading() as connection:
        found = connection.execute(select(table.c.record).where(table.c.id == id)).scalar()
    if found is None:
        raise NotFound("there is no such record.")
    return Response(zlib.decompress(bytes(found)), media_type="application/json")


@router.post(
    "/evaluations/{id}/approval", response_model=shapes.EvaluationAnswer, responses=refusals(404, 409, 507)
)
def approve(id: EvaluationId, said: Word, shared: Shared, who: Approver, key: Key = None) -> JSONResponse:
    """Approve or reject a decision that waits for approval: once, and for good."""
    database = shared.database
    content = json.dumps({**said.model_dump(), "by": who.name})  # nobody repeats another one's word
    request = Asked.of(f"/v1/evaluations/{id}/approval", key, content.encode())
    with database.writing() as connection:
        owner = registry.of_id(connection, evaluations.of_id(connection, id).gate)
        owner = registry.current(connection, owner.name, lock=True)
        row = evaluations.of_id(connection, id, lock=True)
        earlier = request.earlier(connection)
        if earlier is not None:
            return repeated(earlier)
        word = standing.Word(said.state, said.comment, who.name, database.now())
        standing.approve(connection, owner.row, owner.definition, row, word)
        answer = Answer(200, {"data": _data(connection, row)})
        return repeated(request.keep(connection, answer))


def _data(connection: Any, row: Any) -> dict[str, Any]:
    owner = registry.of_id(connection, row.gate)
    definition = registry.definition_at(connection, row.gate, row.version)
    return presenting.evaluation_data(connection, row, owner.name, definition)
