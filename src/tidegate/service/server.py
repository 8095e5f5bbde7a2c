"""`tidegate serve`: folder, database, the gates of a file, the first token, the worker, the server."""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from ..errors import SettingsError
from ..gates.locking import locked
from . import evaluations, tokens
from .adapters import registries
from .app import make_app
from .config import configure
from .database import Database, opened
from .events.sender import Sender
from .limits import MOST_BODY, RATE
from .workers import Worker

log = logging.getLogger("tidegate.service")
DATA = Path("tidegate-data")
SWITCH = 0.0001  # seconds: a quick answer need not wait for rows that are being checked


class _Busy(SettingsError):
    """Another server uses the folder."""


def serve(
    data: Path = DATA,
    host: str = "127.0.0.1",
    port: int = 8400,
    url: str | None = None,
    config: Path | None = None,
    rate: float = RATE,
    most_body: int = MOST_BODY,
) -> None:
    """Serve until interrupted."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH)
    database = opened(data, url)
    with _alone(database, data), listening(host, port) as door:
        if config is not None:
            configure(database, config)
        first = tokens.first_token(database)
        if first is not None:
            print(
                f"The first token, shown this once; it may do everything for {tokens.DEFAULT_LIFE}:\n{first}",
                flush=True,
            )
        worker, sender = Worker(database, data), Sender(database, registries.CARRIERS)
        app = make_app(database, wake=worker.wake, ready=lambda: worker.alive, rate=rate, most_body=most_body)
        worker.start()
        sender.start()
        log.info("Tidegate listens on %s, data in %s", address_of(door), database.place)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        try:
            server.run(sockets=[door])
        finally:
            sender.stop()
            worker.stop()
            database.close()


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at which requests may wait for the server."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror or error}.",
            remedy="Choose another address (`host`) or port (`port`).",
        ) from error
    with door:
        yield door


def address_of(door: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = door.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _alone(database: Database, data: Path) -> Iterator[None]:
    """An embedded database has one server, which may take back whatever the last one was at."""
    if not database.embedded:
        yield
        return

    def refuse(_: str) -> None:
        raise _Busy(
            f"another server uses {data}.",
            remedy="End it, name another folder (`data`), or use PostgreSQL (`database`).",
        )

    with locked(data / "serve", refuse):
        with database.writing() as connection:
            evaluations.release_all(connection)
        yield
