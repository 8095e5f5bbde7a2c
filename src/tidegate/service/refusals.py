"""Refusals of the service: each is an error in words, with the HTTP status that a client gets for it."""

import errno
import re
from http import HTTPStatus
from typing import Any, ClassVar

from sqlalchemy.exc import DBAPIError

from ..errors import LogError, TidegateError

ROW = re.compile(r"\brow (\d+)")


class Refusal(TidegateError):
    """Base of what the service refuses; `code` is the word for programs."""

    status: ClassVar[HTTPStatus] = HTTPStatus.BAD_REQUEST
    code: ClassVar[str] = "bad_request"


class Unfit(Refusal):
    """What was sent is not what is asked for."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "unfit"


class NoToken(Refusal):
    """Nobody is known by this token."""

    status, code = HTTPStatus.UNAUTHORIZED, "no_token"


class NotAllowed(Refusal):
    """The token has not the scope."""

    status, code = HTTPStatus.FORBIDDEN, "not_allowed"


class NotFound(Refusal):
    """There is no such thing."""

    status, code = HTTPStatus.NOT_FOUND, "not_found"


class Conflict(Refusal):
    """It is at odds with what is there already."""

    status, code = HTTPStatus.CONFLICT, "conflict"


class TooLarge(Refusal):
    """The body is larger than allowed."""

    status, code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"


class TooSlow(Refusal):
    """The body takes too long to come."""

    status, code = HTTPStatus.REQUEST_TIMEOUT, "too_slow"


class OtherMedium(Refusal):
    """The body is of a type that is not read here."""

    status, code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "other_medium"


class TooMany(Refusal):
    """More requests than the token may make."""

    status, code = HTTPStatus.TOO_MANY_REQUESTS, "too_many"

    def __init__(self, wait: float) -> None:
        super().__init__(
            "this token has made too many requests.", remedy=f"Try again in {max(1, round(wait))} s."
        )
        self.wait = wait


class NotReady(Refusal):
    """The service cannot work now."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "not_ready"


class Broken(Refusal):
    """What nobody foresaw."""

    status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "broken"

    def __init__(self) -> None:
        super().__init__(
            "something went wrong in the service.", remedy="Its log says more; please report it."
        )


class NoRoom(Refusal):
    """The disk is full."""

    status, code = HTTPStatus.INSUFFICIENT_STORAGE, "no_room"

    def __init__(self) -> None:
        super().__init__(
            "the disk is full, and nothing of this request was stored.",
            remedy="Make room and send it again; the service goes on.",
        )


def body_of(error: TidegateError) -> dict[str, Any]:
    """The one shape of every error answer."""
    rows = [int(one) for one in ROW.findall(error.where)]
    return {
        "error": {
            "code": getattr(error, "code", Unfit.code),
            "sentence": str(error),
            "what": error.what,
            "where": error.where,
            "expected": error.expected,
            "remedy": error.remedy,
            "rows": rows if isinstance(error, LogError) else [],
        }
    }


def is_full(error: BaseException) -> bool:
    """Whether a database says that there is no room left on its disk."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not isinstance(error, DBAPIError):
        return False
    original = error.orig
    sqlite = getattr(original, "sqlite_errorname", "") or ""
    return sqlite.startswith("SQLITE_FULL") or getattr(original, "sqlstate", None) == "53100"
