"""The client: a method for each thing that can be asked of the service."""

import io
import json
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ..errors import SettingsError
from .transport import NOT_MODIFIED, ServiceRefusal, Transport

NDJSON, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
Data = dict[str, Any]


class Client:
    """A service, asked with one token."""

    def __init__(self, url: str, token: str, timeout: float = 60.0) -> None:
        self._transport = Transport(url, token, timeout)
        self._policies: dict[str, tuple[str, Data]] = {}

    def gates(self) -> list[Data]:
        """All gates."""
        return list(self._transport.call("GET", "/v1/gates").data)

    def gate(self, name: str) -> Data:
        """A gate: its definition, how much it has seen, what runs."""
        return self._get(_gate(name))

    def define(self, name: str, definition: Mapping[str, Any]) -> Data:
        """Define a gate, or a new version of it."""
        return self._send("PUT", _gate(name), definition)

    def upload_policy(self, content: bytes) -> str:
        """Keep a policy's file; the answer is the spec by which a definition names it."""
        reply = self._transport.call("PUT", "/v1/policies", content, {"Content-Type": "application/json"})
        return str(reply.data["spec"])

    def send(self, name: str, rows: Any, key: str | None = None) -> Data:
        """Store episodes: a frame, dictionaries, or the bytes of a Parquet file. With a key, exactly once."""
        body, medium = encoded(rows)
        headers = {"Content-Type": medium, **({} if key is None else {"Idempotency-Key": key})}
        found: Data = self._transport.call("POST", f"{_gate(name)}/episodes", body, headers).data
        return found

    def evaluate(
        self, name: str, *, dry_run: bool = False, key: str | None = None, wait: float | None = None
    ) -> Data:
        """Ask for a decision; with `wait`, for at most so many seconds, until it is there."""
        headers = {} if key is None else {"Idempotency-Key": key}
        found = self._send("POST", f"{_gate(name)}/evaluations", {"dry_run": dry_run}, headers)
        if wait is None:
            return found
        deadline, pause = time.monotonic() + wait, 0.05
        while (found := self.evaluation(found["id"]))["status"] == "in_progress":
            if time.monotonic() > deadline:
                raise ServiceRefusal(0, f"there was no decision within {wait:g} s.", where=found["url"])
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        return found

    def evaluation(self, evaluation: str) -> Data:
        """An evaluation, decided or in progress."""
        return self._get(f"/v1/evaluations/{_quoted(evaluation)}")

    def record(self, evaluation: str) -> Data:
        """The whole record of a decision."""
        path = f"/v1/evaluations/{_quoted(evaluation)}/record"
        found: Data = json.loads(self._transport.call("GET", path).body)
        return found

    def verdict(self, name: str) -> Data:
        """The newest decision that has not expired."""
        return self._get(f"{_gate(name)}/verdict")

    def policy(self, name: str) -> Data:
        """Which policy to run now; what has not changed is not sent again."""
        tag, known = self._policies.get(name, ("", {}))
        headers = {"If-None-Match": tag} if tag else {}
        reply = self._transport.call("GET", f"{_gate(name)}/policy", headers=headers)
        if reply.status == NOT_MODIFIED:
            return known
        self._policies[name] = (reply.headers["etag"], reply.data)
        found: Data = reply.data
        return found

    def approve(self, evaluation: str, comment: str = "") -> Data:
        """Let a decision take effect."""
        return self._say(evaluation, "approved", comment)

    def reject(self, evaluation: str, comment: str = "") -> Data:
        """Let a decision take no effect."""
        return self._say(evaluation, "rejected", comment)

    def roll_back(self, name: str, comment: str = "") -> Data:
        """Run the safe policy from now on."""
        return self._send("POST", f"{_gate(name)}/rollback", {"comment": comment})

    def audit(self, after: int = 0, limit: int = 100) -> list[Data]:
        """Entries of the audit log after this number."""
        return list(self._transport.call("GET", f"/v1/audit?after={after}&limit={limit}").data)

    def _say(self, evaluation: str, state: str, comment: str) -> Data:
        path = f"/v1/evaluations/{_quoted(evaluation)}/approval"
        return self._send("POST", path, {"state": state, "comment": comment})

    def _get(self, path: str) -> Data:
        found: Data = self._transport.call("GET", path).data
        return found

    def _send(
        self, method: str, path: str, values: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Data:
        given = {"Content-Type": "application/json", **(headers or {})}
        found: Data = self._transport.call(method, path, json.dumps(values).encode(), given).data
        return found


def encoded(rows: Any) -> tuple[bytes, str]:
    """Rows as a body: frames and bytes as Parquet, dictionaries as JSON lines."""
    if isinstance(rows, bytes):
        return rows, PARQUET
    for method in ("write_parquet", "to_parquet"):  # polars, pandas
        if hasattr(rows, method):
            content = io.BytesIO()
            getattr(rows, method)(content)
            return content.getvalue(), PARQUET
    listed = [rows] if isinstance(rows, Mapping) else list(rows)
    if not all(isinstance(one, Mapping) for one in listed):
        raise SettingsError("the rows cannot be sent.", expected="dictionaries, or a frame")
    return "".join(json.dumps(dict(one)) + "\n" for one in listed).encode(), NDJSON


def _gate(name: str) -> str:
    return f"/v1/gates/{_quoted(name)}"


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
