"""The command as a user meets it: help, errors, and a short demonstration."""

import html
import json
import os
import statistics
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tidegate import EpisodeLog
from tidegate.reports.page import CONTENT_POLICY

ALGORITHMS = ["Tidegate", "SPIN", "Stationary"]
TIDEGATE = [sys.executable, "-m", "tidegate"]


def _run(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", **variables}
    return subprocess.run(
        [*TIDEGATE, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


def test_help_is_clear() -> None:
    root = _run("--help")
    assert root.returncode == 0
    assert "demo" in root.stdout
    assert "deploy or keep" in root.stdout
    demo = _run("demo", "--help")
    for option in ("--out", "--speed", "--episodes", "--lookahead", "--order", "--seed", "--json"):
        assert option in demo.stdout
    assert _run().returncode != 1


def test_help_does_not_import_jax() -> None:
    """The reason why help is fast; the benchmark measures how fast."""
    code = "import sys, tidegate.cli.app; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_takes_hardly_any_time_to_import() -> None:
    """Processor time, so that whatever else the machine does is not counted; `make sizes` shows it."""
    code = "import time; t = time.process_time(); import tidegate; print(time.process_time() - t)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(10)]
    assert statistics.median(float(one.stdout) for one in runs) < 0.1


EMPTY_APP = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help_takes_hardly_longer_than_that_of_an_empty_command(arguments: list[str]) -> None:
    def seconds(command: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        return time.perf_counter() - start

    peer = [sys.executable, "-c", EMPTY_APP, "--help"]
    ours, theirs = (min(seconds(one) for _ in range(5)) for one in ([*TIDEGATE, *arguments], peer))
    assert ours < 2.5 * theirs


def test_version() -> None:
    import tidegate

    assert _run("--version").stdout.strip() == f"tidegate {tidegate.__version__}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--speed", "9"], "--speed"),
        (["demo", "--episodes", "12", "--lookahead", "8"], "fewer than two windows"),
        (["demo", "--order", "4000"], "a whole number from 0 to 100"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_usage_is_one_paragraph_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = _run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


class _Links(HTMLParser):
    """Whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            local = (value or "").startswith(("#", "data:"))
            if name in ("src", "href", "xlink:href") and not local:
                self.fetched.append(f"{tag} {name}={value}")


def test_the_demo_writes_one_small_page_that_needs_no_network(tmp_path: Path) -> None:
    result = _run("demo", "--episodes", "40", "--json", "--log", "demo.csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert [row["name"] for row in summary["algorithms"]] == ALGORITHMS
    page = (tmp_path / "demo.html").read_text()
    assert len(page.encode()) < 1_000_000
    links = _Links()
    links.feed(page)
    assert links.fetched == []
    assert "<script" not in page
    assert CONTENT_POLICY in html.unescape(page)
    assert page.count("<figure") == 4
    assert "95% interval of the forecast" in page
    assert "KEEP" in page or "DEPLOY" in page
    assert page.count("What each model of the trend says</h2>") == 1
    assert "a line that goes on</td>" in page
    log = EpisodeLog.from_frame(pl.read_csv(tmp_path / "demo.csv"), step=None, recorded={"new": "new_prob"})
    assert log.span == (1.0, 60.0)  # 20 to begin with, then ten windows of four
    ratios = np.exp(np.asarray(log.recorded["new"] - log.behavior_log_probs))
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(ratios.size)


def test_the_demo_of_a_patient_shows_a_day_and_the_drift(tmp_path: Path) -> None:
    days = ["--episodes", "40", "--truth-days", "4"]
    cache = str(tmp_path / "cache")  # of simulated days
    result = _run("demo", "--domain", "diabetes", *days, cwd=tmp_path, XDG_CACHE_HOME=cache)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    shown = [name for line in lines for name in ALGORITHMS if name in line and " of 10 " in line]
    assert shown == ALGORITHMS
    page = (tmp_path / "demo.html").read_text()
    assert len(page.encode()) < 1_000_000
    assert page.count("<figure") == 6
    for text in ("70 to 180 mg/dL", "safe: CR 23, CF 33", "meal", "bolus, U", "CR 4 g/U"):
        assert text in page


def test_a_page_without_a_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    result = _run("demo", "--out", str(tmp_path / "no" / "such" / "dir.html"))
    assert result.returncode == 2
    assert "dir.html" in result.stderr
    assert "windows" not in result.stderr
    assert "Traceback" not in result.stderr
