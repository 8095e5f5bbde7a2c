"""Where events go. A secret is kept, because it signs, and shown only to whoever has it made."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, Row, insert, select, update

from ...errors import SettingsError
from .. import audit
from ..database import Database
from ..naming import require_name
from ..refusals import NotFound
from . import signing
from .outbox import ALL_TYPES
from .tables import ACTIVE, DEAD, PENDING, REMOVED, deliveries, endpoints

WEBHOOK, MLFLOW = "webhook", "mlflow"
RESERVED = "mlflow."  # names of registries, by their gate
MOST_URL = 2_000


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An address that events are sent to, and which ones."""

    name: str
    url: str
    secret: str
    types: tuple[str, ...] = ()
    gate: str | None = None
    kind: str = WEBHOOK
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        """The endpoint as its table holds it."""
        types, settings = " ".join(self.types), json.dumps(dict(self.settings), sort_keys=True)
        return {**vars(self), "types": types, "settings": settings, "state": ACTIVE}


def webhook(
    name: str, url: str, secret: str, types: tuple[str, ...] = (), gate: str | None = None
) -> Endpoint:
    """An endpoint that takes signed requests."""
    require_name("an endpoint", name)
    if name.startswith(RESERVED):
        raise SettingsError(f"'{name}' is a registry's name.", remedy="Take another name.")
    unknown = [one for one in types if one not in ALL_TYPES]
    if unknown:
        raise SettingsError(
            f"there are no events of the type {unknown[0][:80]!r}.", expected=", ".join(ALL_TYPES)
        )
    signing.key_of(secret)
    return Endpoint(name, require_url(url), secret, tuple(dict.fromkeys(types)), gate)


def require_url(url: str) -> str:
    """An address that a request can go to, without a password in it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    clean = url.isascii() and url.isprintable() and " " not in url and len(url) <= MOST_URL
    if not clean or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise SettingsError(
            "the endpoint's address cannot be used.",
            expected="http:// or https://, a host, and no password",
        )
    return url


def kept_secret(database: Database, name: str) -> str | None:
    """The secret that an endpoint has already, which a new definition need not repeat."""
    with database.reading() as connection:
        known = find(connection, name)
    return None if known is None or known.state == REMOVED else str(known.secret)


def define(database: Database, endpoint: Endpoint, by: str) -> bool:
    """Keep an endpoint; whether that is anything new."""
    with database.writing() as connection:
        known = find(connection, endpoint.name)
        if known is not None and all(getattr(known, name) == one for name, one in endpoint.row.items()):
            return False
        at = database.now()
        if known is None:
            connection.execute(insert(endpoints).values(**endpoint.row, at=at, by=by))
        else:
            changed = update(endpoints).where(endpoints.c.name == endpoint.name)
            connection.execute(changed.values(**endpoint.row, at=at, by=by))
        told = {name: endpoint.row[name] for name in ("name", "kind", "types")} | {"url": _site(endpoint.url)}
        audit.append(connection, at, "endpoint.defined", endpoint.gate, by, told)
        return True


def _site(url: str) -> str:
    """What everybody may know of an address: its path may well be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def remove(database: Database, name: str, by: str) -> None:
    """Send nothing more to an endpoint, not even what waits."""
    with database.writing() as connection:
        known = find(connection, name)
        if known is None or known.state == REMOVED:
            raise NotFound("there is no such endpoint.")
        end(connection, name, REMOVED, "the endpoint was removed.")
        audit.append(connection, database.now(), "endpoint.removed", known.gate, by, {"name": name})


def end(connection: Connection, name: str, state: str, why: str) -> None:
    """An endpoint takes no more; its secret is forgotten where it was removed."""
    forgotten = {"secret": "", "settings": "{}"} if state == REMOVED else {}
    connection.execute(update(endpoints).where(endpoints.c.name == name).values(state=state, **forgotten))
    waiting = update(deliveries).where(deliveries.c.endpoint == name, deliveries.c.state == PENDING)
    connection.execute(waiting.values(state=DEAD, problem=why))


def find(connection: Connection, name: str) -> Row[Any] | None:
    """An endpoint by its name, if there ever was one."""
    return connection.execute(select(endpoints).where(endpoints.c.name == name)).first()


def listed(connection: Connection) -> list[dict[str, Any]]:
    """What may be shown of all endpoints: no secret."""
    found = connection.execute(
        select(endpoints).where(endpoints.c.state != REMOVED).order_by(endpoints.c.name)
    )
    return [shown(row) for row in found]


def shown(row: Row[Any]) -> dict[str, Any]:
    """What may be shown of an endpoint."""
    names = ("name", "kind", "url", "gate", "state", "at", "by")
    return {**{name: getattr(row, name) for name in names}, "types": row.types.split()}
