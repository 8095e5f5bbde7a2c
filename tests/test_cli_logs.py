"""The commands for a user's own log, end to end: tables, JSON, files, exit codes, and no traceback."""

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests import test_logs_fuzz as fuzz
from tests.test_workflows import EPISODES, LOG, PLAIN
from tidegate import cli, workflows

COMMANDS = ("check", "evaluate", "gate", "improve", "backtest", "plan", "verify")
FLAGS = ["--lookahead", "10", "--order", "1", "--draws", "200"]
CANDIDATE = ["--candidate", "column:new_prob"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """The command in this process, from a folder with a log: quicker than a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capture = monkeypatch, capfd

    def __call__(self, *arguments: str) -> Result:
        self.patch.setattr(sys, "argv", ["tidegate", *arguments])
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Result(code or 0, *self.capture.readouterr())


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    LOG.write_csv("log.csv")
    LOG.write_parquet("log.parquet")
    return Shell(monkeypatch, capfd)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_the_exit_codes(command: str, shell: Shell) -> None:
    result = shell(command, "--help")
    assert result.code == 0
    assert "Exit code 0" in result.out
    if command == "gate":
        assert "1 for KEEP" in result.out
        options = (
            "--candidate", "--safe", "--record", "--alpha", "--lookahead", "--columns", "--json",
            "--behavior-prob", "--estimate-propensities", "--log-probs", "--report", "--seed",
        )  # fmt: skip
        for option in options:
            assert option in result.out


def test_the_gate_deploys_keeps_and_is_verified(shell: Shell) -> None:
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS)
    assert result.code == 0, result.err
    assert "DEPLOY: the candidate's lower bound" in result.out
    assert "Decision record: decision.json" in result.err
    record = json.loads(Path("decision.json").read_text())
    expected = workflows.gate("log.csv", candidate="column:new_prob", settings=PLAIN).to_dict()
    assert record == expected
    assert record["provenance"]["source"] == "log.csv"
    confirmed = shell("verify", "decision.json", "log.parquet")
    assert confirmed.code == 0, confirmed.out
    assert "CONFIRMED (DEPLOY)" in confirmed.out
    kept = shell("gate", "log.csv", "--candidate", "behavior", *FLAGS, "--record", "kept.json")
    assert kept.code == 1
    assert "KEEP" in kept.out
    assert json.loads(Path("kept.json").read_text())["reason"] == "NOT_BETTER"


def test_verify_refuses_another_log_and_an_edited_record(shell: Shell) -> None:
    assert shell("gate", "log.csv", *CANDIDATE, *FLAGS).code == 0
    LOG.with_columns(pl.col("reward") * 2).write_csv("other.csv")
    other = shell("verify", "decision.json", "other.csv", "--json")
    assert other.code == 2
    assert json.loads(other.out)["outcome"] == "OTHER_LOG"
    text = Path("decision.json").read_text()
    Path("decision.json").write_text(text.replace('"alpha": 0.05', '"alpha": 0.5'))
    edited = shell("verify", "decision.json", "log.csv")
    assert edited.code == 2
    assert "NOT CONFIRMED" in edited.out
    assert "changed after it was written" in edited.out
    for content in ("{", "[]", '{"a": 1}'):
        Path("decision.json").write_text(content)
        assert shell("verify", "decision.json", "log.csv").code == 2
    assert shell("verify", "missing.json", "log.csv").code == 2


def test_json_is_the_record_of_the_function(shell: Shell) -> None:
    spec = "column:new_prob"
    cases: dict[str, tuple[list[str], Any]] = {
        "check": (["--policy", spec], workflows.check("log.csv", policy=spec, settings=PLAIN)),
        "evaluate": (
            ["--policy", spec], workflows.evaluate("log.csv", policy=spec, settings=PLAIN),
        ),
        "gate": (CANDIDATE, workflows.gate("log.csv", candidate=spec, settings=PLAIN)),
        "backtest": (
            [*CANDIDATE, "--dates", "3"],
            workflows.backtest("log.csv", candidate=spec, settings=PLAIN, dates=3),
        ),
        "plan": (CANDIDATE, workflows.plan("log.csv", candidate=spec, settings=PLAIN)),
    }  # fmt: skip
    for command, (options, record) in cases.items():
        result = shell(command, "log.csv", *options, *FLAGS, "--json")
        assert result.code == 0, result.err
        assert json.loads(result.out) == record.to_dict(), command


def test_tables_are_readable(shell: Shell) -> None:
    spec = ["--policy", "column:new_prob"]
    expected = {
        ("check",): "Is this log fit for what was observed?",
        ("check", *spec): "Is this log fit for column:new_prob?",
        ("evaluate", *spec): "if nothing changed",
        ("evaluate", *spec, "--no-stream"): "Estimated past performance",
        ("backtest", *CANDIDATE, "--dates", "3"): "The gate at 3 past dates",
        ("plan", *CANDIDATE): "The candidate passes with the episodes at hand.",
    }
    for (command, *options), text in expected.items():
        result = shell(command, "log.csv", *options, *FLAGS)
        assert result.code == 0, result.err
        assert text in result.out
        assert f"{EPISODES:,} episodes" in result.out


def test_a_stream_gives_the_same_forecast(shell: Shell) -> None:
    def forecast(flag: str) -> Any:
        policy = ["--policy", "column:new_prob"]
        result = shell("evaluate", "log.parquet", *policy, *FLAGS, "--json", flag)
        return json.loads(result.out)["forecast"]

    streamed, whole = forecast("--stream"), forecast("--no-stream")
    assert streamed["lower"] == pytest.approx(whole["lower"], rel=1e-12)
    refused = shell("evaluate", "log.csv", "--policy", "behavior", "--stream")
    assert refused.code == 2
    assert "cannot be streamed" in refused.err


def test_improve_saves_a_policy_that_the_gate_tests_on_unseen_episodes(shell: Shell) -> None:
    features = ["--features", "load"]
    search = ["--steps", "20", "--out", "found.json"]
    result = shell("improve", "log.csv", *features, *search, *FLAGS)
    assert result.code == 0, result.err
    assert "LinearPolicy found on 200 of 400 episodes" in result.out
    assert "Decision record: found.decision.json" in result.err
    assert shell("verify", "found.decision.json", "log.csv").code == 0
    gated = shell("gate", "log.csv", *features, "--candidate", "policy:found.json", *FLAGS)
    assert gated.code in (0, 1)
    assert "only episodes that its search has not seen" in gated.out
    assert "200" in gated.out
    without = shell("gate", "log.csv", "--candidate", "policy:found.json", *FLAGS)
    assert without.code == 2


def test_a_report_is_made_of_the_same_record(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(log_page=lambda record: json.dumps(record.to_dict()))
    monkeypatch.setitem(sys.modules, "tidegate.reports.log_page", page)
    output = ["--report", "out.html", "--json", "--backtest", "3"]
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS, *output)
    assert result.code == 0, result.err
    assert json.loads(Path("out.html").read_text()) == json.loads(result.out)
    assert len(json.loads(result.out)["backtest"]["dates"]) == 3


def test_columns_come_from_flags_and_from_a_file(shell: Shell) -> None:
    renamed = LOG.rename({"reward": "profit", "behavior_prob": "p", "episode": "visit"})
    renamed.with_columns(pl.col("p").log(), pl.col("new_prob").log()).write_csv("mine.csv")
    Path("mine.toml").write_text('episode = "visit"\nreward = "nonsense"\n')
    flags = ["--columns", "mine.toml", "--reward", "profit", "--behavior-prob", "p", "--log-probs"]
    mine = shell("evaluate", "mine.csv", *flags, "--policy", "column:new_prob", *FLAGS, "--json")
    assert mine.code == 0, mine.err
    content = json.loads(mine.out)
    assert content["provenance"]["columns"]["propensity"] == "LOG_PROBABILITY"
    theirs = workflows.evaluate("log.csv", policy="column:new_prob", settings=PLAIN)
    assert content["forecast"]["lower"] == pytest.approx(theirs.forecast.lower)


def test_missing_propensities_are_refused_or_marked(shell: Shell) -> None:
    LOG.drop("behavior_prob").write_csv("bare.csv")
    refused = shell("gate", "bare.csv", *CANDIDATE, *FLAGS)
    assert refused.code == 2
    assert "propensities" in refused.err
    marked = shell("gate", "bare.csv", *CANDIDATE, *FLAGS, "--estimate-propensities")
    assert marked.code in (0, 1)
    assert "BEWARE: propensities estimated: not guaranteed" in marked.out
    assert "(propensities estimated: not guaranteed): the candidate's" in marked.out
    assert "log-loss" in marked.out


def test_a_python_function_is_a_policy(shell: Shell) -> None:
    Path("rules.py").write_text(
        "import numpy as np\n\n\ndef propose(states):\n"
        "    return np.tile([0.02, 0.96, 0.02], (states.height, 1))\n"
    )
    result = shell("gate", "log.csv", "--candidate", "python:rules:propose", *FLAGS, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["candidate"]["policy"] == "python:rules:propose"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gate", "log.csv"], "--candidate"),
        (["gate", "missing.csv", *CANDIDATE], "no file"),
        (["gate", "log.csv", "--candidate", "nonsense"], "does not name a policy"),
        (["gate", "log.csv", *CANDIDATE, "--alpha", "0"], "alpha"),
        (["gate", "log.csv", *CANDIDATE, "--alpha", "nan"], "alpha"),
        (["gate", "log.csv", *CANDIDATE, "--lookahead", "0"], "lookahead"),
        (["gate", "log.csv", *CANDIDATE, "--basis", "spline"], "--basis"),
        (["gate", "log.csv", *CANDIDATE, "--basis", "fourier"], "period"),
        (["gate", "log.csv", *CANDIDATE, "--time-unit", "week"], "time_unit"),
        (["gate", "log.csv", *CANDIDATE, "--format", "xlsx"], "format"),
        (["gate", "log.csv", *CANDIDATE, "--seed", str(2**70)], "seed"),
        (["gate", "log.csv", *CANDIDATE, "--record", "no/such/folder.json", *FLAGS], "folder.json"),
        (["evaluate", "log.csv", "--policy", "policy:missing.json"], "cannot read a policy"),
        (["improve", "log.csv", "--out", "p.json", "--policy-class", "mlp"], "need features"),
        (["check", "log.csv", "--columns", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_usage_is_one_paragraph_and_exit_code_2(
    arguments: list[str], message: str, shell: Shell
) -> None:
    result = shell(*arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not Path("decision.json").exists()


@pytest.mark.parametrize("command", ["check", "evaluate", "gate", "improve", "backtest", "plan"])
def test_an_unfit_log_is_named_by_its_rows(command: str, shell: Shell) -> None:
    bad = LOG.with_columns(
        behavior_prob=pl.when(pl.col("episode").is_in([7, 9])).then(0.0).otherwise(0.5)
    )
    bad.write_csv("bad.csv")
    needed = {
        "evaluate": ["--policy", "behavior"], "gate": CANDIDATE, "plan": CANDIDATE,
        "improve": ["--out", "p.json"],
    }  # fmt: skip
    result = shell(command, "bad.csv", *needed.get(command, []), *FLAGS)
    assert result.code == 2
    assert "row 7" in result.err
    assert "DEPLOY" not in result.out
    assert "Traceback" not in result.err
    assert sorted(path.suffix for path in Path().iterdir()) == [".csv", ".csv", ".parquet"]


def test_a_defect_of_ours_is_not_taken_for_keep(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("tidegate.workflows.gating.decide", broken)
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS)
    assert result.code == 2
    assert "nothing was decided" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_damaged_files_end_in_a_paragraph(kind: str, shell: Shell, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        path = fuzz.mutated(kind, rng, tmp_path)
        path.write_bytes(path.read_bytes()[: int(rng.integers(60))])
        result = shell("gate", str(path), *CANDIDATE)
        assert result.code == 2
        assert result.err.startswith("tidegate: ")
        assert len(result.err) < 2000
        assert "Traceback" not in result.err
        assert "panicked" not in result.err


def test_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO(LOG.write_csv().encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))
    result = shell("gate", "-", *CANDIDATE, *FLAGS)
    assert result.code == 0, result.err
    assert "standard input: 400 episodes" in result.out


def test_a_process_of_its_own_ends_the_same_way(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate", "gate", "-", *CANDIDATE]
    result = subprocess.run(command, input=b"", capture_output=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"tidegate: standard input is empty.")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_do_not_import_numbers_for_help() -> None:
    code = (
        "import sys, tidegate.cli_logs, tidegate.workflows.flags; "
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'polars', 'rich.table')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
