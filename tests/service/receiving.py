"""A receiver of events on a port of this machine: it notes every request, and answers as it is told."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 30.0


@dataclasses.dataclass(frozen=True)
class Got:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclasses.dataclass(frozen=True)
class Say:
    """What is answered."""

    status: int = 204
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclasses.dataclass
class Receiver:
    """What has come, where to send it, and how it is answered."""

    url: str
    answer: Callable[[Got], Say]
    got: list[Got] = dataclasses.field(default_factory=list)

    def wait(self, enough: Callable[[list[Got]], bool]) -> list[Got]:
        """What has come, when it is enough."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if enough(list(self.got)):
                return list(self.got)
            time.sleep(0.02)
        raise TimeoutError([(one.path, one.body) for one in self.got])


@contextlib.contextmanager
def receiving(answer: Callable[[Got], Say] = lambda _: Say()) -> Iterator[Receiver]:
    """A receiver while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = Got(self.command, self.path, headers, self.rfile.read(length))
            receiver.got.append(got)
            said = receiver.answer(got)
            with contextlib.suppress(OSError):  # whoever asked may be gone
                self.send_response(said.status)
                for name, value in (*said.headers, ("Content-Length", str(len(said.body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body)

        do_GET = do_DELETE = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}", answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
