"""The closing lines of records, and the terminal that ends with them: dates, units, names in exact text."""

import copy
import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.test_cli_logs import Shell
from tidegate import commands as wf
from tidegate.errors import LogError
from tidegate.reports.summary import summary

START = datetime.datetime(2025, 12, 10, 3, 20)
EPISODES, DAYS = 240, 84
COLUMNS: dict[str, Any] = {"episode": None, "step": None, "reward": "revenue", "time": "when"}
SETTINGS: dict[str, Any] = {"preset": "paper", "basis": "constant", "draws": 100}
FLAGS = ["--episode", "", "--step", "", "--reward", "revenue", "--time", "when"]
PAPER = ["--preset", "paper", "--basis", "constant", "--draws", "100", "--lookahead", "7d"]


def _frame() -> pl.DataFrame:
    """Emails earn, and the candidate sends more of them."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 3, EPISODES)
    revenue = 0.4 + 0.6 * (action == 1) + 0.1 * rng.normal(size=EPISODES)
    return pl.DataFrame(
        {
            "when": [START + datetime.timedelta(days=DAYS * i / EPISODES) for i in range(EPISODES)],
            "action": [("banner", "email", "none")[one] for one in action],
            "behavior_prob": np.full(EPISODES, 1 / 3),
            "new_prob": np.array([0.1, 0.8, 0.1])[action],
            "revenue": revenue,
        }
    )


FRAME = _frame()
NEXT_WEEK = "the next 7 days (2026-03-04 to 2026-03-10)"


def gate(frame: pl.DataFrame = FRAME, **named: Any) -> wf.GateRecord:
    given = {"lookahead": "7d", **SETTINGS, **COLUMNS, **named}
    moment = datetime.datetime(2026, 3, 4, 9, 30, tzinfo=datetime.UTC)
    return wf.gate(frame, candidate="column:new_prob", now=moment, **given)


@pytest.fixture(scope="module")
def decided() -> dict[str, Any]:
    return gate().to_dict()


def test_a_gate_says_advantage_lift_dates_status_and_expiry(decided: dict[str, Any]) -> None:
    advantage, safe = decided["advantage"], decided["safe"]
    share = 100 * advantage["point"] / safe["point"]
    assert summary(decided) == [
        "DEPLOY: the candidate is forecast to beat the safe policy, beyond chance.",
        f"Advantage per episode ('revenue'): +{advantage['point']:.3g} (+{share:.2g} % over the safe "
        f"policy's {safe['point']:.4g}), at least +{advantage['lower']:.3g}, over {NEXT_WEEK}.",
        "Status pass, good until 2026-03-11 09:30 UTC.",
    ]
    assert decided["settings"]["lookahead"] == 7
    assert decided["provenance"]["columns"]["time_unit"] == "DAY"


def test_what_is_not_known_and_what_is_near_zero(decided: dict[str, Any]) -> None:
    odd = copy.deepcopy(decided)
    odd["caveats"] = ["the clock was broken."]
    odd["provenance"]["columns"]["reward"] = "reward"
    odd["advantage"].update(point=0.5, lower=-0.25, p_value=0.125, level=0.05)
    odd["safe"].update(point=0.01, lower=-1.0, upper=1.0, forecast_episodes=None)
    assert summary(odd)[1:3] == [
        "Advantage per episode: +0.5 over the safe policy's 0.01, at least -0.25 (p = 0.12, which must be at "
        "most 0.05), over the next 7 days.",
        "BEWARE: the clock was broken.",
    ]
    odd["advantage"]["point"] = None
    assert summary(odd)[1] == "The advantage of the candidate is not known."
    error = {"kind": "gate", "verdict": None, "status": "error", "sentence": "there is no file no.csv."}
    assert summary(error) == ["Nothing was decided: there is no file no.csv."]


def test_the_leading_model_is_named_with_its_season_and_its_past(decided: dict[str, Any]) -> None:
    mixed = copy.deepcopy(decided)
    family = {"point": 0.2, "standard_error": 0.1, "lower": 0.1, "p_value": 0.01}
    rough, line = (
        {"kind": kind, "memory": memory, "weight": weight, **family}
        for kind, memory, weight in (("rough", 14.0, 0.62), ("line", 84.0, 0.38))
    )
    mixed["advantage"].update(models=[rough, line], season=None, past=None)
    assert summary(mixed)[2] == "Leading model: wandering, forgotten after 14 days (weight 62%)."
    mixed["advantage"].update(
        models=[line, rough],
        season={"period": 7.0, "weight": 0.9},
        past={"dates": 9, "off": 0.034, "misfit": 0.4},
    )
    assert summary(mixed)[2] == (
        "Leading model: a line that goes on with a season of about 7 days (weight 38%); its forecasts have "
        "been off by 0.034 at 9 past dates."
    )
    line["weight"] = None
    assert summary(mixed)[2].startswith("Status")


def test_a_rank_has_its_timestamp_and_an_action_its_name(decided: dict[str, Any]) -> None:
    ranked = gate(lookahead=20, allow_unguaranteed=True).to_dict()
    assert "over the next 20 episodes (241 to 260; the last 20 took 7 days)." in summary(ranked)[1]
    (influence,) = (
        one["sentence"]
        for one in ranked["checks"]["candidate"]["findings"]
        if one["name"] == "horizon_influence"
    )
    assert re.match(r"Episode \d+ \(202\d-\d\d-\d\d\) accounts for", influence)
    dated = [one["sentence"] for one in decided["checks"]["candidate"]["findings"]]
    assert any(re.match(r"The episode of 202\d-\d\d-\d\d \d\d:\d\d accounts for", one) for one in dated)
    assert "No large gap: neighbouring episodes are at most 8 hours apart." in dated


def test_an_unseen_action_is_named(tmp_path: Path) -> None:
    import tidegate as tg

    tg.save_policy(tg.SoftmaxPolicy(np.zeros(4)), tmp_path / "all.json")
    record = wf.check(
        FRAME, policy=f"policy:{tmp_path / 'all.json'}", actions=("banner", "email", "none", "push"),
        lookahead="7d", **SETTINGS, **COLUMNS,
    )  # fmt: skip
    assert "(actions push): nothing is known about them." in record.check["action_support"].sentence


def test_a_return_outside_the_range_is_named_by_its_date() -> None:
    broken = FRAME.with_columns(
        revenue=pl.when(pl.arange(0, pl.len()) == 200).then(9.0).otherwise(pl.col("revenue"))
    )
    with pytest.raises(LogError, match=r"^the episode of 2026-02-18 03:20: the episode earned 9"):
        gate(broken, reward_range=(0, 2))


def test_a_plan_says_how_long_it_takes() -> None:
    plan = {"sentence": "About 60 more.", "more_episodes": 60, "num_episodes": 240}
    origin = gate().to_dict()["provenance"]
    content = {"kind": "plan", "caveats": [], "plan": plan, "lacking_actions": ["push"], "provenance": origin}
    assert summary(content) == [
        "About 60 more.",
        "At the pace of this log, that takes about 21 days.",
        "Actions that lack data: push.",
    ]
    plan["more_episodes"] = None
    assert summary(content)[1] == "Actions that lack data: push."


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    FRAME.write_csv("log.csv")
    return Shell(monkeypatch, capfd)


def test_the_terminal_speaks_of_dates(shell: Shell) -> None:
    result = shell("gate", "log.csv", *FLAGS, *PAPER, "--candidate", "column:new_prob")
    assert result.code == 0, result.err
    assert (
        "log.csv: 240 episodes (2025-12-10 to 2026-03-03), 240 steps; time is in days since 2025-12-10 "
        "03:20:00 UTC ('when'); the lookahead counts days"
    ) in result.out
    assert f"Mean return of an episode over {NEXT_WEEK}, α = 0.05" in " ".join(result.out.split())
    lines = result.out.splitlines()
    assert lines[-2].startswith("Advantage per episode ('revenue'): +0.2")
    assert lines[-2].endswith(f"over {NEXT_WEEK}.")
    assert re.fullmatch(r"Status pass, good until \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", lines[-1])


def test_past_dates_are_dates(shell: Shell) -> None:
    result = shell("backtest", "log.csv", *FLAGS, *PAPER, "--every", "2w", "--dates", "3")
    assert result.code == 0, result.err
    assert re.findall(r"│ (\d{4}-\d\d-\d\d) ", result.out) == ["2026-01-27", "2026-02-10", "2026-02-24"]
    result = shell("evaluate", "log.csv", *FLAGS, *PAPER, "--policy", "column:new_prob")
    assert "│ 2025-12-10 │ 2025-12-18 │       24 │" in result.out
    assert f"per episode ('revenue') over {NEXT_WEEK}." in result.out


def test_a_length_of_time_without_a_calendar(shell: Shell) -> None:
    result = shell("check", "log.csv", "--episode", "", "--reward", "revenue", "--lookahead", "7d")
    assert result.code == 2
    assert (
        "lookahead is 7d, and no column says when an episode was. Expected a number, as in --lookahead 7. "
        "Name the column of its timestamps: --time …."
    ) in " ".join(result.err.split())
