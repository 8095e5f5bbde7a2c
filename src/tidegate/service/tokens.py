"""Who may do what: bearer tokens with scopes and an expiry. Only their hashes are kept.

A token is 256 random bits, so its plain SHA-256 cannot be guessed back; no slow hash is needed.
"""

import dataclasses
import datetime
import enum
import hashlib
import hmac
import secrets
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from ..errors import SettingsError
from ..inputs import duration, member, names
from . import audit, schema
from .database import Database, stamp
from .naming import require_name
from .refusals import NotAllowed, NoToken

PREFIX = "tdg_"
BYTES = 32
DEFAULT_LIFE = "90d"
FIRST = "first"


class Scope(enum.StrEnum):
    """What a token allows."""

    READ = "read"
    """See gates, decisions, policies and the audit log."""
    INGEST = "ingest"
    """Send episodes."""
    DECIDE = "decide"
    """Ask for evaluations."""
    APPROVE = "approve"
    """Approve, reject, roll back."""
    ADMIN = "admin"
    """Define gates, upload policies, and everything else."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """Whoever shows a token."""

    id: int
    name: str
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise NotAllowed(
                f"the token '{self.name}' has not the scope {scope.value}.",
                expected=f"a token with {scope.value} or admin",
            )


@dataclasses.dataclass(frozen=True)
class TokenInfo:
    """What may be shown of a token."""

    name: str
    scopes: tuple[str, ...]
    at: str
    expires_at: str | None
    revoked_at: str | None


def new_token(database: Database, name: str, scopes: Any, life: Any = DEFAULT_LIFE, by: str = "local") -> str:
    """Make a token; it is shown this once. A life of None never ends."""
    require_name("a token", name)
    wanted = tuple(member("scope", Scope, one) for one in names("scopes", scopes))
    if not wanted:
        raise SettingsError("the token has no scope.", expected=", ".join(Scope))
    span = None if life is None else duration(life)
    if life is not None and not (span and span <= datetime.timedelta(weeks=520)):
        raise SettingsError("the token's life is unclear.", expected="as in 12h or 90d, up to ten years")
    token = PREFIX + secrets.token_urlsafe(BYTES)
    with database.writing() as connection:
        if connection.execute(select(schema.tokens.c.id).where(schema.tokens.c.name == name)).first():
            raise SettingsError(f"there is a token '{name}' already.", remedy="Take another name.")
        at = database.now()
        values = {
            "name": name,
            "sha256": _hash(token),
            "scopes": " ".join(sorted(set(wanted))),
            "at": at,
            "expires_at": None if span is None else stamp(database.clock() + span),
        }
        connection.execute(insert(schema.tokens).values(values))
        told = {one: values[one] for one in ("name", "scopes", "expires_at")}
        audit.append(connection, at, "token.created", None, by, told)
    return token


def first_token(database: Database) -> str | None:
    """A token for everything, if there is none at all yet."""
    with database.reading() as connection:
        if connection.execute(select(schema.tokens.c.id).limit(1)).first() is not None:
            return None
    try:
        return new_token(database, FIRST, ["admin"])
    except (IntegrityError, SettingsError):  # another server that starts has just made it
        return None


def revoke(database: Database, name: str, by: str = "local") -> None:
    """End a token now."""
    with database.writing() as connection:
        at, table = database.now(), schema.tokens
        ended = update(table).where(table.c.name == name, table.c.revoked_at.is_(None))
        if connection.execute(ended.values(revoked_at=at)).rowcount != 1:
            raise SettingsError(f"there is no token '{name}' that could be revoked.")
        audit.append(connection, at, "token.revoked", None, by, {"name": name})


def listed(connection: Connection) -> list[TokenInfo]:
    """All tokens that ever were."""
    found = connection.execute(select(schema.tokens).order_by(schema.tokens.c.id))
    return [
        TokenInfo(row.name, tuple(row.scopes.split()), row.at, row.expires_at, row.revoked_at)
        for row in found
    ]


def holder_of(connection: Connection, token: str, now: str) -> Holder:
    """Who shows this token; a refusal if it is nobody's, has expired or was revoked."""
    sha256, table = _hash(token), schema.tokens
    row = connection.execute(select(table).where(table.c.sha256 == sha256)).first()
    if row is None or not hmac.compare_digest(row.sha256, sha256) or not _valid(row, now):
        raise NoToken(
            "the token is not known, or no longer valid.",
            expected="Authorization: Bearer tdg_…",
            remedy="Make one with `tidegate token new`.",
        )
    return Holder(row.id, row.name, frozenset(map(Scope, row.scopes.split())))


def _valid(row: Row[Any], now: str) -> bool:
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
