"""What people pass is coerced or refused, through the public functions; nothing is guessed."""

import datetime
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import tidegate as tg
from tidegate import commands as wf
from tidegate.basis import PeriodicBasis
from tidegate.bootstrap import Side
from tidegate.checks.backtest import backtest
from tidegate.cli.app import app
from tidegate.experiments.demo import run_demo
from tidegate.experiments.reproduce import Effort
from tidegate.forecast import forecast_returns
from tidegate.gates.budget_rules import BudgetRule
from tidegate.gates.guardrails import Guardrail, guarded_test, guardrails_of
from tidegate.gates.ledger import Budget, BudgetPlan, budget_of, open_ledger
from tidegate.gates.multiplicity import Multiplicity, holm
from tidegate.inputs import MAX_SEED
from tidegate.logs import Columns, Format, TimeUnit, load_columns, read_log
from tidegate.logs.propensities import estimate_propensities
from tidegate.models import TrendModels
from tidegate.presets import paper_run
from tidegate.search import Objective
from tidegate.values import LinearValues

FRAME = pl.DataFrame(
    {
        "episode": range(1, 61),
        "action": [0, 1] * 30,
        "behavior_prob": [0.5] * 60,
        "new_prob": [0.1, 0.9] * 30,
        "reward": [0.0, 1.0, 0.2, 0.9, 0.1, 1.1] * 10,
        "harm": [0.0, 0.1, 0.2, 0.0, 0.1, 0.3] * 10,
    }
)
LOG = tg.EpisodeLog.from_arrays([0, 1] * 6, np.linspace(0, 1, 12), [0.5] * 12, outcomes={"harm": [0.0] * 12})
POLICY = tg.SoftmaxPolicy([0.0, 0.0])
FORECAST = tg.ForecastSettings(2)
SPIN = tg.paper_settings()
HELD_OUT = tg.HeldOutEpisodes(LOG)
CANDIDATE = "column:new_prob"

Make = Callable[[], Any]

