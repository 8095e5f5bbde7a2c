"""What Argo Rollouts, Flagger and OpenFeature make of a gate's answers: by the recipes."""

import contextlib
import json
import os
import re
import signal
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

from .adapting import database_of, new_token
from .serving import RELEASE, Server, children, rows

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "service-adapters.md"
STATES = {"pass": 0.4, "fail": -0.4, "inconclusive": 0.0, "error": None}


@pytest.fixture(scope="module")
def gates(server: Server) -> dict[str, str]:
    """A gate in each of the four states; that of no decision has none."""
    names, asked = {status: f"adapter-{status}" for status in STATES}, []
    for status, better in STATES.items():
        assert server.put(names[status]).status_code == 201
        if better is not None:
            server.send(names[status], rows(300, better=better, seed=1))
            asked.append((status, server.evaluate(names[status])))
    for status, evaluation in asked:
        assert server.decided(evaluation)["status"] == status
    return names


def block(kind: str, after: str) -> str:
    """The first block of code of a kind after a heading of the page."""
    found = re.search(rf"^## {after}$.*?^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def measured(metric: dict[str, Any], status: int, body: bytes) -> str:
    """The phase that Argo Rollouts gives a measurement, by its rules: failure first, then neither."""
    if not 200 <= status < 300:
        return "Error"
    value = json.loads(body)
    for name in metric["provider"]["web"]["jsonPath"].strip("{}").removeprefix("$.").split("."):
        value = value[name]
    succeeds, fails = (holds(metric.get(one), value) for one in ("successCondition", "failureCondition"))
    if succeeds is None and fails is None:
        return "Successful"
    if fails is None:
        fails = not succeeds
    if succeeds is None:
        succeeds = not fails
    return "Failed" if fails else "Successful" if succeeds else "Inconclusive"


def holds(condition: str | None, value: object) -> bool | None:
    """A condition that compares the result with a text."""
    if condition is None:
        return None
    found = re.fullmatch(r'result == "(\w+)"', condition)
    assert found is not None
    return value == found[1]


def ask_as_argo(server: Server, gate: str) -> httpx.Response:
    metric = yaml.safe_load(block("yaml", "Argo Rollouts"))["spec"]["metrics"][0]
    web = metric["provider"]["web"]
    values = {"{{ args.gate }}": gate, "{{ args.token }}": server.token}
    url, headers = web["url"], {one["key"]: one["value"] for one in web["headers"]}
    for name, value in values.items():
        url = url.replace(name, value)
        headers = {key: one.replace(name, value) for key, one in headers.items()}
    path = urllib.parse.urlsplit(url).path
    return httpx.get(server.url + path, headers=headers, timeout=web["timeoutSeconds"])


def test_argo_promotes_stops_or_pauses(server: Server, gates: dict[str, str]) -> None:
    template = yaml.safe_load(block("yaml", "Argo Rollouts"))
    assert template["kind"] == "AnalysisTemplate"
    (metric,) = template["spec"]["metrics"]
    phases = {}
    for status, gate in gates.items():
        answer = ask_as_argo(server, gate)
        phases[status] = measured(metric, answer.status_code, answer.content)
    assert phases == {
        "pass": "Successful", "fail": "Failed", "inconclusive": "Inconclusive", "error": "Inconclusive",
    }  # fmt: skip
    answer = ask_as_argo(server, "adapter-unknown")
    assert measured(metric, answer.status_code, answer.content) == "Error"
    for one in ("successCondition", "failureCondition"):  # why the recipe sets both
        half = {name: value for name, value in metric.items() if name != one}
        kept = ask_as_argo(server, gates["inconclusive"])
        assert measured(half, kept.status_code, kept.content) in ("Failed", "Successful")


@contextlib.contextmanager
def halted_worker(server: Server) -> Iterator[None]:
    """No evaluation ends in this block, however fast the machine computes, or slow it asks."""
    (worker,) = children(server.process.pid)
    with database_of(server) as database, database.writing():  # so it halts between its own transactions
        os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def test_the_verdict_answers_while_an_evaluation_runs(server: Server, gates: dict[str, str]) -> None:
    with halted_worker(server):
        evaluation = server.evaluate(gates["pass"])
        answer = ask_as_argo(server, gates["pass"])
        running = server.http.get(f"/v1/evaluations/{evaluation}").json()["data"]["status"]
    assert running == "in_progress"
    assert answer.json()["data"]["status"] == "pass"
    server.decided(evaluation)


def ask_as_flagger(server: Server, gate: str, kind: str, token: str | None = None) -> httpx.Response:
    """The body that Flagger documents, with the metadata of the recipe."""
    canary = yaml.safe_load(block("yaml", "Flagger"))
    (hook,) = [one for one in canary["spec"]["analysis"]["webhooks"] if one["type"] == kind]
    assert list(hook["metadata"]) == ["token"]
    body = {
        "name": "podinfo",
        "namespace": "test",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        "metadata": {"test": "all", "token": server.token if token is None else token},
    }
    path = urllib.parse.urlsplit(hook["url"]).path.replace("/ranking/", f"/{gate}/")
    return httpx.post(server.url + path, json=body)


def test_flagger_promotes_what_passed_and_rolls_back_what_failed(
    server: Server, gates: dict[str, str]
) -> None:
    answers = {
        status: tuple(ask_as_flagger(server, gate, kind) for kind in ("confirm-promotion", "rollback"))
        for status, gate in gates.items()
    }
    codes = {status: tuple(one.status_code for one in pair) for status, pair in answers.items()}
    assert codes == {
        "pass": (200, 409),
        "fail": (409, 200),
        "inconclusive": (409, 409),
        "error": (409, 409),
    }
    assert "keeps the safe policy" in answers["fail"][0].json()["error"]["sentence"]
    assert answers["pass"][0].json()["data"]["policy"] == "candidate"
    assert answers["fail"][1].json()["data"]["evaluation"] is not None
    assert ask_as_flagger(server, "adapter-unknown", "rollback").status_code == 404


def test_flagger_rolls_back_what_was_taken_back_until_the_next_decision(server: Server) -> None:
    server.put("canary", **RELEASE)
    server.send("canary", rows(300))
    server.decided(server.evaluate("canary"))
    assert ask_as_flagger(server, "canary", "confirm-promotion").status_code == 200
    server.http.post("/v1/gates/canary/rollback", json={"comment": "it hurts"})
    answer = ask_as_flagger(server, "canary", "rollback")
    assert answer.status_code == 200
    assert "rolled back" in answer.json()["data"]["reason"]
    assert ask_as_flagger(server, "canary", "confirm-promotion").status_code == 409
    server.decided(server.evaluate("canary"))
    assert ask_as_flagger(server, "canary", "rollback").status_code == 409


def test_flagger_needs_a_token_that_reads(server: Server, gates: dict[str, str]) -> None:
    reads = new_token(server, "flagger", "read")
    sends = new_token(server, "sender", "ingest")
    codes = [
        ask_as_flagger(server, gates["pass"], "confirm-promotion", one).status_code
        for one in (reads, sends, "", "tdg_" + "x" * 43)
    ]
    assert codes == [200, 403, 401, 401]
    path = f"/v1/adapters/flagger/{gates['pass']}/confirm-promotion"
    body = {"name": "podinfo", "namespace": "test", "phase": "Waiting"}
    assert httpx.post(server.url + path, json=body).status_code == 401
    assert server.http.post(path, json=body).status_code == 200  # by the header
    assert server.http.post(path, json={"name": "podinfo"}).status_code == 422


@pytest.fixture
def flags(server: Server) -> Iterator[OpenFeatureClient]:
    """OpenFeature's client, set up as the page says."""
    headers = {"Authorization": f"Bearer {server.token}"}
    api.set_provider(OFREPProvider(server.url, headers_factory=lambda: headers))
    yield api.get_client()
    api.clear_providers()


def test_the_recipe_for_openfeature_says_which_policy_to_run(server: Server, gates: dict[str, str]) -> None:
    for status, gate in gates.items():
        found: dict[str, Any] = {"token": server.token, "url": server.url, "gate": gate}
        exec(block("python", "OpenFeature"), found)
        assert found["policy"] == ("candidate" if status == "pass" else "safe")
    api.clear_providers()


def test_a_gate_is_a_flag(flags: OpenFeatureClient, server: Server, gates: dict[str, str]) -> None:
    reasons = {"pass": Reason.STATIC, "fail": Reason.STATIC, "error": Reason.DEFAULT}
    for status, reason in reasons.items():
        context = EvaluationContext("somebody", {"region": "north"})
        found = flags.get_string_details(gates[status], "none", context)
        assert found.error_code is None, found.error_message
        assert (found.reason, found.value) == (reason, found.variant)
        assert found.value == server.policy(gates[status])["policy"]
        assert found.flag_metadata["version"] == 1
    for name in ("adapter-unknown", "no name", "../../v1/gates", "%00"):
        found = flags.get_string_details(name, "safe")
        assert (found.value, found.error_code) == ("safe", ErrorCode.FLAG_NOT_FOUND), name
    assert flags.get_boolean_details(gates["pass"], False).error_code is ErrorCode.TYPE_MISMATCH
    api.set_provider(OFREPProvider(server.url))
    assert flags.get_string_details(gates["pass"], "safe").value == "safe"


def test_all_gates_as_flags_with_an_etag(server: Server, gates: dict[str, str]) -> None:
    place = "/ofrep/v1/evaluate/flags"
    first = server.http.post(place, json={"context": {"targetingKey": "somebody"}})
    found = {one["key"]: one["value"] for one in first.json()["flags"]}
    assert found[gates["pass"]] == "candidate"
    assert found[gates["fail"]] == "safe"
    again = {"If-None-Match": f'"old", W/{first.headers["ETag"]}'}
    unchanged = server.http.post(place, json={}, headers=again)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    server.put(gates["error"], lookahead=19)
    assert server.http.post(place, json={}, headers=again).status_code == 200
    assert httpx.post(server.url + place, json={}).status_code == 401


def test_what_is_no_request_of_the_protocol_is_told_in_its_words(
    server: Server, gates: dict[str, str]
) -> None:
    for place in (f"/ofrep/v1/evaluate/flags/{gates['pass']}", "/ofrep/v1/evaluate/flags"):
        for body, code in (
            (b"{", "PARSE_ERROR"),
            (b"[]", "PARSE_ERROR"),
            (b'{"context": 1}', "INVALID_CONTEXT"),
        ):
            answer = server.http.post(place, content=body)
            assert (answer.status_code, answer.json()["errorCode"]) == (400, code)
        assert server.http.post(place, content=b"").status_code == 200
