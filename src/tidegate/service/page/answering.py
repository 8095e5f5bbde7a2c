"""From a template to an answer, with the headers that let a browser load, run and send nothing else."""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from ... import __version__
from ...reports.log_words import change, number, percent, sentence, shown
from ...reports.palette import palette_css
from . import wording
from .visitors import FORM_TOKEN, Visitor, remember

HERE = Path(__file__).parent / "templates"
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with less, browsers hide where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
FLASH = "tidegate-said"
SEE_OTHER = 303
FILTERS = (number, change, percent, sentence, shown)
SAID = {
    "signed-in": "You are signed in.",
    "signed-out": "You are signed out.",
    "approved": "Approved. The decision holds from the next request on.",
    "rejected": "Rejected. The safe policy goes on.",
    "rolled-back": "Rolled back. The safe policy runs from the next request on.",
    "asked": "Asked for a decision. It will be here in a moment.",
}


def rendered(
    request: Request,
    name: str,
    visitor: Visitor | None,
    values: Mapping[str, Any],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A page for a visitor; it shows what the last form brought about, once."""
    said = SAID.get(request.cookies.get(FLASH, ""), "")
    text = (
        templates()
        .get_template(name)
        .render(**{"refresh": 0, "section": "", **values}, visitor=visitor, said=said, path=request.url.path)
    )
    response = HTMLResponse(text, status, {**HEADERS, **(headers or {})})
    if said:
        response.delete_cookie(FLASH, httponly=True, samesite="strict")
    if visitor is not None and not visitor.known and not linked(request):
        remember(request, response, visitor.secret)
    return response


def gone_to(place: str, said: str = "") -> RedirectResponse:
    """The answer to a form: look there, where it says what was done."""
    response = RedirectResponse(place, SEE_OTHER, HEADERS)
    if said:
        response.set_cookie(FLASH, said, max_age=60, httponly=True, samesite="strict")
    return response


def linked(request: Request) -> bool:
    """Whether another site led here. Then browsers keep a cookie back that they may well have."""
    return request.headers.get("sec-fetch-site") == "cross-site"


@functools.cache
def templates() -> jinja2.Environment:
    """The templates: everything is escaped, and a missing value is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update({one.__name__: one for one in (*FILTERS, *wording.FILTERS)})
    found.globals.update(FORM_TOKEN=FORM_TOKEN, version=__version__, style=style_address())
    return found


@functools.cache
def style_sheet() -> str:
    """The palette of all pages, and how these look."""
    return f"{palette_css()}\n{(HERE / 'style.css').read_text()}"


@functools.cache
def style_address() -> str:
    """Where the style sheet is; another sheet has another address, so that it may be kept."""
    return f"/page/style.css?v={hashlib.sha256(style_sheet().encode()).hexdigest()[:12]}"
