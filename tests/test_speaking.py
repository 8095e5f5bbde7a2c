"""Errors and sentences name settings as arguments in Python, and as flags in the shell."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from tidegate.cli.speaking import flags, spoken, spoken_error
from tidegate.commands import PlainSettings

ROOT = Path(tidegate.__file__).parent
# Options of other programs.
OTHER_PROGRAMS = {"--format=%H"}
# What stands in backquotes and is no setting: commands, and what a user may call or write.
NOT_SETTINGS = {"backtest", "check", "evaluate", "gate", "improve", "plan", "verify"}


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
        if re.search(r"--[a-z]", text) and text not in OTHER_PROGRAMS
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
