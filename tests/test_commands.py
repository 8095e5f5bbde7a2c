"""Each workflow gives the library's own numbers, a record that proves itself, and no DEPLOY by accident."""

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidegate as tg
from tests import test_logs_fuzz as fuzz
from tests.golden.compare import differences
from tidegate import commands as wf
from tidegate.checks.backtest import backtest
from tidegate.checks.fitness import check_log
from tidegate.checks.plan import plan
from tidegate.commands.opening import open_log
from tidegate.commands.starts import feature_scaling, start_policy
from tidegate.commands.training import Overlap, training_path
from tidegate.forecast import forecast_returns
from tidegate.logs import Columns, TimeMeaning, TimeUnit, read_log, resolve_policy
from tidegate.policies import LinearGaussianPolicy, LinearPolicy, MLPPolicy, SoftmaxPolicy
from tidegate.record import MAX_POINTS, SEAL, plain, record_hash, thinned, write_record
from tidegate.safety import with_room

EPISODES = 400
PLAIN = wf.PlainSettings(lookahead=10, draws=200)
PAPER = dataclasses.replace(PLAIN, preset=wf.Preset.PAPER, order=1)
SEARCH = wf.SearchChoices(steps=20)
OFFERS = ("coffee", "juice", "tea")
BEHAVIOR, NEW = np.array([0.25, 0.5, 0.25]), np.array([0.02, 0.96, 0.02])


def shop(count: int = EPISODES, seed: int = 0) -> pl.DataFrame:
    """Juice sells, and ever better; the candidate offers it nearly always."""
    rng = np.random.default_rng(seed)
    action, time = rng.choice(3, count, p=BEHAVIOR), np.arange(1, count + 1)
    return pl.DataFrame(
        {
            "episode": time,
            "action": [OFFERS[one] for one in action],
            "behavior_prob": BEHAVIOR[action],
            "reward": (1 + 0.3 * time / count) * (action == 1) + 0.1 * rng.normal(size=count),
            "new_prob": NEW[action],
            "load": rng.normal(50.0, 20.0, count),
        }
    )


LOG = shop()
WITH_LOAD = wf.LogFile(LOG, Columns(features=("load",)))


def gate(log: Any = LOG, candidate: str = "column:new_prob", **options: Any) -> wf.GateRecord:
    return wf.gate(log, candidate=candidate, **{"settings": PAPER, **options})


@pytest.fixture(scope="module")
def decided() -> wf.GateRecord:
    return gate(settings=PLAIN)


@pytest.fixture(scope="module")
def improved() -> wf.Improvement:
    return wf.improve(WITH_LOAD, settings=PAPER, search=SEARCH)


def resealed(content: dict[str, Any]) -> dict[str, Any]:
    """As a forger would: changed, with a fitting hash."""
    return {**content, SEAL: record_hash(content)}


def resolved(*specs: str) -> tuple[list[tg.Policy], tg.EpisodeLog]:
    loaded, policies = read_log(LOG), []
    for spec in specs:
        policy, loaded = resolve_policy(spec, loaded)
        policies.append(policy)
    return policies, loaded.log


@pytest.mark.parametrize("settings", [PLAIN, PAPER], ids=["multiscale", "paper"])
def test_the_gate_is_the_safety_test(settings: wf.PlainSettings) -> None:
    (candidate, safe), log = resolved("column:new_prob", "behavior")
    level = 0.05 if settings is PLAIN else None
    test = tg.safety_test(candidate, safe, tg.HeldOutEpisodes(log), settings.forecast(), level=level)
    decided = gate(settings=settings)
    assert decided.verdict is test.verdict is tg.Verdict.DEPLOY
    content = decided.to_dict()
    # The commands reduce the log to episodes first, so last digits may differ.
    assert not list(differences(plain(test.advantage), content["advantage"], 1e-8))
    for role in ("candidate", "safe"):
        for name in ("point", "lower", "upper", "standard_error"):
            assert content[role][name] == pytest.approx(getattr(getattr(test, role), name), rel=1e-9)
    assert content["settings"]["forecast"] == test.settings
    # The findings are about the episodes that decided.
    seen, held_out = with_room(settings.forecast(), None, tg.HeldOutEpisodes(log))
    training = None if seen is None else seen.log
    assert held_out.log.digest() == test.data_hash
    for role, policy in (("candidate", candidate), ("safe", safe)):
        check = check_log(held_out.log, settings.forecast(), policy, training=training, span=held_out.span)
        for one in content["checks"][role]["findings"]:
            if one["name"] != "leak":
                assert one["value"] == pytest.approx(check[one["name"]].value, rel=1e-6), one["name"]
        assert content["checks"][role]["num_episodes"] == content[role]["num_episodes"]


