"""Sign in with a token, and out again."""

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from ..limits import RateLimit
from ..refusals import NoToken
from ..state import Shared
from . import answering, sessions
from .visitors import Anybody, Sent, Visitor, remember, visitor

ATTEMPTS = RateLimit(5.0)  # a second, from one address
LOCAL = re.compile(r"/(?:(?:gates|evaluations)/[A-Za-z0-9._/-]+|audit)?(?:\?[A-Za-z0-9._=&-]*)?")

router = APIRouter()


@router.get("/sign-in")
def show(request: Request, found: Anybody, next: Annotated[str, Query()] = "/") -> Response:
    """Where a token is asked for."""
    if found.holder is not None:
        return answering.gone_to(local(next))
    return _form(request, found, next)


@router.post("/sign-in")
def sign_in(request: Request, shared: Shared, given: Sent, found: Anybody) -> Response:
    """Begin a session, with a secret that nobody can have seen before."""
    ATTEMPTS.take(request.client.host if request.client else "")
    place = given.get("next", "/")
    try:
        secret = sessions.start(shared.database, given.get("token", "").strip())
    except NoToken:
        wrong = "This token is not known, or no longer valid."
        return _form(request, found, place, wrong, status=401)
    if found.holder is not None:
        sessions.end(shared.database, found.secret)
    response = answering.gone_to(local(place), "signed-in")
    remember(request, response, secret)
    return response


@router.post("/sign-out")
def sign_out(request: Request, shared: Shared, _: Sent, found: Anybody) -> Response:
    """End the session, here and in the store."""
    sessions.end(shared.database, found.secret)
    response = answering.gone_to("/sign-in", "signed-out")
    remember(request, response, sessions.fresh_secret())
    return response


def asked_to_sign_in(request: Request) -> Response:
    """To the form, and from there to where the visitor wanted to go; a form that was sent is lost."""
    place = request.url.path
    if request.method != "GET":
        found = visitor(request, request.app.state.tidegate)
        wrong = "You are signed out, and nothing was changed. Sign in, and do it again."
        return _form(request, found, place.rpartition("/")[0] or "/", wrong, status=401)
    place = f"{place}?{request.url.query}" if request.url.query else place
    known = local(place)
    address = "/sign-in" if known == "/" else f"/sign-in?next={quote(known)}"
    if answering.linked(request):
        return _form(request, visitor(request, request.app.state.tidegate), place)
    return answering.gone_to(address)


def local(place: str) -> str:
    """An address of this page; anything else leads to the start."""
    return place if LOCAL.fullmatch(place) and "//" not in place and ".." not in place else "/"


def _form(
    request: Request,
    found: Visitor,
    place: str,
    wrong: str = "",
    status: int = 200,
) -> Response:
    values = {"next": local(place), "wrong": wrong, "linked": answering.linked(request)}
    return answering.rendered(request, "sign_in.html", found, values, status=status)
