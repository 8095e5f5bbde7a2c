"""The commands for a user's own log, end to end: tables, JSON, files, exit codes, and no traceback."""

import datetime
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests import test_logs_fuzz as fuzz
from tests.test_commands import EPISODES, LOG, PAPER, PLAIN, resealed
from tidegate import cli, commands
from tidegate.gates.ledger import read_ledger
from tidegate.record import write_record
from tidegate.reports.log_page import log_page

COMMANDS = ("check", "evaluate", "gate", "improve", "backtest", "plan", "watch", "verify", "keygen")
FLAGS = ["--lookahead", "10", "--draws", "200"]
PAPER_FLAGS = [*FLAGS, "--preset", "paper", "--order", "1"]
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
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
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
            "--preset", "--guardrail", "--budget", "--budget-rule", "--budget-tests",
        )  # fmt: skip
        for option in options:
            assert option in result.out


def test_the_gate_deploys_keeps_and_is_verified(shell: Shell) -> None:
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS)
    assert result.code == 0, result.err
    assert "DEPLOY: the candidate is forecast to beat the safe policy" in result.out
    assert "Forecast advantage of the candidate, by the models of its trend" in result.out
    assert "a line that goes on" in result.out
    assert "Leading model: " in result.out
    assert "Decision record: decision.json" in result.err
    record = json.loads(Path("decision.json").read_text())
    moment = datetime.datetime.fromisoformat(record["decided_at"])
    expected = commands.gate("log.csv", candidate="column:new_prob", settings=PLAIN, now=moment).to_dict()
    assert record == expected
    assert record["provenance"]["source"] == "log.csv"
    confirmed = shell("verify", "decision.json", "log.parquet")
    assert confirmed.code == 0, confirmed.out
    assert "CONFIRMED (DEPLOY)" in confirmed.out
    kept = shell("gate", "log.csv", "--candidate", "behavior", *FLAGS, "--record", "kept.json")
    assert kept.code == 1
    assert "KEEP" in kept.out
    # The difference between a policy and itself is 0 in every episode.
    assert json.loads(Path("kept.json").read_text())["reason"] == "NO_VARIATION"


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
        "check": (["--policy", spec], commands.check("log.csv", policy=spec, settings=PLAIN)),
        "evaluate": (
            ["--policy", spec], commands.evaluate("log.csv", policy=spec, settings=PLAIN),
        ),
        "gate": (CANDIDATE, commands.gate("log.csv", candidate=spec, settings=PLAIN)),
        "backtest": (
            [*CANDIDATE, "--dates", "3"],
            commands.backtest("log.csv", candidate=spec, settings=PLAIN, dates=3),
        ),
        "plan": (CANDIDATE, commands.plan("log.csv", candidate=spec, settings=PLAIN)),
    }  # fmt: skip
    for command, (options, record) in cases.items():
        result = shell(command, "log.csv", *options, *FLAGS, "--json")
        assert result.code == 0, result.err
        assert _timeless(json.loads(result.out)) == _timeless(record.to_dict()), command


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
        result = shell("evaluate", "log.parquet", *policy, *PAPER_FLAGS, "--json", flag)
        return json.loads(result.out)["forecast"]

    streamed, whole = forecast("--stream"), forecast("--no-stream")
    assert streamed == whole
    refused = shell("watch", "log.csv", "--safe", "column:new_prob", "--stream")
    assert refused.code == 2
    assert "cannot be streamed" in refused.err
    refused = shell("evaluate", "log.csv", "--policy", "behavior", "--no-stream", "--engine", "ray")
    assert refused.code == 2
    assert "Leave out --engine or --no-stream." in refused.err


def test_improve_saves_a_policy_that_the_gate_tests_on_unseen_episodes(shell: Shell) -> None:
    features = ["--features", "load"]
    search = ["--steps", "20", "--out", "found.json"]
    result = shell("improve", "log.csv", *features, *search, *PAPER_FLAGS)
    assert result.code == 0, result.err
    assert "LinearPolicy found on 200 of 400 episodes" in result.out
    assert "Decision record: found.decision.json" in result.err
    assert shell("verify", "found.decision.json", "log.csv").code == 0
    gated = shell("gate", "log.csv", *features, "--candidate", "policy:found.json", *PAPER_FLAGS)
    assert gated.code in (0, 1)
    assert "only episodes that its search has not seen" in gated.out
    assert "200" in gated.out
    without = shell("gate", "log.csv", "--candidate", "policy:found.json", *PAPER_FLAGS)
    assert _untimed(without.out) == _untimed(gated.out)  # the file names its features
    refused = shell("improve", "log.csv", "--min-probability", "0.5", *search, *PAPER_FLAGS)
    assert refused.code == 2
    assert "below 1/3 = 0.3333, for 3 actions" in refused.err


