"""From episodes to a decision and to the policy that runs, over HTTP, on both databases."""

import polars as pl
import pytest

import tidegate
from tidegate.commands import verify

from .serving import Server, rows


def test_a_better_candidate_is_deployed_and_runs(server: Server) -> None:
    assert server.put("better").status_code == 201
    assert server.policy("better")["policy"] == "safe"
    assert server.http.get("/v1/gates/better/verdict").json()["data"]["status"] == "error"
    for first in (0, 150):
        assert server.send("better", rows(150, first)).status_code == 201
    found = server.decided(server.evaluate("better"))
    assert (found["status"], found["verdict"], found["reason"]) == ("pass", "DEPLOY", "BETTER")
    assert 0 < found["advantage"]["lower"] < found["advantage"]["forecast"]
    assert [one["status"] for one in found["rules"]] == ["pass"]
    assert server.http.get("/v1/gates/better/verdict").json()["data"] == found
    assert server.policy("better")["policy"] == "candidate"


def test_a_record_is_the_one_that_the_library_gives(server: Server) -> None:
    server.put("same")
    stored = [rows(100, 0), rows(200, 100)]
    for frame in stored:
        server.send("same", frame)
    found = server.decided(server.evaluate("same"))
    record = server.http.get(found["record_url"]).json()
    frame = pl.concat(stored)
    mine = tidegate.gate(frame, candidate="column:new_prob", lookahead=20)
    assert record["record_hash"] == found["record_sha256"]
    assert found["log_sha256"] == record["provenance"]["data_hash"] == mine.provenance.data_hash
    assert found["advantage"] == {"forecast": mine.advantage.point, "lower": mine.advantage.lower}
    assert verify(record, frame).confirmed


def test_a_worse_candidate_fails_and_the_safe_policy_runs(server: Server) -> None:
    server.put("worse")
    server.send("worse", rows(300, better=-0.4))
    found = server.decided(server.evaluate("worse"))
    assert (found["status"], found["verdict"]) == ("fail", "KEEP")
    assert server.policy("worse")["policy"] == "safe"


def test_a_guardrail_is_a_rule_of_its_own(server: Server) -> None:
    server.put("railed", guardrail=["harm:0.0001"])
    server.send("railed", rows(300))
    found = server.decided(server.evaluate("railed"))
    rules = {one["name"]: one["status"] for one in found["rules"]}
    assert rules == {"reward": "pass", "harm": "fail"}
    assert (found["status"], found["verdict"]) == ("fail", "KEEP")


def test_too_little_is_inconclusive_and_nothing_at_all_is_an_error(server: Server) -> None:
    server.put("short")
    empty = server.decided(server.evaluate("short"))
    assert (empty["status"], empty["verdict"]) == ("error", None)
    assert "no episodes" in empty["sentence"]
    server.send("short", rows(12))
    assert server.decided(server.evaluate("short"))["status"] == "inconclusive"


def test_a_dry_run_changes_nothing(server: Server) -> None:
    server.put("dry")
    server.send("dry", rows(300))
    found = server.decided(server.evaluate("dry", dry_run=True))
    assert (found["status"], found["dry_run"]) == ("pass", True)
    assert server.policy("dry")["policy"] == "safe"
    assert server.http.get("/v1/gates/dry/verdict").json()["data"]["status"] == "error"


def test_a_new_definition_starts_with_the_safe_policy(server: Server) -> None:
    server.put("anew")
    server.send("anew", rows(300))
    server.decided(server.evaluate("anew"))
    assert server.policy("anew")["policy"] == "candidate"
    assert server.put("anew").status_code == 200  # the same again
    assert server.policy("anew")["policy"] == "candidate"
    changed = server.put("anew", alpha=0.01)
    assert (changed.status_code, changed.json()["data"]["version"]) == (201, 2)
    assert server.policy("anew")["policy"] == "safe"
    assert server.http.get("/v1/gates/anew/verdict").json()["data"]["status"] == "error"


def test_a_window_that_is_complete_is_decided_unasked(server: Server) -> None:
    server.put("windows", window=100)
    server.send("windows", rows(99))
    assert server.http.get("/v1/gates/windows/evaluations").json()["data"] == []
    server.send("windows", rows(151, 99))
    (found,) = server.http.get("/v1/gates/windows/evaluations").json()["data"]
    found = server.decided(found["id"])
    assert (found["window"], found["status"]) == (2, "pass")
    assert server.policy("windows")["policy"] == "candidate"


def test_history_leaves_old_batches_out(server: Server) -> None:
    server.put("recent", history=150)
    for first in range(0, 400, 100):
        server.send("recent", rows(100, first))
    found = server.decided(server.evaluate("recent"))
    record = server.http.get(found["record_url"]).json()
    assert record["provenance"]["num_episodes"] == 200  # whole batches


def test_a_policy_says_when_it_is_as_it_was(server: Server) -> None:
    server.put("tagged")
    first = server.http.get("/v1/gates/tagged/policy")
    again = server.http.get("/v1/gates/tagged/policy", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = server.http.get("/v1/gates/tagged/policy", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize("preset", ["paper"])
def test_the_paper_s_preset_decides_too(server: Server, preset: str) -> None:
    server.put("paper", preset=preset, order=1)
    server.send("paper", rows(300))
    assert server.decided(server.evaluate("paper"))["p_value"] is None
