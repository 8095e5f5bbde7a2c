"""ETags: what has not changed since a client got it is not sent again."""

import hashlib

from fastapi import Response

NOT_MODIFIED = 304


def tag_of(content: bytes) -> str:
    """The tag of an answer, by its content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def headers_of(tag: str) -> dict[str, str]:
    """What goes with a tagged answer: ask again before you use it."""
    return {"ETag": tag, "Cache-Control": "no-cache"}


def as_it_was(known: str | None, tag: str) -> Response | None:
    """The answer to a client that has what this tag is of; None if it has not."""
    tags = [one.strip().removeprefix("W/") for one in (known or "").split(",")]
    return Response(status_code=NOT_MODIFIED, headers=headers_of(tag)) if tag in tags else None
