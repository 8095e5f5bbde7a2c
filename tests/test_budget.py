"""Levels that add up to α, error rates with their binomial errors, and a ledger that shows tampering."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.stats import norm

from tests.test_commands import resealed
from tidegate import (
    ConstantBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    Paired,
    SettingsError,
    SoftmaxPolicy,
    TrainingEpisodes,
    Verdict,
    safety_test,
)
from tidegate.basis import TimeAxis
from tidegate.commands.asking import Asked
from tidegate.commands.conditions import Conditions
from tidegate.commands.opening import LogFile, silent
from tidegate.commands.questions import allowed, last_episode, question
from tidegate.commands.settings import PlainSettings
from tidegate.commands.trials import Trial, prepare
from tidegate.episodes import grow
from tidegate.gates.budget_rules import BudgetRule
from tidegate.gates.guardrails import Guardrail
from tidegate.gates.ledger import (
    EXHAUSTED,
    BudgetPlan,
    Entry,
    Grant,
    Ledger,
    entered,
    episodes_for,
    granted,
    next_level,
    next_test,
    open_ledger,
    question_hash,
    read_ledger,
    save_ledger,
)
from tidegate.gates.multiplicity import Multiplicity
from tidegate.gates.spending import (
    EvenSpending,
    FlatLevel,
    HarmonicSpending,
    OBrienFlemingSpending,
    PocockSpending,
    SidakLevel,
    fresh,
    since,
)
from tidegate.loop import Spending
from tidegate.record import plain, restored, write_record

ALPHA, TESTS = 0.05, 40
PLANNED = [
    EvenSpending(ALPHA, TESTS),
    OBrienFlemingSpending(ALPHA, TESTS),
    PocockSpending(ALPHA, TESTS),
]
BUDGETS: list[Spending] = [*PLANNED, HarmonicSpending(ALPHA), HarmonicSpending(ALPHA, 1)]
FRACTIONS = np.array([0.2, 0.4, 0.6, 0.8, 1.0])


def levels(rule: Spending, tests: int) -> npt.NDArray[np.float64]:
    return np.asarray(rule.level(np.arange(1, tests + 1)))


@pytest.mark.parametrize("rule", BUDGETS, ids=repr)
def test_levels_never_add_up_to_more_than_alpha(rule: Spending) -> None:
    spent = np.cumsum(levels(rule, 100_000))
    assert np.all(np.diff(spent) >= 0)
    assert spent[-1] <= ALPHA * (1 + 1e-12)


@pytest.mark.parametrize("rule", PLANNED, ids=repr)
def test_a_plan_spends_all_of_alpha_and_nothing_after(rule: Spending) -> None:
    planned = levels(rule, 3 * TESTS)
    assert planned[:TESTS].sum() == pytest.approx(ALPHA, rel=1e-12)
    assert np.all(planned[1:TESTS] > 0)
    assert np.all(planned[TESTS:] == 0)


@pytest.mark.parametrize("half", [1, 52, 100])
def test_harmonic_spending_telescopes(half: int) -> None:
    spent = np.cumsum(levels(HarmonicSpending(ALPHA, half), 5_000))
    tests = np.arange(1, 5_001)
    np.testing.assert_allclose(spent, ALPHA * tests / (tests + half), rtol=1e-10)
    assert spent[half - 1] == pytest.approx(ALPHA / 2)


def test_harmonic_spending_is_the_most_powerful_rule_without_an_end_when_it_matters() -> None:
    tests = np.arange(10, 5_001)
    ours = np.asarray(HarmonicSpending(ALPHA).level(tests))
    terms = np.arange(1, 2_000_001)
    total = np.sum(1 / (terms * np.log(terms + 1) ** 2)) + 1 / np.log(2_000_001)
    squares = ALPHA * 6 / (np.pi * tests) ** 2
    logarithms = ALPHA / total / (tests * np.log(tests + 1) ** 2)
    assert np.all(ours > squares)
    assert np.all(ours > logarithms)
    found = [(one[90], norm.isf(one[90])) for one in (ours, squares, logarithms)]
    np.testing.assert_allclose(found, [(1.26e-4, 3.66), (3.04e-6, 4.52), (6.93e-6, 4.35)], rtol=3e-3)


def test_lan_demets_spending_has_the_published_values() -> None:
    """One-sided 0.025 at five equal looks; the definition is that of gsDesign's sfLDOF, sfLDPocock."""
    bounded = OBrienFlemingSpending(0.025, 5)
    expected = 2 - 2 * norm.cdf(norm.isf(0.0125) / np.sqrt(FRACTIONS))
    np.testing.assert_allclose(bounded.spent(FRACTIONS), expected, atol=1e-15)
    np.testing.assert_array_equal(np.round(bounded.spent(FRACTIONS), 4), [0.0, 0.0004, 0.0038, 0.0122, 0.025])
    np.testing.assert_array_equal(
        np.round(PocockSpending(0.025, 5).spent(FRACTIONS), 4),
        [0.0074, 0.0131, 0.0177, 0.0216, 0.025],
    )
    for rule in (bounded, PocockSpending(0.025, 5)):
        np.testing.assert_allclose(np.cumsum(levels(rule, 5)), rule.spent(FRACTIONS), rtol=1e-12)
        np.testing.assert_allclose(rule.spent([-1.0, 0.0, 1.0, 2.0]), [0, 0, 0.025, 0.025])
        assert float(rule.between(0.2, 0.7)) == pytest.approx(float(rule.spent(0.7)) - float(rule.spent(0.2)))
        assert float(rule.between(0.7, 0.2)) == 0


