"""The routes of the page together, and every refusal in its dress."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from ...errors import TidegateError
from ..refusals import NoToken
from . import answering, decisions, one_gate, overview, signing, trail
from .visitors import visitor

TITLES = {
    403: "This is not allowed",
    404: "There is nothing here",
    405: "This address does not accept such a request",
    408: "This took too long to arrive",
    409: "This cannot be done now",
    413: "This is too long",
    422: "This cannot be read",
    429: "Too many requests",
    500: "Something went wrong in the service",
    503: "The service cannot answer now",
    507: "The disk is full",
}

router = APIRouter(include_in_schema=False)
for one in (overview, signing, one_gate, decisions, trail):
    router.include_router(one.router)


def asked_for(request: Request) -> bool:
    """Whether it was a page that was asked for; at an unknown address, whether a page would do."""
    endpoint = request.scope.get("endpoint")
    if endpoint is not None:
        return str(endpoint.__module__).startswith(f"{__package__}.")
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/")


def refusal(request: Request, error: TidegateError, status: int, headers: Mapping[str, str]) -> Response:
    """What went wrong, and what to do; whoever is not signed in is asked to."""
    if isinstance(error, NoToken):
        return signing.asked_to_sign_in(request)
    found = visitor(request, request.app.state.tidegate) if status < 500 else None
    title = TITLES.get(status, "This did not work")
    values = {"title": title, "error": error, "status": status}
    return answering.rendered(request, "refusal.html", found, values, status=status, headers=headers)
