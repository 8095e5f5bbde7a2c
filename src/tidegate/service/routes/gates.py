"""Gates: define, look at, which policy to run, roll back."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from .. import presenting, registry, standing
from ..definitions import GateDefinition
from ..state import Admin, Approver, Credentials, GateName, Known, Reader, Shared, reading_as, refusals
from ..tags import as_it_was, headers_of, tag_of
from ..tokens import Scope
from . import shapes

router = APIRouter(prefix="/v1/gates", tags=["gates"])


class Rollback(BaseModel):
    """Why."""

    model_config = ConfigDict(extra="forbid")

    comment: shapes.Comment = ""


@router.get("", response_model=shapes.GateList, responses=refusals())
def list_gates(shared: Shared, _: Reader) -> dict[str, Any]:
    """All gates."""
    now = shared.database.now()
    with shared.database.reading() as connection:
        gates = registry.all_gates(connection)
        return {"data": [presenting.gate_data(connection, gate, now) for gate in gates]}


@router.put(
    "/{gate}",
    response_model=shapes.GateAnswer,
    responses={201: {"model": shapes.GateAnswer}, **refusals(404, 409, 507)},
)
def define_gate(
    gate: GateName, definition: GateDefinition, shared: Shared, who: Admin, response: Response
) -> dict[str, Any]:
    """Define a gate, or a new version of it; the same definition again changes nothing."""
    found, changed = registry.define(shared.database, gate, definition.checked(), who.name)
    response.status_code = 201 if changed else 200
    with shared.database.reading() as connection:
        return {"data": presenting.gate_data(connection, found, shared.database.now())}


@router.get("/{gate}", response_model=shapes.GateAnswer, responses=refusals(404))
def show_gate(gate: GateName, shared: Shared, _: Known) -> dict[str, Any]:
    """A gate: its definition, how much it has seen, what runs."""
    with shared.database.reading() as connection:
        found = registry.current(connection, gate)
        return {"data": presenting.gate_data(connection, found, shared.database.now())}


@router.get("/{gate}/verdict", response_model=shapes.EvaluationAnswer, responses=refusals(404))
def verdict(gate: GateName, shared: Shared, given: Credentials) -> Response:
    """The newest decision that has not expired, at once; status "error" if there is none."""
    with reading_as(shared, given, Scope.READ) as connection:
        found = registry.current(connection, gate)
        data = presenting.verdict_data(connection, found, shared.database.now())
    return JSONResponse({"data": data})


@router.get(
    "/{gate}/policy",
    response_model=shapes.PolicyAnswer,
    responses={304: {"description": "As it was."}, **refusals(404)},
)
def policy(
    gate: GateName,
    shared: Shared,
    given: Credentials,
    known: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """Which policy to run now, with its file if it is one."""
    with reading_as(shared, given, Scope.READ) as connection:
        found = registry.current(connection, gate)
        summary = presenting.policy_summary(connection, found, shared.database.now())
        tag = tag_of(json.dumps(summary).encode())  # a file is known by its hash, which stands in the spec
        same = as_it_was(known, tag)
        data = None if same is not None else presenting.with_file(connection, summary)
    return JSONResponse({"data": data}, headers=headers_of(tag)) if same is None else same


@router.post("/{gate}/rollback", response_model=shapes.PolicyAnswer, responses=refusals(404, 409, 507))
def roll_back(gate: GateName, said: Rollback, shared: Shared, who: Approver) -> dict[str, Any]:
    """Run the safe policy from the next request on, until a later evaluation says otherwise."""
    database = shared.database
    with database.writing() as connection:
        found = registry.current(connection, gate, lock=True)
        at = database.now()
        standing.roll_back(connection, found.row, found.definition, at, who.name, said.comment)
    with database.reading() as connection:
        found = registry.current(connection, gate)
        summary = presenting.policy_summary(connection, found, database.now())
        return {"data": presenting.with_file(connection, summary)}
