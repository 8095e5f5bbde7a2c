"""From episodes to a decision and to the policy that runs, over HTTP."""

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
    record = server.http.get(found["record_url"]).json()
    assert record["record_hash"] == found["record_sha256"]
    assert record["provenance"]["data_hash"] == found["log_sha256"]
    assert record["provenance"]["num_episodes"] == 300
