"""What is compiled while a service decides: programs for a few sizes of logs, and not one for each size."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from sqlalchemy import update

from tidegate.service import registry, schema, watching
from tidegate.service.database import opened
from tidegate.service.definitions import definition_of

from .serving import DEFINITION, RELEASE, rows
from .test_audit import decide, send

LOGGERS = ("jax._src.interpreters.pxla", "jax._src.dispatch", "jax._src.compiler")


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """What JAX says of each program that it compiles."""
    found: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("Compiling"):
                found.append(record.getMessage())

    handler, loggers = Noting(), [logging.getLogger(name) for name in LOGGERS]
    for one in loggers:
        one.addHandler(handler)
        one.propagate = False
    with jax.log_compiles():
        yield found
    for one in loggers:
        one.removeHandler(handler)
        one.propagate = True


def test_fifty_batches_of_any_length_are_watched_by_a_handful_of_programs(
    tmp_path: Path, compiled: list[str]
) -> None:
    database, draw, first = opened(tmp_path / "data"), random.Random(0), 0
    registry.define(database, "one", definition_of({**DEFINITION, **RELEASE}), "test")
    with database.writing() as connection:
        connection.execute(update(schema.gates).values(in_force="it", released_after=0, watched=0))
    for _ in range(50):
        count = draw.randint(20, 200)
        send(database, "one", rows(count, first))
        watching.watch(database, "one")
        first += count
    database.close()
    assert len(compiled) < 30  # for rooms of 64 and 256 episodes; hundreds, if each length had its own


def test_logs_of_about_one_length_are_decided_by_the_same_programs(
    tmp_path: Path, compiled: list[str]
) -> None:
    database, first = opened(tmp_path / "data"), 400
    registry.define(database, "one", definition_of({**DEFINITION, "preset": "paper", "order": 1}), "test")
    send(database, "one", rows(first))
    decide(database, "one")
    compiled.clear()
    for count in (7, 13, 11):
        send(database, "one", rows(count, first))
        decide(database, "one")
        first += count
    database.close()
    assert compiled == []
