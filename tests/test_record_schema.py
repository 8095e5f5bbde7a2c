"""Every record that the library makes is as its JSON Schema says, and nothing else is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tidegate
from tidegate import commands
from tidegate.commands import LogFile, SearchChoices
from tidegate.commands.conditions import error_record, watch_error_record
from tidegate.gates.ledger import KIND, Budget
from tidegate.gates.signatures import make_keys, read_private_key, signed
from tidegate.logs import Columns

from .golden.cases import NEW, NOW, OURS, PAPER, shop
from .golden.stored import FOLDER

PROJECT = Path(__file__).parent.parent
SCHEMA = json.loads((PROJECT / "docs" / "reference" / "record.schema.json").read_text())
Plain = dict[str, Any]


def _of_kind(name: str) -> Any:
    """A validator of this record alone, whose errors are about one kind."""
    return jsonschema.Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{name}"}]})


def _faults(name: str, record: Plain) -> list[str]:
    """What is wrong, deepest first: in a choice, every branch says why it is not the one."""
    found: list[Any] = list(_of_kind(name).iter_errors(record))
    for error in found:
        found.extend(error.context or ())
    return [f"{list(one.absolute_path)}: {one.message[:200]}" for one in reversed(found)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Plain]]:
    """Records of every kind, with as many of their optional parts as they can have."""
    folder = tmp_path_factory.mktemp("records")
    log = shop()
    features = LogFile(log, Columns(features=("load",)))
    found = commands.improve(
        features,
        settings=OURS,
        search=SearchChoices(steps=20),
        guardrails=("complaints:0.2",),
        dates=3,
        now=NOW,
    )
    policy = folder / "new.json"
    commands.save_improvement(found, policy)
    budget, private = folder / "budget.json", make_keys(folder / "key")[0]
    common: Plain = {"candidate": NEW, "settings": OURS, "now": NOW}
    granted = commands.gate(
        log,
        **common,
        budget=Budget(budget),
        guardrails=("complaints:0.2",),
        reward_range=(-2.0, 4.0),
        dates=3,
    )
    trained = commands.gate(features, **{**common, "candidate": f"policy:{policy}"})
    unknown = Columns(behavior_prob=None, features=("load",))
    estimated = commands.gate(
        LogFile(log, unknown, estimate_propensities=True),
        candidate=f"policy:{policy}",
        settings=PAPER,
        now=NOW,
    )
    gates = [one.to_dict() for one in (granted, trained, estimated)]
    shown = json.loads(json.dumps(gates[0]))
    return {
        "gate": [*gates, signed(gates[0], read_private_key(private))],
        "gate_error": [error_record("the log is unfit.")],
        "improve": [found.to_dict()],
        "evaluate": [commands.evaluate(log, policy=NEW, settings=OURS).to_dict()],
        "check": [commands.check(log, policy=one, settings=OURS).to_dict() for one in (None, NEW)],
        "backtest": [commands.backtest(log, candidate=NEW, settings=OURS, dates=3).to_dict()],
        "plan": [commands.plan(log, candidate=NEW, settings=OURS).to_dict()],
        "watch": [
            commands.watch(log, safe=NEW, settings=one, guardrails=("complaints:0.5",), now=NOW).to_dict()
            for one in (PAPER, None)
        ],
        "watch_error": [watch_error_record("the log cannot be read.")],
        "verify": [commands.verify(one, log).to_dict() for one in (shown, {**shown, "seed": 7})],
        "budget": [json.loads(budget.read_text())],
    }


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_kind_of_record_has_a_schema(made: dict[str, list[Plain]]) -> None:
    listed = {one["$ref"].rsplit("/", 1)[1] for one in SCHEMA["oneOf"]}
    assert listed == set(made)
    source = Path(tidegate.__file__).parent
    sealed = {
        one for path in source.rglob("*.py") for one in re.findall(r'sealed\("(\w+)"', path.read_text())
    }
    assert {record["kind"] for records in made.values() for record in records} == {*sealed, KIND, "verify"}


def test_every_record_is_as_the_schema_says(made: dict[str, list[Plain]]) -> None:
    whole = jsonschema.Draft202012Validator(SCHEMA)
    for name, records in made.items():
        for record in records:
            assert not _faults(name, record), name
            whole.validate(record)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda one: Path(one).stem)
def test_stored_records_are_too(path: Path) -> None:
    record = json.loads(path.read_text())
    if "kind" not in record:
        pytest.skip("it is no record")
    record |= {"record_hash": "0" * 64, "provenance": {**record["provenance"], "versions": {}}}
    assert not _faults(record["kind"], record)


def test_nothing_may_be_added_to_a_record_or_left_out(made: dict[str, list[Plain]]) -> None:
    for name, records in made.items():
        validator = _of_kind(name)
        for key in records[0]:
            assert not validator.is_valid({k: v for k, v in records[0].items() if k != key}), (name, key)
        for place, changed in _with_one_more(records[0]):
            assert not validator.is_valid(changed), (name, place)


OPEN = {"settings.forecast", "search.settings"}  # as the classes of the library have them


def _with_one_more(record: Plain, within: str = "") -> Iterator[tuple[str, Plain]]:
    """The record with a name too many, in one of its parts after the other; and the part's place."""
    yield within, {**record, "more": 1}
    for key, value in record.items():
        place = f"{within}.{key}" if within else key
        if isinstance(value, dict) and place not in OPEN:
            yield from ((where, {**record, key: one}) for where, one in _with_one_more(value, place))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from (
                (where, {**record, key: [one]}) for where, one in _with_one_more(value[0], f"{place}.0")
            )
