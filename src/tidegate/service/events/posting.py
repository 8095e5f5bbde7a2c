"""One request to an endpoint. Redirects are failures, and of an answer only its head counts."""

import contextlib
import datetime
import email.utils
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from sqlalchemy import Row

from ... import __version__
from ..database import Database
from . import signing
from .queue import Outcome

TIMEOUT = 15.0  # seconds, for each of connecting, the head of the answer, and the rest of it
MOST_ANSWER, PART = 2**20, 2**16


class _Stay(urllib.request.HTTPRedirectHandler):
    """An address that sends requests elsewhere is to be corrected, and not to be followed."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(_Stay)


def post_signed(_: Database, endpoint: Row[Any], event: Row[Any]) -> Outcome:
    """Send an event by Standard Webhooks; its id stays the same whenever it is tried again."""
    body, timestamp = event.body.encode(), str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "webhook-id": event.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signing.signature(signing.key_of(endpoint.secret), event.id, timestamp, body),
    }
    return attempt("POST", endpoint.url, body, headers)[0]


def attempt(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[Outcome, dict[str, Any]]:
    """What became of a request, and the JSON that it was answered with, if it was."""
    agent = {"User-Agent": f"tidegate/{__version__}"}
    try:
        request = urllib.request.Request(url, body, {**agent, **headers}, method=method)
        with OPENER.open(request, timeout=TIMEOUT) as answer:
            return Outcome(True, answer.status), _json(_rest(answer))
    except urllib.error.HTTPError as error:
        with error:
            problem = f"the endpoint answered {error.code}."
            gone = error.code == HTTPStatus.GONE
            wait = _wait(error.headers.get("Retry-After"))
            return Outcome(False, error.code, problem, wait, gone), _json(_rest(error))
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        return Outcome(False, None, f"{type(cause).__name__}: {cause}"), {}


def _rest(answer: Any) -> bytes:
    """What an answer holds, as far as it comes in time: one that never ends holds up nobody."""
    found, deadline = b"", time.monotonic() + TIMEOUT
    with contextlib.suppress(OSError, http.client.HTTPException):
        while len(found) < MOST_ANSWER and time.monotonic() < deadline and (part := answer.read1(PART)):
            found += part
    return found


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _wait(header: str | None) -> float:
    """Seconds, from a number of them or a date."""
    if header is None:
        return 0.0
    if header.strip().isdigit():
        return float(header[:12])
    try:
        until = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    aware = until if until.tzinfo else until.replace(tzinfo=datetime.UTC)
    return max(0.0, (aware - datetime.datetime.now(datetime.UTC)).total_seconds())
