"""Requests that nobody wrote, from the service's own OpenAPI document: `make fuzz`.

Schemathesis makes them, fitting and unfitting ones, and chains of them. It looks for answers that the
document does not have: a failure of the server, another status, another shape, a method or a header that is
said to be there. It is installed in a virtual environment of its own, whose program is the first argument.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ..serving import RELEASE, Server, rows, running

HERE = Path(__file__).parent
GATE = "fuzzed"
# A request may fit the document and be refused all the same: a lookahead of "7 moons", a gate of no name.
LEFT_OUT = "positive_data_acceptance,ensure_resource_availability"


def prepare(server: Server) -> None:
    """A gate with a decision that waits for a person."""
    server.put(GATE, **RELEASE, approvers=["first"])
    server.send(GATE, rows(300))
    server.decided(server.evaluate(GATE))


def fuzz(program: Path, server: Server, seconds: int) -> int:
    """The exit code of Schemathesis: 0 if it found nothing."""
    choices = ["--max-time", str(seconds), "--continue-on-failure", "--exclude-checks", LEFT_OUT]
    command = [str(program.absolute()), "--no-color", "--config-file", str(HERE / "schemathesis.toml"), "run"]
    header = ["--header", f"Authorization: Bearer {server.token}"]
    known = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
    with tempfile.TemporaryDirectory() as folder:  # it leaves files where it runs
        address = f"{server.url}/openapi.json"
        return subprocess.run([*command, address, *header, *choices], cwd=folder, env=known).returncode


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path, help="schemathesis")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--database", help="PostgreSQL instead of the embedded database")
    asked = parser.parse_args()
    more = [] if asked.database is None else ["--database", asked.database]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with running(data, None, "--rate", "100000", *more) as server:
            prepare(server)
            code = fuzz(asked.program, server, asked.seconds)
        log = data.with_name("data.log").read_text()
    mistakes = log.count("Traceback")
    if mistakes:
        print(log[log.index("Traceback") :][:10_000])
    print(f"{mistakes} mistakes in the server's log")
    return code or min(mistakes, 1)


if __name__ == "__main__":
    sys.exit(main())
