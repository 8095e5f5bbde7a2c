"""Commands against hostile policies, records, names and terminals: 0 and 1 only for what was decided."""

import base64
import functools
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.test_cli_logs import CANDIDATE, FLAGS, PAPER_FLAGS, Shell, shell
from tests.test_commands import LOG, PAPER, PLAIN, resealed
from tidegate import commands as wf
from tidegate.cli.exits import ended
from tidegate.cli.printing import printable
from tidegate.gates.budget_rules import BudgetRule
from tidegate.gates.ledger import Budget, BudgetPlan, Grant, open_ledger
from tidegate.gates.signatures import make_keys, read_private_key, read_public_key, signed
from tidegate.record import MAX_BYTES, write_record
from tidegate.reports.page import CONTENT_POLICY

__all__ = ["shell"]

HONEST = "    return __import__('numpy').tile([0.02, 0.96, 0.02], (states.height, 1))\n"
EXITS = {
    "at_import": "import sys\nsys.exit()\ndef f(states):\n" + HONEST,
    "in_the_function": "import sys\ndef f(states):\n    sys.exit(0)\n",
    "as_if_kept": "def f(states):\n    raise SystemExit(1)\n",
    "in_its_answer": (
        "class Answer:\n    def __array__(self, *_, **__):\n        raise SystemExit(0)\n"
        "def f(states):\n    return Answer()\n"
    ),
    "past_exceptions": "class Odd(BaseException):\n    pass\ndef f(states):\n    raise Odd\n",
    "with_its_folder_gone": "import sys\nsys.path.pop(0)\nsys.exit(0)\n",
}


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """A gate without a budget, as it is stored."""
    return wf.gate(LOG, candidate="column:new_prob", settings=PAPER).to_dict()


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A gate with a budget, and its ledger."""
    path = tmp_path_factory.mktemp("budget") / "budget.json"
    found = wf.gate(LOG, candidate="column:new_prob", settings=PLAIN, budget=Budget(path))
    return found.to_dict(), path


def edited(content: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """As a forger would: one value changed, and the hash made to fit."""
    *parents, last = place.split(".")
    forged = json.loads(json.dumps(content))
    inner = forged
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return resealed(forged)


def undecided(record: Path) -> bool:
    """Whether the record says that nothing was decided."""
    content = json.loads(record.read_text())
    return content["status"] == "error" and content["verdict"] is None


# What a policy's own code can do.


@pytest.mark.parametrize("way", ["at_import", "in_the_function"])
def test_a_policy_that_exits_is_not_a_success(way: str, tmp_path: Path) -> None:
    LOG.write_csv(tmp_path / "log.csv")
    (tmp_path / "helper.py").write_text(EXITS[way])
    command = [sys.executable, "-m", "tidegate", "gate", "log.csv", "--candidate", "python:helper:f"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "SystemExit" in done.stderr
    assert "Traceback" not in done.stderr
    assert undecided(tmp_path / "decision.json")


@pytest.mark.parametrize("way", EXITS)
@pytest.mark.parametrize("role", ["candidate", "safe"])
def test_whatever_a_policy_raises_decides_nothing(way: str, role: str, shell: Shell) -> None:
    module = f"helper_{role}_{way}"
    Path(f"{module}.py").write_text(EXITS[way])
    other = {"candidate": "safe", "safe": "candidate"}[role]
    result = shell("gate", "log.csv", f"--{role}", f"python:{module}:f", f"--{other}", "column:new_prob")
    assert result.code == 2
    assert result.err.startswith(("tidegate: cannot import 'f'", f"tidegate: python:{module}:f "))
    assert result.out == ""
    assert way == "with_its_folder_gone" or undecided(Path("decision.json"))


def test_an_error_takes_the_place_of_an_older_decision(shell: Shell) -> None:
    """Or a pipeline that reads the record would act on last week's DEPLOY."""
    Path("decision.json").write_text('{"status": "pass", "verdict": "DEPLOY"}')
    result = shell("gate", "log.csv", "--candidate", "column:missing", "--json")
    assert result.code == 2
    content = json.loads(result.out)
    assert content == json.loads(Path("decision.json").read_text())
    assert (content["status"], content["verdict"]) == ("error", None)
    assert "there is no column 'missing'" in content["sentence"]
    assert content["decided_at"] == content["expires_at"]
    assert "holds no decision" in shell("verify", "decision.json", "log.csv").err