def test_evaluate_is_the_forecast_beside_the_stationary_one(tmp_path: Path) -> None:
    still = tg.ForecastSettings(10, test=tg.TwoBounds(tg.ConstantBasis()), draws=200)
    LOG.write_parquet(tmp_path / "log.parquet")
    path = tmp_path / "log.parquet"
    for chosen in (PLAIN, PAPER):
        record = wf.evaluate(LOG, policy="column:new_prob", settings=chosen)
        streamed = wf.evaluate(path, policy="column:new_prob", settings=chosen, stream=True)
        gated = gate(settings=chosen).decision.candidate
        for name in ("point", "lower", "upper", "effective_sample_size"):
            # The gate computes it beside another policy's and their difference, so last digits may differ.
            assert getattr(record.forecast, name) == pytest.approx(getattr(gated, name), rel=1e-12)
        assert record.forecast.returns == pytest.approx(gated.returns, rel=1e-12)
        flat = forecast_returns(gated.returns, gated.episode_numbers, still)
        assert (record.stationary.lower, record.stationary.upper) == (flat.lower, flat.upper)
        assert {one.name for one in streamed.findings} == {one.name for one in record.findings}
    assert record.stationary.point == pytest.approx(record.forecast.returns.mean())
    for name in ("point", "lower", "upper", "effective_sample_size"):
        expected = getattr(record.forecast, name)
        assert getattr(streamed.forecast, name) == pytest.approx(expected, rel=1e-12)


def test_a_log_of_many_steps_is_streamed_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.write_parquet(tmp_path / "log.parquet")
    assert open_log(tmp_path / "log.parquet").large is None
    monkeypatch.setattr("tidegate.logs.large.HELD_STEPS", LOG.height - 1)
    assert open_log(tmp_path / "log.parquet").large is not None
    assert open_log(wf.LogFile(LOG)).large is not None
    assert open_log(wf.LogFile(LOG, stream=False)).large is None
    assert open_log(wf.LogFile(LOG, estimate_propensities=True)).large is None


def test_check_backtest_and_plan_are_those_of_the_library() -> None:
    (candidate, safe), log = resolved("column:new_prob", "behavior")
    settings = PLAIN.forecast()
    checked = wf.check(LOG, policy="column:new_prob", settings=PLAIN)
    found = {one.name: one.value for one in checked.check.findings}
    expected = {one.name: one.value for one in check_log(log, settings, candidate).findings}
    assert found == {name: pytest.approx(value, rel=1e-6) for name, value in expected.items()}
    planned = wf.plan(LOG, candidate="column:new_prob", settings=PLAIN)
    assert not list(differences(plain(plan(candidate, safe, log, settings)), plain(planned.plan), 1e-6))
    # A model of the rewards is fitted to the whole log by the commands; without one, past dates agree, too.
    past = wf.backtest(LOG, candidate="column:new_prob", settings=PAPER, dates=3)
    alone = plain(backtest(candidate, safe, log, PAPER.forecast(), dates=3))
    assert not list(differences(alone, plain(past.backtest), 1e-6))
    for record in (checked, past, planned):
        json.dumps(record.to_dict(), allow_nan=False)


def test_the_lookahead_is_a_tenth_of_the_log_unless_chosen() -> None:
    time = TimeMeaning(TimeUnit.EPISODE, None)
    assert wf.PlainSettings().over((1.0, 120.0), time).lookahead == 12
    assert wf.PlainSettings().over((1.0, 2.0), time).lookahead == 1
    assert wf.PlainSettings().over((1.0, 1e300), time).lookahead == 1_000_000
    assert PLAIN.over((1.0, 1e9), time) == PLAIN


