"""The live gate at work: RecoSys drifts, a client asks which policy to run and sends what came of it.

The service decides again at every window. The candidate likes an item that comes into season and goes out
again: the gate opens, and takes it back. `python -m tidegate.experiments.serve_demo` runs it, and so does
`make serve-demo`.
"""

import argparse
import contextlib
import dataclasses
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from ..arrays import in_double
from ..client import Client
from ..errors import TidegateError
from ..policies import SoftmaxPolicy
from ..reports.numbers import signed
from ..simulators.recommender import Recommender

GATE, SPEED, WINDOW, MOST = "recommender", 3, 25, 45
HISTORY = 8  # windows that a decision looks at: always as many, so that one compiled program serves them all
FAVOURED = (
    1.5,
    1.2,
    1.2,
    2.4,
    1.0,
)  # the fourth item is bad at first, best around episode 500, then bad again
DEFINITION = {
    "candidate": "column:new_prob",
    "safe": "column:safe_prob",
    "lookahead": WINDOW,
    "history": HISTORY * WINDOW,
    "mode": "continuous",
    "valid_for": "1h",
}
NAMES = {"candidate": "the candidate", "safe": "the safe one"}
PATIENCE = 60.0
PACE = 1.5  # seconds that a window takes at least, for people to see it
AFTER = 3  # windows to go on with once the candidate was taken back


class _NotStarted(TidegateError):
    """The service did not come up."""


@dataclasses.dataclass
class Live:
    """A recommender in production: it runs the policy that the gate names, and logs both probabilities."""

    world: Recommender
    candidate: SoftmaxPolicy
    client: Client
    key: jax.Array
    episode: int = 1

    def window(self) -> tuple[str, float]:
        """Serve a window's users and send what came of it; which policy ran, and the true advantage."""
        running = str(self.client.policy(GATE)["policy"])
        frame, advantage = self._served(running)
        self.client.send(GATE, frame, key=f"from {self.episode}")
        self.episode += WINDOW
        return running, advantage

    @in_double
    def _served(self, running: str) -> tuple[pl.DataFrame, float]:
        numbers = jnp.arange(self.episode, self.episode + WINDOW, dtype=float)
        policies = {"safe": self.world.safe_policy, "candidate": self.candidate}
        log = self.world.collect(policies[running], numbers, jax.random.fold_in(self.key, self.episode))
        taken = np.asarray(log.actions[:, 0])
        probability = {name: np.exp(np.asarray(one.log_probs()))[taken] for name, one in policies.items()}
        frame = pl.DataFrame(
            {
                "episode": np.asarray(numbers, int),
                "action": taken,
                "behavior_prob": probability[running],
                "safe_prob": probability["safe"],
                "new_prob": probability["candidate"],
                "reward": np.asarray(log.rewards[:, 0]),
            }
        )
        worth = [self.world.performance(one, numbers).mean() for one in policies.values()]
        return frame, float(worth[1] - worth[0])


def run(port: int = 8400, seed: int = 0, *, stay: bool = True) -> bool:
    """Show it, then let people look until they interrupt; whether the gate opened and took it back."""
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder, service(Path(folder), port) as found:
        url, token = found
        print(f"The dashboard: {url}/\nSign in there with this token: {token}\n", flush=True)
        client = Client(url, token)
        candidate = SoftmaxPolicy(np.array(FAVOURED))
        live = Live(Recommender.at_speed(SPEED), candidate, client, jax.random.key(seed))
        done = drift(live)
        if stay:
            print("\nThe service goes on, so that you can look around. Ctrl-C ends it.", flush=True)
            while True:
                time.sleep(3600)
    return done


def drift(live: Live) -> bool:
    """Window after window, until the candidate was in force and was taken back."""
    live.client.define(GATE, {**DEFINITION, "mode": "release"})  # nobody decides yet
    for _ in range(HISTORY - 1):
        live.window()
    live.client.define(GATE, DEFINITION)
    print(
        f"{live.episode - 1} episodes of the safe policy to begin with; the first decision takes longest.\n"
    )
    opened, kept = False, 0
    for number in range(HISTORY, MOST + 1):
        began = time.monotonic()
        running, truth = live.window()
        decided = _decided(live)
        print(told(number, live.episode, running, decided, truth), flush=True)
        now = str(live.client.policy(GATE)["policy"])
        if now != running:
            print(f"    -> from here on, {NAMES[now]} runs", flush=True)
        opened = opened or now == "candidate"
        kept = kept + 1 if opened and now == "safe" else 0
        if kept > AFTER:
            print("\nThe gate opened, the world drifted, and the candidate was taken back.", flush=True)
            return True
        time.sleep(max(0.0, began + PACE - time.monotonic()))
    return False


def told(number: int, episode: int, running: str, decided: Mapping[str, Any], truth: float) -> str:
    """One window in a line."""
    found = decided["advantage"] or {"forecast": None, "lower": None}
    advantage = ", ".join(
        f"{words} {signed(found[name], 2)}"
        for name, words in (("forecast", "advantage"), ("lower", "at least"))
    )
    return (
        f"window {number:2}, to episode {episode - 1:3}: {NAMES[running]:13} ran; {decided['status']:12} "
        f"{advantage} (in truth {signed(truth, 2)} now)"
    )


@contextlib.contextmanager
def service(folder: Path, port: int) -> Iterator[tuple[str, str]]:
    """`tidegate serve` in a folder of its own: its address and its first token."""
    port = port if _free(port) else _any_port()
    command = [sys.executable, "-m", "tidegate", "serve", "--data", str(folder / "data"), "--port", str(port)]
    with (folder / "log").open("w") as log:
        # Not of the terminal's group: it is ended here, after the client.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        token, url = process.stdout.readline().strip(), f"http://127.0.0.1:{port}"
        _wait_for(url, process, folder / "log")
        yield url, token
    finally:
        process.terminate()
        process.wait()


def _decided(live: Live) -> Mapping[str, Any]:
    """The decision that the newest window asked for."""
    window = (live.episode - 1) // WINDOW
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = live.client.verdict(GATE)
        if (found["window"] or 0) >= window:
            return found
        time.sleep(0.1)
    raise _NotStarted("the service does not decide.", where=GATE)


def _wait_for(url: str, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=5):
            return
        time.sleep(0.1)
    raise _NotStarted(f"the service did not start:\n{log.read_text()}", remedy="Install 'tidegate[serve]'.")


def _free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def _any_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if the gate opened and took the candidate back, or somebody had seen enough."""
    parser = argparse.ArgumentParser(
        prog="serve_demo", description="The live gate at work in a drifting world."
    )
    parser.add_argument("--port", type=int, default=8400, help="where to listen, if it is free")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--leave", action="store_true", help="end once the candidate has been taken back")
    given = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return 0 if run(given.port, given.seed, stay=not given.leave) else 1
    except KeyboardInterrupt:
        print("\nEnded.", flush=True)
        return 0


if __name__ == "__main__":
    sys.exit(main())
