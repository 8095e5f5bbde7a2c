"""The service under load, on this machine alone: episodes stored, and how soon it answers meanwhile.

    python benchmarks/service.py [--database postgresql+psycopg://…] [--million]

A server is started with a new folder. One client sends one-step episodes in batches of 500, JSON lines and
Parquet, one request after the other; 100,000 stored episodes are evaluated; then others ask for `verdict`
and `policy` 200 times a second while episodes come in and evaluations are computed. With --million, a gate
takes a million episodes, and the server's memory is read after each tenth of them.
"""

import argparse
import contextlib
import dataclasses
import http.client
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

BATCH = 500
PORT = 8456
LANES, RATE = 2, 200.0
NDJSON, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
DEFINITION = {"candidate": "column:new_prob", "lookahead": 100, "window": 10_000_000}


@dataclasses.dataclass
class Service:
    """A server and a client of it."""

    process: int
    http: httpx.Client
    first: int = 0

    def define(self, gate: str) -> None:
        self.http.put(f"/v1/gates/{gate}", json=DEFINITION).raise_for_status()
        self.first = 0

    def send(self, gate: str, body: bytes, medium: str) -> None:
        place = f"/v1/gates/{gate}/episodes"
        answer = self.http.post(place, content=body, headers={"Content-Type": medium})
        answer.raise_for_status()

    def evaluate(self, gate: str) -> tuple[float, str]:
        """Seconds until an evaluation is decided, and what it says."""
        began = time.perf_counter()
        place = self.http.post(f"/v1/gates/{gate}/evaluations").json()["data"]["url"]
        while (status := self.http.get(place).json()["data"]["status"]) == "in_progress":
            time.sleep(0.02)
        return time.perf_counter() - began, status

    def bodies(self, count: int, medium: str, size: int = BATCH) -> list[bytes]:
        """Batches that follow those before."""
        found = []
        for _ in range(count):
            found.append(body(rows(self.first, size), medium))
            self.first += size
        return found


def rows(first: int, count: int) -> pl.DataFrame:
    rng = np.random.default_rng(first)
    action = rng.integers(0, 2, count)
    return pl.DataFrame(
        {
            "episode": np.arange(first, first + count),
            "action": action,
            "behavior_prob": np.full(count, 0.5),
            "new_prob": np.where(action == 1, 0.9, 0.1),
            "reward": 0.5 + 0.2 * action + 0.1 * rng.normal(size=count),
        }
    )


def body(frame: pl.DataFrame, medium: str) -> bytes:
    if medium == NDJSON:
        return frame.write_ndjson().encode()
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


@contextlib.contextmanager
def service(database: str | None) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tidegate", "serve", "--data", f"{folder}/data", "--port", str(PORT)]
        command += ["--rate", "100000", *([] if database is None else ["--database", database])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
        assert process.stdout is not None
        process.stdout.readline()
        headers = {"Authorization": f"Bearer {process.stdout.readline().decode().strip()}"}
        url = f"http://127.0.0.1:{PORT}"
        try:
            with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
                _wait(client)
                yield Service(process.pid, client)
        finally:
            process.terminate()
            process.wait(30)


def _wait(client: httpx.Client) -> None:
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if client.get("/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server does not answer")


def ingest_rate(one: Service, medium: str, seconds: float) -> float:
    """Episodes a second that are acknowledged, one request after the other."""
    one.define(f"rate-{medium.rpartition('.')[2].replace('/', '-')}")
    gate = f"rate-{medium.rpartition('.')[2].replace('/', '-')}"
    bodies = one.bodies(int(60 * seconds), medium)
    done, began = 0, time.perf_counter()
    for content in bodies:
        one.send(gate, content, medium)
        done += BATCH
        if time.perf_counter() - began > seconds:
            break
    return done / (time.perf_counter() - began)


def ask(token: str, gate: str, start: float, seconds: float, every: float, found: Any) -> None:
    """Ask for `verdict` and `policy` in turn, each at its time, in a process of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    headers = {"Authorization": token}
    took, due = list[float](), start
    while due < start + seconds:
        time.sleep(max(0.0, due - time.time()))
        what = "verdict" if len(took) % 2 else "policy"
        connection.request("GET", f"/v1/gates/{gate}/{what}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        took.append(time.time() - due)  # late requests count as slow ones
        due += every
    found.put(took)


def answers_under_load(one: Service, seconds: float) -> tuple[str, float]:
    """How soon the service answers while 5,000 episodes a second come in and evaluations are computed."""
    one.define("load")
    for content in one.bodies(20, PARQUET):
        one.send("load", content, PARQUET)
    one.evaluate("load")
    context, token = multiprocessing.get_context("spawn"), one.http.headers["Authorization"]
    found, start = context.Queue(), time.time() + 5
    bodies = one.bodies(int(11 * seconds), PARQUET)
    askers = [
        context.Process(target=ask, args=(token, "load", start + lane / RATE, seconds, LANES / RATE, found))
        for lane in range(LANES)
    ]
    for asker in askers:
        asker.start()
    time.sleep(max(0.0, start - time.time()))
    sent, used = 0, cpu_seconds(one.process)
    for number, content in enumerate(bodies):
        due = start + number * BATCH / 5000
        time.sleep(max(0.0, due - time.time()))
        one.send("load", content, PARQUET)
        sent += BATCH
        if number % 30 == 0:
            one.http.post("/v1/gates/load/evaluations").raise_for_status()
        if time.time() - start > seconds:
            break
    rate = sent / (time.time() - start)
    share = (cpu_seconds(one.process) - used) / (time.time() - start)
    took = [1000 * one for _ in askers for one in found.get()]
    for asker in askers:
        asker.join()
    half, most = np.percentile(took, (50, 99))
    return (
        f"p50 {half:.1f} ms, p99 {most:.1f} ms over {len(took):,} requests; the server took {share:.0%} of a core",
        rate,
    )


def evaluation_seconds(one: Service) -> tuple[float, float, str]:
    """A first evaluation of 100,000 stored episodes, and one when the worker is warm."""
    one.define("large")
    for content in one.bodies(200, PARQUET):
        one.send("large", content, PARQUET)
    cold, _ = one.evaluate("large")
    one.send("large", one.bodies(1, PARQUET)[0], PARQUET)
    warm, status = one.evaluate("large")
    return cold, warm, status


def million(one: Service) -> list[float]:
    """The server's memory in MB after each 100,000 of a million episodes."""
    one.define("million")
    found = []
    for _ in range(10):
        for content in one.bodies(40, PARQUET, 2_500):
            one.send("million", content, PARQUET)
        found.append(_memory(one.process))
    return found


def cpu_seconds(process: int) -> float:
    """What the process has used of the processors."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def stored_and_evaluated(one: Service, seconds: float) -> None:
    for name, medium in (("JSON lines", NDJSON), ("Parquet", PARQUET)):
        print(f"{name}: {ingest_rate(one, medium, seconds):,.0f} episodes a second", flush=True)
    cold, warm, status = evaluation_seconds(one)
    print(f"100,000 episodes: first {cold:.1f} s, warm {warm:.1f} s ({status})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--database")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--load", action="store_true", help="only the answers under load")
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    with service(asked.database) as one:
        if asked.million:
            print("server's memory, MB:", *(f"{size:.0f}" for size in million(one)))
            return
        if not asked.load:
            stored_and_evaluated(one, asked.seconds)
        told, rate = answers_under_load(one, asked.seconds)
        print(f"verdict and policy at 200/s while {rate:,.0f} episodes a second come in: {told}")


if __name__ == "__main__":
    main()