@pytest.mark.parametrize(
    "wrong",
    [
        {"lookahead": 0}, {"lookahead": 2_000_000}, {"alpha": 0.0}, {"alpha": math.nan},
        {"draws": 0}, {"order": -1}, {"discount": 2.0}, {"basis": wf.BasisKind.FOURIER},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(tg.SettingsError):
        wf.PlainSettings(**{"preset": wf.Preset.PAPER, "lookahead": 10, **wrong}).forecast()


@pytest.mark.parametrize("chosen", [{"order": 1}, {"basis": wf.BasisKind.COSINE}, {"period": 7.0}])
def test_a_basis_belongs_to_the_papers_preset(chosen: dict[str, Any]) -> None:
    with pytest.raises(tg.SettingsError, match=f"no {next(iter(chosen))} to choose.*`preset='paper'`"):
        wf.PlainSettings(**chosen)


def test_a_record_replays_to_the_bit(decided: wf.GateRecord, tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    write_record(decided.to_dict(), path)
    for source in (LOG, LOG.to_pandas()):
        answer = wf.verify(path, source)
        assert answer.outcome is wf.Outcome.IDENTICAL, str(answer)
        assert answer.confirmed
    assert "bit for bit" in str(answer)


OFFERED = """
import numpy as np

def best(x):
    return np.eye(3)[np.stack([x, 0 * x + 0.1, -x], axis=1).argmax(axis=1)]

def new(states):
    return 0.8 * best(states["x"].to_numpy()) + 0.2 / 3

def now(states):
    return np.full((states.height, 3), 1 / 3)
"""


def offers(count: int = 2000) -> pl.DataFrame:
    """Offers at random; what sells depends on the customer, and the new rule knows that."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=count), rng.integers(0, 3, count)
    worth = np.stack([x, 0 * x + 0.1, -x], axis=1)
    new = 0.8 * (worth.argmax(axis=1) == action) + 0.2 / 3
    return pl.DataFrame(
        {
            "episode": np.arange(1, count + 1),
            "action": action,
            "behavior_prob": np.full(count, 1 / 3),
            "reward": worth[np.arange(count), action] + 0.5 * rng.normal(size=count),
            "x": x,
            "new_prob": new,
        }
    )


def test_a_function_makes_the_advantage_more_certain_than_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidegate_offers.py").write_text(OFFERED)
    monkeypatch.chdir(tmp_path)
    log, new, now = (
        wf.LogFile(offers(), Columns(features=("x",))),
        *(f"python:tidegate_offers:{name}" for name in ("new", "now")),
    )
    column, one, both = (
        gate(log, candidate, safe=safe, settings=PLAIN)
        for candidate, safe in (("column:new_prob", "behavior"), (new, "behavior"), (new, now))
    )
    errors = [record.advantage.standard_error for record in (column, one, both)]
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < 0.8 * errors[0]
    # Of itself, the candidate is forecast as `evaluate` does it: by values for its own actions.
    alone = wf.evaluate(log, policy=new, settings=PLAIN).forecast
    assert one.decision.candidate.standard_error == pytest.approx(alone.standard_error, rel=1e-9)
    assert alone.standard_error < 0.9 * column.decision.candidate.standard_error
    assert one.decision.safe.point == column.decision.safe.point
    answer = wf.verify(one.to_dict(), log.source, allow_python=True)
    assert answer.outcome is wf.Outcome.IDENTICAL, str(answer)


def test_another_log_an_edit_and_another_version_are_told(decided: wf.GateRecord) -> None:
    content = decided.to_dict()
    assert content["format"] == 5
    older = resealed({**content, "format": 1})
    with pytest.raises(tg.SettingsError, match=r"format 1.*of format 5.*Tidegate that wrote it \("):
        wf.verify(older, LOG)
    other = LOG.with_columns(pl.col("reward") + 1e-12)
    assert wf.verify(content, other).outcome is wf.Outcome.OTHER_LOG
    for edit in ({"verdict": "KEEP"}, {"seed": 1}, {"record_hash": "0"}):
        assert wf.verify({**content, **edit}, LOG).outcome is wf.Outcome.EDITED
    forged = json.loads(json.dumps(content))
    forged["candidate"]["lower"] += 1e-9
    answer = wf.verify(resealed(forged), LOG)
    assert answer.outcome is wf.Outcome.DIFFERENT
    assert [one.where for one in answer.differences] == ["candidate.lower"]
    forged["provenance"]["versions"]["jax"] = "0.0.1"
    answer = wf.verify(resealed(forged), LOG)
    assert answer.outcome is wf.Outcome.ROUNDING
    assert "recorded 0.0.1" in str(answer)
    forged["verdict"] = "KEEP"
    assert wf.verify(resealed(forged), LOG).outcome is wf.Outcome.DIFFERENT
    del forged["settings"]["alpha"]
    with pytest.raises(tg.SettingsError, match="incomplete"):
        wf.verify(resealed(forged), LOG)
    with pytest.raises(tg.SettingsError, match="kind 'check'"):
        wf.verify(resealed({"kind": "check"}), LOG)


def test_another_policy_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rule.json"
    tg.save_policy(tg.SoftmaxPolicy.from_probs(NEW), path)
    record = gate(candidate=f"policy:{path}")
    assert any("no decision record beside" in one for one in record.caveats)
    assert wf.verify(record.to_dict(), LOG).confirmed
    tg.save_policy(tg.SoftmaxPolicy.from_probs(BEHAVIOR), path)
    assert wf.verify(record.to_dict(), LOG).outcome is wf.Outcome.OTHER_POLICY


def test_records_are_strict_json_and_bounded(decided: wf.GateRecord) -> None:
    content = decided.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["record_hash"] == record_hash(content)
    assert thinned(10**6).size == MAX_POINTS
    assert {0, 10**6 - 1} <= set(thinned(10**6).tolist())
    broken = dataclasses.replace(decided.decision.safe, lower=-math.inf, point=math.nan)
    values = plain(broken)
    assert values["lower"] is None
    assert values["point"] is None
    assert sum(one["episodes"] for one in values["past"]) == broken.num_episodes


def test_improve_searches_on_one_part_and_tests_on_the_other(improved: wf.Improvement) -> None:
    log = read_log(LOG, WITH_LOAD.columns).log
    training, held_out = tg.split_log(log, train_fraction=0.5)
    assert improved.training.num_training == training.log.num_episodes
    numbers = improved.gate.decision.candidate.episode_numbers
    assert numbers.tolist() == np.asarray(held_out.log.episode_numbers).tolist()
    assert isinstance(improved.policy, tg.LinearPolicy)
    before = tg.SoftmaxPolicy(np.log(np.bincount(np.asarray(training.log.actions)[:, 0]) + 0.5))
    probs = np.exp(np.asarray(improved.policy.log_probs(np.array([50.0]))))
    assert probs[1] > np.exp(np.asarray(before.log_probs()))[1]


def test_improve_replays_to_the_bit(improved: wf.Improvement, tmp_path: Path) -> None:
    record = wf.save_improvement(improved, tmp_path / "found.json")
    assert record == tmp_path / "found.decision.json"
    assert tg.load_policy(tmp_path / "found.json").digest() == improved.training.policy_hash
    assert wf.verify(record, LOG).outcome is wf.Outcome.IDENTICAL
    older = improved.to_dict()
    del older["search"]["search_memory"]  # a record from when there was no choice
    assert wf.verify(resealed(older), LOG).outcome is wf.Outcome.IDENTICAL


def test_a_later_gate_does_not_test_on_training_episodes(improved: wf.Improvement, tmp_path: Path) -> None:
    wf.save_improvement(improved, tmp_path / "found.json")
    spec = f"policy:{tmp_path / 'found.json'}"
    later = gate(WITH_LOAD, spec)
    assert later.overlap is Overlap.HELD_OUT
    first, second = improved.gate.to_dict(), later.to_dict()
    assert second["candidate"]["lower"] == first["candidate"]["lower"]
    assert later.decision.safe.num_episodes == EPISODES - improved.training.num_training
    assert wf.verify(second, LOG).confirmed


def test_a_log_that_has_grown_is_tested_on_what_is_new_too(improved: wf.Improvement) -> None:
    from tidegate.commands.training import test_part

    grown = shop(10, seed=5).with_columns(pl.col("episode") + EPISODES)
    log = read_log(pl.concat([LOG, grown]), WITH_LOAD.columns).log
    part = test_part(open_log(log), improved.training)
    assert part.overlap is Overlap.HELD_OUT
    assert part.held_out.log.num_episodes == EPISODES - improved.training.num_training + 10
    assert part.held_out.span == (1.0, EPISODES + 10.0)
    for other in (shop(seed=1), LOG[5:]):
        part = test_part(open_log(wf.LogFile(other, WITH_LOAD.columns)), improved.training)
        assert part.overlap is Overlap.UNKNOWN
        assert part.held_out.log.num_episodes == other.height


def test_another_log_than_the_training_one_is_a_caveat(improved: wf.Improvement, tmp_path: Path) -> None:
    wf.save_improvement(improved, tmp_path / "found.json")
    other = wf.LogFile(shop(seed=1), WITH_LOAD.columns)
    record = gate(other, f"policy:{tmp_path / 'found.json'}")
    assert record.overlap is Overlap.UNKNOWN
    assert Overlap.UNKNOWN.value in record.caveats
    assert not record.to_dict()["guaranteed"]


def test_a_saved_policy_is_kept_to_its_features_actions_and_record(
    improved: wf.Improvement, tmp_path: Path
) -> None:
    path = tmp_path / "found.json"
    record = wf.save_improvement(improved, path)
    other = wf.LogFile(LOG.with_columns(action=pl.lit("water")), WITH_LOAD.columns)
    with pytest.raises(tg.PolicyError, match="and not 'water', which the log has"):
        gate(other, f"policy:{path}")
    twin = wf.LogFile(LOG.rename({"load": "x"}), Columns(features=("x",)))
    with pytest.raises(tg.PolicyError, match="looks at column 'load', and the log has none"):
        gate(twin, f"policy:{path}")
    tg.save_policy(improved.policy, path)  # without names, it is taken by position
    with pytest.raises(tg.PolicyError, match="made for the features"):
        gate(twin, f"policy:{path}")
    fewer = wf.LogFile(LOG.with_columns(action=pl.lit("coffee")), WITH_LOAD.columns)
    with pytest.raises(tg.PolicyError, match="made for the actions"):
        gate(fewer, f"policy:{path}")
    tg.save_policy(tg.LinearPolicy(np.zeros((1, 3)), np.zeros(3)), path)
    with pytest.raises(tg.PolicyError, match="a policy other than the candidate"):
        gate(WITH_LOAD, f"policy:{path}")
    record.write_text(record.read_text().replace('"train_fraction": 0.5', '"train_fraction": 0.6'))
    with pytest.raises(tg.SettingsError, match="changed after it was written"):
        gate(WITH_LOAD, f"policy:{path}")
    assert training_path(path) == record


def test_a_network_is_found_too() -> None:
    search = wf.SearchChoices(policy_class=wf.PolicyClass.MLP, hidden=3, steps=2)
    found = wf.improve(WITH_LOAD, settings=PAPER, search=search)
    assert isinstance(found.policy, tg.MLPPolicy)
    assert [np.shape(weights) for weights, _ in found.policy.layers] == [(1, 3), (3, 3)]


@pytest.mark.parametrize("kind", ["softmax", "linear", "mlp"])
def test_a_search_begins_at_the_behaviour(kind: str) -> None:
    log = read_log(LOG, WITH_LOAD.columns).log
    choices = wf.SearchChoices(policy_class=wf.PolicyClass(kind))
    start = start_policy(choices, log, seed=0)
    counts = np.bincount(np.asarray(log.actions)[:, 0]) + 0.5
    assert isinstance(start, SoftmaxPolicy | LinearPolicy | MLPPolicy)
    probs = np.exp(np.asarray(start.log_probs(np.array([2.0]))))
    assert probs == pytest.approx(counts / counts.sum())


def test_the_scaling_of_features_is_folded_into_the_policy() -> None:
    log = read_log(LOG, WITH_LOAD.columns).log
    scaling = feature_scaling(log)
    assert scaling is not None
    rng = np.random.default_rng(0)
    network = MLPPolicy.init((1, 4, 3), seed=1)
    *hidden, _ = network.layers
    network = MLPPolicy([*hidden, (rng.normal(size=(4, 3)), rng.normal(size=3))])
    linear = LinearPolicy(rng.normal(size=(1, 3)), rng.normal(size=3))
    normal = LinearGaussianPolicy(rng.normal(size=(1, 2)), rng.normal(size=2), np.zeros(2))
    raw = np.asarray(log.states)
    scaled = np.asarray(scaling.apply(tg.TrainingEpisodes(log)).log.states)
    for policy in (network, linear, normal):
        same = scaling.undo(policy)
        np.testing.assert_allclose(same.outputs(raw), policy.outputs(scaled), atol=1e-10)


def test_continuous_actions_get_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    dose = rng.normal(1.0, 0.5, EPISODES)
    density = np.exp(-0.5 * ((dose - 1) / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi))
    frame = LOG.with_columns(action=dose, behavior_prob=density, reward=-((dose - 1.5) ** 2))
    columns = Columns(propensity=tg.Propensity.DENSITY)
    found = wf.improve(wf.LogFile(frame, columns), settings=PAPER, search=SEARCH)
    assert isinstance(found.policy, tg.GaussianPolicy)
    assert float(found.policy.mean[0]) > 1.0
    linear = wf.SearchChoices(policy_class=wf.PolicyClass.LINEAR)
    with pytest.raises(tg.SettingsError, match="continuous"):
        wf.improve(wf.LogFile(frame, columns), settings=PAPER, search=linear)


def test_classes_that_need_features_say_so() -> None:
    search = wf.SearchChoices(policy_class=wf.PolicyClass.LINEAR)
    with pytest.raises(tg.SettingsError, match="need features"):
        wf.improve(LOG, settings=PAPER, search=search)


def test_estimated_propensities_mark_the_verdict() -> None:
    missing = LOG.drop("behavior_prob")
    with pytest.raises(tg.LogError, match="propensities"):
        gate(missing)
    record = gate(wf.LogFile(missing, estimate_propensities=True))
    assert "propensities estimated: not guaranteed" in record.caveats
    content = record.to_dict()
    assert content["provenance"]["estimated"]
    assert content["provenance"]["calibration"]["num_held_out"] == EPISODES // 4
    assert not content["guaranteed"]
    assert "not guaranteed" in str(record)
    assert wf.verify(content, missing).outcome is wf.Outcome.IDENTICAL


def test_a_log_that_fails_the_goodness_of_fit_says_so() -> None:
    late = pl.col("episode") > EPISODES // 2
    jumping = LOG.with_columns(pl.when(late).then(pl.col("reward") + 5).otherwise(pl.col("reward")))
    record = gate(jumping)
    assert any(one.startswith("jump") for one in record.failed_tests)
    assert not record.to_dict()["goodness_of_fit"]["passed"]
    assert "fails the goodness-of-fit tests" in str(record)


def test_the_gate_stays_shut() -> None:
    assert gate(candidate="behavior").decision.reason is tg.Reason.NOT_BETTER
    unsupported = LOG.with_columns(new_prob=pl.col("new_prob") / 3)
    assert gate(unsupported).decision.reason is tg.Reason.SUPPORT
    flat = LOG.with_columns(reward=pl.lit(1.0))
    assert not gate(flat).deploys
    huge = LOG.with_columns(reward=pl.col("reward") * 1e307)
    assert not gate(huge).deploys
    few = gate(LOG[:6])
    assert few.decision.reason is tg.Reason.TOO_FEW_EPISODES
    json.dumps(few.to_dict(), allow_nan=False)


def test_a_state_outside_a_saved_policys_table_is_an_error(tmp_path: Path) -> None:
    tg.save_policy(tg.TabularPolicy(np.zeros((2, 3))), tmp_path / "table.json")
    states = LOG.with_columns(s=pl.col("episode") % 3)
    with pytest.raises(tg.LogError, match=r"row 1; row 4; row 7 \(and 130 more\): .* of 133 steps"):
        gate(wf.LogFile(states, Columns(state="s")), f"policy:{tmp_path / 'table.json'}")


PER_FORMAT = {"parquet": 110, "polars": 110, "pandas": 100, "csv": 70, "jsonl": 50, "csv.gz": 60}
BY_DEFAULT = "csv.gz"  # under the default preset, which takes longer to compile; the others under the paper's
MAPPINGS = (
    Columns(num_actions=3),
    Columns(num_actions=3, time="time"),
    Columns(num_actions=3, time="time", time_unit=TimeUnit.HOUR),
    Columns(behavior_prob=None),
    Columns(num_actions=3, episode=None, step=None),
)


def _deployable_rows(rng: fuzz.Rng) -> dict[str, list[Any]]:
    """One shape for all, as the gate is compiled for a shape; undamaged, the candidate is deployed."""
    frame = shop(EPISODES, seed=int(rng.integers(1000)))
    codes = [OFFERS.index(one) for one in frame["action"]]
    dates = [f"2024-05-{1 + i // 24:02d} {i % 24:02d}:00:00" for i in range(EPISODES)]
    rows: dict[str, list[Any]] = {name: frame[name].to_list() for name in frame.columns}
    return {**rows, "action": codes, "step": [0] * EPISODES, "time": dates}


def _cut_near_the_end(content: bytes, rng: fuzz.Rng) -> bytes:
    """As in a copy that was interrupted. Fewer rows would be compiled anew, and take their time."""
    if rng.integers(5) == 0:
        return content[: -int(rng.integers(1, 24))]
    return content


def _misplace(rows: dict[str, list[Any]], rng: fuzz.Rng) -> None:
    """Every cell is fine by itself, but in the wrong row or of the wrong size."""
    name = fuzz._pick(rng, ("reward", "new_prob", "behavior_prob", "action"))
    if name not in rows:
        return
    values = rows[name]
    if rng.random() < 0.5:
        rows[name] = [values[i] for i in rng.permutation(len(values))]
    elif name != "action" and all(isinstance(one, float) for one in values):
        rows[name] = [one * 0.5 for one in values]


@pytest.mark.parametrize("share", [0.4, pytest.param(1.0, marks=pytest.mark.verify)])
def test_no_mutated_log_deploys_unless_it_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(fuzz, "log_rows", _deployable_rows)
    monkeypatch.setattr(fuzz, "damaged", _cut_near_the_end)
    kept = [one for one in fuzz.MUTATIONS if one != fuzz._lose]
    monkeypatch.setattr(fuzz, "MUTATIONS", [*kept, *[_misplace] * 4])
    rng, outcomes = np.random.default_rng(7), Counter[tuple[wf.Preset, str]]()
    for kind, count in PER_FORMAT.items():
        settings, mappings = (PLAIN, MAPPINGS[:1]) if kind == BY_DEFAULT else (PAPER, MAPPINGS)
        for _ in range(round(share * count)):
            source, columns = fuzz.mutated(kind, rng, tmp_path), fuzz._pick(rng, mappings)
            outcomes[settings.preset, _gated(source, columns, settings)] += 1
    assert sum(outcomes.values()) >= 500 * share
    for preset in wf.Preset:
        found = [outcomes[preset, name] for name in ("refused", "KEEP", "DEPLOY")]
        assert min(found) > share * (20 if preset is wf.Preset.PAPER else 4), outcomes


def _gated(source: Any, columns: Columns, settings: wf.PlainSettings) -> str:
    """What became of it; an exception that is not ours fails the test."""
    log = wf.LogFile(source, columns)
    try:
        record = wf.gate(log, candidate="column:new_prob", settings=settings)
    except tg.TidegateError as error:
        text = str(error)
        assert "Traceback" not in text
        assert 0 < len(text) < 2000
        return "refused"
    json.dumps(record.to_dict(), allow_nan=False)
    str(record)
    if record.deploys:
        fuzz.assert_sound(read_log(source, columns))
        decision = record.decision
        assert decision.advantage.point > 0
        if decision.p_value is None:
            assert math.isfinite(decision.candidate.lower)
            assert decision.candidate.lower > decision.safe.upper
        else:
            assert 0 <= decision.p_value <= 0.05
        assert decision.safe.num_episodes >= 10
    return record.verdict.name
