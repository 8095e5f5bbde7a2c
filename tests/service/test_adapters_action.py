"""The step for GitHub Actions, run with the environment that a runner sets."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from .serving import rows

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "action" / "gate.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("action_gate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(text: str) -> dict[str, str]:
    """Outputs as the runner reads them: name<<end, lines, end; or name=value."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        name, _, end = line.partition("<<")
        if not end:
            name, _, found_value = line.partition("=")
            found[name] = found_value
            continue
        value = []
        for one in lines:
            if one == end:
                break
            value.append(one)
        found[name] = "\n".join(value)
    return found


def step(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str, str]:
    """Run the step as `action.yml` does: its inputs with their defaults; code, outputs, summary, log."""
    action = yaml.safe_load((PROJECT / "action.yml").read_text())
    (gate,) = [one for one in action["runs"]["steps"] if one.get("id") == "gate"]
    environment = {**os.environ, "GITHUB_WORKSPACE": str(folder), "GITHUB_ACTION_PATH": str(PROJECT)}
    for variable, expression in gate["env"].items():
        found = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", expression)
        assert found is not None
        name = found[1]
        environment[variable] = inputs.pop(name.replace("-", "_"), action["inputs"][name].get("default", ""))
    assert not inputs
    environment["INPUT_PYTHON"] = sys.executable
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        environment[name] = str(folder / name)
        (folder / name).write_text("")
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", gate["run"]]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    said = {name: (folder / name).read_text() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    log = done.stdout + done.stderr
    return done.returncode, outputs(said["GITHUB_OUTPUT"]), said["GITHUB_STEP_SUMMARY"], log


def test_the_step_only_passes_inputs_by_the_environment() -> None:
    action = yaml.safe_load((PROJECT / "action.yml").read_text())
    for one in action["runs"]["steps"]:
        assert "${{" not in one["run"], "an expression in a script lets an input be code"
        assert one["shell"] == "bash"
    assert set(action["outputs"]) == {"status", "verdict", "record"}
    page = (PROJECT / "docs" / "how-to" / "service-adapters.md").read_text()
    found = re.search(r"^## GitHub Actions$.*?^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    (used,) = [
        one for one in yaml.safe_load(found[1])["jobs"]["gate"]["steps"] if one.get("id") == "tidegate"
    ]
    assert set(used["with"]) <= set(action["inputs"])
    needed = {name for name, one in action["inputs"].items() if one.get("required")}
    assert needed <= set(used["with"])


def test_a_deploy_passes_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "my logs").mkdir()
    rows(300).write_parquet(tmp_path / "my logs" / "last week.parquet")
    code, said, summary, log = step(
        tmp_path,
        log="my logs/last week.parquet",
        candidate="column:new_prob",
        lookahead="20",
        record="the record.json",
        arguments="--guardrail harm:0.3\n--valid-for 2d",
    )
    assert (code, said) == (0, {"status": "pass", "verdict": "DEPLOY", "record": "the record.json"}), log
    record = json.loads((tmp_path / "the record.json").read_text())
    assert "<h3>Tidegate: DEPLOY</h3>" in summary
    assert summary.count("<tr>") == summary.count("</tr>") >= 5
    assert "Guardrail harm" in summary
    assert record["record_hash"] in summary
    assert "DEPLOY" in log


@pytest.mark.parametrize(("word", "code"), [("true", 1), ("False", 0)])
def test_a_keep_fails_by_choice(tmp_path: Path, word: str, code: int) -> None:
    rows(300, better=-0.4).write_parquet(tmp_path / "-log.parquet")
    found = step(tmp_path, log="-log.parquet", candidate="column:new_prob", lookahead="20", fail_on_keep=word)
    assert found[0] == code
    assert found[1] == {"status": "fail", "verdict": "KEEP", "record": "decision.json"}


def test_what_cannot_be_decided_fails_always_and_an_old_record_is_not_believed(tmp_path: Path) -> None:
    old = {"status": "pass", "verdict": "DEPLOY", "sentence": "it was so last week."}
    rows(50).drop("reward").write_parquet(tmp_path / "log.parquet")
    for more in ({}, {"arguments": "--no-such-flag"}, {"arguments": "'open"}, {"fail_on_keep": "perhaps"}):
        (tmp_path / "decision.json").write_text(json.dumps(old))
        asked = {"log": "log.parquet", "candidate": "column:new_prob", "fail_on_keep": "false", **more}
        code, said, summary, _ = step(tmp_path, **asked)
        assert (code, said["status"], said["verdict"]) == (2, "error", "")
        assert "last week" not in summary
    code, said, _, _ = step(tmp_path, log="", candidate="column:new_prob")
    assert (code, said["status"]) == (2, "error")


HOSTILE = (
    "x</td></tr></table><script>alert(1)</script>",
    "x | y |\n|---|---|\n# title",
    "x\nverdict=DEPLOY\nstatus<<EOF\npass\nEOF",
    "x\r\n::set-output name=verdict::DEPLOY",
    "x\n::add-mask::e\n##[error]no\n::stop-commands::t",
    "[click](javascript:alert(1)) ![i](http://host/i.png) @everyone #1 `code` https://host",
    "x\x1b[2J\x07\u202e\u2028::error::no",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(
    script: ModuleType, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content: dict[str, Any] = {
        "status": "fail",
        "verdict": "KEEP",
        "sentence": name,
        "candidate": f"column:{name}",
        "safe": name,
        "caveats": [name],
        "guardrails": {"outcomes": [{"outcome": name, "sentence": name}]},
    }
    files = {one: str(tmp_path / one) for one in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    assert script.report(files, content, name, 1) == 1
    found = outputs((tmp_path / "GITHUB_OUTPUT").read_text())
    assert list(found) == ["status", "verdict", "record"]
    assert (found["status"], found["verdict"]) == ("fail", "KEEP")
    assert "\n" not in found["record"]
    table = (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert re.sub(r"</?(?:h3|table|tr|th|td)>", "", table).count("<") == 0
    assert table.count("<td>") == table.count("</td>") == 5
    assert table.count("\n") == 3
    text = re.sub(r"&#?\w+;", "", re.sub(r"<[^>]*>", "", table.removeprefix("<h3>Tidegate:")))
    assert not re.search(r"[\[\]`*_|#@~\\:\x00-\x09\x0b-\x1f\x7f\u2028\u202e]", text)
    log = capsys.readouterr().out
    assert all(line.startswith("  ") for line in log.splitlines())
    assert not re.search(r"::|##\[|\x1b|\x07|\r", log)


def test_hostile_columns_go_through_the_whole_step(tmp_path: Path) -> None:
    name = "new\n::error::no</td>|verdict=DEPLOY"
    log = tmp_path / "a $(touch x) `touch x`; touch x.parquet"
    rows(300, better=-0.4).rename({"new_prob": name}).write_parquet(log)
    code, said, summary, printed = step(tmp_path, log=log.name, candidate=f"column:{name}", lookahead="20")
    assert (code, said["status"]) == (1, "fail"), printed
    assert set(said) == {"status", "verdict", "record"}
    assert not (tmp_path / "x").exists()
    assert not re.search(r"^\s*::", printed, re.MULTILINE)
    assert summary.count("</td>") == summary.count("<td>")
