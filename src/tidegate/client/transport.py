"""One HTTP request, tried again where that may help."""

import dataclasses
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from ..errors import SettingsError, TidegateError

AGAIN = (429, 502, 503, 504)
TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
NOT_MODIFIED = 304


class ServiceRefusal(TidegateError):
    """What the service did not do, in its own words; `status` is that of HTTP, 0 if it cannot be reached."""

    def __init__(self, status: int, what: str, *, where: str = "", expected: str = "", remedy: str = ""):
        super().__init__(what, where=where, expected=expected, remedy=remedy)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer of the service."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def data(self) -> Any:
        try:
            return json.loads(self.body)["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceRefusal(
                self.status, "this is no answer of the service.", remedy="Check its address."
            ) from error


@dataclasses.dataclass(frozen=True)
class Transport:
    """Where the service is, and as whom to ask."""

    url: str
    token: str = dataclasses.field(repr=False)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SettingsError(f"the service's address is '{self.url}'.", expected="http://HOST:PORT")
        if not self.token:
            raise SettingsError("there is no token.", remedy="Make one with `tidegate token new`.")

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer; what repeats nothing twice is repeated while the service is busy or away.

        A POST is repeated only with an Idempotency-Key.
        """
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        safe = method != "POST" or "Idempotency-Key" in given
        pause = FIRST_PAUSE
        for attempt in range(TRIES):
            try:
                return self._once(method, path, body, given)
            except ServiceRefusal as error:
                last = attempt == TRIES - 1 or error.status not in (0, *AGAIN)
                if last or (not safe and error.status != 429):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        address = self.url.rstrip("/") + path
        request = urllib.request.Request(address, body, dict(headers), method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return Reply(answer.status, answer.read(), _lower(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == NOT_MODIFIED:
                    return Reply(NOT_MODIFIED, b"", _lower(error.headers))
                raise _refusal(error.code, error.read()) from None
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise ServiceRefusal(
                0, f"the service at {self.url} cannot be reached: {cause}.", remedy="Is it running?"
            ) from error


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _refusal(status: int, body: bytes) -> ServiceRefusal:
    try:
        said = json.loads(body)["error"]
        parts = {name: str(said[name]) for name in ("where", "expected", "remedy")}
        return ServiceRefusal(status, str(said["what"]), **parts)
    except (ValueError, KeyError, TypeError):
        return ServiceRefusal(status, f"the service answered with status {status}.")
