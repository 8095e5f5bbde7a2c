"""A tracking server for MLflow's registry: a small one of ours, or the real one where it is installed.

Both are asked over REST. Ours keeps versions, tags and aliases, and answers as MLflow's does. The real one is
run by the interpreter that TIDEGATE_MLFLOW names, or by this one if it has MLflow.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from .receiving import Got, Receiver, Say, receiving
from .serving import free_port

MODEL, ALIAS = "ranking", "champion"
API = "/api/2.0/mlflow"


@dataclasses.dataclass
class Standing:
    """Versions, tags and aliases of one model."""

    tags: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)
    token: str = ""

    def __call__(self, got: Got) -> Say:
        path, _, query = got.path.removeprefix(API).partition("?")
        asked = json.loads(got.body) if got.body else dict(urllib.parse.parse_qsl(query))
        self.token = got.headers.get("authorization", "")
        assert asked["name"] == MODEL
        if path == "/model-versions/set-tag":
            if asked["version"] not in self.tags:
                return self._missing("RESOURCE_DOES_NOT_EXIST")
            self.tags[asked["version"]][asked["key"]] = asked["value"]
            return Say(200, body=b"{}")
        return self._alias(got.method, asked)

    def _alias(self, method: str, asked: dict[str, str]) -> Say:
        if method == "POST":
            self.aliases[asked["alias"]] = asked["version"]
        elif method == "DELETE":
            self.aliases.pop(asked["alias"], None)
        elif asked["alias"] not in self.aliases:
            return self._missing("INVALID_PARAMETER_VALUE")
        else:
            found = {"model_version": {"name": MODEL, "version": self.aliases[asked["alias"]]}}
            return Say(200, body=json.dumps(found).encode())
        return Say(200, body=b"{}")

    def _missing(self, code: str) -> Say:
        status = 404 if code == "RESOURCE_DOES_NOT_EXIST" else 400
        return Say(status, body=json.dumps({"error_code": code, "message": "not found"}).encode())


@contextlib.contextmanager
def small() -> Iterator[tuple[Receiver, Standing]]:
    """Our small tracking server."""
    standing = Standing()
    with receiving(standing) as receiver:
        yield receiver, standing


def interpreter() -> str | None:
    """One that has MLflow, and not only its client."""
    if "TIDEGATE_MLFLOW" in os.environ:
        return os.environ["TIDEGATE_MLFLOW"]
    needed = ("mlflow", "flask", "sqlalchemy")
    return sys.executable if all(map(importlib.util.find_spec, needed)) else None


@dataclasses.dataclass
class Real:
    """MLflow's own server."""

    http: httpx.Client
    url: str

    def call(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        place = API + path
        if method == "GET":
            answer = self.http.get(place, params=content)
        else:
            answer = self.http.request(method, place, json=content)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def version(self) -> str:
        """A new version of the model."""
        found = self.call("POST", "/model-versions/create", name=MODEL, source="s3://models/ranking")
        return str(found["model_version"]["version"])

    def tags(self, version: str) -> dict[str, str]:
        found = self.call("GET", "/model-versions/get", name=MODEL, version=version)
        return {one["key"]: one["value"] for one in found["model_version"].get("tags", [])}

    def holder(self) -> str | None:
        answer = self.http.get(f"{API}/registered-models/alias", params={"name": MODEL, "alias": ALIAS})
        return str(answer.json()["model_version"]["version"]) if answer.status_code == 200 else None


@contextlib.contextmanager
def real(folder: Path, python: str) -> Iterator[Real]:
    """MLflow's tracking server, which may call webhooks on this machine."""
    port = free_port()
    environment = {
        **os.environ,
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "0",  # it would not see a webhook for a minute
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    command = [
        python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--artifacts-destination", str(folder),
    ]  # fmt: skip
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=30) as http:
            for _ in range(600):
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/health").status_code == 200:
                        break
                time.sleep(0.2)
            yield Real(http, url)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # which has children of its own, and nothing to keep
        process.wait(30)
