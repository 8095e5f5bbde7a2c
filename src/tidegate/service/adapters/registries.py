"""What was decided goes to MLflow's registry: tags on the version, and an alias on the one that runs.

Each event brings the registry into the state that is right now, whatever it was: so one that comes twice,
late or out of order does no harm.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection, Row, select, update

from ...reasons import Status
from .. import evaluations, presenting, registry, standing
from ..database import Database
from ..evaluations import WAITING
from ..events.endpoints import MLFLOW
from ..events.posting import attempt
from ..events.queue import Outcome
from ..events.tables import model_versions

API = "/api/2.0/mlflow"
ALIAS = "/registered-models/alias"
MOST_TAG = 4_000
TAKEN_BACK = "rolled_back"  # the status of a pass that a rollback, or a new definition, has ended
TAGS = ("status", "verdict", "reason", "sentence", "decided_at", "record_sha256")
OK = Outcome(True)


class _Refused(Exception):
    """The tracking server did not do it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.problem)
        self.outcome = outcome


@dataclasses.dataclass(frozen=True)
class Registry:
    """A tracking server, and one registered model on it."""

    url: str
    model: str
    alias: str
    token: str

    @classmethod
    def of(cls, endpoint: Row[Any]) -> "Registry":
        settings = json.loads(endpoint.settings)
        return cls(endpoint.url, settings["model"], settings["alias"], settings["token"])

    def tag(self, version: str, key: str, value: str) -> None:
        """Set a tag on a version."""
        self._call("POST", "/model-versions/set-tag", {"version": version, "key": key, "value": value})

    def holder(self) -> str | None:
        """The version that has the alias now."""
        query = urlencode({"name": self.model, "alias": self.alias})
        outcome, found = attempt("GET", f"{self.url}{API}{ALIAS}?{query}", None, self._headers)
        if outcome.delivered:
            return str(found["model_version"]["version"])
        if found.get("error_code") in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None  # the second is how servers with a database say that there is no such alias
        raise _Refused(dataclasses.replace(outcome, gone=False))

    def move(self, version: str | None) -> None:
        """Give the alias to a version, or to none."""
        if version is None:
            self._call("DELETE", ALIAS, {"alias": self.alias})
        else:
            self._call("POST", ALIAS, {"alias": self.alias, "version": version})

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _call(self, method: str, path: str, content: Mapping[str, str]) -> None:
        body = json.dumps({"name": self.model, **content}).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        outcome, found = attempt(method, self.url + API + path, body, headers)
        if not outcome.delivered:
            said = str(found.get("message", ""))[:120]
            raise _Refused(dataclasses.replace(outcome, gone=False, problem=f"{outcome.problem} {said}"))


def tell(database: Database, endpoint: Row[Any], event: Row[Any]) -> Outcome:
    """Bring the registry up to date after an event of its gate."""
    target, data = Registry.of(endpoint), json.loads(event.body)["data"]
    _adopt(database, endpoint.gate, event.type, data)
    try:
        for version in _decided(database, endpoint.gate, data.get("evaluation")):
            _retag(database, endpoint.gate, target, version)
        _bring(database, endpoint.gate, target)
    except _Refused as refused:
        return refused.outcome
    return OK


CARRIERS = {MLFLOW: tell}


def _adopt(database: Database, gate: str, kind: str, data: Mapping[str, Any]) -> None:
    """Versions that waited for an evaluation are decided by this one, not by a window of a release."""
    if kind != "gate.evaluated" or data["dry_run"]:
        return
    table = model_versions
    with database.writing() as connection:
        row = evaluations.of_id(connection, data["evaluation"])
        if registry.definition_at(connection, row.gate, row.version).only_warns(row.window):
            return
        waiting = update(table).where(table.c.gate == gate, table.c.evaluation.is_(None))
        connection.execute(waiting.values(evaluation=data["evaluation"]))


def _decided(database: Database, gate: str, evaluation: str | None) -> list[Row[Any]]:
    """The versions that an evaluation decided on."""
    table = model_versions
    found = select(table).where(table.c.gate == gate, table.c.evaluation == evaluation)
    with database.reading() as connection:
        return [] if evaluation is None else list(connection.execute(found))


def _retag(database: Database, gate: str, target: Registry, version: Row[Any]) -> None:
    """Say on a version what is true of it now."""
    with database.reading() as connection:
        tags = _tags(connection, gate, version.evaluation)
    for key, value in tags.items():
        target.tag(version.version, key, value)


def _tags(connection: Connection, gate: str, evaluation: str) -> dict[str, str]:
    row = evaluations.of_id(connection, evaluation)
    definition = registry.definition_at(connection, row.gate, row.version)
    data = presenting.evaluation_data(connection, row, gate, definition)
    if (
        data["status"] == Status.PASS.value
        and row.sequence <= registry.of_id(connection, row.gate).row.barrier
    ):
        data = {**data, "status": TAKEN_BACK}
    said = {f"tidegate.{name}": str(data[name])[:MOST_TAG] for name in TAGS if data[name] is not None}
    return {"tidegate.gate": gate, "tidegate.evaluation": evaluation, **said}


def _bring(database: Database, gate: str, target: Registry) -> None:
    """Put the alias where it belongs: on the version that runs, or back where it was before."""
    with database.reading() as connection:
        rows = _versions(connection, gate)
        wanted = _wanted(connection, gate, rows, database.now())
    if not rows:
        return
    holder = target.holder()
    if wanted is not None and wanted.version != holder:
        _promised(database, gate, wanted, holder)
        target.move(wanted.version)
    elif wanted is None:
        ours = [row for row in rows if row.version == holder and row.promoted]
        if ours:
            _retag(database, gate, target, ours[0])
            target.move(ours[0].previous)
            _let_go(database, gate)


def _versions(connection: Connection, gate: str) -> list[Row[Any]]:
    table = model_versions
    asked = select(table).where(table.c.gate == gate, table.c.evaluation.is_not(None))
    return list(connection.execute(asked.order_by(table.c.number.desc())))


def _wanted(connection: Connection, gate: str, rows: list[Row[Any]], now: str) -> Row[Any] | None:
    """The version whose evaluation released the candidate, or the newest that passed; None if safe runs."""
    owner = registry.current(connection, gate)
    found = standing.standing(connection, owner.row, owner.definition, now)
    if found.policy != standing.CANDIDATE:
        return None
    passed = [row for row in rows if _passed(connection, row)]
    decisive = [row for row in passed if row.evaluation == found.evaluation]
    return next(iter([*decisive, *passed]), None)


def _passed(connection: Connection, version: Row[Any]) -> bool:
    row = evaluations.of_id(connection, version.evaluation)
    definition = registry.definition_at(connection, row.gate, row.version)
    said = standing.approval(connection, row.id)
    return row.status != WAITING and standing.effective_status(row, definition, said) is Status.PASS


def _promised(database: Database, gate: str, wanted: Row[Any], holder: str | None) -> None:
    """Remember whose the alias was, before it moves."""
    _let_go(database, gate)
    this = update(model_versions).where(model_versions.c.number == wanted.number)
    with database.writing() as connection:
        connection.execute(this.values(promoted=True, previous=holder))


def _let_go(database: Database, gate: str) -> None:
    """The alias is nowhere now where it was put for this gate."""
    table = model_versions
    with database.writing() as connection:
        connection.execute(update(table).where(table.c.gate == gate).values(promoted=False))
