"""How much a client may send: bytes per request, and requests per second of a token."""

import re
import threading
import time
from collections import OrderedDict

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..logs.memory import in_words
from .refusals import TooLarge, TooMany, body_of

MOST_BODY = 32 * 2**20
MOST_JSON = 2**20
BULK = re.compile(r"/v1/(gates/[^/]+/episodes|policies)")  # which look at the token before they read
RATE = 500.0  # requests a second, on average
BURST = 2.0  # seconds' worth of them at once
MOST_KNOWN = 10_000


class RateLimit:
    """A bucket per token that fills at `rate` a second; a request takes one out of it."""

    def __init__(self, rate: float = RATE) -> None:
        self.rate, self.room = rate, max(1.0, rate * BURST)
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, holder: object) -> None:
        """Let one request through, or refuse it with the time to wait."""
        now = time.monotonic()
        with self._lock:
            left, then = self._buckets.pop(holder, (self.room, now))
            left = min(self.room, left + (now - then) * self.rate)
            taken = left >= 1
            self._buckets[holder] = (left - 1 if taken else left, now)
            if len(self._buckets) > MOST_KNOWN:
                self._buckets.popitem(last=False)
        if not taken:
            raise TooMany((1 - left) / self.rate)


class BodyLimit:
    """Count what comes, and stop where it is too much; the size that is claimed is looked at first.

    Only rows and policy files may be large: other bodies are parsed before anybody asks for the token.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_BODY) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self.most if BULK.fullmatch(scope.get("path", "")) else min(self.most, MOST_JSON)
        claimed = dict(scope.get("headers", ())).get(b"content-length", b"")
        if claimed.isdigit() and int(claimed) > most:
            await self._refusal(most, scope, receive, send)
            return
        came, refused = 0, False

        async def counted() -> Message:
            nonlocal came, refused
            message = await receive()
            came += len(message.get("body", b""))
            refused = refused or came > most
            if refused:
                raise too_large(most)
            return message

        async def answered(message: Message) -> None:
            if not refused:  # else whatever the application makes of it, the answer is 413
                await send(message)

        try:
            await self.app(scope, counted, answered)
        finally:
            if refused:
                await self._refusal(most, scope, receive, send)

    async def _refusal(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = too_large(most)
        answer = JSONResponse(body_of(refusal), refusal.status, {"Connection": "close"})
        await answer(scope, receive, send)


def too_large(most: int) -> TooLarge:
    """The refusal of a body."""
    return TooLarge(f"the body is larger than {in_words(most)}.", remedy="Send less at once.")
