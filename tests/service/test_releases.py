"""Releases: approved, in force, taken back."""

from .serving import RELEASE, Server, released, rows
from .serving import token as make_token


def roll_back(server: Server, gate: str) -> int:
    return server.http.post(f"/v1/gates/{gate}/rollback", json={"comment": "it hurts"}).status_code


def kinds(server: Server, gate: str) -> list[str]:
    answer = server.http.get("/v1/audit", params={"gate": gate, "limit": 1000}).json()["data"]
    return [one["kind"] for one in answer]


def test_a_release_stays_until_it_is_rolled_back(server: Server) -> None:
    evaluation = released(server, "release")
    assert server.policy("release")["evaluation"] == evaluation
    server.send("release", rows(20, 300, better=-1.0))
    assert server.policy("release")["policy"] == "candidate"
    assert roll_back(server, "release") == 200
    assert server.policy("release")["policy"] == "safe"
    assert roll_back(server, "release") == 409
    assert server.http.get("/v1/gates/release/verdict").json()["data"]["status"] == "error"
    assert kinds(server, "release")[-1] == "policy.rolled_back"


def test_what_was_asked_before_a_rollback_releases_nothing_after_it(server: Server) -> None:
    released(server, "late")
    asked = server.evaluate("late")
    assert roll_back(server, "late") == 200
    assert server.decided(asked)["status"] == "pass"
    assert server.policy("late")["policy"] == "safe"
    server.decided(server.evaluate("late"))
    assert server.policy("late")["policy"] == "candidate"


def test_a_rollback_of_a_continuous_gate_holds_until_the_next_decision(server: Server) -> None:
    server.put("turned")
    server.send("turned", rows(300))
    server.decided(server.evaluate("turned"))
    assert roll_back(server, "turned") == 200
    assert server.policy("turned")["policy"] == "safe"


def test_another_candidate_withdraws_the_release_and_another_alpha_does_not(server: Server) -> None:
    released(server, "withdrawn")
    server.put("withdrawn", **RELEASE, alpha=0.01)
    assert server.policy("withdrawn")["policy"] == "candidate"
    server.put("withdrawn", **RELEASE, candidate="behavior")
    assert server.policy("withdrawn")["policy"] == "safe"
    assert "policy.withdrawn" in kinds(server, "withdrawn")


def test_a_person_approves_before_the_candidate_runs(server: Server) -> None:
    anna = make_token(server, "anna", "approve,read")
    evaluation = released(server, "approved", approvers=["anna"])
    found = server.decided(evaluation)
    assert (found["status"], found["reason"]) == ("inconclusive", "NOT_APPROVED")
    assert found["computed"] == {"status": "pass", "verdict": "DEPLOY"}
    assert server.policy("approved")["policy"] == "safe"
    place, word = f"/v1/evaluations/{evaluation}/approval", {"state": "approved", "comment": "looks right"}
    assert server.http.post(place, json=word).status_code == 403  # an admin, but nobody's approver
    said = server.http.post(place, json=word, headers=anna)
    assert said.status_code == 200, said.text
    assert said.json()["data"]["status"] == "pass"
    assert server.policy("approved")["policy"] == "candidate"
    assert server.http.post(place, json={"state": "rejected"}, headers=anna).status_code == 409
    assert kinds(server, "approved")[-2:] == ["approval.given", "policy.released"]


def test_a_rejected_candidate_does_not_run(server: Server) -> None:
    ben = make_token(server, "ben", "approve,read")
    evaluation = released(server, "rejected", approvers=["ben"])
    word = {"state": "rejected", "comment": "not before the holidays"}
    answer = server.http.post(f"/v1/evaluations/{evaluation}/approval", json=word, headers=ben)
    assert (answer.json()["data"]["status"], answer.json()["data"]["reason"]) == ("fail", "REJECTED")
    assert server.policy("rejected")["policy"] == "safe"


def test_only_the_newest_decision_can_be_approved(server: Server) -> None:
    cleo = make_token(server, "cleo", "approve,read")
    old = released(server, "newest", approvers=["cleo"])
    server.decided(server.evaluate("newest"))
    answer = server.http.post(f"/v1/evaluations/{old}/approval", json={"state": "approved"}, headers=cleo)
    assert answer.status_code == 409
