"""`tidegate serve` begins, or says why not; commands about its data make none."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tidegate import SettingsError
from tidegate.service import tokens
from tidegate.service.config import configure
from tidegate.service.database import Database, opened, sqlite_file
from tidegate.service.server import address_of, listening

from .serving import children, start
from .serving import listening as answering


def test_an_address_that_is_taken_is_named() -> None:
    with listening("127.0.0.1", 0) as door:
        port = door.getsockname()[1]
        assert address_of(door) == f"http://127.0.0.1:{port}"
        with (
            pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"),
            listening("127.0.0.1", port),
        ):
            pass
    with pytest.raises(SettingsError, match=r"cannot listen on 300\.1\.1\.1:0"), listening("300.1.1.1", 0):
        pass


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_an_address_of_the_newer_kind_is_written_in_brackets() -> None:
    with contextlib.suppress(SettingsError), listening("::1", 0) as door:  # it may be switched off
        assert address_of(door).startswith("http://[::1]:")


def test_a_database_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    nowhere = f"postgresql+psycopg://tidegate:secret@/tidegate?host={tmp_path}"
    with pytest.raises(SettingsError, match="cannot be used") as refused:
        opened(tmp_path / "data", nowhere)
    assert "secret" not in str(refused.value)
    sqlite_file(tmp_path).write_bytes(b"no database" * 1_000)
    with pytest.raises(SettingsError, match="cannot be used: file is not a database"):
        opened(tmp_path)


def test_tables_of_a_later_version_are_refused(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path)) as database, database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SettingsError, match="9999"):
        opened(tmp_path)


def test_nobody_else_may_read_the_database(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with contextlib.closing(opened(tmp_path)):
        assert {one.stat().st_mode & 0o077 for one in tmp_path.glob("tidegate.sqlite*")} == {0}


@pytest.mark.parametrize("words", [["audit", "verify"], ["token", "list"], ["token", "revoke", "anna"]])
def test_a_folder_without_a_service_is_no_proof_of_anything(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "tidegate", *words, "--data", str(tmp_path / "typo")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "no service's data" in done.stderr) == (2, True)
    assert not (tmp_path / "typo").exists()


class Overtaken(Database):
    """Between a look and what follows from it, another server starts."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        with super().reading() as connection:
            yield connection
        with contextlib.closing(Database(self.url)) as other:
            tokens.first_token(other)


def test_of_two_servers_that_start_at_once_one_makes_the_first_token(database: Database) -> None:
    with contextlib.closing(Overtaken(database.url)) as slower:
        assert tokens.first_token(slower) is None
    with database.reading() as connection:
        assert [one.name for one in tokens.listed(connection)] == ["first"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate.one]\ncandidate = 'column:p'\nlookahead = 9", "a table 'gate', which means nothing"),
        ("[gates.one]\ncandidate = 'column:p'", r"gates.toml, \[gates.one\]: lookahead: Field required"),
        ("[gates.'a b']\ncandidate = 'column:p'\nlookahead = 9", r"\[gates.a b\]: the name of a gate"),
    ],
)
def test_what_is_wrong_in_the_file_of_gates_is_said_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "gates.toml").write_text(text)
    with contextlib.closing(opened(tmp_path / "data")) as database, pytest.raises(SettingsError, match=words):
        configure(database, tmp_path / "gates.toml")


def test_an_interrupted_server_ends_with_its_worker(tmp_path: Path) -> None:
    """The terminal interrupts all that is in its session, and the worker must not tell of it."""
    server = answering(start(tmp_path / "data"))
    deadline = time.monotonic() + 60
    while not (workers := children(server.process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    (worker,) = workers
    own = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[3]
    assert int(own) == worker  # it leads a session
    server.end(signal.SIGINT)
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
    assert server.process.returncode == 130
    assert "Traceback" not in (tmp_path / "data.log").read_text()