REFUSED: list[tuple[Make, str]] = [
    (lambda: Guardrail("retention", 0.3, "highest"), r"parse_guardrail\('retention:0.3:higher'\)"),  # type: ignore[arg-type]
    (lambda: Guardrail("retention", 0.3, 1), r"lower_is_better is 1\. Expected True or False"),  # type: ignore[arg-type]
    (lambda: Guardrail("retention", "0.3"), r"margin of 'retention' is '0.3'"),  # type: ignore[arg-type]
    (lambda: Guardrail("retention", True), r"margin of 'retention' is True"),
    (lambda: Guardrail(3, 0.1), r"outcome of a guardrail is 3"),  # type: ignore[arg-type]
    (lambda: guardrails_of(["complaints"]), r"'complaints' is not a guardrail"),
    (lambda: guardrails_of([3]), r"a guardrail is 3"),
    (lambda: guardrails_of([{"name": "c", "margins": 1.0}]), r"no 'margins'\. Did you mean 'margin'"),
    (lambda: guardrails_of([{"name": "c"}]), r"does not say what the margin is"),
    (lambda: wf.SearchChoices(policy_class="liner"), r"policy_class is 'liner'\. Did you mean 'linear'"),  # type: ignore[arg-type]
    (lambda: wf.SearchChoices(hidden=16.0), r"hidden is 16\.0.*Write 16"),  # type: ignore[arg-type]
    (lambda: wf.SearchChoices(steps=True), r"steps is True.*do not count as 1 and 0"),
    (lambda: wf.SearchChoices(learning_rate="0.1"), r"learning_rate is '0\.1'.*not a text"),  # type: ignore[arg-type]
    (lambda: wf.SearchChoices(entropy=math.inf), r"entropy is inf"),
    (lambda: wf.SearchChoices(train_fraction=1.5), r"train_fraction is 1\.5.*from 0 to 1"),
    (lambda: wf.SearchChoices(search_memory="2XB"), r"search_memory is '2XB'\. Expected a size such as"),
    (lambda: wf.SearchChoices(search_memory=0), r"search_memory is 0"),
    (lambda: wf.SearchChoices(search_memory=True), r"search_memory is True"),
    (lambda: wf.SearchChoices(search_memory=10**400), r"search_memory is 1000"),
    (lambda: wf.PlainSettings(preset="papper"), r"preset is 'papper'\. Did you mean 'paper'"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(preset=wf.BasisKind.COSINE), r"preset is <BasisKind"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(lookahead=True), r"lookahead is True"),
    (lambda: wf.PlainSettings(lookahead=10.0), r"lookahead is 10\.0.*Write 10, without"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(lookahead=np.float64(10)), r"lookahead is 10\.0"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(lookahead="10"), r"lookahead is '10'"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(alpha="0.05"), r"alpha is '0\.05'.*Pass a number, not a text"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(alpha=math.nan), r"alpha is nan.*above 0 and below 1"),
    (lambda: wf.PlainSettings(alpha=0.3), r"alpha is 0\.3.*up to 30 would be.*allow_large_alpha=True"),
    (lambda: wf.PlainSettings(alpha=0.3, allow_large_alpha="no"), r"allow_large_alpha is 'no'"),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(draws=-500), r"draws is -500.*from 1 to 100,000"),
    (lambda: wf.PlainSettings(discount=True), r"discount is True"),
    (lambda: wf.PlainSettings(alpha=10**400), r"alpha is 1000"),
    (lambda: wf.PlainSettings(alpha=np.array([0.05])), r"alpha is an array of float64, of shape \(1,\)"),  # type: ignore[arg-type]
    (lambda: BudgetPlan("harmonics"), r"rule is 'harmonics'\. Did you mean 'harmonic'"),  # type: ignore[arg-type]
    (lambda: Budget(3), r"budget's file is 3"),  # type: ignore[arg-type]
    (lambda: Budget(""), r"budget's file is ''"),
    (lambda: Budget("b.json", {"test": 3}), r"no 'test'\. Did you mean 'tests'"),  # type: ignore[arg-type]
    (lambda: open_ledger("none.json", "0.05", BudgetPlan()), r"alpha is '0\.05'"),  # type: ignore[arg-type]
    (lambda: holm([0.01], "0.05"), r"alpha is '0\.05'"),  # type: ignore[arg-type]
    (lambda: Columns(time="t", time_unit="days"), r"time_unit is 'days'\. Did you mean 'day'"),  # type: ignore[arg-type]
    (lambda: Columns(features={"age"}), r"features is \{'age'\}\. Expected a list of names"),  # type: ignore[arg-type]
    (lambda: Columns(features=("age", 3)), r"features is \('age', 3\)"),  # type: ignore[arg-type]
    (lambda: Columns(features=("age", "age")), r"features lists a name twice"),
    (lambda: Columns(episode=3), r"episode is 3\. Expected the name of a column"),  # type: ignore[arg-type]
    (lambda: Columns(reward=""), r"reward is empty"),
    (lambda: Columns(num_actions=2.0), r"num_actions is 2\.0"),  # type: ignore[arg-type]
    (lambda: Columns(actions=(True, False)), r"actions is \(True, False\)"),
    (lambda: load_columns(3), r"file of columns is 3"),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, format="excel"), r"the format is 'excel'.*parquet, csv, jsonl"),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, estimate_propensities="no"), r"estimate_propensities is 'no'"),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, {"rewards": "r"}), r"no 'rewards'\. Did you mean 'reward'"),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, "columns.toml"), r"cannot read columns.toml"),  # type: ignore[arg-type]
    (lambda: read_log(FRAME, format="excel"), r"the format is 'excel'"),
    (lambda: estimate_propensities(read_log(FRAME), seed=-1), r"seed is -1"),
    (lambda: tg.EpisodeLog.from_arrays([0], [1.0], [0.5], propensity="density of it"), r"Did you mean"),  # type: ignore[arg-type]
    (lambda: tg.EpisodeLog.from_arrays([0], [1.0], [0.5], num_actions=2.0), r"num_actions is 2\.0"),  # type: ignore[arg-type]
    (lambda: tg.EpisodeLog.from_arrays([0], [1.0], [0.5], outcomes=[[0.0]]), r"outcomes is \[\[0\.0\]\]"),  # type: ignore[arg-type]
    (lambda: tg.EpisodeLog.from_frame(FRAME, propensity=True), r"propensity is True"),  # type: ignore[arg-type]
    (lambda: tg.EpisodeLog.from_frame(FRAME, action_set="ab"), r"action_set is 'ab'"),
    (lambda: tg.EpisodeLog.from_frame(FRAME, reward=3), r"reward is 3"),  # type: ignore[arg-type]
    (lambda: tg.split_log(LOG, train_fraction="0.5"), r"train_fraction is '0\.5'"),  # type: ignore[arg-type]
    (lambda: tg.split_log(LOG, seed=1.5), r"seed is 1\.5"),  # type: ignore[arg-type]
    (lambda: tg.split_log(LOG, seed=2**70), r"seed is 1180591620717411303424"),
    (lambda: tg.safety_test(POLICY, POLICY, HELD_OUT, FORECAST, level="0.1"), r"level is '0\.1'"),  # type: ignore[arg-type]
    (lambda: tg.safety_test(POLICY, POLICY, HELD_OUT, FORECAST, margin="0"), r"margin is '0'"),  # type: ignore[arg-type]
    (lambda: tg.safety_test(POLICY, POLICY, HELD_OUT, FORECAST, seed=True), r"seed is True"),
    (lambda: tg.safety_test(POLICY, POLICY, HELD_OUT, FORECAST, training=HELD_OUT), r"training is"),  # type: ignore[arg-type]
    (lambda: tg.safety_test(POLICY, POLICY, HELD_OUT, {"lookahead": 2}), r"ForecastSettings\(…\)"),  # type: ignore[arg-type]
    (lambda: guarded_test(POLICY, POLICY, HELD_OUT, FORECAST, [], multiplicity="hulm"), r"'holm'"),
    (lambda: tg.forecast_performance(POLICY, LOG, FORECAST, side="uper"), r"side is 'uper'\. Did you"),  # type: ignore[arg-type]
    (lambda: forecast_returns([0.0] * 9, range(9), FORECAST, seed="0"), r"seed is '0'"),  # type: ignore[arg-type]
    (lambda: tg.forecast_performance("behavior", LOG, FORECAST), r"policy is 'behavior'"),  # type: ignore[arg-type]
    (lambda: tg.forecast_performance(POLICY, FRAME, FORECAST), r"log is .*EpisodeLog\.from_frame"),  # type: ignore[arg-type]
    (lambda: tg.safety_test("new", POLICY, HELD_OUT, FORECAST), r"candidate is 'new'"),  # type: ignore[arg-type]
    (lambda: tg.pdis_returns(POLICY, LOG, 1.5), r"discount is 1\.5"),
    (lambda: paper_run(lookahead=2, order=1, steps_per_episode=1, entropy_weight=0.1, objective="x"), "obj"),
    (lambda: backtest(POLICY, None, LOG, FORECAST, dates=True), r"dates is True"),
    (lambda: backtest(POLICY, None, LOG, FORECAST, every="2"), r"every is '2'"),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(True), r"lookahead is True"),
    (lambda: tg.ForecastSettings(2, alpha="0.05"), r"alpha is '0\.05'"),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(2, draws=500.0), r"draws is 500\.0"),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(2, exact="no"), r"exact is 'no'"),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(2, support_z=math.nan), r"support_z is nan"),
    (lambda: tg.ForecastSettings(2, multipliers="rademacher"), r"multipliers is 'rademacher'"),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(2, value_model="linear"), r"value_model is 'linear'"),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(objective="means"), r"objective is 'means'\. Did you mean 'mean'"),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(steps=3.0), r"steps is 3\.0"),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(entropy_weight="0.1"), r"entropy_weight is '0\.1'"),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(natural_gradient=1), r"natural_gradient is 1"),  # type: ignore[arg-type]
    (
        lambda: tg.SpinSettings(FORECAST, SPIN.search, train_fraction=math.nan),
        r"train_fraction is nan",
    ),
    (lambda: tg.SpinSettings(FORECAST, SPIN.search, warm_start="yes"), r"warm_start is 'yes'"),  # type: ignore[arg-type]
    (lambda: tg.SpinSettings(FORECAST, FORECAST), r"search is .*SearchSettings\(…\)"),  # type: ignore[arg-type]
    (lambda: tg.TwoBounds("cosine"), r"basis is 'cosine'"),  # type: ignore[arg-type]
    (lambda: tg.Multiscale("lines"), r"models is 'lines'"),  # type: ignore[arg-type]
    (lambda: TrendModels(still=0.0), r"still is 0\.0.*above 0"),
    (lambda: TrendModels(season="0.1"), r"season is '0\.1'"),  # type: ignore[arg-type]
    (lambda: TrendModels(level=math.nan), r"level is nan"),
    (lambda: TrendModels(smooth=-0.1), r"smooth is -0\.1"),
    (lambda: TrendModels(broken=1), r"broken is 1.*below 1"),
    (lambda: TrendModels(still=0.9, smooth=0.2), r"still \+ broken \+ smooth is 1\.15"),
    (lambda: tg.CosineBasis(True), r"order of the basis is True"),
    (lambda: tg.CosineBasis(7, columns=5), r"order of the basis is 7.*from 0 to 4"),
    (lambda: tg.FourierBasis(1, "7"), r"period is '7'"),  # type: ignore[arg-type]
    (lambda: tg.RecentMeans(ladder=2.0), r"ladder is 2\.0"),  # type: ignore[arg-type]
    (lambda: LinearValues(num_states="two"), r"num_states is 'two'"),  # type: ignore[arg-type]
    (lambda: tg.LiveLoop(SPIN, POLICY, seed=1.5), r"seed is 1\.5"),  # type: ignore[arg-type]
    (lambda: tg.LiveLoop(SPIN, POLICY, capacity=0), r"capacity is 0"),
    (lambda: run_demo(domain="recosis"), r"domain is 'recosis'\. Did you mean 'recosys'"),  # type: ignore[arg-type]
    (lambda: run_demo(speed=True), r"speed is True"),
    (lambda: Effort(runs=True, seed=0), r"runs is True"),
    (lambda: Effort(runs=1, seed=0, engine="Ray"), r"engine is 'Ray'\. Did you mean 'ray'"),
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, multiplicity="hulm"), r"multiplicity is 'hulm'"),
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, dates=True), r"dates is True"),
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, seed=1.5), r"seed is 1\.5"),  # type: ignore[arg-type]
    (
        lambda: wf.gate(FRAME, candidate=CANDIDATE, settings={"alfa": 0.1}),
        r"settings has no 'alfa'\. Did you",
    ),
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, settings=0.1), r"settings is 0\.1"),  # type: ignore[arg-type]
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, guardrails=["harm"]), r"'harm' is not a guardrail"),
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, budget=3), r"budget's file is 3"),  # type: ignore[arg-type]
    (lambda: wf.gate(FRAME, candidate=CANDIDATE, training=3), r"training is 3"),  # type: ignore[arg-type]
    (lambda: wf.gate(FRAME, candidate=3), r"the policy is 3"),  # type: ignore[arg-type]
    (lambda: wf.improve(FRAME, search={"class": "linear"}), r"search has no 'class'"),
    (lambda: wf.improve(FRAME, dates=1.0), r"dates is 1\.0"),  # type: ignore[arg-type]
    (lambda: wf.evaluate(FRAME, policy="behavior", stream="yes"), r"stream is 'yes'"),  # type: ignore[arg-type]
    (lambda: wf.backtest(FRAME, dates=2.0), r"dates is 2\.0"),  # type: ignore[arg-type]
    (lambda: wf.backtest(FRAME, every=True), r"every is True"),
    (lambda: wf.plan(FRAME, candidate=CANDIDATE, seed=MAX_SEED + 1), r"seed is 9223372036854775808"),
    (lambda: wf.check(FRAME, settings="paper"), r"settings is 'paper'"),  # type: ignore[arg-type]
    (lambda: wf.check(FRAME, policy=""), r"the policy is empty"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_refused(make: Make, message: str) -> None:
    with pytest.raises(tg.SettingsError, match=message):
        make()


TAKEN: list[tuple[Make, Any]] = [
    (lambda: Guardrail("retention", 0.3, "higher"), Guardrail("retention", 0.3, False)),  # type: ignore[arg-type]
    (lambda: Guardrail("calls", 0.3, "Lower"), Guardrail("calls", 0.3, True)),  # type: ignore[arg-type]
    (lambda: guardrails_of("calls:1"), (Guardrail("calls", 1.0),)),
    (lambda: guardrails_of([{"name": "calls", "margin": 1}]), (Guardrail("calls", 1.0),)),
    (lambda: wf.SearchChoices(policy_class="linear").policy_class, wf.PolicyClass.LINEAR),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(preset="multiscale").preset, wf.Preset.MULTISCALE),  # type: ignore[arg-type]
    (lambda: wf.PlainSettings(preset="Paper", basis="COSINE").basis, wf.BasisKind.COSINE),  # type: ignore[arg-type]
    (lambda: type(wf.PlainSettings(draws=np.int64(500)).draws), int),  # type: ignore[arg-type]
    (lambda: type(wf.PlainSettings(discount=1).discount), float),
    (lambda: wf.PlainSettings(alpha=0.3, allow_large_alpha=np.bool_(True)).allow_large_alpha, True),  # type: ignore[arg-type]
    (lambda: str(BudgetPlan("harmonic", 52)), "harmonic over 52 tests"),  # type: ignore[arg-type]
    (lambda: BudgetPlan("OBrien_Fleming").rule, BudgetRule.OBRIEN_FLEMING),  # type: ignore[arg-type]
    (lambda: budget_of("b.json"), Budget(Path("b.json"))),
    (lambda: budget_of({"path": "b.json", "plan": {"tests": 4}}), Budget("b.json", BudgetPlan(tests=4))),
    (lambda: Columns(time="t", time_unit="day").time_unit, TimeUnit.DAY),  # type: ignore[arg-type]
    (lambda: Columns(propensity="log-probability").propensity, tg.Propensity.LOG_PROBABILITY),  # type: ignore[arg-type]
    (lambda: Columns(features="user_age").features, ("user_age",)),  # type: ignore[arg-type]
    (lambda: Columns(features="age, load").features, ("age", "load")),  # type: ignore[arg-type]
    (lambda: Columns(features=["age,load"]).features, ("age,load",)),  # type: ignore[arg-type]
    (lambda: Columns(episode="", step="").episode, None),
    (lambda: repr(Columns(actions=(np.int64(0), 1)).actions), "(0, 1)"),
    (lambda: wf.LogFile(FRAME, format="CSV").format, Format.CSV),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, format="json-lines").format, Format.JSONL),  # type: ignore[arg-type]
    (lambda: wf.LogFile(FRAME, {"reward": "profit"}).columns, Columns(reward="profit")),  # type: ignore[arg-type]
    (lambda: tg.ForecastSettings(np.int64(4)).lookahead, 4),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(objective="mean").objective, Objective.MEAN),  # type: ignore[arg-type]
    (lambda: tg.SearchSettings(objective="point forecast").objective, Objective.MEAN),  # type: ignore[arg-type]
    (lambda: tg.CosineBasis(np.int64(3)).columns, 4),  # type: ignore[arg-type]
    (lambda: tg.LiveLoop(SPIN, POLICY, seed=np.uint32(7)).seed, 7),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "expected"), TAKEN)
