"""MLflow's registry: what it sends is believed only with its signature; what was decided comes back to it."""

import base64
import hashlib
import hmac
import json
import re
import time
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from tidegate.errors import SettingsError
from tidegate.service.adapters.mlflow import Message
from tidegate.service.adapters.registries import CARRIERS
from tidegate.service.events import configured, tables
from tidegate.service.events.sender import Sender

from .adapting import database_of
from .receiving import Say
from .serving import DEFINITION, RELEASE, Server, rows, running
from .test_adapters_events import settled
from .tracking import ALIAS, MODEL, Standing, interpreter, real, small

SECRET = "a secret of the registry's"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "service-adapters.md"


def configuration(folder: Path, uri: str) -> Path:
    """The file of the page, with this test's server and gate."""
    found = re.search(r"^```toml\n(.*?\[mlflow\..*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    content = tomllib.loads(found[1])
    (link,), (gate,) = content["mlflow"].values(), content["gates"].values()
    assert (link["model"], link["alias"]) == (MODEL, ALIAS)
    values = {**DEFINITION, **gate, "lookahead": DEFINITION["lookahead"]}
    file = folder / "gates.toml"
    lines = [f"{name} = {json.dumps(one)}" for name, one in values.items()]
    more = {**link, "tracking_uri": uri, "secret": SECRET, "token": "word"}
    kept = {name: one for name, one in more.items() if not name.endswith("_env")}
    links = [f"{name} = {json.dumps(one)}" for name, one in kept.items()]
    file.write_text("\n".join(["[gates.ranking]", *lines, "[mlflow.ranking]", *links]))
    return file


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Standing]]:
    folder = Path(tmp_path_factory.mktemp("mlflow"))
    with small() as (receiver, standing):
        file = configuration(folder, receiver.url)
        with running(folder / "data", None, "--config", str(file)) as server:
            server.send("ranking", rows(300))
            yield server, standing


def headers(body: bytes, secret: str = SECRET, age: float = 0, delivery: str = "one") -> dict[str, str]:
    """Those of MLflow, made here by the rule that it documents."""
    timestamp = str(int(time.time() - age))
    signed = b".".join([delivery.encode(), timestamp.encode(), body])
    digest = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    return {
        "X-MLflow-Signature": f"v1,{digest}",
        "X-MLflow-Timestamp": timestamp,
        "X-MLflow-Delivery-Id": delivery,
        "Content-Type": "application/json",
    }


def created(version: str, model: str = MODEL, action: str = "created") -> bytes:
    data: dict[str, Any] = {
        "name": model,
        "version": version,
        "source": "models:/m-1",
        "run_id": None,
        "tags": {},
    }
    said = {"entity": "model_version", "action": action, "timestamp": "2026-01-01T00:00:00Z", "data": data}
    return json.dumps(said).encode()


def tell(server: Server, body: bytes, more: dict[str, str] | None = None, gate: str = "ranking") -> Any:
    place = f"{server.url}/v1/adapters/mlflow/{gate}"
    return httpx.post(place, content=body, headers=headers(body) if more is None else more)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_only_what_the_registry_signed_just_now_is_believed() -> None:
    body, now = created("1"), time.time()
    names = ("X-MLflow-Delivery-Id", "X-MLflow-Timestamp", "X-MLflow-Signature")

    def proven(given: dict[str, str], content: bytes = body) -> bool:
        delivery, timestamp, signature = (given[name] for name in names)
        return Message(delivery, timestamp, signature, content).proven(SECRET, now)

    right = headers(body)
    assert proven(right)
    assert proven({**right, "X-MLflow-Signature": "v1,AAAA " + right["X-MLflow-Signature"]})
    assert proven(headers(body, age=290))
    assert not proven(right, body + b" ")
    assert not proven(headers(body, secret="another"))
    assert not proven(headers(body, age=310))
    assert not proven(headers(body, age=-310))
    for name, value in (
        ("X-MLflow-Delivery-Id", "two"),
        ("X-MLflow-Timestamp", str(int(right["X-MLflow-Timestamp"]) + 1)),
        ("X-MLflow-Timestamp", "soon"),
        ("X-MLflow-Signature", ""),
        ("X-MLflow-Signature", right["X-MLflow-Signature"].removeprefix("v1,")),
        ("X-MLflow-Signature", right["X-MLflow-Signature"].replace("v1", "v2")),
        ("X-MLflow-Signature", "v1,é"),
    ):
        assert not proven({**right, name: value}), (name, value)


def test_strangers_learn_nothing_and_change_nothing(linked: tuple[Server, Standing]) -> None:
    server, _ = linked
    body = created("77")
    answers = [
        tell(server, body, {}),
        tell(server, body, headers(body, secret="another")),
        tell(server, body, gate="unknown"),
        server.http.post("/v1/adapters/mlflow/ranking", content=body),  # a token is no signature
    ]
    assert {one.status_code for one in answers} == {401}
    assert len({one.text for one in answers}) == 1
    large = b" " * (2**20 + 1)
    assert tell(server, large).status_code == 413
    for wrong in (b"[]", b"{", created("x"), created("1; drop")):
        assert tell(server, wrong).status_code == 422
    for other in (created("1", "another model"), created("1", action="updated")):
        answer = tell(server, other)
        assert (answer.status_code, answer.json()["data"]["version"]) == (200, None)
    assert server.http.get("/v1/gates/ranking/evaluations").json()["data"] == []


