"""Sign-ins: a random secret in the browser's cookie, its hash in the store. A session ends with its token."""

import datetime
import hashlib
import secrets

from sqlalchemy import delete, insert, or_, select

from .. import schema
from ..database import Database, stamp
from ..tokens import Holder, Scope, holder_of

LIFE = datetime.timedelta(hours=12)
BYTES = 32


def fresh_secret() -> str:
    """What a cookie holds."""
    return secrets.token_urlsafe(BYTES)


def start(database: Database, token: str) -> str:
    """Sign in with a token: the secret of a new session; a refusal if the token is nobody's."""
    with database.reading() as connection:
        holder = holder_of(connection, token, database.now())
    secret, table = fresh_secret(), schema.sessions
    with database.writing() as connection:
        now = database.now()
        connection.execute(delete(table).where(table.c.expires_at <= now))
        row = {
            "sha256": _hash(secret),
            "token": holder.id,
            "at": now,
            "expires_at": stamp(database.clock() + LIFE),
        }
        connection.execute(insert(table).values(row))
    return secret


def holder_in(database: Database, secret: str) -> Holder | None:
    """Who is signed in with this secret, as long as the session and its token are good."""
    session, token, now = schema.sessions.c, schema.tokens.c, database.now()
    asked = (
        select(token.id, token.name, token.scopes)
        .join(schema.sessions, session.token == token.id)
        .where(
            session.sha256 == _hash(secret),
            session.expires_at > now,
            token.revoked_at.is_(None),
            or_(token.expires_at.is_(None), token.expires_at > now),
        )
    )
    with database.reading() as connection:
        row = connection.execute(asked).first()
    return None if row is None else Holder(row.id, row.name, frozenset(map(Scope, row.scopes.split())))


def end(database: Database, secret: str) -> None:
    """Sign out."""
    with database.writing() as connection:
        table = schema.sessions
        connection.execute(delete(table).where(table.c.sha256 == _hash(secret)))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
