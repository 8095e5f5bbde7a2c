"""One database, SQLite or PostgreSQL: how it is opened, brought up to date, read and written.

A transaction of `writing` is durable when its block ends: SQLite syncs its log to the disk (WAL,
synchronous FULL), PostgreSQL does by itself. On SQLite a writer locks the file at its first word (BEGIN
IMMEDIATE), so that it never finds out in the middle that somebody else was quicker; on PostgreSQL whoever
writes locks the row of its gate first, then that of a budget, and the head of the audit chain last.

On PostgreSQL every word is a trip to another process, and on a busy machine each trip may have to wait for a
processor. So `reading` says nothing there but its questions: no BEGIN, no COMMIT, and no greeting to a
connection that was in use a moment ago.
"""

import contextlib
import datetime
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError

from ..errors import SettingsError
from .refusals import NoRoom, is_full

log = logging.getLogger("tidegate.service")
PATIENCE = 30.0  # seconds that a writer waits for another process
MIGRATING = 7_304_117  # the advisory lock of PostgreSQL that a migration holds
POOL = 20
IDLE = 1.0  # seconds after which a connection is asked whether it still stands
Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """The clock of the machine."""
    return datetime.datetime.now(datetime.UTC)


def stamp(moment: datetime.datetime) -> str:
    """A moment as the tables hold it."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Database:
    """Where everything is kept; `clock` says what time it is."""

    def __init__(self, url: str, clock: Clock = utc_now) -> None:
        self.url, self.clock = url, clock
        self.engine = _engine(url)
        self.embedded = self.engine.dialect.name == "sqlite"
        self._asking = self.engine if self.embedded else _engine(url, isolation_level="AUTOCOMMIT")
        self._writer = threading.Lock()  # threads of this process queue here, and not at the file

    def now(self) -> str:
        return stamp(self.clock())

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Questions that change nothing; on PostgreSQL each sees what is there when it is asked."""
        with self._asking.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Questions that change nothing, and all see one moment."""
        with self.engine.connect() as connection:
            if not self.embedded:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends, or has left no trace."""
        queue = self._writer if self.embedded else contextlib.nullcontext()
        with queue, room_needed(), self.engine.connect() as connection:
            connection.execution_options(tidegate_writes=True)
            with connection.begin():
                yield connection

    def upgrade(self, revision: str = "head") -> None:
        """Bring the tables up to this version's, or to those of an earlier one."""
        with room_needed(), self.engine.connect() as connection:
            connection.execution_options(tidegate_writes=True)
            with connection.begin():
                if not self.embedded:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:one)"), {"one": MIGRATING})
                config = alembic.config.Config()
                config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
                config.attributes["connection"] = connection
                alembic.command.upgrade(config, revision)

    def close(self) -> None:
        self.engine.dispose()
        self._asking.dispose()


def sqlite_file(folder: Path) -> Path:
    """The file of a data folder's embedded database."""
    return folder / "tidegate.sqlite"


def sqlite_url(folder: Path) -> str:
    """The address of the embedded database of a data folder."""
    return f"sqlite:///{sqlite_file(folder)}"


def opened(data: Path, url: str | None = None) -> Database:
    """The database of a data folder, or that of an address, brought up to date."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if url is None:
            sqlite_file(data).touch(mode=0o600)  # also in a folder that others may look into
    except OSError as error:
        raise SettingsError(f"cannot write to the folder {data}: {error.strerror or error}.") from error
    database = Database(sqlite_url(data) if url is None else url)
    try:
        database.upgrade()
    except (DBAPIError, CommandError) as error:
        database.close()
        cause = str(getattr(error, "orig", error)).partition("\n")[0]
        raise SettingsError(f"the database {database.place} cannot be used: {cause}.") from error
    return database


def at_work(data: Path, url: str | None = None) -> Database:
    """The same, where a service has been before: whoever looks for one makes none."""
    if url is None and not sqlite_file(data).exists():
        raise SettingsError(
            f"there is no service's data in {data}.",
            remedy="Name the folder (`data`) or the address (`database`) that `tidegate serve` was given.",
        )
    return opened(data, url)


@contextlib.contextmanager
def room_needed() -> Iterator[None]:
    """A full disk is refused as such, and told in the log."""
    try:
        yield
    except (DBAPIError, OSError) as error:
        if not is_full(error):
            raise
        log.error("the disk is full: %s", getattr(error, "orig", error))
        raise NoRoom from error


def _engine(url: str, **choices: Any) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise SettingsError("the database's address cannot be read.", expected=_EXPECTED) from error
    if parsed.drivername == "sqlite":
        engine = create_engine(
            parsed, connect_args={"timeout": PATIENCE, "check_same_thread": False}, pool_size=POOL
        )
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        return engine
    if parsed.drivername == "postgresql+psycopg":
        engine = create_engine(parsed, pool_size=POOL, max_overflow=POOL, **choices)
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", functools.partial(_ask_after, engine))
        return engine
    raise SettingsError(f"the database is of kind '{parsed.drivername}'.", expected=_EXPECTED)


def _note_use(_: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _ask_after(engine: Engine, connection: Any, record: Any, _: Any) -> None:
    """A connection that was idle may have lost its server; then all are made again."""
    if time.monotonic() - record.info.get("used", time.monotonic()) <= IDLE:
        return
    try:
        engine.dialect.do_ping(connection)
    except Exception as error:
        raise InvalidatePoolError from error


_EXPECTED = "postgresql+psycopg://USER@HOST/NAME, or none for the embedded one"


def _set_up(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # this file says BEGIN, not the driver
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("tidegate_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
