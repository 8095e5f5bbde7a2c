"""A gate: what runs and why, the advantage over time, its definition, its evaluations; roll back, decide."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from .. import evaluations, presenting, registry, standing
from ..answers import Asked
from ..refusals import Conflict, Unfit
from ..routes import gates as resource
from ..state import GateName, Shared
from ..tokens import Scope
from . import answering, views
from .chart import NARROW, WIDE, chart, described
from .history import MOST
from .overview import REFRESH, Refreshed
from .visitors import Sent, SignedIn

PAGE = 20
router = APIRouter(prefix="/gates")
Before = Annotated[int | None, Query(ge=1, le=2**62)]


@router.get("/{gate}")
def show(
    gate: GateName,
    request: Request,
    shared: Shared,
    found: SignedIn,
    before: Before = None,
    refresh: Refreshed = "on",
) -> Response:
    """One gate; `before` pages through its evaluations."""
    now = shared.database.now()
    with shared.database.reading() as connection:
        owner = registry.current(connection, gate)
        view = views.gate_view(connection, owner, now, found, MOST)
        rows = evaluations.of_gate(connection, owner.id, PAGE + 1, before)
        own, rest = views.definition_rows(owner)
        values = {
            "section": "gates",
            "view": view,
            "rolled_back": views.rollback_of(connection, owner),
            "wide": chart(view.past, WIDE),
            "narrow": chart(view.past, NARROW),
            "described": described(view.past),
            "evaluations": [views.evaluation(connection, owner, row) for row in rows[:PAGE]],
            "older": rows[PAGE - 1].sequence if len(rows) > PAGE else None,
            "before": before,
            "versions": views.versions(connection, owner),
            "own": own,
            "rest": rest,
            "busy": view.busy,
            "refresh": REFRESH if refresh == "on" and view.busy else 0,
            "may_roll_back": found.may(Scope.APPROVE) and view.policy["policy"] == standing.CANDIDATE,
            "may_decide": found.may(Scope.DECIDE)
            and bool(owner.row.episodes)
            and view.wait.kind != "computing",
            "address": str(request.base_url).rstrip("/"),
        }
    return answering.rendered(request, "gate.html", found, values)


@router.get("/{gate}/roll-back")
def ask_roll_back(gate: GateName, request: Request, shared: Shared, found: SignedIn) -> Response:
    """What a rollback would do, and whether it is meant."""
    found.who.require(Scope.APPROVE)
    with shared.database.reading() as connection:
        owner = registry.current(connection, gate)
        policy = presenting.policy_summary(connection, owner, shared.database.now())
    values = {"section": "gates", "gate": owner, "policy": policy}
    return answering.rendered(request, "roll_back.html", found, values)


@router.post("/{gate}/roll-back")
def roll_back(gate: GateName, shared: Shared, found: SignedIn, given: Sent) -> Response:
    """Back to the safe policy, if what runs is still what was shown."""
    found.who.require(Scope.APPROVE)
    with shared.database.reading() as connection:
        owner = registry.current(connection, gate)
        policy = presenting.policy_summary(connection, owner, shared.database.now())
    if str(policy["evaluation"]) != given.get("evaluation"):
        raise Conflict(f"'{gate}' has decided again since the page was loaded.", remedy="Look again.")
    try:
        said = resource.Rollback(comment=given.get("comment", ""))
    except ValidationError as error:
        raise Unfit("the form cannot be read.", expected="a comment of at most 2,000 characters") from error
    resource.roll_back(gate, said, shared, found.who)
    return answering.gone_to(f"/gates/{gate}", "rolled-back")


@router.post("/{gate}/decide")
def decide(gate: GateName, shared: Shared, found: SignedIn, given: Sent) -> Response:
    """Ask for a decision on what is stored now; the same form again asks for nothing more."""
    found.who.require(Scope.DECIDE)
    with shared.database.reading() as connection:
        busy = views.computing(connection, registry.current(connection, gate))
    if busy is None:
        asked = Asked.of(f"/gates/{gate}/decide", None)
        evaluations.request(shared.database, gate, False, asked, found.who.name)
        shared.wake()
    return answering.gone_to(f"/gates/{gate}", "asked")
