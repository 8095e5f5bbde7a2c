"""The HTTP application: limits, tokens, routes, and one shape for every error."""

import logging
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError, IntegrityError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from ..errors import TidegateError
from .adapters import flagger, mlflow, ofrep
from .database import Database
from .events import routes as events
from .events.numbers import EventNumbers
from .limits import MOST_BODY, RATE, BodyLimit, RateLimit
from .metrics import Metrics
from .page import page
from .refusals import Broken, Conflict, NoRoom, NotReady, Refusal, TooMany, Unfit, body_of, is_full
from .routes import audit, episodes, evaluations, gates, health, policies
from .state import State

log = logging.getLogger("tidegate.service")
ROUTERS = (gates.router, episodes.router, evaluations.router, policies.router, audit.router, health.router)
ADAPTERS = (events.router, flagger.router, ofrep.router, mlflow.router)


def make_app(
    database: Database,
    *,
    wake: Callable[[], None] = lambda: None,
    ready: Callable[[], bool] = lambda: True,
    rate: float = RATE,
    most_body: int = MOST_BODY,
) -> FastAPI:
    """The service on a database that is up to date; `wake` tells the worker that there is work."""
    app = FastAPI(
        title="Tidegate",
        version=__version__,
        description="A gate for policies in a changing world: episodes in, decisions out.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.tidegate = State(database, wake, ready, RateLimit(rate), Metrics(database))
    app.state.tidegate.metrics.registry.register(EventNumbers(database))
    for router in (*ROUTERS, *ADAPTERS):
        app.include_router(router)
    app.include_router(page.router)
    app.add_middleware(BodyLimit, most=most_body)
    app.add_middleware(Measured, metrics=app.state.tidegate.metrics)
    for kind in (TidegateError, RequestValidationError, HTTPException, DBAPIError, Exception):
        app.add_exception_handler(kind, _answer_error)
    return app


class Measured:
    """Count and time every answer, and mark it as nothing to be kept or guessed at."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, marked)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.answered(scope["method"], route, status, time.perf_counter() - began)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Whatever went wrong, in one shape; as a page where a page was asked for."""
    found = _refusal(error)
    status = getattr(found, "status", Unfit.status)
    headers: dict[str, str] = dict(getattr(error, "headers", None) or {})
    if isinstance(found, TooMany):
        headers["Retry-After"] = str(max(1, round(found.wait)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 405:
        headers["Allow"] = ", ".join(_served(request))
    if page.asked_for(request):
        return page.refusal(request, found, status, headers)
    return JSONResponse(body_of(found), status, headers)


def _served(request: Request) -> list[str]:
    """The methods at this address: each is a route of its own, of which the framework names one."""
    asked = {name: value for name, value in request.scope.items() if name in ("type", "path", "root_path")}
    return [
        name
        for name in ("DELETE", "GET", "POST", "PUT")
        if any(one.matches({**asked, "method": name})[0] is Match.FULL for one in request.app.routes)
    ]


def _refusal(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    if isinstance(error, RequestValidationError):
        first: dict[str, Any] = dict(error.errors()[0])
        place = ".".join(map(str, first.get("loc", ())))
        return Unfit(f"{place}: {first.get('msg')}.", remedy="See /openapi.json.")
    if isinstance(error, HTTPException) and error.status_code == 400:
        return Unfit("the body cannot be parsed.", expected="JSON, in UTF-8")
    if isinstance(error, HTTPException):
        return _Plain(error)
    if isinstance(error, IntegrityError):
        return Conflict("somebody else did the same at the same time.", remedy="Try again.")
    if is_full(error):
        log.error("the disk is full: %s", error)
        return NoRoom()
    if isinstance(error, DBAPIError):
        log.error("the database failed", exc_info=error)
        return NotReady("the database cannot be reached now.", remedy="Try again soon.")
    return Broken()  # the server writes the traceback into its log


class _Plain(Refusal):
    """What the framework refuses: a wrong address or method."""

    def __init__(self, error: HTTPException) -> None:
        super().__init__(f"{str(error.detail).lower()}.")
        self.status, self.code = error.status_code, "not_served"  # type: ignore[misc, assignment]