def test_an_interruption_stays_one(shell: Shell) -> None:
    Path("helper_interrupted.py").write_text("def f(states):\n    raise KeyboardInterrupt\n")
    assert shell("gate", "log.csv", "--candidate", "python:helper_interrupted:f").code == 130


def test_a_dataset_and_a_world_that_exit_are_errors(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = SimpleNamespace(load_dataset=lambda name: sys.exit(0))
    monkeypatch.setitem(sys.modules, "minari", minari)
    result = shell("check", "minari:door-human-v2")
    assert (result.code, result.out) == (2, "")
    assert "Minari cannot load" in result.err
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("world_exits.py").write_text("import sys\nsys.exit(0)\n")
    Path("world_exits_later.py").write_text("def World(**fields):\n    raise SystemExit(0)\n")
    for world in ("world_exits:World", "world_exits_later:World"):
        Path("sweep.toml").write_text(
            f'name = "mine"\nworld = "{world}"\nnum_episodes = 40\n'
            "[cells.calm]\nspeed = 0.0\n[fixed]\nlookahead = 4\norder = 1\n"
            "steps_per_episode = 1.0\nentropy_weight = 0.1\n"
        )
        result = shell("reproduce", "sweep", "sweep.toml", "--runs", "1", "--out", world)
        assert result.code == 2, world
        assert "SystemExit" in result.err
        assert "Rows, table" not in result.out


def test_success_comes_from_a_decision_alone() -> None:
    for code in (0, None, 1, "all is well"):
        assert ended(functools.partial(sys.exit, code)) == 2
    assert ended(lambda: None) == 2


# What a record can ask for.


def test_a_record_runs_no_code(shell: Shell, record: dict[str, Any]) -> None:
    Path("helper_marks.py").write_text(
        "open('ran', 'w').close()\nimport sys\ndef f(states):\n    sys.exit(0)\n"
    )
    for place in ("candidate.policy", "safe.policy"):
        write_record(edited(record, place, "python:helper_marks:f"), "forged.json")
        result = shell("verify", "forged.json", "log.csv")
        assert result.code == 2
        assert "CONFIRMED" not in result.out
        assert "names Python code, python:helper_marks:f" in result.err
        assert "--allow-python" in result.err
        assert not Path("ran").exists()
    allowed = shell("verify", "forged.json", "log.csv", "--allow-python")
    assert allowed.code == 2
    assert "CONFIRMED" not in allowed.out
    assert Path("ran").exists()


def test_python_that_the_reader_allows_is_replayed(shell: Shell) -> None:
    Path("helper_honest.py").write_text("def f(states):\n" + HONEST)
    assert shell("gate", "log.csv", "--candidate", "python:helper_honest:f", *PAPER_FLAGS).code == 0
    assert shell("verify", "decision.json", "log.csv").code == 2
    confirmed = shell("verify", "decision.json", "log.csv", "--allow-python")
    assert confirmed.code == 0
    assert "CONFIRMED (DEPLOY)" in confirmed.out


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("settings.draws", 10**9, "to 100,000"),
        ("settings.draws", 10**400, "a 64-bit whole number"),
        ("settings.draws", "500", "draws in the record is '500'"),
        ("settings.draws", True, "draws in the record is True"),
        ("settings.alpha", 10**400, "a finite number"),
        ("settings.lookahead", [10], "a 64-bit whole number or null"),
        ("settings.preset", ["PAPER"], "Expected Preset"),
        ("dates", 10**9, "from 0 to 1,000"),
        ("dates", "20", "dates in the record is '20'"),
        ("seed", 2**70, "seed in the record is"),
        ("provenance.columns", "reward", "columns in the record is of type str"),
        ("provenance.columns.num_actions", 10**9, "from 0 to 1,000,000"),
        ("provenance.versions", [], "versions in the record is of type list"),
        ("provenance.estimated", "no", "true or false"),
        ("provenance.read_as", 3, "one of parquet"),
        ("candidate.policy", 3, "a text"),
        ("budget", {"number": "1"}, "number in the record is '1'"),
        ("guardrails", {"outcomes": [{"outcome": 1, "margin": 0}]}, "name in the record is 1"),
        ("candidate.policy", "policy:/dev/zero", "not a regular file"),
        ("candidate.policy", "policy:pipe", "not a regular file"),
    ],
)
def test_what_a_record_asks_for_is_bounded(
    place: str,
    value: Any,
    message: str,
    record: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    forged = edited(record, place, value)
    start = time.perf_counter()
    with pytest.raises(tg.TidegateError, match=message) as refused:
        wf.verify(forged, LOG)
    assert time.perf_counter() - start < 5
    assert len(str(refused.value)) < 500


def test_no_file_hangs_or_overwhelms_the_reader(shell: Shell, record: dict[str, Any]) -> None:
    os.mkfifo("pipe")
    with Path("huge.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    Path("deep.json").write_text('{"record_hash": ' + "[" * 10**6 + "]" * 10**6 + "}")
    Path("nan.json").write_text('{"record_hash": "0", "verdict": NaN}')
    Path("twice.json").write_text('{"record_hash": "0", "verdict": "KEEP", "verdict": "DEPLOY"}')
    Path("long.json").write_text('{"record_hash": 1' + "0" * 10_000 + "}")
    for name in ("/dev/zero", ".", "pipe", "huge.json", "deep.json", "nan.json", "twice.json", "long.json"):
        result = shell("verify", name, "log.csv")
        assert result.code == 2, name
        assert result.err.startswith("tidegate: "), name
        assert "unexpected" not in result.err
        assert len(result.err) < 500
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(tg.SettingsError):
        wf.verify({**record, "extra": nested}, LOG)
    with pytest.raises(tg.SettingsError):
        wf.verify({**record, "extra": float("nan")}, LOG)
    for policy in ("/dev/zero", "pipe", "deep.json"):
        with pytest.raises(tg.PolicyError):
            tg.load_policy(policy)


# Who granted the level.


def test_a_grant_that_the_rule_does_not_give_is_not_confirmed() -> None:
    forged = Grant(1, 0.97, "", 0.05, BudgetRule.HARMONIC, 52, None)
    content = wf.gate(LOG, candidate="column:new_prob", settings=PLAIN, budget=forged).to_dict()
    answer = wf.verify(content, LOG)
    assert answer.outcome is wf.Outcome.NOT_GRANTED
    assert not answer.confirmed
    assert "budget.level: recorded 0.97, replayed 0.00094" in str(answer)


@pytest.mark.parametrize(
    ("name", "value"),
    [("level", 0.04), ("alpha", 0.5), ("number", 0), ("number", 60), ("tests", 1), ("after", 7.0)],
)
def test_every_part_of_a_grant_follows_from_its_plan(
    name: str, value: Any, budgeted: tuple[dict[str, Any], Path]
) -> None:
    even = {"rule": "EVEN", "level": 0.05 / 52}
    content = edited(budgeted[0], "budget", {**budgeted[0]["budget"], **even, name: value})
    assert wf.verify(content, LOG).outcome is wf.Outcome.NOT_GRANTED


def test_the_ledger_must_hold_the_decision(
    budgeted: tuple[dict[str, Any], Path], record: dict[str, Any], shell: Shell
) -> None:
    content, ledger = budgeted
    write_record(content, "decision.json")
    blind = wf.verify(content, LOG)
    assert blind.confirmed
    assert "The grant was not looked up" in str(blind)
    found = wf.verify(content, LOG, ledger=ledger)
    assert found.confirmed, str(found)
    assert found.notes[1:] == ("The ledger holds this decision.",)
    open_ledger("empty.json", 0.05, BudgetPlan())
    for forged, where in (
        (content, "empty.json"),
        (record, ledger),
        (edited(content, "verdict", "KEEP"), ledger),
        (edited(content, "sentence", "all is well"), ledger),
        (edited(content, "budget.question", "0"), ledger),
        (edited(content, "budget", {**content["budget"], "number": 2, "level": 0.05 * 52 / 53 / 54}), ledger),
    ):  # fmt: skip
        assert wf.verify(forged, LOG, ledger=where).outcome is wf.Outcome.NOT_IN_LEDGER
    Path("broken.json").write_text("{}")
    with pytest.raises(tg.SettingsError):
        wf.verify(content, LOG, ledger="broken.json")
    assert shell("verify", "decision.json", "log.csv", "--ledger", "missing.json").code == 2
    refused = shell("verify", "decision.json", "log.csv", "--ledger", "empty.json", "--json")
    assert refused.code == 2
    assert json.loads(refused.out)["outcome"] == "NOT_IN_LEDGER"


# Who wrote the record.


def test_a_signature_says_who_wrote_the_record(shell: Shell) -> None:
    for name in ("mine", "theirs"):
        assert shell("keygen", name).code == 0
    assert stat.S_IMODE(Path("mine.private.pem").stat().st_mode) == 0o600
    before = Path("mine.private.pem").read_bytes()
    assert shell("keygen", "mine").code == 2
    assert Path("mine.private.pem").read_bytes() == before

    sign = ["--sign-key", "mine.private.pem"]
    gated = shell("gate", "log.csv", *CANDIDATE, *PAPER_FLAGS, *sign, "--json")
    assert gated.code == 0, gated.err
    content = json.loads(Path("decision.json").read_text())
    assert json.loads(gated.out) == content

    def verified(*options: str) -> tuple[int, str]:
        result = shell("verify", "decision.json", "log.csv", *options, "--json")
        answer = json.loads(result.out)
        return result.code, f"{answer['outcome']}: {' '.join(answer['notes'])}"

    mine = ("--public-key", "mine.public.pem")
    code, text = verified(*mine)
    assert (code, text) == (0, "IDENTICAL: The signature is that of the public key's owner.")
    code, text = verified()
    assert code == 0
    assert "The signature was not checked" in text
    assert verified("--public-key", "theirs.public.pem")[0] == 2
    # Whoever changes the content can make the hash fit, and not the signature.
    forgeries = {
        "OTHER_SIGNATURE": edited(content, "sentence", "all is well"),
        "UNSIGNED": {name: one for name, one in content.items() if name != "signature"},
        "EDITED": {**content, "sentence": "all is well"},
    }
    for outcome, forged in forgeries.items():
        write_record(forged, "decision.json")
        code, text = verified(*mine)
        assert (code, text) == (2, f"{outcome}: ")
    write_record(forgeries["UNSIGNED"], "decision.json")
    code, text = verified()
    assert code == 0
    assert "its hash reveals accidents, not forgery" in text


def test_a_signature_is_of_its_form(tmp_path: Path, record: dict[str, Any]) -> None:
    private, public = make_keys(tmp_path / "mine")
    whole = signed(record, read_private_key(private))
    assert wf.verify(whole, LOG, public_key=public).confirmed
    other = signed({**record, "seed": 1}, read_private_key(private))["signature"]
    forms: tuple[Any, ...] = (
        None, {}, [], "x", other, {**whole["signature"], "algorithm": "none"},
        {**whole["signature"], "value": "ä"}, {**whole["signature"], "value": 3},
        {**whole["signature"], "value": base64.b64encode(b"short").decode()},
    )  # fmt: skip
    for bad in forms:
        answer = wf.verify({**whole, "signature": bad}, LOG, public_key=public)
        assert answer.outcome is wf.Outcome.OTHER_SIGNATURE, bad
    (tmp_path / "junk.pem").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    for path in (private, tmp_path / "junk.pem", tmp_path / "missing.pem", tmp_path, "/dev/zero"):
        with pytest.raises(tg.SettingsError, match="public key"):
            wf.verify(whole, LOG, public_key=path)
    with pytest.raises(tg.SettingsError, match="private key"):
        read_private_key(public)


def test_an_improvement_is_signed_too(shell: Shell) -> None:
    make_keys("mine")
    options = ["--features", "load", "--steps", "20", "--out", "found.json", *PAPER_FLAGS]
    assert shell("improve", "log.csv", *options, "--sign-key", "mine.private.pem").code == 0
    key = ["--public-key", "mine.public.pem"]
    assert shell("verify", "found.decision.json", "log.csv", *key).code == 0
    assert wf.read_training("found.decision.json").num_training == 200


def test_signatures_need_their_package(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    make_keys("mine")
    for name in [one for one in sys.modules if one.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    refused = shell("gate", "log.csv", *CANDIDATE, "--sign-key", "mine.private.pem")
    assert refused.code == 2
    assert "pip install 'tidegate[sign]'" in refused.err
    assert shell("keygen", "other").code == 2
    with pytest.raises(tg.SettingsError, match="cryptography"):
        read_public_key("mine.public.pem")


# What reaches a terminal and a page.

EVIL = "p\\[/]\x1b[2J[link=http://evil]\u202e\x9b31m<img src=x onerror=alert(1)>$\\frac$"


@pytest.fixture
def evil(shell: Shell) -> Shell:
    LOG.rename({"new_prob": EVIL}).write_parquet("evil.parquet")
    LOG.rename({"load": EVIL}).write_parquet("rail.parquet")
    return shell


def test_names_of_columns_are_only_shown(evil: Shell) -> None:
    named = ["--candidate", f"column:{EVIL}", *PAPER_FLAGS]
    result = evil("gate", "evil.parquet", *named, "--report", "out.html", "--backtest", "0")
    assert result.code == 0, result.err
    for text in (result.out, result.err):
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}
    assert r"p\[/]\x1b[2J[link=http://evil]" in "".join(result.out.split())
    assert json.loads(Path("decision.json").read_text())["candidate"]["policy"] == f"column:{EVIL}"
    page = Path("out.html").read_text()
    assert "<img" not in page
    assert f'content="{CONTENT_POLICY.replace(chr(39), "&#39;")}"' in page
    printed = evil("gate", "evil.parquet", *named, "--json")
    assert json.loads(printed.out)["candidate"]["policy"] == f"column:{EVIL}"
    checked = evil("check", "evil.parquet", "--policy", f"column:{EVIL}", *PAPER_FLAGS)
    assert checked.code == 0
    assert "\x1b" not in checked.out
    guarded = evil("gate", "rail.parquet", *CANDIDATE, *PAPER_FLAGS, "--guardrail", f"{EVIL}:0.001")
    assert guarded.code == 1
    assert "\x1b" not in guarded.out + guarded.err
    missing = evil("gate", "log.csv", *named)
    assert missing.code == 2
    assert not set(missing.err) & {"\x1b", "\x9b", "\u202e"}


def test_a_forged_record_cannot_print_a_line_of_its_own(shell: Shell, record: dict[str, Any]) -> None:
    write_record(edited(record, "verdict", "x\nCONFIRMED (DEPLOY): bit for bit\x1b[2J"), "forged.json")
    result = shell("verify", "forged.json", "log.csv")
    assert result.code == 2
    assert not any(line.startswith("CONFIRMED") for line in result.out.splitlines())
    assert "\x1b" not in result.out


def test_printable() -> None:
    assert printable("naïve α – 'x'") == "naïve α – 'x'"
    assert printable("a\x1b[2J\x07\u202eb\ud800") == "a\\x1b[2J\\x07\\u202eb\\ud800"
    assert printable("one\ntwo\r\nthree") == "one two three"


# A decision that is on record stands.

GATE = ("gate", "log.csv", *CANDIDATE, *PAPER_FLAGS)


def full() -> Any:
    return open("/dev/full", "w")


def closed() -> Any:
    """A pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return open(write, "w")


@pytest.mark.parametrize("output", [full, closed])
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_a_decision_that_cannot_be_shown_stands(
    output: Callable[[], Any], json_flag: list[str], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with output() as broken, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", broken)
        result = shell(*GATE, *json_flag)
    assert result.code == 0
    assert json.loads(Path("decision.json").read_text())["verdict"] == "DEPLOY"
    assert "the decision stands: DEPLOY" in result.err
    assert "nothing was decided" not in result.err


@pytest.mark.parametrize("output", [full, closed])
def test_an_answer_that_cannot_be_shown_is_no_success(
    output: Callable[[], Any], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with output() as broken, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", broken)
        result = shell("check", "log.csv", *PAPER_FLAGS)
    assert result.code == 2
    assert result.err.startswith("tidegate: nothing was decided")


def test_a_process_of_its_own_ends_with_the_decision(tmp_path: Path) -> None:
    LOG.write_csv(tmp_path / "log.csv")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "tidegate", *GATE]
    with full() as device:
        done = subprocess.run(
            command, cwd=tmp_path, env=ascii_only, stdout=device, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 0, done.stderr
    assert b"the decision stands: DEPLOY" in done.stderr
    done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"DEPLOY" in done.stdout


def test_a_report_that_cannot_be_written_changes_nothing(shell: Shell) -> None:
    result = shell(*GATE, "--report", "no/such/folder.html", "--backtest", "0")
    assert result.code == 0
    assert "DEPLOY" in result.out
    assert "its report could not be written" in result.err


def test_a_budget_that_cannot_be_shown_changes_nothing(shell: Shell) -> None:
    """Everything is told of a decision that was made, or the reason why not."""
    result = shell("gate", "log.csv", *CANDIDATE, *FLAGS, "--budget", "b.json", "--report", ".")
    assert result.code == 0
    assert "the decision stands: DEPLOY" in result.err
    assert "Error budget b.json" in result.err
