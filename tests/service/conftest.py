from collections.abc import Iterator
from pathlib import Path

import pytest

from .serving import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server on the embedded database for all tests; each has gates of its own."""
    with running(Path(tmp_path_factory.mktemp("service")) / "data") as found:
        yield found
