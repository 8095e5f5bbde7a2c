"""What the routes share: the database, the worker's bell, limits and counters; and who asks."""

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

from anyio import CapacityLimiter
from fastapi import Depends, Header, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from sqlalchemy import Connection

from .database import Database
from .limits import RateLimit
from .metrics import Metrics
from .naming import PATTERN
from .refusals import NoToken
from .tokens import Holder, Scope, holder_of

ACCEPTING = 4
USUAL = (401, 403, 408, 413, 422, 429, 503)  # refusals of any request
bearer = HTTPBearer(auto_error=False, description="A token from `tidegate token new`.")


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Everything that outlives a request."""

    database: Database
    wake: Callable[[], None]
    ready: Callable[[], bool]
    limit: RateLimit
    metrics: Metrics
    accepting: CapacityLimiter = dataclasses.field(default_factory=lambda: CapacityLimiter(ACCEPTING))
    """Threads for rows, which take memory and time, so that other requests always find one."""


async def state_of(request: Request) -> State:
    """The state of the application that serves this request."""
    found: State = request.app.state.tidegate
    return found


Shared = Annotated[State, Depends(state_of)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def holder(shared: Shared, given: Credentials) -> Holder:
    """Who asks; each request counts against the token's limit."""
    with shared.database.reading() as connection:
        return _holder(shared, connection, given)


@contextlib.contextmanager
def reading_as(shared: State, given: Credentials, scope: Scope) -> Iterator[Connection]:
    """A transaction for whoever has this scope: for the routes that are asked most, all in one."""
    with shared.database.reading() as connection:
        _holder(shared, connection, given).require(scope)
        yield connection


def _holder(shared: State, connection: Connection, given: Credentials) -> Holder:
    if given is None:
        raise NoToken("there is no token.", expected="Authorization: Bearer tdg_…")
    found = holder_of(connection, given.credentials, shared.database.now())
    shared.limit.take(found.id)
    return found


def with_scope(scope: Scope) -> Callable[[Holder], Awaitable[Holder]]:
    """Who asks, if the token has this scope."""

    async def check(found: Annotated[Holder, Depends(holder)]) -> Holder:
        found.require(scope)
        return found

    return check


Known = Annotated[Holder, Depends(holder)]
Reader = Annotated[Holder, Depends(with_scope(Scope.READ))]
Ingester = Annotated[Holder, Depends(with_scope(Scope.INGEST))]
Decider = Annotated[Holder, Depends(with_scope(Scope.DECIDE))]
Approver = Annotated[Holder, Depends(with_scope(Scope.APPROVE))]
Admin = Annotated[Holder, Depends(with_scope(Scope.ADMIN))]
GateName = Annotated[str, Path(pattern=PATTERN, description="The gate.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A request that is repeated with its key changes nothing and gets the first answer.",
    ),
]


class Problem(BaseModel):
    """What is wrong, where, what is expected, and what to do."""

    code: str
    sentence: str
    what: str
    where: str
    expected: str
    remedy: str
    rows: list[int]


class Refused(BaseModel):
    """The one shape of errors."""

    error: Problem


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for the OpenAPI document; those that any may give are added."""
    return {status: {"model": Refused} for status in sorted({*USUAL, *statuses})}