def _untimed(out: str) -> str:
    return re.sub(r"good until \S+", "", out)


def test_a_report_is_made_of_the_same_record(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(log_page=lambda record: json.dumps(record.to_dict()))
    monkeypatch.setitem(sys.modules, "tidegate.reports.log_page", page)
    output = ["--report", "out.html", "--json", "--backtest", "3"]
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS, *output)
    assert result.code == 0, result.err
    assert json.loads(Path("out.html").read_text()) == json.loads(result.out)
    assert len(json.loads(result.out)["backtest"]["dates"]) == 3


def test_a_plan_can_be_a_page(shell: Shell) -> None:
    result = shell("plan", "log.csv", *CANDIDATE, *PAPER_FLAGS, "--report", "plan.html")
    assert result.code == 0, result.err
    assert "How many more episodes?" in Path("plan.html").read_text()


def test_columns_come_from_flags_and_from_a_file(shell: Shell) -> None:
    renamed = LOG.rename({"reward": "profit", "behavior_prob": "p", "episode": "visit"})
    renamed.with_columns(pl.col("p").log(), pl.col("new_prob").log()).write_csv("mine.csv")
    Path("mine.toml").write_text('episode = "visit"\nreward = "nonsense"\n')
    flags = ["--columns", "mine.toml", "--reward", "profit", "--behavior-prob", "p", "--log-probs"]
    spec = "column:new_prob"
    mine = shell("evaluate", "mine.csv", *flags, "--policy", spec, *PAPER_FLAGS, "--json")
    assert mine.code == 0, mine.err
    content = json.loads(mine.out)
    assert content["provenance"]["columns"]["propensity"] == "LOG_PROBABILITY"
    theirs = commands.evaluate("log.csv", policy=spec, settings=PAPER)
    assert content["forecast"]["lower"] == pytest.approx(theirs.forecast.lower)


def _timeless(content: dict[str, Any]) -> dict[str, Any]:
    """The record without the moment at which it was made."""
    return {k: v for k, v in content.items() if k not in ("decided_at", "expires_at", "record_hash")}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _undecided() -> bool:
    """Whether the record says that nothing was decided."""
    return bool(json.loads(Path("decision.json").read_text())["status"] == "error")


def test_missing_propensities_are_refused_or_marked(shell: Shell) -> None:
    LOG.drop("behavior_prob").write_csv("bare.csv")
    refused = shell("gate", "bare.csv", *CANDIDATE, *FLAGS)
    assert refused.code == 2
    assert "propensities" in refused.err
    marked = shell("gate", "bare.csv", *CANDIDATE, *FLAGS, "--estimate-propensities")
    assert "BEWARE: propensities estimated: not guaranteed" in marked.out
    assert marked.code == 1
    assert (
        "KEEP: the candidate is forecast to beat the safe policy, but that is not guaranteed."
        in _one_line(marked.out)
    )
    assert "Status inconclusive" in marked.out
    allowed = shell("gate", "bare.csv", *CANDIDATE, *FLAGS, "--estimate-propensities", "--allow-unguaranteed")
    assert allowed.code == 0
    assert "DEPLOY (not guaranteed, as allowed)" in allowed.out
    assert "log-loss" in marked.out


