"""Nobody gets in: tokens, scopes, limits."""

from pathlib import Path

import httpx
import pytest

from .serving import NDJSON, Server, rows, running
from .serving import token as make_token

ALLOWED = {
    "read": {"GET /v1/gates", "GET /v1/gates/access", "GET /v1/audit", "GET /metrics"},
    "ingest": {"POST /v1/gates/access/episodes", "GET /v1/gates/access"},
    "decide": {"POST /v1/gates/access/evaluations", "GET /v1/gates/access"},
    "approve": {"POST /v1/gates/access/rollback", "GET /v1/gates/access"},
}
REQUESTS = sorted({*set().union(*ALLOWED.values()), "PUT /v1/gates/access", "PUT /v1/policies"})


@pytest.mark.parametrize("scope", ALLOWED)
def test_a_token_may_what_its_scope_says(server: Server, scope: str) -> None:
    server.put("access")
    headers = make_token(server, f"only-{scope}", scope)
    for request in REQUESTS:
        method, place = request.split()
        body: dict[str, str] | None = {} if method != "GET" else None
        status = server.http.request(method, place, json=body, headers=headers).status_code
        assert (status == 403) is (request not in ALLOWED[scope]), (request, status)


def test_without_a_valid_token_nothing_is_served(server: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer tdg_wrong"}, {"Authorization": "Basic abc"}):
        answer = httpx.get(f"{server.url}/v1/gates", headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    for place in ("/healthz", "/readyz", "/openapi.json"):
        assert httpx.get(f"{server.url}{place}").status_code == 200


def test_a_token_ends_when_it_is_revoked_and_when_it_expires(server: Server) -> None:
    headers = make_token(server, "short-lived", "read", "--expires", "1s")
    other = make_token(server, "revoked", "read")
    assert server.http.get("/v1/gates", headers=other).status_code == 200
    server.command("token", "revoke", "revoked")
    assert server.http.get("/v1/gates", headers=other).status_code == 401
    assert "revoked: read, revoked 20" in server.command("token", "list")
    deadline = 50
    while server.http.get("/v1/gates", headers=headers).status_code != 401 and deadline:
        deadline -= 1
    assert deadline


@pytest.mark.parametrize("policy", ["python:os:system", "policy:/etc/passwd", "policy:sha256:../x"])
def test_no_code_and_no_path_comes_in(server: Server, policy: str) -> None:
    answer = server.put("code", candidate=policy)
    assert (answer.status_code, answer.json()["error"]["rows"]) == (422, [])
    assert "no paths" in answer.json()["error"]["what"]


def test_too_much_and_too_often_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "data", None, "--rate", "2", "--max-body", "1") as server:
        headers = {"Content-Type": NDJSON}
        large = b"x" * (2**20 + 1)
        answer = server.http.post("/v1/gates/any/episodes", content=large, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        pieces = (large[:60_000] for _ in range(20))  # of no claimed length
        answer = server.http.post("/v1/gates/any/episodes", content=pieces, headers=headers)
        assert answer.status_code == 413
        found = [server.http.get("/v1/gates").status_code for _ in range(8)]
        assert found[-1] == 429
        assert int(server.http.get("/v1/gates").headers["Retry-After"]) >= 1


def test_the_store_holds_no_token(server: Server) -> None:
    server.put("secret")
    server.send("secret", rows(5))
    files = [one for one in server.data.rglob("*") if one.is_file() and "programs" not in one.parts]
    assert not any(server.token.encode() in one.read_bytes() for one in files)
