"""One decision: what was found and why, its report, and a person's word about it."""

import functools
import json
import threading
import zlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import ValidationError
from sqlalchemy import Connection, Row, select

from .. import evaluations, registry, schema, standing
from ..database import Database
from ..refusals import NotFound, Unfit
from ..routes import evaluations as resource
from ..state import Shared
from ..tokens import Scope
from . import answering, views
from .chart import decision_picture
from .overview import REFRESH, Refreshed
from .visitors import Sent, SignedIn

# The report is a page of its own with its styles inside; nothing in it runs, is loaded or is sent.
REPORT = {
    **answering.HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; sandbox allow-same-origin"
    ),
}
DRAWING = threading.Lock()  # one picture at a time: the library that draws has one state
Id = Annotated[str, Path(pattern=r"^[0-9a-f-]{36}$")]

router = APIRouter(prefix="/evaluations")


@router.get("/{id}")
def show(id: Id, request: Request, shared: Shared, found: SignedIn, refresh: Refreshed = "on") -> Response:
    """The main facts of a decision; who may approve it finds the form here."""
    now = shared.database.now()
    with shared.database.reading() as connection:
        row = evaluations.of_id(connection, id)
        owner = registry.of_id(connection, row.gate)
        data, waiting = views.evaluation(connection, owner, row), views.pending(connection, owner, now)
        runs = standing.standing(connection, owner.row, owner.definition, now)
    busy, waits = data["status"] == evaluations.WAITING, waiting is not None and waiting.id == id
    values = {
        "section": "gates",
        "data": data,
        "row": row,
        "gate": owner,
        "runs": runs,
        "in_force": runs.evaluation == id and runs.policy == standing.CANDIDATE,
        "picture": decision_picture(data["advantage"]),
        "waits": waits,
        "may_approve": waits and views.may_approve(found, owner),
        "may_roll_back": found.may(Scope.APPROVE),
        "busy": busy,
        "refresh": REFRESH if refresh == "on" and busy else 0,
    }
    return answering.rendered(request, "decision.html", found, values)


@router.get("/{id}/report")
def report(id: Id, shared: Shared, _: SignedIn) -> Response:
    """The whole report, as `--report` writes it."""
    with shared.database.reading() as connection:
        row = evaluations.of_id(connection, id)
    if row.record_sha256 is None or row.log_sha256 is None:
        raise NotFound("there is no report: nothing was decided.")
    text = _drawn(shared.database, id)
    back = answering.templates().get_template("back.html").render(id=id)
    return HTMLResponse(text.replace("<body>", f"<body>\n{back}", 1), headers=REPORT)


@router.post("/{id}/approval")
def approve(id: Id, shared: Shared, found: SignedIn, given: Sent) -> Response:
    """What a person says about a decision, once."""
    found.who.require(Scope.APPROVE)
    try:
        said = resource.Word.model_validate(
            {"state": given.get("state"), "comment": given.get("comment", "")}
        )
    except ValidationError as error:
        raise Unfit("the form cannot be read.", expected="approved or rejected, and a comment") from error
    resource.approve(id, said, shared, found.who)
    return answering.gone_to(f"/evaluations/{id}", said.state)


@functools.lru_cache(32)
def _drawn(database: Database, id: str) -> str:
    """The report of a stored record, which never changes; its pictures take a second."""
    from ...reports.log_page import log_page  # which loads the library that draws

    with database.reading() as connection:
        content = _record(connection, id)
    with DRAWING:
        return log_page(json.loads(zlib.decompress(content)))


def _record(connection: Connection, id: str) -> bytes:
    table = schema.evaluations
    row: Row[Any] = connection.execute(select(table.c.record).where(table.c.id == id)).one()
    return bytes(row.record)
