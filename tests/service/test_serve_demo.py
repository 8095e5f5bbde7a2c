"""The demonstration as a person runs it: lines as it goes, an end at Ctrl-C that leaves nothing behind."""

import contextlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .serving import free_port

WINDOW = re.compile(r"window +(\d+), to episode +(\d+): the (candidate|safe one) +ran; (\w+) ")


@contextlib.contextmanager
def demonstration(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tidegate.experiments.serve_demo", "--port", str(free_port()), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def address_in(lines: list[str]) -> str:
    return next(line.split()[-1] for line in lines if "dashboard" in line)


def test_it_ends_cleanly_when_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lines: list[str] = []
    with demonstration() as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if WINDOW.match(line):
                break
        url = address_in(lines)
        assert any("tdg_" in line for line in lines)
        with urllib.request.urlopen(f"{url}sign-in") as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 0
    assert rest.endswith("Ended.\n")
    assert "Traceback" not in rest
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}sign-in")
    assert not list(tmp_path.glob("tidegate-demo-*"))


@pytest.mark.verify
def test_the_gate_opens_once_and_the_candidate_is_taken_back() -> None:
    with demonstration("--leave") as process:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0
    turns = re.findall(r"from here on, the (candidate|safe one) runs", said)
    assert turns == ["candidate", "safe one"]
    assert "the candidate was taken back" in said
    windows = WINDOW.findall(said)
    assert [int(one[0]) for one in windows] == list(range(8, 8 + len(windows)))