def test_a_new_version_is_decided_on_tagged_promoted_and_taken_back(
    linked: tuple[Server, Standing],
) -> None:
    server, registry = linked
    registry.tags |= {"1": {}, "2": {}}
    registry.aliases[ALIAS] = "1"
    first = tell(server, created("2")).json()["data"]
    again = tell(server, created("2")).json()["data"]
    assert first == again
    decided = server.decided(first["evaluation"])
    until(lambda: registry.aliases[ALIAS] == "2")
    tags = {name.removeprefix("tidegate."): one for name, one in registry.tags["2"].items()}
    for name in ("status", "verdict", "reason", "sentence", "record_sha256", "decided_at"):
        assert tags[name] == decided[name]
    assert (tags["gate"], tags["evaluation"]) == ("ranking", decided["id"])
    assert registry.tags["1"] == {}
    assert registry.token == "Bearer word"
    server.http.post("/v1/gates/ranking/rollback", json={"comment": "it hurts"})
    until(lambda: registry.aliases[ALIAS] == "1")
    assert registry.tags["2"]["tidegate.status"] == "rolled_back"
    settled(server, "ranking")
    server.http.put("/v1/gates/ranking", json={**DEFINITION, **RELEASE, "alpha": 0.04})
    settled(server, "ranking")
    assert registry.aliases[ALIAS] == "1"  # it was there before, and stays
    secrets = server.http.get("/v1/endpoints").text + server.http.get("/v1/audit").text
    assert SECRET not in secrets
    assert '"word"' not in secrets


def test_a_registry_that_is_away_is_told_when_it_is_back(linked: tuple[Server, Standing]) -> None:
    """By a sender of this process, which does not wait as long as the server's."""
    server, registry = linked
    registry.tags["3"] = {}
    settled(server, "ranking")
    with database_of(server) as found:
        answers = iter([Say(503), Say(500)])
        with small() as (away, standing):
            standing.tags["3"] = {}
            away.answer = lambda got: next(answers, None) or standing(got)
            settings = json.dumps({"model": MODEL, "alias": ALIAS, "token": ""})
            endpoint = {"url": away.url, "settings": settings}
            evaluation = tell(server, created("3")).json()["data"]["evaluation"]
            server.decided(evaluation)
            events = settled(server, "ranking")
            (event,) = [one for one in events if one["data"].get("evaluation") == evaluation][:1]
            outcomes = [_told(found, endpoint, event["sequence"]) for _ in range(3)]
    assert outcomes == [False, False, True]
    assert standing.tags["3"]["tidegate.status"] == "pass"
    assert standing.aliases == {ALIAS: "3"}


def _told(found: Any, endpoint: dict[str, str], sequence: int) -> bool:
    with found.reading() as connection:
        row = connection.execute(select(tables.endpoints)).one()
        event = connection.execute(select(tables.events).where(tables.events.c.sequence == sequence)).one()
    changed: Any = types.SimpleNamespace(**{**row._asdict(), **endpoint})
    return CARRIERS["mlflow"](found, changed, event).delivered


def test_the_file_must_say_the_secret_and_where_the_registry_is(tmp_path: Path, database: Any) -> None:
    file = tmp_path / "gates.toml"
    for text, match in (
        ('tracking_uri = "http://host"\nmodel = "m"', "has no secret"),
        ('tracking_uri = "file:///x"\nmodel = "m"\nsecret = "s"', "address"),
        ('model = "m"\nsecret = "s"', r"mlflow\.g\.tracking_uri"),
        ('tracking_uri = "http://host"\nmodel = "m"\nsecret = "s"\nalias = "a/b"', r"mlflow\.g\.alias"),
    ):
        file.write_text(f"[mlflow.g]\n{text}\n")
        with pytest.raises(SettingsError, match=match):
            configured.configure(database, file, "config")
    assert Sender(database, CARRIERS).turn() is False


def test_mlflow_itself_is_understood_and_understands(tmp_path: Path) -> None:
    python = interpreter()
    if python is None:
        pytest.skip("MLflow is not installed; TIDEGATE_MLFLOW may name an interpreter that has it")
    with real(tmp_path, python) as mlflow:
        mlflow.call("POST", "/registered-models/create", name=MODEL)
        before = mlflow.version()
        mlflow.call("POST", "/registered-models/alias", name=MODEL, alias=ALIAS, version=before)
        file = configuration(tmp_path, mlflow.url)
        with running(tmp_path / "data", None, "--config", str(file)) as server:
            server.send("ranking", rows(300))
            hook = {
                "name": "tidegate",
                "url": f"{server.url}/v1/adapters/mlflow/ranking",
                "events": [{"entity": "MODEL_VERSION", "action": "CREATED"}],
                "secret": SECRET,
            }
            mlflow.call("POST", "/webhooks", **hook)
            version = mlflow.version()
            until(lambda: mlflow.holder() == version)
            assert mlflow.tags(version)["tidegate.status"] == "pass"
            assert mlflow.tags(before) == {}
            server.http.post("/v1/gates/ranking/rollback", json={"comment": "it hurts"})
            until(lambda: mlflow.holder() == before)
            assert mlflow.tags(version)["tidegate.status"] == "rolled_back"
            mlflow.call("DELETE", "/registered-models/alias", name=MODEL, alias=ALIAS)
            server.decided(server.evaluate("ranking"))
            until(lambda: mlflow.holder() == version)
            server.http.post("/v1/gates/ranking/rollback", json={"comment": "again"})
            until(lambda: mlflow.holder() is None)
