"""Guardrails from the command line: verdict, exit code, record, replay, report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tidegate import TidegateError
from tidegate.cli.app import app

RUN = CliRunner().invoke


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 300
    action = rng.integers(0, 2, n)
    pl.DataFrame(
        {
            "episode": np.arange(1, n + 1),
            "action": action,
            "behavior_prob": np.full(n, 0.5),
            "reward": 4.0 * (action - 0.5) + 0.3 * rng.normal(size=n),
            "calls": 0.3 * action + 0.1 * rng.normal(size=n),
            "new_prob": np.where(action == 1, 0.9, 0.1),
            "x": rng.normal(size=n),
        }
    ).write_csv("log.csv")


def _gate(*options: str) -> tuple[int, dict[str, Any]]:
    preset = ["--preset", "paper", "--order", "1"]  # compiles sooner than the default
    common = ["gate", "log.csv", "--candidate", "column:new_prob", *preset]
    done = RUN(app, [*common, *options])
    return done.exit_code, json.loads(Path("decision.json").read_text())


def test_the_gate_with_guardrails() -> None:
    code, record = _gate("--guardrail", "calls:1", "--report", "out.html", "--backtest", "0")
    assert (code, record["verdict"]) == (0, "DEPLOY")
    assert record["provenance"]["columns"]["outcomes"] == ["calls"]
    assert "and that every guardrail holds" in Path("out.html").read_text()
    assert RUN(app, ["verify", "decision.json", "log.csv"]).exit_code == 0
    code, record = _gate("--guardrail", "calls:0.01", "--guardrail", "calls:1:higher")
    assert (code, record["verdict"], record["reason"]) == (1, "KEEP", "BETTER")
    assert [one["holds"] for one in record["guardrails"]["outcomes"]] == [False, True]
    assert "A guardrail blocks: the log does not rule out that 'calls'" in record["headline"]
    assert RUN(app, ["verify", "decision.json", "log.csv"]).exit_code == 0
    code, plain = _gate()
    assert (code, plain["guardrails"]) == (0, None)


def test_mistakes() -> None:
    for text in ("calls", "calls:-1", "call:1"):
        done = RUN(app, ["gate", "log.csv", "--candidate", "behavior", "--guardrail", text])
        assert isinstance(done.exception, TidegateError), text


def test_improve_with_guardrails() -> None:
    options = [
        "--preset",
        "paper",
        "--features",
        "x",
        "--steps",
        "30",
        "--guardrail",
        "calls:0.001",
    ]
    done = RUN(app, ["improve", "log.csv", "--out", "p.json", *options])
    assert done.exit_code == 0, done.output
    record = json.loads(Path("p.decision.json").read_text())
    assert record["verdict"] == "KEEP"
    assert not record["guardrails"]["outcomes"][0]["holds"]
    assert RUN(app, ["verify", "p.decision.json", "log.csv"]).exit_code == 0
