"""A candidate that was made with a gate's own episodes is not tested on them."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tidegate import SettingsError, improve
from tidegate.policies import policy_values
from tidegate.service import registry, schema, uploads
from tidegate.service.database import Database, opened
from tidegate.service.definitions import definition_of

from .serving import DEFINITION, rows
from .test_audit import decide, send

SEEN, LATER = 200, 300


@pytest.fixture
def defined(tmp_path: Path) -> tuple[Database, dict[str, Any]]:
    """A store with the file of a policy that `improve` has found, and a definition that names it."""
    database = opened(tmp_path / "data")
    found = improve(rows(SEEN), lookahead=20, preset="paper", order=1, steps=3)
    content = json.dumps(policy_values(found.policy)).encode()
    sha256 = uploads.store_policy(database, content, "test")
    asked = {"candidate": f"policy:sha256:{sha256}", "preset": "paper", "order": 1}
    return database, {**DEFINITION, **asked}


def decided(database: Database, definition: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An evaluation after later episodes came in, and its record."""
    registry.define(database, "one", definition_of(definition), "test")
    send(database, "one", rows(SEEN))
    send(database, "one", rows(LATER, SEEN))
    evaluation = decide(database, "one")
    with database.reading() as connection:
        row = connection.execute(select(schema.evaluations)).one()
    assert row.id == evaluation
    return row, json.loads(zlib.decompress(row.record))


def test_a_file_is_no_candidate_until_somebody_says_what_made_it(
    defined: tuple[Database, dict[str, Any]],
) -> None:
    _, definition = defined
    with pytest.raises(SettingsError, match="tested on those too"):
        definition_of(definition)


def test_only_episodes_after_its_search_are_tested(defined: tuple[Database, dict[str, Any]]) -> None:
    database, definition = defined
    row, record = decided(database, {**definition, "candidate_from": f"before:{SEEN - 1}"})
    assert row.status in ("pass", "inconclusive")
    assert record["overlap"]["name"] == "EARLIER"
    assert record["candidate"]["num_episodes"] == LATER


def test_made_with_this_log_it_is_not_tested_at_all(defined: tuple[Database, dict[str, Any]]) -> None:
    database, definition = defined
    row, _ = decided(database, {**definition, "candidate_from": "this-log"})
    assert row.status != "pass"
