"""A real server in a process of its own, on a free port of this machine, and rows for it."""

import contextlib
import dataclasses
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

from tidegate.service.database import sqlite_url

NDJSON = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
PATIENCE = 300.0
DEFINITION: dict[str, Any] = {"candidate": "column:new_prob", "lookahead": 20, "window": 1_000_000}
RELEASE: dict[str, Any] = {"mode": "release", "safe": "column:safe_prob"}


def rows(count: int, first: int = 0, better: float = 0.4, seed: int = 0) -> pl.DataFrame:
    """One-step episodes: action 1 earns this much more, and the candidate takes it nine times of ten."""
    rng = np.random.default_rng([seed, first])
    action = rng.integers(0, 2, count)
    return pl.DataFrame(
        {
            "episode": np.arange(first, first + count),
            "action": action,
            "behavior_prob": np.full(count, 0.5),
            "new_prob": np.where(action == 1, 0.9, 0.1),
            "safe_prob": np.full(count, 0.5),
            "reward": 0.5 + better * action + 0.1 * rng.normal(size=count),
            "harm": rng.poisson(0.2, count),
        }
    )


def parquet(frame: pl.DataFrame) -> bytes:
    """A frame as the bytes of a file."""
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


@dataclasses.dataclass
class Server:
    """A server that listens, and a client with a token for everything."""

    process: subprocess.Popen[bytes]
    url: str
    token: str
    http: httpx.Client

    data: Path
    more: tuple[str, ...] = ()

    @property
    def database(self) -> str:
        """The address of its database."""
        return self.more[self.more.index("--database") + 1] if self.more else sqlite_url(self.data)

    def put(self, gate: str, **definition: Any) -> httpx.Response:
        return self.http.put(f"/v1/gates/{gate}", json={**DEFINITION, **definition})

    def send(self, gate: str, frame: pl.DataFrame, key: str | None = None) -> httpx.Response:
        headers = {"Content-Type": NDJSON, **({} if key is None else {"Idempotency-Key": key})}
        body = frame.write_ndjson()
        return self.http.post(f"/v1/gates/{gate}/episodes", content=body, headers=headers)

    def evaluate(self, gate: str, **choices: Any) -> str:
        answer = self.http.post(f"/v1/gates/{gate}/evaluations", json=choices)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["data"]["id"])

    def decided(self, evaluation: str) -> dict[str, Any]:
        """The evaluation, when it is decided."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            data: dict[str, Any] = self.http.get(f"/v1/evaluations/{evaluation}").json()["data"]
            if data["status"] != "in_progress":
                return data
            time.sleep(0.05)
        raise TimeoutError(evaluation)

    def policy(self, gate: str) -> dict[str, Any]:
        data: dict[str, Any] = self.http.get(f"/v1/gates/{gate}/policy").json()["data"]
        return data

    def command(self, *words: str) -> str:
        """What a command about this service's data prints."""
        places = ["--data", str(self.data), *(self.more if "--database" in self.more else ())]
        command = [sys.executable, "-m", "tidegate", *words, *places]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it: with SIGKILL at once, as a loss of power would."""
        self.process.send_signal(how)
        self.process.wait(30)
        self.http.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


def released(server: Server, gate: str, **definition: object) -> str:
    """A gate of mode release, and the evaluation by which it releases, if nobody has to approve."""
    server.put(gate, **RELEASE, **definition)
    server.send(gate, rows(300))
    evaluation = server.evaluate(gate)
    server.decided(evaluation)
    return evaluation


def token(server: Server, name: str, scopes: str, *more: str) -> dict[str, str]:
    """The headers of a new token."""
    found = server.command("token", "new", name, "--scopes", scopes, *more).strip()
    return {"Authorization": f"Bearer {found}"}


def children(process: int) -> list[int]:
    """The processes that this one has started."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):  # the system lists them by thread
        with contextlib.suppress(OSError):  # which may have ended since
            found += map(int, thread.read_text().split())
    return found


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(data: Path, token: str | None = None, *more: str) -> Server:
    """Start a server; without a token, it makes its first one."""
    port = free_port()
    command = [sys.executable, "-m", "tidegate", "serve", "--data", str(data), "--port", str(port), *more]
    with (data.parent / f"{data.name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
    assert process.stdout is not None
    if token is None:
        process.stdout.readline()
        token = process.stdout.readline().decode().strip()
    url = f"http://127.0.0.1:{port}"
    http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    return Server(process, url, token, http, data, more)


def listening(server: Server) -> Server:
    """The server, when it answers."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert server.process.poll() is None, "the server has ended"
        with contextlib.suppress(httpx.TransportError):
            if server.http.get("/healthz").status_code == 200:
                return server
        time.sleep(0.05)
    raise TimeoutError("the server does not answer")


@contextlib.contextmanager
def running(data: Path, token: str | None = None, *more: str) -> Iterator[Server]:
    """A server while the block runs."""
    server = start(data, token, *more)
    try:
        yield listening(server)
    finally:
        server.end()
