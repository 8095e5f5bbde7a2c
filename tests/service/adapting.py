"""What tests of adapters need of a server: its database, and tokens without a command for each."""

import contextlib
from collections.abc import Iterator

from tidegate.service import tokens
from tidegate.service.database import Database, sqlite_url

from .serving import Server


@contextlib.contextmanager
def database_of(server: Server) -> Iterator[Database]:
    """The database of a server, as another process sees it."""
    place = server.more[server.more.index("--database") + 1] if "--database" in server.more else None
    found = Database(sqlite_url(server.data) if place is None else place)
    try:
        yield found
    finally:
        found.close()


def new_token(server: Server, name: str, *scopes: str) -> str:
    """A new token."""
    with database_of(server) as database:
        return tokens.new_token(database, name, list(scopes))
