import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.service.database import Database, opened, sqlite_url

from .postgres import cluster, new_database
from .serving import Server, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """A cluster for all tests that want one."""
    with cluster() as folder:
        yield folder


# Everything over HTTP on SQLite; `make verify` repeats it on PostgreSQL. What databases do differently is
# tried on both by `make test`: definitions, events, kills, two servers at once.
DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.verify)]


@pytest.fixture(scope="session", params=DATABASES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server per kind of database for all tests; each test has gates of its own."""
    data, more = Path(tmp_path_factory.mktemp("service")) / "data", []
    if request.param == "postgresql":
        more = ["--database", new_database(request.getfixturevalue("postgres"))]
    with running(data, None, *more) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind, without a server."""
    on_postgres = request.param == "postgresql"
    url = new_database(request.getfixturevalue("postgres")) if on_postgres else None
    with contextlib.closing(opened(tmp_path / "data", url)) as found:
        yield found


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Database]:
    """A database of its own, for what no request can bring about."""
    database = Database(sqlite_url(tmp_path))
    database.upgrade()
    yield database
    database.close()