def test_taken_as_meant(make: Make, expected: Any) -> None:
    found = make()
    assert found == expected
    assert type(found) is type(expected)


def test_propensities_by_name() -> None:
    logs = [-0.5, -0.25]
    meant = tg.EpisodeLog.from_arrays([0, 1], [1.0, 2.0], logs, propensity=tg.Propensity.LOG_PROBABILITY)
    named = tg.EpisodeLog.from_arrays([0, 1], [1.0, 2.0], logs, propensity="log_probability")  # type: ignore[arg-type]
    frame = pd.DataFrame({"episode": [1, 2], "action": [0, 1], "reward": [1.0, 2.0], "behavior_prob": logs})
    framed = tg.EpisodeLog.from_frame(frame, propensity="Log-Probability")  # type: ignore[arg-type]
    assert named.digest() == meant.digest() == framed.digest()


def test_sides_by_name() -> None:
    meant = tg.forecast_performance(POLICY, LOG, FORECAST, side=Side.LOWER)
    assert tg.forecast_performance(POLICY, LOG, FORECAST, side="lower").lower == meant.lower  # type: ignore[arg-type]


NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def test_a_gate_of_plain_values_is_the_gate_of_records(tmp_path: Path) -> None:
    meant = wf.gate(
        wf.LogFile(FRAME, Columns(outcomes=("harm",))),
        candidate=CANDIDATE,
        settings=wf.PlainSettings(lookahead=5),
        guardrails=[Guardrail("harm", 0.5)],
        multiplicity=Multiplicity.BONFERRONI,
        budget=Budget(tmp_path / "one.json"),
        now=NOW,
    )
    named = wf.gate(
        FRAME,
        candidate=CANDIDATE,
        settings={"lookahead": np.int64(5), "preset": "Multiscale"},
        guardrails="harm:0.5",
        multiplicity="bonferroni",
        budget=str(tmp_path / "two.json"),
        now=NOW,
    )
    assert named.to_dict() == meant.to_dict()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert named.to_dict()["settings"]["allow_large_alpha"] is False


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--alpha", "0.3"], r"alpha is 0\.3.*`allow_large_alpha=True`"),
        (["--alpha", "nan"], r"alpha is nan"),
        (["--seed", "-1"], r"seed is -1"),
        (["--format", "excel"], r"the format is 'excel'"),
        (["--time", "t", "--time-unit", "days"], r"Did you mean 'day'"),
        (["--alpha", "0.3", "--allow-large-alpha"], r"there is no file no.csv"),
    ],
)
def test_flags_go_through_the_same_checks(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the record of the error goes
    done = CliRunner().invoke(app, ["gate", "no.csv", "--candidate", "behavior", *flags])
    with pytest.raises(tg.TidegateError, match=message):
        raise done.exception or AssertionError(done.output)


def test_traced_numbers_pass() -> None:
    def settings(steps: Any, weight: Any, order: Any, period: Any) -> Any:
        search = tg.SearchSettings(steps=steps, entropy_weight=weight, learning_rate=weight)
        basis = tg.CosineBasis(order, columns=5)
        return tg.SpinSettings(tg.ForecastSettings(2, tg.TwoBounds(basis)), search), PeriodicBasis(period)

    numbers = jnp.arange(1, 4)
    many, waves = jax.vmap(settings)(numbers, 0.1 * numbers, numbers, 7.0 * numbers)
    assert many.search.steps.shape == waves.period.shape == (3,)
    one = jax.jit(lambda n: settings(n, 0.1, n, 7.0)[0].forecast.test.basis.active().sum())(3)
    assert one == 4