def test_sidak_levels_multiply_to_alpha() -> None:
    sidak = levels(SidakLevel(ALPHA, TESTS), TESTS + 1)
    assert 1 - np.prod(1 - sidak) == pytest.approx(ALPHA, rel=1e-12)
    assert ALPHA < sidak.sum() < -math.log1p(-ALPHA)
    assert sidak[-1] == 0


@pytest.mark.parametrize("rule", [*BUDGETS, SidakLevel(ALPHA, TESTS), FlatLevel(ALPHA)], ids=repr)
def test_levels_are_the_same_traced_mapped_scanned_and_in_32_bit(rule: Spending) -> None:
    numbers = np.array([-1, 0, 1, 2, TESTS - 1, TESTS, TESTS + 1])
    eager = np.array([float(rule.level(int(number))) for number in numbers])
    assert np.all(eager[:2] == 0)
    assert float(rule.level(np.nan)) == 0
    together = jax.jit(rule.level)(jnp.asarray(numbers))
    mapped = jax.vmap(rule.level)(jnp.asarray(numbers))
    _, scanned = jax.lax.scan(lambda _, j: (_, rule.level(j)), 0, jnp.asarray(numbers))
    for one in (together, mapped, scanned):
        np.testing.assert_allclose(one, eager, rtol=1e-9, atol=1e-15)
    with jax.enable_x64(False):
        narrow = rule.level(jnp.asarray(numbers))
        assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, eager, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FlatLevel(0.0), r"alpha is 0\.0"),
        (lambda: HarmonicSpending(math.nan), r"alpha is nan"),
        (lambda: EvenSpending(ALPHA, 0), r"tests is 0.*from 1 up"),
        (lambda: PocockSpending(ALPHA, 2.5), r"tests is 2\.5"),  # type: ignore[arg-type]
        (lambda: HarmonicSpending(ALPHA, -1), r"half is -1"),
        (lambda: BudgetPlan(BudgetRule.EVEN, 0).spending(ALPHA), r"tests is 0"),
    ],
)
def test_rules_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make()


def wrong_at_least_once(p_values: Any, rule: Spending) -> float:
    opened = np.asarray(p_values) <= levels(rule, TESTS)
    return float(np.mean(opened.any(axis=1)))


def test_a_budget_bounds_the_chance_of_any_wrong_deployment() -> None:
    """Looks at a growing sample with no effect: without a budget every second run errs."""
    runs, each = 8_000, 5
    noise = np.random.default_rng(0).normal(size=(runs, TESTS, each))
    counts = each * np.arange(1, TESTS + 1)
    growing = norm.sf(np.cumsum(noise.sum(axis=2), axis=1) / np.sqrt(counts))
    fresh_only = norm.sf(noise.sum(axis=2) / math.sqrt(each))
    error = math.sqrt(ALPHA * (1 - ALPHA) / runs)
    assert wrong_at_least_once(growing, FlatLevel(ALPHA)) > 5 * ALPHA
    for rule in BUDGETS:
        for p_values in (growing, fresh_only):
            assert wrong_at_least_once(p_values, rule) < ALPHA + 3 * error
    # On shared data Boole's bound is conservative, on fresh data it is nearly sharp.
    assert wrong_at_least_once(growing, EvenSpending(ALPHA, TESTS)) < ALPHA / 2
    assert wrong_at_least_once(fresh_only, FlatLevel(ALPHA)) == pytest.approx(
        1 - (1 - ALPHA) ** TESTS, abs=5 * error
    )
    found = wrong_at_least_once(fresh_only, SidakLevel(ALPHA, TESTS))
    assert found == pytest.approx(ALPHA, abs=4 * error)


