"""Errors and sentences name settings as arguments in Python, and as flags in the shell."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tidegate
from tidegate.checks.findings import Level, found, told_once, undetermined
from tidegate.cli.speaking import flags, spoken, spoken_error
from tidegate.commands import PlainSettings
from tidegate.reports.log_page import log_page

ROOT = Path(tidegate.__file__).parent
# Options of other programs.
OTHER_PROGRAMS = {"--format=%H"}
A_PROGRAM = "experiments/serve_demo.py"  # with options of its own
# What stands in backquotes and is no setting: commands, what a user may call or write, keys of gates.toml.
NOT_SETTINGS = {
    *("backtest", "check", "evaluate", "gate", "improve", "plan", "verify"),
    *("to_dict", "token", "secret", "secret_env"),
}


def sentences() -> Iterator[tuple[str, str]]:
    """Every text in the package that is no docstring, outside the command line; with its place."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] == "cli":
            continue
        tree = ast.parse(path.read_text())
        docstrings = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_no_sentence_of_the_library_names_a_flag() -> None:
    found = [
        f"{place}: {text}"
        for place, text in sentences()
        if re.search(r"--[a-z]", text) and text not in OTHER_PROGRAMS and not place.startswith(A_PROGRAM)
    ]
    assert not found, found


def test_every_setting_in_a_sentence_has_a_flag() -> None:
    """So that no argument of Python is printed in the shell, misspelt ones included."""
    named = [
        (place, name)
        for place, text in sentences()
        for name in re.findall(r"`([a-z_]+)(?:=[^`]*)?`", text)
        if name not in NOT_SETTINGS
    ]
    assert {"candidate_from", "allow_unguaranteed", "confirmed_order"} <= {name for _, name in named}
    for place, name in named:
        assert name in flags() or name == "propensity", place


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("say so with `allow_large_alpha=True`.", "say so with --allow-large-alpha."),
        ("choose `preset='paper'`", "choose --preset paper"),
        ("as in `features=['age', 'load']`.", "as in --features age,load."),
        ("`period=7`, `lookahead=7`", "--period 7, --lookahead 7"),
        ("(`candidate_from='before:TIME'`)", "(--candidate-from before:TIME)"),
        ("`behavior_prob=None`", "--behavior-prob ''"),
        ("`stream=False`", "--no-stream"),
        ("`confirmed_order=True`", "--confirm-order"),
        ("`propensity='log_density'`", "--log-probs --densities"),
        ("`reward_range=(0, 1)`", "--reward-range 0,1"),
        ("`guardrails`", "--guardrail"),
        ("let `improve` search; column `lookahead 7`", "let `improve` search; column `lookahead 7`"),
    ],
)
def test_arguments_become_flags(python: str, shell: str) -> None:
    assert spoken(python) == shell


def test_a_refused_setting_is_named_as_the_shell_names_it() -> None:
    with pytest.raises(tidegate.SettingsError) as refused:
        PlainSettings(allow_large_alpha=1)  # type: ignore[arg-type]
    assert str(refused.value) == "allow_large_alpha is 1. Expected True or False."
    assert spoken_error(refused.value) == "--allow-large-alpha is 1. Expected True or False."
    # What a log holds is not a setting, although a column is named by one.
    assert spoken_error(tidegate.LogError("reward is nan")) == "reward is nan"


def test_both_languages(capfd: pytest.CaptureFixture[str]) -> None:
    from tidegate.cli.exits import ended

    def refused() -> None:
        PlainSettings(alpha=0.5)

    with pytest.raises(tidegate.SettingsError, match="say so with `allow_large_alpha=True`"):
        refused()
    assert ended(refused) == 2
    assert "say so with --allow-large-alpha." in capfd.readouterr().err


COUNT = 8
ACTIONS = np.array([0, 1, 1, 0, 1, 0, 0, 1])
EIGHT = {
    "episode": np.arange(1, COUNT + 1),
    "action": ACTIONS,
    "behavior_prob": np.full(COUNT, 0.5),
    "reward": ACTIONS + np.linspace(0.0, 0.3, COUNT) ** 2,
    "new_prob": np.where(ACTIONS == 1, 0.8, 0.2),
}


def test_a_log_of_eight_rows_gets_one_warning() -> None:
    """Eight findings are not known, or bad, for want of episodes: that is said once."""
    record = tidegate.check(EIGHT, policy="column:new_prob")
    cause, *rest = [one for one in told_once({"": record.check.findings}) if one.level is Level.WARNING]
    assert not rest
    assert cause.sentence == "8 episodes are too few; the gate needs at least 24."
    assert len(cause.names) == len(record.check.warnings) == 8
    assert cause.names[0] == "episodes"
    assert str(record).splitlines() == ["1 warning: episodes."]
    # Each is still found by its name, as programs want it.
    assert record.check["drift"].value is None
    assert record.check["effective_sample_size"].value is not None


def test_a_gate_of_eight_rows_names_its_cause_once() -> None:
    record = tidegate.gate(EIGHT, candidate="column:new_prob")
    told = told_once({role: check.warnings for role, check in record.checks.items()})
    assert [(one.about, one.sentence) for one in told] == [
        (("candidate", "safe", "difference"), "8 episodes are too few; the gate needs at least 24.")
    ]
    page = log_page(record)
    alert = page[page.index("Before you rely on this") :]
    alert = alert[: alert.index("</ul>")]
    assert alert.count("too few") == 1
    assert "For the candidate, the safe policy and the difference: 8 episodes are too few;" in alert
    assert "Not known: horizon effective sample size, drift, past forecasts" in alert


def test_other_causes_are_told_once_too() -> None:
    doubt = [undetermined(name, "an estimated return is not a finite number") for name in ("drift", "jump")]
    (told,) = told_once({"candidate": doubt, "safe": doubt[:1]})
    assert told.names == ("drift", "jump")
    assert told.about == ("candidate", "safe")
    assert told.sentence == "An estimated return is not a finite number."
    assert str(doubt[0]) == "WARNING: drift not known. An estimated return is not a finite number."
    fine = [found("jump", 1.0, "No jump is seen."), found("drift", 2.0, "It drifts.", level=Level.NOTE)]
    assert [one.names for one in told_once({"": fine})] == [("drift",), ("jump",)]
