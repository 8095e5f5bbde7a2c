"""A candidate that has seen what it is tested on, or the outcome itself, does not pass in silence."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.test_cli_logs import CANDIDATE, PAPER_FLAGS, Shell, shell  # noqa: F401
from tests.test_commands import EPISODES, LOG, PAPER, SEARCH, WITH_LOAD, gate, shop
from tidegate import LogError, SettingsError
from tidegate import commands as wf
from tidegate.checks.findings import Finding, Level
from tidegate.commands.asking import Asked
from tidegate.commands.leaks import candidate_leak
from tidegate.commands.opening import LogFile, open_log, silent
from tidegate.commands.training import Overlap
from tidegate.commands.trials import prepare
from tidegate.logs import Columns, TimeUnit, read_log, resolve_policy
from tidegate.reasons import Reason

# A column that plays another part.

ALL_PARTS = Columns(time="when", features=("load",), outcomes=("complaints",), step="step")
FULL = LOG.with_columns(when=pl.col("episode"), complaints=0.5, step=0, cell=1, action=0)


@pytest.mark.parametrize("kind", ["column", "ratio"])
@pytest.mark.parametrize(
    "name", ["reward", "action", "episode", "step", "behavior_prob", "load", "when", "complaints"]
)
def test_a_part_of_the_log_is_no_policy(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"'{kind}:{name}' cannot be a policy"):
        resolve_policy(f"{kind}:{name}", read_log(FULL, ALL_PARTS))
    FULL.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(SettingsError, match=rf"'{kind}:{name}' cannot be a policy"):
        open_log(LogFile(tmp_path / "log.parquet", ALL_PARTS, stream=True)).policy(f"{kind}:{name}")


def test_remedies_for_columns_with_a_part() -> None:
    with pytest.raises(SettingsError, match=r"is the log's behavior_prob.*called 'behavior'"):
        gate(candidate="column:behavior_prob")
    with pytest.raises(SettingsError, match=r"is the log's reward"):
        gate(candidate="column:reward")
    with pytest.raises(SettingsError, match=r"is the log's state"):
        resolve_policy("column:cell", read_log(FULL, Columns(state="cell", step="step")))


# Where the candidate came from.


@pytest.mark.parametrize("origin", ["", "this log", "before", "before:", "elsewhere:2020", "after:3"])
def test_an_origin_that_says_nothing(origin: str) -> None:
    with pytest.raises(SettingsError, match=r"does not say where.*before:TIME"):
        gate(candidate_from=origin)


def test_a_candidate_from_this_log_has_no_test() -> None:
    record = gate(candidate_from="this-log")
    assert record.decision.reason is Reason.NO_EPISODES
    assert not record.deploys
    assert Overlap.THIS_LOG.value in record.caveats
    assert "before:TIME" in Overlap.THIS_LOG.value
    assert "improve" in Overlap.THIS_LOG.value
    with pytest.raises(LogError, match="no episode is left to backtest"):
        wf.backtest(LOG, candidate="column:new_prob", candidate_from="this-log", settings=PAPER)
    assert "0 episodes" in str(
        wf.plan(LOG, candidate="column:new_prob", candidate_from="this-log", settings=PAPER)
    )


DAYS = LOG.with_columns(day=pl.date(2026, 1, 1) + pl.duration(days=(pl.col("episode") - 1) // 4))
UNIX_DAYS = DAYS.with_columns(day=pl.col("day").cast(pl.Datetime).dt.epoch("s"))


@pytest.mark.parametrize(
    ("log", "time", "tested"),
    [
        (LOG, "100", 300),
        (LOG, "100.5", 300),
        (wf.LogFile(DAYS, Columns(time="day")), "2026-01-25", 300),
        (wf.LogFile(DAYS, Columns(time="day", time_unit=TimeUnit.DAY)), "2026-01-25T12:00:00Z", 300),
        (wf.LogFile(UNIX_DAYS, Columns(time="day", time_unit=TimeUnit.DAY)), "2026-01-25", 300),
        (wf.LogFile(UNIX_DAYS, Columns(time="day", time_unit=TimeUnit.DAY)), "1769299200", 300),
        (wf.LogFile(LOG, Columns(time="episode", episode=None)), "100", 300),
        (LOG, "0", 400),
        (LOG, "400", 0),
    ],
)
def test_only_episodes_after_the_time_are_tested(log: Any, time: str, tested: int) -> None:
    opened = wf.open_log(log)
    plan = wf.plan(opened, candidate="column:new_prob", candidate_from=f"before:{time}", settings=PAPER)
    assert plan.plan.num_episodes == tested
    assert plan.overlap is Overlap.EARLIER
    assert plan.candidate_from == f"before:{time}"


@pytest.mark.parametrize(
    ("log", "time"),
    [
        (LOG, "2026-01-25"),
        (LOG, "nan"),
        (LOG, "inf"),
        (wf.LogFile(DAYS, Columns(time="day")), "25"),
        (wf.LogFile(DAYS, Columns(time="day")), "25/01/2026"),
        (wf.LogFile(UNIX_DAYS, Columns(time="day", time_unit=TimeUnit.DAY)), "25"),
    ],
)
def test_a_time_in_other_terms_is_refused(log: Any, time: str) -> None:
    with pytest.raises(SettingsError, match=rf"'before:{time}' is not a time of this log"):
        gate(log, candidate_from=f"before:{time}")


def test_the_origin_is_kept_and_replayed() -> None:
    now = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    record = gate(candidate_from="before:100", now=now)
    assert record.decision.safe.num_episodes == 300
    assert record.decision.training_hash is not None  # the earlier ones may train
    content = record.to_dict()
    assert content["candidate_from"] == "before:100"
    assert wf.verify(content, LOG).outcome is wf.Outcome.IDENTICAL
    by_object = gate(candidate_from=wf.CandidateOrigin(wf.OriginKind.BEFORE, "100"), now=now)
    assert by_object.to_dict() == content
    elsewhere = gate(candidate_from="elsewhere")
    assert elsewhere.overlap is Overlap.ELSEWHERE
    assert elsewhere.decision.safe.lower == gate().decision.safe.lower


def test_a_training_record_has_answered_already(tmp_path: Path) -> None:
    found = wf.improve(WITH_LOAD, settings=PAPER, search=SEARCH)
    wf.save_improvement(found, tmp_path / "new.json")
    spec = f"policy:{tmp_path / 'new.json'}"
    with pytest.raises(SettingsError, match="its training record names the episodes"):
        gate(WITH_LOAD, spec, candidate_from="elsewhere")
    (tmp_path / "new.decision.json").unlink()
    assert any("`candidate_from`" in one for one in gate(WITH_LOAD, spec).caveats)
    told = gate(WITH_LOAD, spec, candidate_from="elsewhere")
    assert not any("no decision record" in one for one in told.caveats)
    # The log was changed since, so the record does not match: then its owner may say.
    wf.save_improvement(found, tmp_path / "new.json")
    other = wf.LogFile(shop(seed=7), Columns(features=("load",)))
    assert gate(other, spec).overlap is Overlap.UNKNOWN
    assert gate(other, spec, candidate_from="elsewhere").overlap is Overlap.ELSEWHERE


def test_what_is_assumed_is_said_and_blocks_nothing(shell: Shell) -> None:  # noqa: F811
    plan = wf.plan(LOG, candidate="column:new_prob", settings=PAPER)
    (assumed,) = plan.assumptions
    assert assumed.startswith("The candidate was made without this log (say where")
    assert plan.caveats == ()
    assert plan.to_dict()["assumptions"] == [assumed]
    assert wf.plan(LOG, candidate="behavior", settings=PAPER).assumptions == ()
    printed = shell("gate", "log.csv", *CANDIDATE, *PAPER_FLAGS).out
    in_the_shell = assumed.replace("`candidate_from`", "--candidate-from")
    assert in_the_shell in " ".join(printed.split())
    told = shell("gate", "log.csv", *CANDIDATE, *PAPER_FLAGS, "--candidate-from", "this-log")
    assert told.code == 1
    assert "no episode is left to test it" in " ".join(told.out.split())
    assert in_the_shell not in " ".join(told.out.split())


# A column that was computed from the outcome.


def context_log(
    seed: int, *, count: int = 600, width: int = 4, noise: float = 0.5, binary: bool = False
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Two actions, and an honest logistic candidate `new_prob` that was fitted to the world."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, width))
    action = rng.integers(0, 2, count)
    worth = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, -1] + x @ rng.normal(size=width) / np.sqrt(width)
    reward = (2 * action - 1) * worth + noise * rng.normal(size=count)
    if binary:
        reward = (reward > 0).astype(float)
    slopes = np.linalg.lstsq(x, worth, rcond=None)[0]
    chance = 1 / (1 + np.exp(-2 * x @ slopes))
    names = tuple(f"x{i}" for i in range(width))
    frame = pl.DataFrame(
        {
            "episode": np.arange(count),
            "action": action,
            "behavior_prob": 0.5,
            "reward": reward,
            "new_prob": np.where(action == 1, chance, 1 - chance),
            **{name: x[:, i] for i, name in enumerate(names)},
        }
    )
    return frame, names


def seen_outcome(frame: pl.DataFrame, strength: float) -> pl.DataFrame:
    reward = pl.col("reward")
    leaked = 0.5 + strength * (reward - reward.mean()) / reward.std()
    return frame.with_columns(new_prob=leaked.clip(0.01, 0.99))


def sign_of_outcome(frame: pl.DataFrame) -> pl.DataFrame:
    above = pl.col("reward") > pl.col("reward").mean()
    return frame.with_columns(new_prob=pl.when(above).then(0.9).otherwise(0.1))


def leak(frame: pl.DataFrame, columns: Columns | None = None, candidate: str = "column:new_prob") -> Finding:
    """What the gate finds, without its own tests, which are compiled for each shape of a log."""
    log = wf.LogFile(frame, columns or Columns())
    trial = prepare(Asked(log, PAPER), candidate, "behavior", None, None, 0, silent)
    finding = candidate_leak(trial)
    assert finding is not None
    return finding


def test_a_column_made_from_the_reward_is_a_caveat() -> None:
    frame, names = context_log(0, count=EPISODES)
    leaked = seen_outcome(frame, 0.2).drop(names)
    record = gate(leaked)
    finding = record.checks["candidate"]["leak"]
    assert finding.level is Level.WARNING
    assert finding.sentence in record.caveats
    assert record.to_dict()["guaranteed"] is False
    assert wf.verify(record.to_dict(), leaked).confirmed


SLOW = pytest.mark.verify


@pytest.mark.parametrize(
    "strength",
    [pytest.param(0.05, marks=SLOW), pytest.param(0.2, marks=SLOW), 0.4, pytest.param(None, marks=SLOW)],
)
def test_leaks_of_any_strength(strength: float | None) -> None:
    frame, names = context_log(0)
    leaked = sign_of_outcome(frame) if strength is None else seen_outcome(frame, strength)
    ratios = leaked.with_columns(w=pl.col("new_prob") / 0.5).drop("new_prob")
    for found in (
        leak(leaked, Columns(features=names)),
        leak(leaked),
        leak(leaked.drop(names)),
        leak(ratios, Columns(features=names), "ratio:w"),
        leak(ratios.drop(names), Columns(behavior_prob=None), "ratio:w"),
    ):
        assert found.level is Level.WARNING, found


def test_the_reward_under_another_name_is_no_context() -> None:
    leaked = seen_outcome(context_log(1)[0], 0.2)
    copies = leaked.with_columns(revenue=3 * pl.col("reward"), score=pl.col("new_prob") ** 2)
    assert leak(copies).level is Level.WARNING


def test_an_honest_context_is_no_leak() -> None:
    frame, names = context_log(2)
    assert leak(frame, Columns(features=names)).level is Level.OK
    assert leak(frame).level is Level.OK
    hidden = leak(frame.drop(names))
    assert hidden.level is Level.NOTE
    assert "Map every column that it looks at" in hidden.sentence


def test_a_candidate_without_context_needs_no_test() -> None:
    assert gate().checks["candidate"]["leak"].level is Level.OK
    assert "leak" not in {one.name for one in gate(candidate="behavior").checks["candidate"].findings}


def test_states_names_and_gaps_are_context_too() -> None:
    frame, _ = context_log(3)
    rng = np.random.default_rng(3)
    cell = rng.integers(0, 4, frame.height)
    chance = np.array([0.1, 0.4, 0.6, 0.9])[cell]
    action = frame["action"].to_numpy()
    log = frame.select("episode", "action", "behavior_prob").with_columns(
        cell=cell,
        reward=(2 * action - 1) * (chance - 0.5) + 0.1 * rng.normal(size=frame.height),
        new_prob=np.where(action == 1, chance, 1 - chance),
    )
    assert leak(log, Columns(state="cell")).level is Level.OK
    named = log.with_columns(cell=pl.format("cell {}", "cell"), age=pl.lit(None, pl.Float64))
    assert leak(named).level is Level.OK


@pytest.mark.parametrize("binary", [False, True])
def test_few_false_alarms_and_few_leaks_missed(binary: bool) -> None:
    false_alarms, linear, signs = _rates(binary, count=6)
    assert false_alarms == 0
    assert min(linear, signs) >= 5


@pytest.mark.verify
@pytest.mark.parametrize("binary", [False, True])
def test_rates_of_many_logs(binary: bool) -> None:
    false_alarms, linear, signs = _rates(binary, count=100)
    assert false_alarms <= 1
    assert linear >= 98
    assert signs >= 94


def _rates(binary: bool, count: int) -> tuple[int, int, int]:
    """Of honest candidates, those with a warning; of two kinds of leaks, those found."""
    found = np.zeros(3, int)
    for seed in range(count):
        frame, names = context_log(seed, count=300, binary=binary, width=2 + seed % 9)
        kinds = (frame, seen_outcome(frame, 0.1), sign_of_outcome(frame))
        columns = Columns(features=names)
        found += [leak(one, columns).level is Level.WARNING for one in kinds]
    return int(found[0]), int(found[1]), int(found[2])


def test_steps_of_long_episodes_may_know_the_reward_before() -> None:
    """An honest candidate that reacts to the last reward, in a world where rewards persist."""
    rng = np.random.default_rng(5)
    episodes, length = 120, 5
    noise = rng.normal(size=(episodes, length))
    reward = np.zeros((episodes, length))
    for t in range(length):
        reward[:, t] = 0.8 * reward[:, t - 1] * (t > 0) + noise[:, t]
    before = np.pad(reward, ((0, 0), (1, 0)))[:, :-1]
    action = rng.integers(0, 2, (episodes, length))
    chance = 1 / (1 + np.exp(-2 * before))
    frame = pl.DataFrame(
        {
            "episode": np.repeat(np.arange(episodes), length),
            "step": np.tile(np.arange(length), episodes),
            "action": action.ravel(),
            "behavior_prob": 0.5,
            "reward": reward.ravel(),
            "new_prob": np.where(action == 1, chance, 1 - chance).ravel(),
        }
    )
    assert leak(frame).level is Level.OK
    leaked = frame.with_columns(new_prob=(0.5 + 0.2 * pl.col("reward")).clip(0.01, 0.99))
    assert leak(leaked).level is Level.WARNING


def test_too_few_steps_tell_nothing() -> None:
    short = context_log(0, count=40)[0]
    assert leak(seen_outcome(short, 0.2)).level is Level.OK