FORECAST = ForecastSettings(5, test=Paired(ConstantBasis()), support_z=math.inf)


def visits(count: int = 300) -> EpisodeLog:
    rng = np.random.default_rng(1)
    actions = rng.integers(0, 2, count)
    rewards = actions + 0.01 * np.arange(count) + rng.normal(size=count)
    return EpisodeLog.from_arrays(actions, rewards, np.full(count, 0.5))


def test_since_masks_what_was_tested_and_keeps_the_rest() -> None:
    log = visits()
    rows = [i for i, number in enumerate(log.episode_numbers) if number > 120]
    later = since(log, 120)
    assert later.capacity == log.capacity
    assert later.digest() == log.take(rows).digest()
    np.testing.assert_array_equal(later.rewards, log.rewards)
    traced = jax.jit(since)(grow(log, 400), 120.0)
    assert traced.num_episodes == len(rows) == 180
    assert since(log, -np.inf).digest() == log.digest()
    assert since(log, 300).num_episodes == 0


def test_fresh_episodes_are_a_log_of_their_own() -> None:
    log = visits()
    parts: list[TrainingEpisodes | HeldOutEpisodes] = [
        fresh(TrainingEpisodes(log, log.span), 120.0),
        fresh(HeldOutEpisodes(log, log.span), 120.0),
    ]
    assert [type(part) for part in parts] == [TrainingEpisodes, HeldOutEpisodes]
    assert [part.span for part in parts] == 2 * [(121.0, 300.0)]
    assert parts[0].log.span == (121.0, 300.0)
    assert fresh(HeldOutEpisodes(log), 120.0).span is None
    cut = log.take(np.arange(120, 300))
    assert {part.log.digest() for part in parts} == {cut.digest()}
    assert parts[1].span is not None
    axes = [TimeAxis.over(span, FORECAST.lookahead) for span in (parts[1].span, cut.span)]
    assert float(axes[0].origin) == float(axes[1].origin) == 120


SETTINGS = {"lookahead": 10}


def asked(week: int) -> str:
    return question_hash(f"log {week}", {"candidate": "c", "safe": "s"}, SETTINGS, 0)


def answered(ledger: Ledger, week: int, verdict: Verdict = Verdict.KEEP, **other: Any) -> Ledger:
    entry = next_test(ledger, asked(week)).entry(
        data_hash=f"log {week}",
        p_value=0.3,
        verdict=verdict,
        last_episode=100.0 * week,
        record_hash=f"record {week}",
    )
    return entered(ledger, dataclasses.replace(entry, **other))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.json"


PLAN = BudgetPlan(BudgetRule.EVEN, 4)


def test_a_ledger_is_begun_filled_and_read_again(path: Path) -> None:
    ledger = open_ledger(path, ALPHA, PLAN)
    assert path.exists()
    assert next_level(ledger) == ALPHA / 4
    for week in (1, 2, 3):
        ledger = answered(open_ledger(path, ALPHA, PLAN), week, Verdict.DEPLOY)
        save_ledger(ledger, path)
    again = open_ledger(path, ALPHA, PLAN)
    assert again == ledger
    assert [entry.number for entry in again.entries] == [1, 2, 3]
    assert again.entries[1] == Entry(2, asked(2), "log 2", ALPHA / 4, 0.3, Verdict.DEPLOY, 200.0, "record 2")
    assert again.spent == pytest.approx(3 * ALPHA / 4)
    assert "0.0375 of α = 0.05 spent in 3 tests (even over 4 tests); test 4" in str(again)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("rule", BudgetRule)
def test_a_ledger_grants_the_levels_of_its_rule(rule: BudgetRule, path: Path) -> None:
    plan = BudgetPlan(rule, 5)
    granted = []
    for week in range(8):
        ledger = open_ledger(path, ALPHA, plan)
        granted.append(next_level(ledger))
        save_ledger(answered(ledger, week), path)
    np.testing.assert_allclose(granted, levels(plan.spending(ALPHA), 8), rtol=1e-12)
    assert (granted[-1] > 0) == (rule is BudgetRule.HARMONIC)


def test_repeating_a_question_spends_nothing_and_gets_its_own_level(path: Path) -> None:
    plan = BudgetPlan(BudgetRule.HARMONIC, 2)
    ledger = open_ledger(path, ALPHA, plan)
    for week in (1, 2, 3):
        ledger = answered(ledger, week)
    turn = next_test(ledger, asked(2))
    assert (turn.number, turn.level, turn.repeated, turn.after) == (
        2,
        ledger.entries[1].level,
        True,
        100.0,
    )
    assert answered(ledger, 2) is ledger
    new = next_test(ledger, asked(4))
    assert (new.number, new.repeated, new.after) == (4, False, 300.0)
    other_seed = question_hash("log 2", {"candidate": "c", "safe": "s"}, SETTINGS, 1)
    assert next_test(ledger, other_seed).number == 4


