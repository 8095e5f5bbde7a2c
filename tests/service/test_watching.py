"""The watch of what was released, over HTTP, beside the library's watch of all episodes at once."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sqlalchemy import select, update

from tidegate import EpisodeLog, RecordedPolicy
from tidegate.gates.guardrails import Guardrail
from tidegate.gates.watch import watch_episodes
from tidegate.gates.watch_records import Signal, Watch, WatchState
from tidegate.policies import BehaviorPolicy
from tidegate.record import plain
from tidegate.service import accepting, registry, schema, standing, watching
from tidegate.service.answers import Asked
from tidegate.service.database import Database, opened
from tidegate.service.definitions import definition_of
from tidegate.service.proving import prove

from .serving import DEFINITION, NDJSON, PATIENCE, RELEASE, Server, rows, running

BATCH = 30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("watched")) / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    with running(data) as found:
        yield found


def since_release(count: int, better: float = 0.4, harm: float = 0.2, takes: float = 0.9) -> pl.DataFrame:
    """Episodes of the candidate, which takes action 1 so often."""
    rng = np.random.default_rng(7)
    action = (rng.random(count) < takes).astype(int)
    probability = np.where(action == 1, takes, 1 - takes)
    return pl.DataFrame(
        {
            "episode": np.arange(300, 300 + count),
            "action": action,
            "behavior_prob": probability,
            "new_prob": probability,
            "reward": 0.5 + better * action + 0.1 * rng.normal(size=count),
            "harm": rng.poisson(0.2, count) + rng.binomial(1, harm, count) * action,
            "safe_prob": np.full(count, 0.5),
        }
    )


def in_one_go(frame: pl.DataFrame, watch: Watch | None = None) -> tuple[WatchState, Signal]:
    """What the library says of all episodes at once; the candidate is what logged them."""
    watch = watch or Watch()
    names = {one.name: one.name for one in watch.guardrails}
    log = EpisodeLog.from_frame(
        frame, step=None, recorded={"safe": "safe_prob"}, outcomes=names, num_actions=2
    )
    return watch_episodes(watch, watch.begin(), BehaviorPolicy(), RecordedPolicy("safe"), log)


def released(server: Server, gate: str, **definition: Any) -> None:
    server.put(gate, **{**RELEASE, **definition})
    server.send(gate, rows(300))
    assert server.decided(server.evaluate(gate))["status"] == "pass"
    assert server.policy(gate)["policy"] == "candidate"


def send(server: Server, gate: str, frame: pl.DataFrame, batch: int = BATCH) -> None:
    for part in frame.iter_slices(batch):
        answer = server.send(gate, part)
        assert answer.status_code == 201, answer.text


def waited(found: Callable[[], Any]) -> Any:
    """The answer, when there is one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    raise TimeoutError


def row(database: Database, gate: str) -> Any:
    with database.reading() as connection:
        return connection.execute(select(schema.gates).where(schema.gates.c.name == gate)).one()


def kept(server: Server, gate: str) -> dict[str, Any]:
    """What the watch carries, when it has seen all batches."""
    database = Database(server.database)

    def memory() -> Any:
        found = row(database, gate)
        return found.watch_state if found.watched == found.batches else None

    with contextlib.closing(database):
        content: dict[str, Any] = json.loads(waited(memory))
    return content


def entries(server: Server, gate: str, kind: str) -> list[dict[str, Any]]:
    answer = server.http.get("/v1/audit", params={"gate": gate, "limit": 1000}).json()["data"]
    return [one for one in answer if one["kind"] == kind]


def rolled_back(server: Server, gate: str) -> dict[str, Any]:
    """The entry of the rollback, when the safe policy runs."""
    waited(lambda: server.policy(gate)["policy"] == "safe")
    (entry,) = entries(server, gate, "policy.rolled_back")
    assert entry["by"] == "watch"
    content: dict[str, Any] = entry["content"]
    return content


def test_rewards_that_turn_bad_are_rolled_back_with_the_evidence(server: Server) -> None:
    released(server, "bad")
    frame = since_release(120, better=-1.0)
    _, said = in_one_go(frame)
    send(server, "bad", frame)
    found = rolled_back(server, "bad")
    assert said.harm is not None
    evidence = found["evidence"]
    assert {name: evidence[name] for name in plain(said.harm)} == plain(said.harm)
    assert evidence["sequences"] == plain(said.sequences)
    assert evidence["batch"] == 2 + (said.harm.episode - 300) // BATCH
    assert "shown to do worse than the safe one" in found["reason"]
    events = server.http.get("/v1/events", params={"gate": "bad"}).json()["data"]
    assert [one["type"] for one in events][-1] == "gate.rolled_back"
    assert events[-1]["data"]["evidence"] == evidence
    assert server.http.get("/v1/gates/bad").json()["data"]["watch"] is None


def test_a_broken_guardrail_is_rolled_back(server: Server) -> None:
    released(server, "guarded", guardrail=["harm:0.15"])
    frame = since_release(400, harm=0.9)
    _, said = in_one_go(frame, Watch(guardrails=(Guardrail("harm", 0.15),)))
    assert said.harm is not None
    send(server, "guarded", frame, batch=200)
    found = rolled_back(server, "guarded")
    assert (found["evidence"]["sequence"], found["evidence"]["episode"]) == ("harm", said.harm.episode)
    assert "guardrail 'harm'" in found["reason"]


def test_a_number_that_overflows_is_rolled_back(server: Server) -> None:
    released(server, "infinite")
    frame = since_release(60).with_columns(
        reward=pl.when(pl.col("episode") == 340).then(1e300).otherwise("reward")
    )
    send(server, "infinite", frame)
    found = rolled_back(server, "infinite")
    assert (found["evidence"]["reason"], found["evidence"]["episode"]) == ("NOT_FINITE", 340)


