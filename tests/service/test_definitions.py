"""One schema for files and for requests; what the library would refuse is refused when a gate is defined."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tidegate import SettingsError
from tidegate.cli.flags import ForecastFlags, LogFlags
from tidegate.gates.guardrails import Guardrail
from tidegate.logs import Columns, TimeUnit
from tidegate.service import registry
from tidegate.service.config import configure, read_definitions
from tidegate.service.database import Database, opened
from tidegate.service.definitions import GateDefinition, definition_of
from tidegate.service.schema import metadata

from .postgres import new_database
from .serving import DEFINITION, RELEASE


def test_every_flag_of_the_command_line_is_a_key() -> None:
    flags = {one.name for group in (LogFlags, ForecastFlags) for one in dataclasses.fields(group)}
    # Which file, and what this machine has for it.
    local = {"log", "columns", "format", "memory_limit", "engine", "scratch", "stream", "workers"}
    assert flags - local <= set(GateDefinition.model_fields)


def test_keys_may_be_written_as_flags() -> None:
    words = {"candidate": "column:p", "lookahead": "7d", "window": 50, "time": "at", "behavior-prob": "b"}
    found = definition_of({**words, "guardrail": "harm:0.1", "features": "age,load", "log-probs": True})
    assert found.columns == Columns(
        time="at", behavior_prob="b", features=("age", "load"), outcomes=("harm",),
        propensity="log_probability",  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.columns.time_unit is TimeUnit.EPISODE
    assert found.guardrails == (Guardrail("harm", 0.1),)
    assert found == registry.parsed(found.text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lookahead": "7d", "window": None}, "no number of episodes"),
        ({"alpha": 0.3}, "alpha is 0.3"),
        ({"alpha": "0.05"}, "alpha"),
        ({"draws": True}, "draws"),
        ({"lookahed": 3}, "lookahed"),
        ({"candidate": "colum:p"}, "does not name a policy"),
        ({"candidate": "python:m:f"}, "runs no code"),
        ({"safe": "policy:/etc/passwd"}, "reads no paths"),
        ({"guardrail": ["harm"]}, "not a guardrail"),
        ({"valid_for": "soon"}, "unclear"),
        ({"reward": "episode"}, "plays two parts"),
        ({"budget": "a/b"}, "name of a budget"),
        ({"approvers": ["anna", "ben and cleo"]}, "name of an approver"),
        ({"budget": "b", "preset": "paper"}, "cannot draw on an error budget"),
        ({"candidate_from": "somewhere"}, "somewhere"),
        ({"mode": "often"}, "mode"),
        ({"mode": "release"}, "nothing could be watched"),
        ({**RELEASE, "estimate_propensities": True}, "could not be watched batch by batch"),
        ({"period": 3.0}, "no period"),
    ],
)
def test_what_the_library_refuses_is_no_definition(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        definition_of({**DEFINITION, **change})


def test_gates_of_a_file_are_defined_once(tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text(
        '{"policy": "SoftmaxPolicy", "logits": {"dtype": "float64", "shape": [2], "values": [0.0, 1.0]}}'
    )
    config = tmp_path / "gates.toml"
    config.write_text(
        '[gates.ranking]\ncandidate = "policy:new.json"\ncandidate_from = "elsewhere"\nlookahead = 50\n'
        '[gates.bids]\ncandidate = "column:p"\nlookahead = 50\nbehavior-prob = "b"\n'
    )
    database = opened(tmp_path / "data")
    for _ in range(2):
        configure(database, config)
    with database.reading() as connection:
        found = {one.name: one for one in registry.all_gates(connection)}
    assert {name: one.version for name, one in found.items()} == {"ranking": 1, "bids": 1}
    assert found["ranking"].definition.candidate.startswith("policy:sha256:")
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(SettingsError, match="defines no gates"):
        read_definitions(tmp_path / "empty.toml")


def test_a_database_is_sqlite_or_postgresql(tmp_path: Path) -> None:
    for url, words in (("no address", "cannot be read"), ("mysql://x/y", "of kind 'mysql'")):
        with pytest.raises(SettingsError, match=words):
            opened(tmp_path, url)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_migrations_make_the_tables_of_the_schema(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = None if kind == "sqlite" else new_database(request.getfixturevalue("postgres"))
    database: Database = opened(tmp_path, url)
    database.upgrade()  # a second time changes nothing
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()