def test_an_exhausted_budget_grants_nothing_and_says_so(path: Path) -> None:
    ledger = open_ledger(path, ALPHA, BudgetPlan(BudgetRule.EVEN, 1))
    ledger = answered(ledger, 1)
    assert next_level(ledger) == 0
    assert EXHAUSTED in str(ledger)
    ledger = answered(ledger, 2)
    assert ledger.spent == ALPHA
    turn = next_test(ledger, asked(3))
    assert turn.level == 0
    # So clear a case that its p-value is 0 in floating point: still no reason to open the gate.
    actions = np.arange(300) % 2
    rewards = 2 * actions - 1 + 1e-3 * np.random.default_rng(2).normal(size=300)
    log = EpisodeLog.from_arrays(actions, rewards, np.full(300, 0.5))
    held_out = episodes_for(granted(ledger, turn), HeldOutEpisodes(log))
    policies = SoftmaxPolicy([0.0, 2.0]), SoftmaxPolicy([0.0, -2.0])
    clear = safety_test(*policies, held_out, FORECAST, level=ALPHA)
    assert (clear.verdict, clear.p_value) == (Verdict.DEPLOY, 0)
    assert safety_test(*policies, held_out, FORECAST, level=turn.level).verdict is Verdict.KEEP


def test_only_fresh_episodes_are_tested_under_sidak(path: Path) -> None:
    ledger = open_ledger(path, ALPHA, BudgetPlan(BudgetRule.SIDAK, 3))
    held_out = HeldOutEpisodes(visits(), (1.0, 300.0))
    first = granted(ledger, next_test(ledger, asked(1)))
    assert first.after is None
    assert episodes_for(first, held_out) is held_out
    ledger = answered(ledger, 1)
    second = next_test(ledger, asked(2))
    assert episodes_for(granted(ledger, second), held_out).log.span == (101.0, 300.0)
    ledger = answered(ledger, 2)
    # A repeated question sees the episodes that it saw then.
    again = granted(ledger, next_test(ledger, asked(2)))
    assert episodes_for(again, held_out).log.num_episodes == 200
    even = Ledger(ALPHA, PLAN, ledger.entries)
    assert episodes_for(granted(even, second), held_out) is held_out


def shop_trial(**changes: Any) -> Trial:
    given = {
        "rows": 60,
        "reward": 0.0,
        "seed": 0,
        "settings": PlainSettings(lookahead=5),
        **changes,
    }
    rng, rows = np.random.default_rng(0), given["rows"]
    frame = pl.DataFrame(
        {
            "episode": np.arange(1, rows + 1),
            "action": rng.integers(0, 2, rows),
            "behavior_prob": np.full(rows, 0.5),
            "reward": np.full(rows, given["reward"]),
            "new_prob": np.full(rows, given.get("probability", 0.6)),
        }
    )
    specs = ("column:new_prob", given.get("safe", "behavior"))
    asked = Asked(LogFile(frame), given["settings"])
    return prepare(asked, *specs, None, None, given["seed"], silent)