def test_a_harmless_release_stays_and_its_watch_is_shown(server: Server) -> None:
    released(server, "good")
    frame = since_release(120)
    send(server, "good", frame)
    kept(server, "good")
    assert server.policy("good")["policy"] == "candidate"
    shown = server.http.get("/v1/gates/good").json()["data"]["watch"]
    _, said = in_one_go(frame)
    assert shown == {"reason": "BETTER", "episodes": 119, "sequences": plain(said.sequences)}
    assert entries(server, "good", "policy.warned") == []


def test_another_guardrail_is_watched_from_the_release_on(server: Server) -> None:
    released(server, "stricter")
    frame = since_release(90)
    send(server, "stricter", frame[:60])
    assert kept(server, "stricter")["state"] == in_one_go(frame[:60])[0].to_dict()
    server.put("stricter", **RELEASE, alpha=0.1, guardrail=["harm:3"])
    send(server, "stricter", frame[60:])
    stricter = Watch(alpha=0.1, guardrails=(Guardrail("harm", 3.0),))
    assert kept(server, "stricter")["state"] == in_one_go(frame, stricter)[0].to_dict()


def test_a_blind_watch_warns_once_and_rolls_nothing_back(server: Server) -> None:
    released(server, "blind")
    send(server, "blind", since_release(90, better=-1.0, takes=1.0))
    assert kept(server, "blind")["signal"]["reason"] == "NO_SUPPORT"
    (warning,) = entries(server, "blind", "policy.warned")
    assert (warning["content"]["reason"], warning["by"]) == ("NO_SUPPORT", "watch")
    events = server.http.get("/v1/events", params={"gate": "blind"}).json()["data"]
    assert [one["type"] for one in events][-1] == "gate.warning"
    assert server.policy("blind")["policy"] == "candidate"


def test_a_forecast_without_an_advantage_warns_once_per_window(server: Server) -> None:
    """The harm is too small for the watch, so that nothing is taken back."""
    released(server, "ahead", window=60, history=60)
    server.send("ahead", rows(60, 300, better=-0.1))
    (warning,) = waited(lambda: entries(server, "ahead", "policy.warned"))
    content = warning["content"]
    assert content["reason"] == "FORECAST"
    assert content["window"] == 6
    assert content["forecast"]["point"] <= 0 or content["forecast"]["status"] == "fail"
    assert server.policy("ahead")["policy"] == "candidate"


def test_a_batch_that_cannot_be_read_is_told_and_left_out(server: Server) -> None:
    """The definition has changed, and older batches do not have its guardrail's column."""
    released(server, "changed")
    frame = since_release(90)
    send(server, "changed", frame[:30].drop("harm"))
    server.put("changed", **RELEASE, guardrail=["harm:3"])
    send(server, "changed", frame[30:])
    rails = Watch(guardrails=(Guardrail("harm", 3.0),))
    assert kept(server, "changed")["state"] == in_one_go(frame[30:], rails)[0].to_dict()
    (warning,) = entries(server, "changed", "policy.warned")
    assert warning["content"]["reason"] == "UNREADABLE"
    assert "batch 2" in warning["content"]["sentence"]


def in_force(database: Database, frame: pl.DataFrame, gate: str = "one") -> None:
    """A gate with something in force, and these episodes since."""
    registry.define(database, gate, definition_of({**DEFINITION, **RELEASE}), "test")
    with database.writing() as connection:
        values = {"in_force": "it", "released_after": 0, "watched": 0}
        connection.execute(update(schema.gates).values(values))
    for part in frame.iter_slices(BATCH):
        body = part.write_ndjson().encode()
        accepting.accept(database, gate, body, NDJSON, Asked.of(gate, None), "test")


class Overtaken(Database):
    """Something else happens just before the first thing that is written here."""

    def __init__(self, url: str, first: Callable[[], Any]) -> None:
        super().__init__(url)
        self.first: Callable[[], Any] | None = first

    def writing(self) -> Any:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().writing()


def test_a_look_that_was_overtaken_is_dropped(tmp_path: Path) -> None:
    database, frame = opened(tmp_path / "data"), since_release(60)
    in_force(database, frame)
    watching.watch(Overtaken(database.url, lambda: watching.watch(database, "one")), "one")
    after = row(database, "one")
    assert json.loads(after.watch_state)["state"] == in_one_go(frame)[0].to_dict()
    in_force(database, since_release(120, better=-1.0)[60:])

    def withdraw() -> None:
        with database.writing() as connection:
            standing.withdraw(connection, row(database, "one"), database.now(), "test")

    assert not watching.watch(Overtaken(database.url, withdraw), "one")
    assert row(database, "one").watch_state is None


def test_the_state_survives_a_restart_to_the_bit(server: Server, data: Path) -> None:
    """The last test of this file: the server of the others ends here."""
    released(server, "kept")
    frame = since_release(150)
    send(server, "kept", frame[:60])
    kept(server, "kept")
    send(server, "kept", frame[60:90])
    server.end(signal.SIGKILL)  # the watch may have seen these, or not
    with running(data, server.token) as again:
        assert kept(again, "kept")["state"] == in_one_go(frame[:90])[0].to_dict()
        send(again, "kept", frame[90:], batch=7)
        assert kept(again, "kept")["state"] == in_one_go(frame)[0].to_dict()
        assert again.policy("kept")["policy"] == "candidate"
        with contextlib.closing(Database(again.database)) as database:
            assert prove(database).holds