def test_a_python_function_is_a_policy(shell: Shell) -> None:
    Path("rules.py").write_text(
        "import numpy as np\n\n\ndef propose(states):\n"
        "    return np.tile([0.02, 0.96, 0.02], (states.height, 1))\n"
    )
    result = shell("gate", "log.csv", "--candidate", "python:rules:propose", *PAPER_FLAGS, "--json")
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
        (["gate", "log.csv", *CANDIDATE, "--basis", "fourier"], "no basis to choose"),
        (["gate", "log.csv", *CANDIDATE, "--preset", "paper", "--basis", "fourier"], "period"),
        (["gate", "log.csv", *CANDIDATE, "--preset", "paper", "--budget", "b.json"], "no p-value"),
        (["gate", "log.csv", *CANDIDATE, "--budget-rule", "even"], "without --budget"),
        (
            ["gate", "log.csv", *CANDIDATE, "--budget", "b.json", "--budget-tests", "0"],
            "tests is 0",
        ),
        (["gate", "log.csv", *CANDIDATE, "--budget", "no/such/folder.json"], "cannot write"),
        (["gate", "log.csv", *CANDIDATE, "--time-unit", "week"], "--time-unit is 'week'"),
        (["gate", "log.csv", *CANDIDATE, "--format", "xlsx"], "format"),
        (["gate", "log.csv", *CANDIDATE, "--seed", str(2**70)], "seed"),
        (["gate", "log.csv", *CANDIDATE, "--record", "no/such/folder.json", *FLAGS], "folder.json"),
        (["evaluate", "log.csv", "--policy", "policy:missing.json"], "cannot read a policy"),
        (["improve", "log.csv", "--out", "p.json", "--policy-class", "mlp"], "need features"),
        (["check", "log.csv", "--columns", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_usage_is_one_paragraph_and_exit_code_2(arguments: list[str], message: str, shell: Shell) -> None:
    result = shell(*arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not Path("decision.json").exists() or _undecided()
    assert not Path("b.json").exists()


def decide(shell: Shell, *options: str) -> tuple[Result, dict[str, Any]]:
    """A gate at the default settings, and its decision record."""
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS, *options)
    return result, json.loads(Path("decision.json").read_text())


def test_gates_share_an_error_budget(shell: Shell) -> None:
    spends = ["--budget", "budget.json"]
    result, first = decide(shell, *spends)
    assert result.code == 0, result.err
    assert "Error budget: this is test 1, at level 0.000943 of α = 0.05" in result.out
    assert "0.000943 of α = 0.05 spent in 1 test (harmonic over 52 tests)" in result.err
    assert first["advantage"]["level"] == first["budget"]["level"]
    begun = Path("budget.json").read_text()
    entry = json.loads(begun)["entries"][0]
    assert entry["record_hash"] == first["record_hash"]
    assert entry["p_value"] == first["advantage"]["p_value"]
    assert entry["last_episode"] == EPISODES
    repeated, again = decide(shell, *spends)
    assert repeated.code == 0
    at_any_time = [
        {k: v for k, v in one.items() if k not in ("decided_at", "expires_at", "record_hash")}
        for one in (first, again)
    ]
    assert at_any_time[0] == at_any_time[1]
    assert Path("budget.json").read_text() == begun
    # Another seed is another question.
    result, second = decide(shell, *spends, "--seed", "1")
    ledger = read_ledger("budget.json")
    levels = [one.level for one in ledger.entries]
    assert levels == [first["budget"]["level"], second["budget"]["level"]]
    assert 0 < levels[1] < levels[0]
    assert ledger.entries[1].verdict.name == second["verdict"]
    # A replay needs the record alone, and gives back the same bits.
    write_record(first, "first.json")
    Path("budget.json").unlink()
    for record in ("first.json", "decision.json"):
        confirmed = shell("verify", record, "log.parquet")
        assert confirmed.code == 0, confirmed.out
        assert "bit for bit" in " ".join(confirmed.out.split())
    assert not Path("budget.json").exists()
    forged = {**first, "budget": {**first["budget"], "level": 0.04}}
    write_record(resealed(forged), "forged.json")
    assert shell("verify", "forged.json", "log.csv").code == 2


def test_a_spent_budget_keeps_whatever_the_log_shows(shell: Shell) -> None:
    spends = ["--budget", "budget.json", "--budget-rule", "even", "--budget-tests", "1"]
    result, first = decide(shell, *spends)
    assert (result.code, first["budget"]["level"]) == (0, 0.05)
    assert "the error budget has nothing for this test" in result.err
    result, second = decide(shell, *spends, "--seed", "1")
    assert (result.code, second["verdict"], second["reason"]) == (1, "KEEP", "BUDGET_SPENT")
    assert second["advantage"]["p_value"] < 0.05
    assert "nothing is left of α = 0.05 for test 2" in " ".join(result.out.split())
    assert "KEEP: the error budget has nothing for this test" in result.out
    page = log_page(second)
    assert "was not asked whether" in page
    assert "of which nothing is left" in page
    assert shell("verify", "decision.json", "log.csv").code == 0


def test_fresh_episodes_only(shell: Shell) -> None:
    spends = ["--budget", "budget.json", "--budget-rule", "sidak", "--budget-tests", "4"]
    result, first = decide(shell, *spends)
    assert (result.code, first["budget"]["after"]) == (0, None)
    result, second = decide(shell, *spends, "--seed", "1")
    assert (result.code, second["reason"]) == (1, "NO_EPISODES")
    assert second["budget"]["after"] == EPISODES
    assert shell("verify", "decision.json", "log.csv").code == 0


def test_a_ledger_that_was_changed_is_refused_before_anything_is_said(shell: Shell) -> None:
    spends = ["--budget", "budget.json"]
    assert decide(shell, *spends)[0].code == 0
    Path("decision.json").unlink()
    whole = Path("budget.json").read_text()
    Path("budget.json").write_text(whole.replace('"number": 1', '"number": 2'))
    refused = shell("gate", "log.csv", *CANDIDATE, *FLAGS, *spends, "--seed", "1")
    assert refused.code == 2
    assert "changed after it was written" in " ".join(refused.err.split())
    Path("budget.json").write_text(whole)
    other = shell("gate", "log.csv", *CANDIDATE, *FLAGS, *spends, "--budget-tests", "9")
    assert other.code == 2
    assert "the same budget at every gate" in " ".join(other.err.split())
    assert "DEPLOY" not in refused.out + other.out
    assert not Path("decision.json").exists() or _undecided()


def test_guardrails_and_a_budget(shell: Shell) -> None:
    """The level of the budget is that of the reward and the guardrail together."""
    spends = ["--budget", "budget.json", "--budget-rule", "even", "--budget-tests", "2"]
    result, record = decide(shell, *spends, "--guardrail", "load:100")
    assert result.code == 0, result.err
    assert "Guardrails, holm, α = 0.025" in result.out
    guardrails = record["guardrails"]
    assert guardrails["alpha"] == record["budget"]["level"] == 0.025
    levels = {guardrails["reward"]["level"], guardrails["outcomes"][0]["level"]}
    assert levels == {0.0125, 0.025}
    assert shell("verify", "decision.json", "log.csv").code == 0
    result, record = decide(shell, *spends, "--guardrail", "load:0")
    assert (result.code, record["verdict"], record["reason"]) == (1, "KEEP", "BETTER")
    assert "'load' will rise by more than 0" in " ".join(result.out.split())
    assert len(read_ledger("budget.json").entries) == 2


def test_an_equal_candidate_is_kept(shell: Shell) -> None:
    """As often as not another action than the behaviour, and no better: beside the clearly better one."""
    rng = np.random.default_rng(5)
    action = rng.integers(0, 2, EPISODES)
    LOG.with_columns(
        action=action,
        behavior_prob=np.full(EPISODES, 0.5),
        reward=rng.normal(size=EPISODES),
        new_prob=np.where(action == 1, 0.9, 0.1),
    ).write_csv("equal.csv")
    kept = shell("gate", "equal.csv", "--num-actions", "3", *CANDIDATE, *FLAGS, "--json")
    assert kept.code == 1, kept.err
    assert json.loads(kept.out)["advantage"]["p_value"] > 0.05


@pytest.mark.parametrize("command", ["check", "evaluate", "gate", "improve", "backtest", "plan"])
def test_an_unfit_log_is_named_by_its_rows(command: str, shell: Shell) -> None:
    bad = LOG.with_columns(behavior_prob=pl.when(pl.col("episode").is_in([7, 9])).then(0.0).otherwise(0.5))
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
    assert sorted(path.suffix for path in Path().iterdir()) == [
        ".csv", ".csv", *([".json"] if command == "gate" else []), ".parquet",
    ]  # fmt: skip


def test_a_defect_of_ours_is_not_taken_for_keep(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("tidegate.commands.gating.decide", broken)
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS)
    assert result.code == 2
    assert "nothing was decided" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setenv("TIDEGATE_TRACEBACK", "1")
    shown = shell("gate", "log.csv", *CANDIDATE, *FLAGS)
    assert shown.code == 2
    assert "Traceback" in shown.err


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
    assert [path.name for path in tmp_path.iterdir()] == ["decision.json"]
    assert json.loads((tmp_path / "decision.json").read_text())["status"] == "error"


def test_the_commands_do_not_import_numbers_for_help() -> None:
    code = (
        "import sys, tidegate.cli.log_commands, tidegate.cli.flags; "
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'polars', 'rich.table')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