def test_a_question_is_all_that_the_answer_depends_on() -> None:
    def asked_of(trial: Trial, *rails: Guardrail, rule: Multiplicity = Multiplicity.HOLM) -> str:
        return question(trial, Conditions(rails, rule))

    trial, rail = shop_trial(), Guardrail("calls", 0.1)
    same = asked_of(trial)
    assert asked_of(shop_trial()) == asked_of(trial, rule=Multiplicity.NONE) == same
    others = [
        asked_of(shop_trial(**change))
        for change in (
            {"rows": 61}, {"reward": 1e-9}, {"seed": 1}, {"probability": 0.61},
            {"safe": "column:new_prob"}, {"settings": PlainSettings(lookahead=6)},
            {"settings": PlainSettings(lookahead=5, draws=501)},
        )
    ]  # fmt: skip
    others += [
        asked_of(trial, rail),
        asked_of(trial, rail, rule=Multiplicity.NONE),
        asked_of(trial, dataclasses.replace(rail, margin=0.2)),
        asked_of(dataclasses.replace(trial, seen=TrainingEpisodes(trial.held_out.log))),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_what_earlier_tests_have_used_goes_from_both_parts() -> None:
    trial = shop_trial()
    log = trial.held_out.log
    even, odd = log.take(np.arange(0, 60, 2)), log.take(np.arange(1, 60, 2))
    trial = dataclasses.replace(
        trial,
        held_out=HeldOutEpisodes(even, log.span),
        seen=TrainingEpisodes(odd, log.span),
    )
    assert last_episode(trial) == 60
    grant = Grant(2, 0.01, "q", ALPHA, BudgetRule.SIDAK, 3, after=30.0)
    left = allowed(trial, grant)
    assert left.held_out.log.span == (31.0, 59.0)
    assert left.held_out.span == (31.0, 60.0)
    assert left.seen is not None
    assert left.seen.log.span == (32.0, 60.0)
    # Too few to try time scales on: the test will take some of the held-out ones.
    late = allowed(trial, dataclasses.replace(grant, after=50.0))
    assert late.seen is None
    assert last_episode(late) == 60
    for none in (None, dataclasses.replace(grant, after=None)):
        assert allowed(trial, none) is trial
    assert restored(Grant, json.loads(json.dumps(plain(grant)))) == grant
    assert str(grant) == "this is test 2, at level 0.01 of α = 0.05 (sidak over 3 tests)."


def test_tampering_shows(path: Path) -> None:
    save_ledger(answered(open_ledger(path, ALPHA, PLAN), 1), path)
    whole = json.loads(path.read_text())

    def damaged(text: str, message: str) -> None:
        path.write_text(text)
        with pytest.raises(SettingsError, match=message):
            open_ledger(path, ALPHA, PLAN)

    damaged(json.dumps({**whole, "entries": []}), r"was changed after it was written")
    damaged(json.dumps({**whole, "alpha": 0.5}), r"was changed after it was written")
    damaged(path.read_text()[:-9], r"not JSON")
    damaged("", r"not JSON")
    damaged("[1]", r"not a record.*Expected a ledger")
    damaged(json.dumps({**whole, "alpha": math.nan}), r"not JSON: it holds NaN")
    # Sealed anew, but no ledger that this rule can have made.
    moved = [{**whole["entries"][0], "level": 1e-9}]
    damaged(json.dumps(resealed({**whole, "entries": moved})), r"level for its turn")
    skipped = [{**whole["entries"][0], "number": 2}]
    damaged(json.dumps(resealed({**whole, "entries": skipped})), r"number or level")
    damaged(json.dumps(resealed({"kind": "gate", "format": 2})), r"of kind 'gate'")
    damaged(json.dumps(resealed({**whole, "plan": {}})), r"incomplete.*KeyError")
    damaged(json.dumps(resealed({**whole, "alpha": 2.0})), r"alpha is 2")
    write_record(whole, path)
    assert len(read_ledger(path).entries) == 1


def test_another_budget_is_refused(path: Path) -> None:
    open_ledger(path, ALPHA, PLAN)
    with pytest.raises(SettingsError, match=r"α = 0\.05, even over 4.*this gate asks for α = 0\.1"):
        open_ledger(path, 0.1, PLAN)
    with pytest.raises(SettingsError, match=r"this gate asks for α = 0\.05, harmonic over 52"):
        open_ledger(path, ALPHA, BudgetPlan())
    with pytest.raises(SettingsError, match=r"alpha is 2"):
        open_ledger(path.with_name("new.json"), 2.0, PLAN)
    assert not path.with_name("new.json").exists()


def test_two_gates_at_once_cannot_share_a_turn(path: Path) -> None:
    first, second = (open_ledger(path, ALPHA, PLAN) for _ in range(2))
    save_ledger(answered(first, 1), path)
    with pytest.raises(SettingsError, match=r"another gate has made an entry.*must not be used"):
        save_ledger(answered(second, 2), path)
    assert [entry.question for entry in read_ledger(path).entries] == [asked(1)]
    with pytest.raises(SettingsError, match=r"cannot write the lock file"):
        open_ledger(path / "below" / "budget.json", ALPHA, PLAN)


def test_an_entry_needs_its_own_turn(path: Path) -> None:
    ledger = open_ledger(path, ALPHA, PLAN)
    with pytest.raises(SettingsError, match=r"number 1 at level 0\.05.*number 1 at level 0\.0125"):
        answered(ledger, 1, level=ALPHA)
    with pytest.raises(SettingsError, match=r"number 7"):
        answered(ledger, 1, number=7)
    entry = answered(ledger, 1).entries[0]
    assert entry.p_value == 0.3
    turn = next_test(ledger, asked(1))
    undefined = turn.entry(
        data_hash="", p_value=math.nan, verdict=Verdict.KEEP, last_episode=0.0, record_hash=""
    )
    assert undefined.p_value is None
