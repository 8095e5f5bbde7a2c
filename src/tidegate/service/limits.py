"""How much a client may send, and how slowly: bytes per request, and requests per second of a token."""

import re
import threading
import time
from collections import OrderedDict

import anyio
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..logs.memory import in_words
from .refusals import Refusal, TooLarge, TooMany, TooSlow, body_of

MOST_BODY = 32 * 2**20
MOST_JSON = 2**20
BULK = re.compile(r"/v1/(gates/[^/]+/episodes|policies)")  # which look at the token before they read
RATE = 500.0  # requests a second, on average
BURST = 2.0  # seconds' worth of them at once
MOST_KNOWN = 10_000
SECONDS, BULK_SECONDS = 30.0, 300.0  # seconds in which a body must have come


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

    def __init__(
        self,
        app: ASGIApp,
        most: int = MOST_BODY,
        seconds: float = SECONDS,
        bulk_seconds: float = BULK_SECONDS,
    ) -> None:
        self.app, self.most, self.seconds, self.bulk_seconds = app, most, seconds, bulk_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        bulk = BULK.fullmatch(scope.get("path", "")) is not None
        most = self.most if bulk else min(self.most, MOST_JSON)
        claimed = dict(scope.get("headers", ())).get(b"content-length", b"")
        if claimed.isdigit() and int(claimed) > most:
            await _refuse(too_large(most), scope, receive, send)
            return
        body = _Body(receive, most, self.bulk_seconds if bulk else self.seconds)

        async def answered(message: Message) -> None:
            if body.refusal is None:  # else whatever the application makes of it, that is the answer
                await send(message)

        try:
            await self.app(scope, body.receive, answered)
        finally:
            if body.refusal is not None:
                await _refuse(body.refusal, scope, receive, send)


class _Body:
    """A body as it comes, in so many bytes and seconds at most."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._deadline = time.monotonic() + seconds
        self._came, self._whole = 0, False
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        """The next part; what follows the last one is only that the client went away."""
        left = None if self._whole else self._deadline - time.monotonic()
        try:
            with anyio.fail_after(left):
                message = await self._receive()
        except TimeoutError:
            self.refusal = too_slow(self._seconds)
            raise self.refusal from None
        self._came += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self.refusal is None and self._came > self._most:
            self.refusal = too_large(self._most)
        if self.refusal is not None:
            raise self.refusal
        return message


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    answer = JSONResponse(body_of(refusal), refusal.status, {"Connection": "close"})
    await answer(scope, receive, send)


def too_large(most: int) -> TooLarge:
    """The refusal of a body that has too many bytes."""
    return TooLarge(f"the body is larger than {in_words(most)}.", remedy="Send less at once.")


def too_slow(seconds: float) -> TooSlow:
    """The refusal of a body that does not come."""
    return TooSlow(f"the body did not come within {seconds:g} s.", remedy="Send less at once.")
