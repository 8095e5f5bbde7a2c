"""Who looks at the page, and whether a form comes from it.

Every visitor has a cookie with a secret. It is the key of a session after signing in, and of nothing before.
Forms carry a token that follows from the secret, which nobody can compute who has not seen the cookie or the
form. So another site can neither act for somebody who is signed in, nor sign somebody in.
"""

import dataclasses
import hashlib
import hmac
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request, Response

from ..refusals import NotAllowed, NoToken, TooLarge, Unfit
from ..state import Shared
from ..tokens import Holder, Scope
from . import sessions

COOKIE = "tidegate"
FORM_TOKEN = "form_token"
MOST_FORM = 65_536
MOST_FIELDS = 20
Form = dict[str, str]


class Forged(NotAllowed):
    """A form that was not sent from the page."""

    code = "forged"


@dataclasses.dataclass(frozen=True)
class Visitor:
    """Somebody who looks; `holder` if signed in."""

    secret: str
    known: bool  # whether the browser sent the secret
    holder: Holder | None

    @property
    def form_token(self) -> str:
        """What a form must carry."""
        return hashlib.sha256(f"form {self.secret}".encode()).hexdigest()

    @property
    def who(self) -> Holder:
        """Who is signed in; a refusal if nobody is."""
        if self.holder is None:
            raise NoToken("you are not signed in, or no longer.", remedy="Sign in.")
        return self.holder

    def may(self, scope: Scope) -> bool:
        """Whether the token has a scope."""
        found = self.holder
        return found is not None and bool({scope, Scope.ADMIN} & found.scopes)


def visitor(request: Request, shared: Shared) -> Visitor:
    """Whoever asks for a page."""
    secret = request.cookies.get(cookie_name(request), "")
    if not secret:
        return Visitor(sessions.fresh_secret(), False, None)
    return Visitor(secret, True, sessions.holder_in(shared.database, secret))


Anybody = Annotated[Visitor, Depends(visitor)]


def reader(shared: Shared, found: Anybody) -> Visitor:
    """Somebody who is signed in and may read; each page counts against the token's limit."""
    shared.limit.take(found.who.id)
    found.who.require(Scope.READ)
    return found


SignedIn = Annotated[Visitor, Depends(reader)]


async def fields(request: Request) -> Form:
    """What a form holds, once it is known to come from the page's own address."""
    if not _same_origin(request):
        raise Forged("this was not sent from the page.", remedy="Open the page here, and send it again.")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_FORM:
            raise TooLarge("the form is too long.", expected=f"at most {MOST_FORM:,} bytes")
    try:
        found = parse_qsl(
            content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError as error:
        raise Unfit("the form has too many fields.", expected=f"at most {MOST_FIELDS}") from error
    return dict(found)


def form(given: Annotated[Form, Depends(fields)], found: Anybody) -> Form:
    """A form with the token of whoever sends it."""
    shown, wanted = given.get(FORM_TOKEN, "").encode(), found.form_token.encode()
    if not (found.known and hmac.compare_digest(shown, wanted)):
        raise Forged(
            "this form belongs to another session.", remedy="Go back, load the page again, and repeat it."
        )
    return given


Sent = Annotated[Form, Depends(form)]


def remember(request: Request, response: Response, secret: str) -> None:
    """Put a visitor's secret into the cookie."""
    response.set_cookie(
        cookie_name(request), secret, httponly=True, samesite="strict", secure=_encrypted(request), path="/"
    )


def cookie_name(request: Request) -> str:
    """Behind TLS the name's prefix forbids others of the same domain to set it."""
    return f"__Host-{COOKIE}" if _encrypted(request) else COOKIE


def _encrypted(request: Request) -> bool:
    return request.url.scheme == "https"


def _same_origin(request: Request) -> bool:
    """Browsers name the origin of every form; `null` is that of a page which hides where it comes from."""
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return bool(host) and urlsplit(origin).netloc == host and site == "same-origin"
