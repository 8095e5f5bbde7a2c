"""Nothing is lost, doubled or decided twice: servers killed at random moments, two on one database."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from sqlalchemy import select

from tidegate.service import audit, budgets, schema
from tidegate.service.database import Database, sqlite_url
from tidegate.service.proving import prove

from .postgres import new_database
from .serving import PATIENCE, RELEASE, Server, children, listening, rows, running, start
from .serving import token as make_token

GATE = "endured"
BATCH = 40
LONGEST = 6.0  # seconds that a server lives
DECIDING = 8  # every so many kills, one waits until a level of the budget is granted
PAUSE = 0.03  # seconds between batches, so that decisions are made too
MOST_WAITING = 10  # evaluations


class Sender:
    """Sends batches, asks for evaluations and approves, each request again until it is answered."""

    def __init__(self, server: Server, approver: dict[str, str]) -> None:
        self.server, self.approver = server, approver
        self.acknowledged = 0
        self.evaluations: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        for turn in itertools.count():
            if self._ending.is_set():
                return
            frame, key = rows(BATCH, turn * BATCH), f"batch-{turn}"
            answer = self._until_answered(partial(self._send, frame, key))
            assert answer.status_code == 201, answer.text
            self.acknowledged += BATCH
            if turn % 10 == 9 and not self._behind():
                self._evaluate(f"evaluation-{turn}")
            time.sleep(PAUSE)

    def _behind(self) -> bool:
        """Whether so many evaluations wait that the end of the test would have to wait for them."""
        if len(self.evaluations) < MOST_WAITING:
            return False
        place = f"/v1/evaluations/{self.evaluations[-MOST_WAITING]}"
        answer = self._until_answered(lambda: self.server.http.get(place))
        return bool(answer.json()["data"]["status"] == "in_progress")

    def _evaluate(self, key: str) -> None:
        place = f"/v1/gates/{GATE}/evaluations"
        headers = {"Idempotency-Key": key}
        answer = self._until_answered(partial(self._post, place, {}, headers))
        self.evaluations.append(answer.json()["data"]["id"])
        for one in self.evaluations[-3:]:
            word, where = {"state": "approved"}, f"/v1/evaluations/{one}/approval"
            said = self._until_answered(partial(self._post, where, word, {**self.approver, **headers}))
            assert said.status_code in (200, 409), said.text

    def _send(self, frame: pl.DataFrame, key: str) -> httpx.Response:
        return self.server.send(GATE, frame, key)

    def _post(self, place: str, body: dict[str, str], headers: dict[str, str]) -> httpx.Response:
        return self.server.http.post(place, json=body, headers=headers)

    def _until_answered(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        while True:
            try:
                answer = call()
                if answer.status_code != 503:
                    return answer
            except (httpx.TransportError, RuntimeError):  # the client is closed with its server
                pass
            time.sleep(0.02)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str], str]:
    """A data folder, flags, and the address of the database."""
    data = tmp_path / "data"
    if request.param == "sqlite":
        return data, [], sqlite_url(data)
    url = new_database(request.getfixturevalue("postgres"))
    return data, ["--database", url], url


def endure(place: tuple[Path, list[str], str], kills: int) -> None:
    data, more, url = place
    draw = random.Random(kills)
    server = listening(start(data, None, *more))
    approver = make_token(server, "anna", "approve,read")
    server.put(GATE, **RELEASE, approvers=["anna"], budget="team", history=2_000)
    levels = 0
    with Sender(server, approver) as sender:
        for turn in range(kills):
            if turn % DECIDING == DECIDING - 1:  # else, on a busy machine, no worker lives to decide anything
                levels = wait_for_level(url, levels)
            time.sleep(draw.uniform(0.01, LONGEST))
            workers = children(server.process.pid)
            if turn % 4 == 3 and workers:
                os.kill(workers[0], signal.SIGKILL)
                continue
            server.end(signal.SIGKILL)
            again = start(data, server.token, *more)
            server.process, server.http = again.process, again.http
            listening(server)
    for evaluation in sender.evaluations:
        server.decided(evaluation)
    stored = server.http.get(f"/v1/gates/{GATE}").json()["data"]["episodes"]
    server.end()
    assert stored == sender.acknowledged
    prove_all(url, stored, sender.evaluations)
    print(f"\n{kills} kills: {stored:,} episodes, {len(sender.evaluations)} evaluations, each kept once")


def wait_for_level(url: str, before: int) -> int:
    """How many levels the budget has granted, when it is one more: so kills come during tests, and after."""
    database, deadline = Database(url), time.monotonic() + PATIENCE
    with contextlib.closing(database):
        while time.monotonic() < deadline:
            with database.reading() as connection:
                found = len(budgets.ledger(connection, "team").entries)
            if found > before:
                return found
            time.sleep(0.1)
    raise TimeoutError("no evaluation is computed")


def prove_all(url: str, stored: int, asked: list[str]) -> None:
    """The chain is whole, and tells of every episode, decision and level exactly once."""
    database = Database(url)
    proof = prove(database)
    assert proof.holds, proof.lines
    entries = list(audit.all_entries(database))
    ingested = [one.content["episodes"] for one in entries if one.kind == "episodes.ingested"]
    assert sum(ingested) == stored
    decided = Counter(one.content["evaluation"] for one in entries if one.kind == "evaluation.decided")
    assert set(decided) >= set(asked)
    assert set(decided.values()) <= {1}
    requested = Counter(one.content["evaluation"] for one in entries if one.kind == "evaluation.requested")
    assert set(requested) == set(asked)
    with database.reading() as connection:
        ledger = budgets.ledger(connection, "team")
        rows = connection.execute(select(schema.grants.c.number, schema.grants.c.evaluation)).all()
    answers = [one.content for one in entries if one.kind == "evaluation.decided"]
    numbers = {one["budget"]["number"] for one in answers if one["budget"] is not None}
    assert numbers <= {one.number for one in ledger.entries}
    # A test that was killed three times ends as an error. Its level is spent, and nobody else has it.
    failed = {one["evaluation"] for one in answers if one["status"] == "error"}
    assert {one.evaluation for one in rows if one.number not in numbers} <= failed
    assert [one.number for one in ledger.entries] == list(range(1, len(ledger.entries) + 1))
    assert len({one.question for one in ledger.entries}) == len(ledger.entries)
    database.close()


def test_a_few_kills_lose_nothing(place: tuple[Path, list[str], str]) -> None:
    endure(place, 3)


@pytest.mark.verify
def test_two_hundred_kills_lose_nothing(place: tuple[Path, list[str], str]) -> None:
    endure(place, 200)


@pytest.fixture
def two(tmp_path: Path, postgres: Path) -> Iterator[tuple[Server, Server, str]]:
    """Two servers on one database."""
    url = new_database(postgres)
    more = ["--database", url]
    with running(tmp_path / "one", None, *more) as one, running(tmp_path / "two", one.token, *more) as two:
        yield one, two, url


def test_two_servers_never_decide_one_window_twice(two: tuple[Server, Server, str]) -> None:
    window, turns = 30, 24
    two[0].put(GATE, window=window, budget="team")

    def send(server: Server, first: int) -> None:
        for turn in range(first, turns, 2):
            server.send(GATE, rows(window, turn * window))
            time.sleep(0.1)

    threads = [threading.Thread(target=send, args=(two[place], place)) for place in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found: list[dict[str, Any]] = two[0].http.get(f"/v1/gates/{GATE}/evaluations?limit=100").json()["data"]
    decided = [two[1].decided(one["id"]) for one in found]
    windows = [one["window"] for one in decided]
    assert max(windows) == turns
    assert len(set(windows)) == len(windows)
    prove_all(two[2], window * turns, [])


def test_a_worker_that_dies_again_and_again_ends_in_an_error(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        server.put(GATE)
        server.send(GATE, rows(300))
        evaluation = server.evaluate(GATE)
        for _ in range(200):
            for one in children(server.process.pid):
                if _claimed(sqlite_url(server.data), evaluation):
                    os.kill(one, signal.SIGKILL)
            if server.http.get(f"/v1/evaluations/{evaluation}").json()["data"]["status"] != "in_progress":
                break
            time.sleep(0.05)
        found = server.decided(evaluation)
        assert found["status"] in ("error", "pass")  # a pass, if it was quicker than the killer
        again = server.decided(server.evaluate(GATE))
        assert again["status"] == "pass"


def _claimed(url: str, evaluation: str) -> bool:
    from tidegate.service import evaluations

    database = Database(url)
    with database.reading() as connection:
        row, now = evaluations.of_id(connection, evaluation), evaluations.clock(connection)
    database.close()
    return bool(row.status == "in_progress" and row.lease > now)
