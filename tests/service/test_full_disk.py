"""A full disk is a 507 and a line in the log, and the service goes on when there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from sqlalchemy import event

from tidegate.service import registry, tokens
from tidegate.service.app import make_app
from tidegate.service.database import Database, sqlite_url
from tidegate.service.definitions import definition_of

from .serving import DEFINITION, NDJSON, parquet, rows, running

MANY = 20_000


def test_a_database_without_room_refuses_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(sqlite_url(tmp_path))
    database.upgrade()
    token = tokens.first_token(database)
    pages = 400
    event.listen(database.engine, "checkout", lambda one, *_: one.execute(f"PRAGMA max_page_count = {pages}"))
    app = make_app(database)

    async def ask(method: str, place: str, body: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": NDJSON}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return await client.request(method, place, content=body)

    def send(first: int) -> int:
        body = rows(MANY, first).write_ndjson()
        return anyio.run(ask, "POST", "/v1/gates/one/episodes", body).status_code

    registry.define(database, "one", definition_of(DEFINITION), "test")
    statuses = [send(first) for first in range(0, 5 * MANY, MANY)]
    assert 507 in statuses
    assert "the disk is full" in caplog.text
    with database.reading() as connection:
        assert registry.current(connection, "one").row.episodes == MANY * statuses.count(201)
    pages = 1_000_000
    assert send(MANY * statuses.index(507)) == 201
    database.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_without_room_refuses_and_goes_on(small_disk: Path) -> None:
    with running(small_disk / "data") as server:
        server.put("one")
        spare = small_disk / "spare"
        spare.write_bytes(bytes(2**22))
        headers = {"Content-Type": "application/vnd.apache.parquet"}
        place, statuses = "/v1/gates/one/episodes", []
        for first in range(0, 40 * MANY, MANY):
            body = parquet(rows(MANY, first))
            statuses.append(server.http.post(place, content=body, headers=headers).status_code)
            if statuses[-1] != 201:
                break
        assert statuses[-1] == 507
        assert server.http.get("/v1/gates/one").json()["data"]["episodes"] == MANY * statuses.count(201)
        log = (small_disk / "data.log").read_text()
        assert "the disk is full" in log
        spare.unlink()
        assert server.http.post(place, content=body, headers=headers).status_code == 201
