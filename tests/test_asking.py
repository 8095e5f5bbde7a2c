"""One call per command: whatever holds the log, settings and columns by keyword, policies as objects."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tidegate as tg
from tidegate import commands as wf
from tidegate.commands.asking import Named, NamedSearch, keywords
from tidegate.commands.opening import LogFile
from tidegate.commands.settings import PlainSettings, SearchChoices
from tidegate.commands.training import Overlap
from tidegate.logs import Columns, TimeUnit
from tidegate.policies import BehaviorPolicy
from tidegate.record import Advantage
from tidegate.reports.log_page import log_page
from tidegate.reports.summary import summary

COMMANDS = (tg.gate, tg.evaluate, tg.check, tg.improve, tg.backtest, tg.plan)
COUNT = 120
PAPER = {"preset": "paper", "order": 1, "lookahead": 10, "draws": 100}


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    action = rng.choice(2, COUNT, p=[0.4, 0.6])
    days = pl.datetime_range(
        pl.datetime(2026, 3, 1), pl.datetime(2026, 6, 28), interval="1d", eager=True
    )  # 120 of them
    return pl.DataFrame(
        {
            "episode": np.arange(1, COUNT + 1),
            "action": action,
            "behavior_prob": np.array([0.4, 0.6])[action],
            "reward": action + 0.1 * rng.normal(size=COUNT),
            "new_prob": np.array([0.2, 0.8])[action],
            "when": days,
            "user_age": rng.normal(40.0, 9.0, COUNT),
        }
    )


FRAME = frame()
NUMBERS = FRAME.drop("when")


def numbers(record: wf.GateRecord) -> tuple[float, float, float]:
    return record.advantage.point, record.advantage.lower, record.decision.candidate.point


@pytest.fixture(scope="module")
def usual() -> wf.GateRecord:
    """The call that has always worked."""
    return wf.gate(LogFile(NUMBERS), candidate="column:new_prob", settings=PlainSettings(**PAPER))  # type: ignore[arg-type]


def test_no_two_keywords_share_a_name() -> None:
    """A setting, a column and an option of reading are told apart by their names alone."""
    for command in COMMANDS:
        names = keywords(command)
        assert len(set(names)) == len(names), command.__name__
        assert {"lookahead", "reward", "time_unit", "format", "settings", "columns"} <= set(names)
    assert "entropy" in keywords(tg.improve)
    assert "entropy" not in keywords(tg.gate)


def test_editors_know_every_keyword() -> None:
    parts = (PlainSettings, Columns, LogFile, SearchChoices)
    fields = [{one.name for one in dataclasses.fields(kind)} for kind in parts]
    common = set.union(*fields[:3]) - {"source", "columns", "calendar"}
    assert set(get_type_hints(Named)) == common
    assert set(get_type_hints(NamedSearch)) == common | fields[3]
    for command in COMMANDS:
        hint = inspect.signature(command).parameters["named"].annotation
        assert hint.__args__[0] is (NamedSearch if command is tg.improve else Named)


@pytest.mark.parametrize(
    "log",
    [
        NUMBERS,
        NUMBERS.to_pandas(),
        NUMBERS.to_arrow(),
        NUMBERS.to_dict(as_series=False),
        {name: NUMBERS[name].to_numpy() for name in NUMBERS.columns},
        {name: pd.Series(NUMBERS[name].to_numpy()) for name in NUMBERS.columns},
    ],
    ids=["polars", "pandas", "arrow", "lists", "arrays", "series"],
)
def test_whatever_holds_the_table(log: Any, usual: wf.GateRecord) -> None:
    record = tg.gate(log, candidate="column:new_prob", preset="paper", order=1, lookahead=10, draws=100)
    assert numbers(record) == numbers(usual)
    assert record.provenance.data_hash == usual.provenance.data_hash
    assert record.settings == usual.settings


def test_a_path_as_text_or_as_a_path(tmp_path: Path, usual: wf.GateRecord) -> None:
    path = tmp_path / "log.parquet"
    NUMBERS.write_parquet(path)
    for log in (path, str(path)):
        assert numbers(tg.gate(log, candidate="column:new_prob", settings=PAPER)) == numbers(usual)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({"episode": [1, 2], "reward": [1.0]}, r"the frame cannot be read"),
        ({"episode": 3}, r"column 'episode' has the shape \(\)"),
        ({}, r"the frame has no rows"),
        (7, r"cannot read a log from int.*columns by name, an EpisodeLog"),
    ],
)
def test_what_holds_no_table(log: Any, message: str) -> None:
    with pytest.raises(tg.LogError, match=message):
        tg.check(log)


def episodes() -> tg.EpisodeLog:
    arrays = {name: NUMBERS[name].to_numpy() for name in NUMBERS.columns}
    return tg.EpisodeLog.from_arrays(
        arrays["action"],
        arrays["reward"],
        arrays["behavior_prob"],
        recorded={"new_prob": arrays["new_prob"]},
        outcomes={"cost": arrays["reward"] ** 2},
        num_actions=2,
    )


def test_an_episode_log(usual: wf.GateRecord) -> None:
    log = episodes()
    record = tg.gate(log, candidate="column:new_prob", settings=PAPER)
    assert numbers(record) == numbers(usual)
    assert record.provenance.source == "an EpisodeLog"
    assert record.provenance.data_hash == tg.commands.open_log(log).data_hash
    assert wf.verify(record.to_dict(), log).outcome is wf.Outcome.IDENTICAL
    by_object = tg.gate(log, candidate=tg.RecordedPolicy("new_prob"), settings=PAPER)
    assert (by_object.candidate, numbers(by_object)) == ("column:new_prob", numbers(usual))
    guarded = tg.gate(log, candidate="column:new_prob", settings=PAPER, guardrails=["cost:5"])
    assert [one.guardrail.name for one in guarded.guarded.guardrails] == ["cost"]


def test_an_episode_log_has_no_columns_to_name() -> None:
    with pytest.raises(tg.SettingsError, match=r"`reward` says how to read a table, .* an EpisodeLog"):
        tg.gate(episodes(), candidate="column:new_prob", reward="profit")
    opened = wf.open_log(NUMBERS)
    with pytest.raises(tg.SettingsError, match=r"`columns` says how .* open already"):
        tg.check(opened, columns=Columns())


def test_every_layout_of_an_episode_log_becomes_a_table() -> None:
    steps = np.arange(12.0).reshape(3, 4)
    mask = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]], bool)
    states = np.stack([steps, -steps], axis=-1)
    log = tg.EpisodeLog.from_arrays(
        steps.astype(int) % 2, steps, np.full((3, 4), 0.5), mask=mask, states=states
    )
    loaded = wf.open_log(log).loaded
    assert loaded.table.frame["step"].to_list() == [0, 1, 2, 3, 0, 0, 1]
    assert loaded.table.frame["reward"].to_list() == steps[mask].tolist()
    assert loaded.states.columns == ["feature_0", "feature_1"]
    doses = tg.EpisodeLog.from_arrays(
        np.ones((3, 1, 2)),
        [1.0, 2.0, 3.0],
        [-1.0, -2.0, -3.0],
        propensity="log_density",  # type: ignore[arg-type]
    )
    loaded = wf.open_log(doses).loaded
    assert loaded.columns.action == ("action_0", "action_1")
    assert loaded.table.frame["behavior_prob"].to_list() == [-1.0, -2.0, -3.0]


def test_a_policy_as_an_object_or_as_a_path(tmp_path: Path) -> None:
    policy = tg.SoftmaxPolicy.from_probs([0.2, 0.8])
    path = tmp_path / "policy.json"
    tg.save_policy(policy, path)
    by_object = tg.gate(NUMBERS, candidate=policy, safe=BehaviorPolicy(), settings=PAPER)
    assert by_object.candidate == "SoftmaxPolicy (a Python object)"
    assert by_object.safe == "behavior"
    for given in (path, str(path), f"policy:{path}"):
        saved = tg.gate(NUMBERS, candidate=given, settings=PAPER)
        assert saved.candidate == f"policy:{path}"
        assert numbers(saved) == numbers(by_object)


def test_the_record_of_an_object_is_verified_with_the_object() -> None:
    policy = tg.SoftmaxPolicy.from_probs([0.2, 0.8])
    content = tg.gate(NUMBERS, candidate=policy, settings=PAPER).to_dict()
    with pytest.raises(tg.SettingsError, match=r"a policy object, SoftmaxPolicy, .*candidate=policy"):
        wf.verify(content, NUMBERS)
    assert wf.verify(content, NUMBERS, candidate=policy).confirmed
    other = tg.SoftmaxPolicy.from_probs([0.3, 0.7])
    assert wf.verify(content, NUMBERS, candidate=other).outcome is wf.Outcome.OTHER_POLICY


def test_a_policy_that_does_not_fit() -> None:
    with pytest.raises(tg.PolicyError, match="TabularPolicy needs states, and the log has none"):
        tg.check(NUMBERS, policy=tg.TabularPolicy(np.zeros((2, 3))))
    with pytest.raises(tg.PolicyError, match="knows 1 actions, the log has 2"):
        tg.check(NUMBERS, policy=tg.SoftmaxPolicy([0.0]))
    with pytest.raises(tg.SettingsError, match=r"'no-such\.json' does not name a policy"):
        tg.check(NUMBERS, policy="no-such.json")


def test_columns_by_keyword_and_by_dictionary(tmp_path: Path) -> None:
    renamed = FRAME.rename({"reward": "profit"}).drop("episode")
    said: dict[str, Any] = {"reward": "profit", "episode": "", "time": "when", "time_unit": "day"}
    toml = tmp_path / "columns.toml"
    toml.write_text("\n".join(f'{name} = "{value}"' for name, value in said.items()))
    calls: list[dict[str, Any]] = [
        said,
        {"columns": said},
        {"columns": Columns(**said)},
        {"columns": toml},
        {"columns": {**said, "reward": "action"}, "reward": "profit"},
    ]
    found = [tg.check(renamed, settings=PAPER, **one).provenance for one in calls]
    assert {one.data_hash for one in found} == {found[0].data_hash}
    assert {one.time_unit for one in found} == {"day"}
    assert found[0].columns["reward"] == "profit"


def test_columns_named_twice() -> None:
    log = LogFile(NUMBERS, Columns(reward="user_age"))
    assert tg.check(log, settings=PAPER, time="episode").provenance.columns["reward"] == "user_age"
    with pytest.raises(tg.SettingsError, match="the columns are named twice"):
        tg.check(log, settings=PAPER, columns={"reward": "reward"})


def test_columns_as_people_write_them() -> None:
    assert Columns(episode="").episode is None
    assert Columns(features="user_age").features == ("user_age",)  # type: ignore[arg-type]
    assert Columns(time="when", time_unit="day").time_unit is TimeUnit.DAY  # type: ignore[arg-type]
    with pytest.raises(tg.SettingsError, match="the time unit is 'day', and no time column is named"):
        Columns(time_unit="day")  # type: ignore[arg-type]
    with pytest.raises(tg.SettingsError, match="Name the column that holds the time"):
        tg.check(FRAME, time_unit="day")
    checked = tg.check(NUMBERS, features="user_age", settings=PAPER)
    assert checked.provenance.columns["features"] == ["user_age"]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"lokahead": 5}, r"gate takes no 'lokahead'\. Did you mean 'lookahead'"),
        ({"feature": "user_age"}, r"gate takes no 'feature'\. Did you mean 'features'"),
        ({"entropy": 0.1}, r"gate takes no 'entropy'"),
        ({"calendar": (7.0,)}, r"gate takes no 'calendar'"),
        ({"zzz": 1}, r"gate takes no 'zzz'\. Expected some of candidate, .*lookahead.*reward.*memory_limit"),
        ({"alpha": 2}, r"alpha is 2"),
        ({"order": 2}, r"the preset 'multiscale' has no order to choose"),
        ({"reward": ""}, r"reward is empty"),
        ({"format": "xls"}, r"the format is 'xls'"),
        ({"columns": {"rewards": "x"}}, r"columns has no 'rewards'\. Did you mean 'reward'"),
        ({"columns": 3}, r"columns is 3"),
    ],
)
def test_bad_keywords(named: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.SettingsError, match=message):
        tg.gate(NUMBERS, candidate="column:new_prob", **named)


def test_keywords_go_before_settings(usual: wf.GateRecord) -> None:
    settings = PlainSettings(**{**PAPER, "lookahead": 3})  # type: ignore[arg-type]
    record = tg.gate(NUMBERS, candidate="column:new_prob", settings=settings, lookahead=10)
    assert record.settings == usual.settings


def test_a_search_by_keyword() -> None:
    found = tg.improve(NUMBERS, settings=PAPER, steps=3, train_fraction=0.4)
    assert (found.search.steps, found.search.train_fraction) == (3, 0.4)
    same = tg.improve(NUMBERS, settings=PAPER, search={"steps": 3, "train_fraction": 0.4})
    assert found.policy.digest() == same.policy.digest()
    assert (found.verdict, found.status, found.reason) == (
        found.gate.verdict,
        found.gate.status,
        found.gate.reason,
    )
    assert found.deploys == found.gate.deploys
    assert found.advantage is found.gate.advantage


def test_a_search_on_an_episode_log_is_saved_and_gated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(COUNT, 1, 2)), rng.integers(0, 2, COUNT)
    rewards = actions * states[:, 0, 0] + 0.1 * rng.normal(size=COUNT)
    log = tg.EpisodeLog.from_arrays(actions, rewards, np.full(COUNT, 0.5), states=states, num_actions=2)
    found = tg.improve(log, settings=PAPER, steps=3)
    assert found.training.features == ("feature_0", "feature_1")
    path = tmp_path / "policy.json"
    wf.save_improvement(found, path)
    record = tg.gate(log, candidate=path, settings=PAPER)
    assert record.overlap is Overlap.HELD_OUT
    assert record.to_dict()["candidate"]["policy_hash"] == found.to_dict()["candidate"]["policy_hash"]


def test_what_a_record_says_of_itself(usual: wf.GateRecord) -> None:
    assert isinstance(usual.advantage, Advantage)
    assert usual.advantage.lower < usual.advantage.point
    assert usual.status.value == usual.to_dict()["status"]
    assert usual.reason.name == usual.to_dict()["reason"]


def records(usual: wf.GateRecord) -> list[Any]:
    named: Any = {"settings": PAPER}
    return [
        usual,
        tg.check(NUMBERS, **named),
        tg.evaluate(NUMBERS, policy="column:new_prob", **named),
        tg.backtest(NUMBERS, candidate="column:new_prob", dates=2, **named),
        tg.plan(NUMBERS, candidate="column:new_prob", **named),
    ]


def test_every_record_is_printed_written_and_shown(usual: wf.GateRecord, tmp_path: Path) -> None:
    for record in records(usual):
        content = record.to_dict()
        assert str(record) == "\n".join(summary(content))
        path = record.to_html(tmp_path / f"{content['kind']}.html")
        assert path.read_text() == log_page(content)
        shown = record._repr_html_()
        assert shown.startswith("<div")
        assert shown.endswith("</div>")
        assert "<script" not in shown
        assert "http" not in re.sub(r'xmlns[:\w]*="[^"]*"', "", shown)
        assert ("<svg" in shown) == (content["kind"] != "plan")


def test_a_printed_gate_is_the_end_of_what_the_terminal_says(usual: wf.GateRecord) -> None:
    headline, *rest = str(usual).splitlines()
    assert headline == usual.headline
    assert rest[0].startswith("Advantage per episode: ")
    assert rest[-1].startswith(f"Status {usual.status}, good until ")


def test_a_page_goes_where_it_can_be_written(usual: wf.GateRecord, tmp_path: Path) -> None:
    with pytest.raises(tg.SettingsError, match="cannot write"):
        usual.to_html(tmp_path / "no" / "such" / "folder.html")
    with pytest.raises(tg.SettingsError, match="the page is 3"):
        usual.to_html(3)  # type: ignore[arg-type]


def test_names_from_a_log_are_escaped_on_a_card() -> None:
    hostile = "<script>alert(1)</script>"
    named = NUMBERS.rename({"new_prob": hostile})
    shown = tg.evaluate(named, policy=f"column:{hostile}", settings=PAPER)._repr_html_()
    assert hostile not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
