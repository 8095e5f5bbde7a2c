"""The Python client, and `tidegate push`: what is sent twice is stored once."""

import json
from pathlib import Path

import polars as pl
import pytest

from tidegate import SettingsError
from tidegate.client import Client, ServiceRefusal
from tidegate.client.pushing import parts, push

from .serving import DEFINITION, RELEASE, Server, rows


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.url, server.token)


def test_the_client_goes_all_the_way(client: Client) -> None:
    client.define("client", {**DEFINITION, **RELEASE})
    assert client.send("client", rows(100))["episodes"] == 100
    assert client.send("client", rows(100, 100).to_pandas())["total"] == 200
    assert client.send("client", rows(100, 200).to_dicts())["total"] == 300
    found = client.evaluate("client", wait=60)
    assert found["status"] == "pass"
    assert client.verdict("client")["id"] == client.evaluation(found["id"])["id"] == found["id"]
    assert client.record(found["id"])["record_hash"] == found["record_sha256"]
    assert client.policy("client") == client.policy("client")
    assert client.policy("client")["policy"] == "candidate"
    assert client.roll_back("client", "enough")["policy"] == "safe"
    assert client.policy("client")["policy"] == "safe"
    assert client.gate("client")["episodes"] == 300
    assert "client" in {one["name"] for one in client.gates()}
    assert client.audit()[0]["sequence"] == 1


def test_a_refusal_is_told_in_the_service_s_words(client: Client) -> None:
    client.define("refused", DEFINITION)
    with pytest.raises(ServiceRefusal, match="missing value") as refused:
        client.send("refused", [{**rows(1).to_dicts()[0], "reward": None}])
    assert (refused.value.status, refused.value.where) == (422, "row 1")


def test_what_cannot_be_reached_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.client.transport.TRIES", 1)
    with pytest.raises(ServiceRefusal, match="cannot be reached"):
        Client("http://127.0.0.1:9", "tdg_x").gates()
    for url, token in (("ftp://somewhere", "t"), ("http://127.0.0.1:9", "")):
        with pytest.raises(SettingsError):
            Client(url, token)
    with pytest.raises(SettingsError, match="the rows cannot be sent"):
        Client("http://127.0.0.1:9", "t").send("one", ["no row"])


def test_an_address_that_is_not_the_service_s_is_said_so(server: Server) -> None:
    with pytest.raises(ServiceRefusal, match="no answer of the service"):
        Client(f"{server.url}/page/style.css?", server.token).gates()


def test_a_pushed_file_is_stored_once_however_often(server: Server, tmp_path: Path) -> None:
    server.put("pushed")
    log = tmp_path / "log.parquet"
    frame = rows(1_050)
    frame.write_parquet(log)
    some = Client(server.url, server.token)  # an earlier push that got through in part
    first = next(iter(parts(frame, "episode", 200)))[1]
    assert first.height == 200
    half = push_words(server, log)
    again = push_words(server, log)
    assert half == again
    assert (half["requests"], half["episodes"], half["steps"]) == (6, 1_050, 1_050)
    assert some.gate("pushed")["episodes"] == 1_050


def push_words(server: Server, log: Path) -> dict[str, object]:
    found = push(log, "pushed", server.url, server.token, 200).to_dict()
    return {name: found[name] for name in ("requests", "episodes", "steps")}


def test_a_push_goes_on_where_it_was_interrupted(server: Server, tmp_path: Path) -> None:
    server.put("resumed")
    frame, log = rows(500), tmp_path / "log.csv"
    frame.write_csv(log)
    bad = frame.with_columns(reward=pl.when(pl.col("episode") == 450).then(None).otherwise("reward"))
    bad.write_csv(log)
    with pytest.raises(ServiceRefusal, match="missing value"):
        push(log, "resumed", server.url, server.token, 100)
    assert server.http.get("/v1/gates/resumed").json()["data"]["episodes"] == 400
    frame.write_csv(log)
    assert push(log, "resumed", server.url, server.token, 100).episodes == 500
    assert server.http.get("/v1/gates/resumed").json()["data"]["episodes"] == 500


def test_the_command_pushes(server: Server, tmp_path: Path) -> None:
    import subprocess
    import sys

    server.put("spoken")
    log = tmp_path / "log.parquet"
    rows(30).write_parquet(log)
    command = [sys.executable, "-m", "tidegate", "push", str(log), "--gate", "spoken", "--url", server.url]
    done = subprocess.run([*command, "--token", server.token, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["episodes"] == 30
    done = subprocess.run([*command, "--token", "tdg_wrong"], capture_output=True, text=True)
    assert (done.returncode, "token" in done.stderr) == (2, True)


def test_parts_hold_whole_episodes() -> None:
    steps = pl.DataFrame({"episode": [3, 3, 1, 3, 1, 2, 2, 2], "step": [0, 1, 0, 2, 1, 0, 1, 2]})
    found = [(offset, one["episode"].to_list()) for offset, one in parts(steps, "episode", 4)]
    assert found == [(0, [3, 3, 3, 1, 1]), (5, [2, 2, 2])]
    assert [one.height for _, one in parts(steps, "", 3)] == [3, 3, 2]
