"""Events, and where they go."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from ..naming import PATTERN
from ..paging import Asked
from ..state import Admin, Reader, Shared, refusals
from . import endpoints, outbox, queue, shapes, signing

router = APIRouter(prefix="/v1", tags=["events"])
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$", description="The endpoint.")]


class EndpointAsked(BaseModel):
    """An address to send events to."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(description="http:// or https://, without a password.", max_length=endpoints.MOST_URL)
    secret: str | None = Field(
        None, description="whsec_…; if you give none, it stays, or one is made.", max_length=200
    )
    types: list[str] = Field([], description="Types of events; none: all.", max_length=50)
    gate: str | None = Field(None, description="Only this gate's events.", pattern=PATTERN)


@router.get("/events", response_model=shapes.EventList, responses=refusals())
def list_events(shared: Shared, _: Reader, page: Asked) -> dict[str, Any]:
    """The events after a number, in order, with their deliveries."""
    with shared.database.reading() as connection:
        return page.answer(outbox.shown(connection, page))


@router.post("/events/{id}/retry", response_model=shapes.RetriedAnswer, responses=refusals(404, 507))
def retry_event(
    id: Annotated[str, Path(pattern=r"^evt_[0-9a-f]{32}$", description="The event.")],
    shared: Shared,
    _: Admin,
) -> dict[str, Any]:
    """Retry the deliveries of an event that were given up or wait for their next turn."""
    with shared.database.writing() as connection:
        return {"data": {"deliveries": queue.retry(connection, id)}}


@router.get("/endpoints", response_model=shapes.EndpointList, responses=refusals())
def list_endpoints(shared: Shared, _: Admin) -> dict[str, Any]:
    """Where events go, without the secrets."""
    with shared.database.reading() as connection:
        return {"data": endpoints.listed(connection)}


@router.put(
    "/endpoints/{name}",
    response_model=shapes.EndpointAnswer,
    responses={201: {"model": shapes.EndpointAnswer}, **refusals(409, 507)},
)
def define_endpoint(
    name: Name, asked: EndpointAsked, shared: Shared, who: Admin, response: Response
) -> dict[str, Any]:
    """Send events to an address from now on; a new secret is shown only once."""
    known = asked.secret or endpoints.kept_secret(shared.database, name)
    made = None if known else signing.new_secret()
    found = endpoints.webhook(name, asked.url, known or made or "", tuple(asked.types), asked.gate)
    response.status_code = 201 if endpoints.define(shared.database, found, who.name) else 200
    with shared.database.reading() as connection:
        row = endpoints.find(connection, name)
    assert row is not None
    return {"data": {**endpoints.shown(row), "secret": made}}


@router.delete("/endpoints/{name}", status_code=204, responses=refusals(404, 507))
def remove_endpoint(name: Name, shared: Shared, who: Admin) -> None:
    """Stop sending events to this endpoint."""
    endpoints.remove(shared.database, name, who.name)
