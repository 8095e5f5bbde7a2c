"""Guardrails: the rules of multiplicity against their closed tests, the verdict against single tests."""

import dataclasses
import io
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    LogError,
    Paired,
    Reason,
    RecentMeans,
    SettingsError,
    SoftmaxPolicy,
    TrainingEpisodes,
    TwoBounds,
    Verdict,
    safety_test,
    split_log,
)
from tidegate import commands as wf
from tidegate.cli.flags import GuardrailFlags, spread
from tidegate.cli.tables import guardrail_table
from tidegate.commands.guarding import guardrail_values, guardrails_from, with_outcomes
from tidegate.gates.guardrails import GuardedDecision, Guardrail, guarded_test, parse_guardrail
from tidegate.gates.multiplicity import Multiplicity, bonferroni, holm, holm_levels
from tidegate.logs import Columns
from tidegate.record import Decision, plain

SAFE, CANDIDATE = SoftmaxPolicy(np.zeros(2)), SoftmaxPolicy([0.0, 2.0])
PAIRED = ForecastSettings(20, Paired(CosineBasis(1)))
TWO_BOUNDS = ForecastSettings(20, TwoBounds(CosineBasis(1)))
SHARE = float(np.exp(CANDIDATE.log_probs()[1]))  # how often the candidate takes action 1


def _log(rows: int = 300, *, gap: float = 0.5, harm: float = 0.0, seed: int = 0) -> EpisodeLog:
    """Action 1 earns `gap` more than action 0, and has `harm` more complaints."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 2, rows)
    noise = 0.3 * rng.normal(size=(2, rows))
    outcomes = {
        "complaints": harm * action + noise[0],
        "retention": -harm * action + noise[0],
        "never": np.zeros(rows),
    }
    behavior = np.full(rows, 0.5)
    return EpisodeLog.from_arrays(action, gap * (action - 0.5) + noise[1], behavior, outcomes=outcomes)


def _guarded(log: EpisodeLog, *texts: str, settings: Any = PAIRED, **options: Any) -> Any:
    rails = [parse_guardrail(text) for text in texts]
    return guarded_test(CANDIDATE, SAFE, HeldOutEpisodes(log), settings, rails, **options)


def _closed_test(p_values: Sequence[float | None], alpha: float) -> tuple[bool, ...]:
    """Holm's rule as the closure of Bonferroni's (Marcus, Peritz and Gabriel, 1976): all 2^m − 1 sets."""
    values = [np.inf if p is None or np.isnan(p) else p for p in p_values]
    places = range(len(values))
    sets = [s for size in places for s in itertools.combinations(places, size + 1)]
    local = {s: min(values[i] for i in s) <= alpha / len(s) for s in sets}
    return tuple(all(local[s] for s in sets if i in s) for i in places)


def test_holm_is_the_closed_test_of_bonferroni() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(400):
        size = int(rng.integers(1, 6))
        values: list[float | None] = [round(float(p), 3) for p in rng.beta(0.4, 6, size)]
        for i in range(size):
            values[i] = rng.choice(np.array([values[i]] * 8 + [None, np.nan], object))
        expected = _closed_test(values, 0.05)
        assert holm(values, 0.05) == expected, values
        levels = holm_levels(values, 0.05)
        assert all(0.05 / size - 1e-15 <= level <= 0.05 for level in levels)
        seen.add(sum(expected))
    assert seen == set(range(6))


def test_holm_and_bonferroni_by_hand() -> None:
    """0.005 ≤ 0.05/4 and 0.01 ≤ 0.05/3, but 0.03 > 0.05/2; so 0.04 is not asked, although it is below α."""
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values, 0.05) == (True, False, False, True)
    assert bonferroni(p_values, 0.05) == (True, False, False, True)
    assert holm_levels(p_values, 0.05) == pytest.approx((0.05 / 3, 0.025, 0.025, 0.0125))
    assert holm([0.0125, 0.016], 0.025) == (True, True)
    assert bonferroni([0.0125, 0.016], 0.025) == (True, False)
    assert holm([None, np.nan, -0.1, 1.5, 0.0], 0.05) == (False, False, False, False, True)
    assert holm([], 0.05) == bonferroni([], 0.05) == ()
    for alpha in (0.0, 1.0, np.nan):
        with pytest.raises(SettingsError, match="alpha is"):
            holm([0.1], alpha)


@pytest.mark.parametrize("rule", [holm, bonferroni])
def test_family_wise_error_of_independent_true_hypotheses(rule: Any) -> None:
    """Any rejection is wrong; for independent p-values that has probability 1 − (1 − α/m)^m."""
    draws = np.random.default_rng(1).random((20_000, 4))
    rate = np.mean([any(rule(list(row), 0.1)) for row in draws])
    expected = 1 - (1 - 0.1 / 4) ** 4
    assert abs(rate - expected) < 4 * np.sqrt(expected * (1 - expected) / 20_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("complaints:0.02", Guardrail("complaints", 0.02)),
        ("retention:0.01:higher", Guardrail("retention", 0.01, lower_is_better=False)),
        ("minutes low:3:lower", Guardrail("minutes low", 3.0)),
        ("a:b:1e-3", Guardrail("a:b", 0.001)),
        ("higher:0", Guardrail("higher", 0.0)),
        ("lower:1:higher", Guardrail("lower", 1.0, lower_is_better=False)),
    ],
)
def test_guardrails_as_text(text: str, expected: Guardrail) -> None:
    assert parse_guardrail(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("complaints", r"'complaints' is not a guardrail.*NAME:MARGIN"),
        ("complaints:", r"is not a guardrail"),
        ("complaints:higher", r"is not a guardrail"),
        ("complaints:0.1:highest", r"is not a guardrail"),
        ("", r"is not a guardrail"),
        ("complaints:-0.1", r"margin of 'complaints' is -0.1.*from 0 up"),
        ("complaints:nan", r"margin of 'complaints' is nan"),
        ("complaints:inf", r"margin of 'complaints' is inf"),
        (":0.1", r"a guardrail has no outcome"),
    ],
)
def test_texts_that_are_no_guardrails(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_guardrail(text)


@pytest.mark.parametrize("settings", [PAIRED, TWO_BOUNDS], ids=["paired", "two bounds"])
def test_without_guardrails_it_is_the_safety_test(settings: ForecastSettings) -> None:
    log = _log()
    guarded = _guarded(log, settings=settings, seed=3)
    bare = dataclasses.replace(log, outcomes={})
    alone = safety_test(CANDIDATE, SAFE, HeldOutEpisodes(bare), settings, level=0.05, seed=3)
    assert guarded.main.to_dict() == alone.to_dict()
    assert guarded.verdict is alone.verdict
    assert guarded.sentence == alone.reason.sentence
    assert guardrail_values(guarded) is None


def test_harm_beyond_the_margin_blocks_and_is_named() -> None:
    rise = 0.3 * (SHARE - 0.5)
    log = _log(harm=0.3)
    tight, wide = rise - 0.05, rise + 0.15
    kept = _guarded(log, f"complaints:{tight}", "complaints:1:higher", f"retention:{tight}:higher")
    assert kept.main.verdict is Verdict.DEPLOY
    assert kept.verdict is Verdict.KEEP
    assert [one.guardrail.name for one in kept.blocking] == ["complaints", "retention"]
    assert "does not rule out that 'complaints' will rise by more than" in kept.sentence
    assert "does not rule out that 'retention' will fall by more than" in kept.sentence
    assert str(kept).startswith("KEEP: the candidate is forecast to beat")
    deployed = _guarded(log, f"complaints:{wide}", f"retention:{wide}:higher")
    assert deployed.verdict is Verdict.DEPLOY
    assert "Every guardrail holds: complaints must not rise by more than" in str(deployed)
    for one, sign in zip(deployed.guardrails, (1, -1), strict=True):
        assert sign * one.change == pytest.approx(rise, abs=0.09)
        assert sign * one.change < sign * one.bound <= wide
    # Harm is no reason to keep the other way round, and no gain is none to deploy.
    assert _guarded(_log(harm=-0.3), "complaints:0").verdict is Verdict.DEPLOY
    assert _guarded(_log(gap=0.0, harm=-0.3), "complaints:0").main.reason is Reason.NOT_BETTER


def _alone(log: EpisodeLog, settings: ForecastSettings, texts: list[str]) -> list[Decision]:
    """Each hypothesis by a safety test of its own."""
    rails = [parse_guardrail(text) for text in texts]
    signs = [-1.0 if rail.lower_is_better else 1.0 for rail in rails]
    turned = [log.with_outcome(r.name, sign) for r, sign in zip(rails, signs, strict=True)]
    logs = zip([dataclasses.replace(log, outcomes={}), *turned], [Guardrail("-", 0), *rails], strict=True)
    return [
        safety_test(
            CANDIDATE,
            SAFE,
            HeldOutEpisodes(one),
            settings,
            margin=rail.margin,
            level=0.05 if settings.test.has_p_value else None,
        )
        for one, rail in logs
    ]


def _known(p_value: float | None) -> float:
    assert p_value is not None
    return p_value


def test_holm_on_the_p_values_of_single_tests() -> None:
    """Gains and margins at the edge, so that levels matter: the verdict is that of the closed test."""
    texts = ["complaints:0.08", "retention:0.08:higher"]
    verdicts, stricter = set(), 0
    for seed in range(11):
        log = _log(gap=0.1, seed=seed)
        p_values = [_known(one.p_value) for one in _alone(log, PAIRED, texts)]
        rejected = _closed_test(p_values, 0.05)
        guarded = _guarded(log, *texts)
        passed = (guarded.improves, *(one.passed for one in guarded.guardrails))
        assert passed == rejected
        assert (guarded.verdict is Verdict.DEPLOY) == all(rejected)
        assert guarded.main.p_value == p_values[0]
        uncorrected = _guarded(log, *texts, multiplicity=Multiplicity.NONE)
        assert (uncorrected.verdict is Verdict.DEPLOY) == (max(p_values) <= 0.05)
        corrected = _guarded(log, *texts, multiplicity=Multiplicity.BONFERRONI)
        assert (corrected.verdict is Verdict.DEPLOY) == (max(p_values) <= 0.05 / 3)
        stricter += uncorrected.verdict is not guarded.verdict
        verdicts.add((guarded.verdict, corrected.verdict))
    assert stricter > 0
    assert (Verdict.DEPLOY, Verdict.KEEP) in verdicts  # Holm has more power than Bonferroni


def test_two_bounds_share_alpha_equally() -> None:
    log, texts = _log(harm=0.1), ["complaints:0.3", "retention:0.3:higher"]
    guarded = _guarded(log, *texts, settings=TWO_BOUNDS)
    third = dataclasses.replace(TWO_BOUNDS, alpha=0.05 / 3)
    main, *others = _alone(log, third, texts)
    assert guarded.main.p_value is None
    assert guarded.main.candidate.lower == main.candidate.lower
    assert guarded.main.candidate.alpha == guarded.main_level == 0.05 / 3
    for one, alone in zip(guarded.guardrails, others, strict=True):
        assert one.decision.verdict is alone.verdict
        assert one.guardrail.sign * one.bound == alone.candidate.lower - alone.safe.upper
    uncorrected = _guarded(log, *texts, settings=TWO_BOUNDS, multiplicity=Multiplicity.NONE)
    assert uncorrected.main.candidate.alpha == 0.05


@pytest.mark.parametrize("settings", [PAIRED, TWO_BOUNDS], ids=["paired", "two bounds"])
def test_an_outcome_that_never_varies_is_no_evidence(settings: ForecastSettings) -> None:
    log = dataclasses.replace(_log(gap=2.0), outcomes={"never": np.zeros((300, 1))})
    guarded = _guarded(log, "never:0.5", settings=settings)
    assert guarded.main.verdict is Verdict.DEPLOY
    assert guarded.verdict is Verdict.KEEP
    assert "no evidence on 'never': it is 0 in every test episode" in guarded.sentence
    # Importance sampling makes a constant vary; that is noise of the ratios, not evidence.
    ones = dataclasses.replace(log, outcomes={"always": np.full((300, 1), 7.0)})
    guarded = _guarded(ones, "always:5", settings=settings)
    assert (guarded.guardrails[0].decision.verdict is Verdict.DEPLOY) == settings.test.has_p_value
    assert guarded.verdict is Verdict.KEEP
    assert "it is 7 in every test episode" in guarded.sentence
    json.dumps(plain(guarded), allow_nan=False)


def test_an_outcome_that_varies_in_training_episodes_alone_is_no_evidence() -> None:
    log, settings = _log(gap=2.0), dataclasses.replace(PAIRED, value_model=RecentMeans())
    once = (np.asarray(log.episode_numbers) == 2).astype(float)
    rare = dataclasses.replace(log, outcomes={"rare": once[:, None]})
    training, held_out = split_log(rare, train_fraction=1 / 3)
    assert 2 in training.log.episode_numbers
    guarded = guarded_test(CANDIDATE, SAFE, held_out, settings, ["rare:0.5"], training=training)
    assert guarded.verdict is Verdict.KEEP
    assert "it is 0 in every test episode" in guarded.sentence


def test_other_doubts_of_a_guardrail_keep_and_cost_the_others_nothing() -> None:
    log = _log(gap=2.0)
    huge = np.where(np.arange(300) % 2, 1e308, -1e308)[:, None]
    wild = dataclasses.replace(log, outcomes={**log.outcomes, "wild": huge})
    guarded = _guarded(wild, "complaints:0.3", "wild:1")
    assert guarded.verdict is Verdict.KEEP
    assert [one.passed for one in guarded.guardrails] == [True, False]
    assert "'wild' cannot be judged" in guarded.sentence
    nothing = _guarded(log.take(np.zeros(0, int)), "complaints:0.3")
    assert nothing.verdict is Verdict.KEEP
    assert "'complaints' cannot be judged: there is no test episode" in nothing.sentence
    json.dumps(guardrail_values(nothing), allow_nan=False)


@pytest.mark.parametrize("settings", [PAIRED, TWO_BOUNDS], ids=["paired", "two bounds"])
def test_a_level_of_its_own_is_shared_as_alpha_is(settings: ForecastSettings) -> None:
    log, texts = _log(gap=0.15, seed=3), ["complaints:0.1", "retention:0.1:higher"]
    smaller = dataclasses.replace(settings, alpha=0.02)
    granted = _guarded(log, *texts, settings=settings, level=0.02)
    given = _guarded(log, *texts, settings=smaller)
    assert granted.alpha == given.alpha == 0.02
    for name in ("main_level", "verdict", "sentence"):
        assert getattr(granted, name) == getattr(given, name)
    assert granted.main.advantage == given.main.advantage
    for mine, theirs in zip(granted.guardrails, given.guardrails, strict=True):
        assert mine.level == theirs.level
        assert mine.decision.advantage == theirs.decision.advantage
    # The policies' own intervals stay at the settings' α: they are for the eye, unless they are the test.
    own = 0.05 if settings.test.has_p_value else granted.main_level
    assert granted.main.candidate.alpha == own


@pytest.mark.parametrize("rule", Multiplicity)
def test_nothing_is_shown_at_level_zero(rule: Multiplicity) -> None:
    spent = _guarded(_log(gap=2.0), "complaints:1", level=0.0, multiplicity=rule)
    assert spent.verdict is Verdict.KEEP
    assert spent.main.reason is Reason.BUDGET_SPENT
    assert not spent.guardrails[0].passed
    assert spent.main_level == spent.guardrails[0].level == 0
    assert "the error budget has nothing for this test" in spent.sentence
    json.dumps(guardrail_values(spent), allow_nan=False)


def test_a_guardrail_that_movement_could_break_says_so() -> None:
    one = _guarded(_log(), "complaints:0.3").guardrails[0]
    doubted = dataclasses.replace(one.decision, verdict=Verdict.KEEP, reason=Reason.SCALES_DISAGREE)
    contradicted = dataclasses.replace(one, decision=doubted)
    assert not contradicted.passed
    assert "on the line through the log it would not rise by over 0.3, but" in contradicted.sentence
    assert f"at most {contradicted.bound:+.4g}" in contradicted.sentence


def test_mistakes_are_named() -> None:
    with pytest.raises(SettingsError, match="500 draws cannot bound a tail"):
        _guarded(_log(), "complaints:0.1", "retention:0.1", settings=TWO_BOUNDS, level=0.01)
    for level in (-0.1, 1.0, np.nan):
        with pytest.raises(SettingsError, match="level is"):
            _guarded(_log(), level=level)
    with pytest.raises(LogError, match=r"no outcome 'complaint'.*\['complaints', 'never', 'rete"):
        _guarded(_log(), "complaint:0.1")
    with pytest.raises(SettingsError, match=r"two guardrails on 'complaints'"):
        _guarded(_log(), "complaints:0.1", "complaints:0.2")
    with pytest.raises(SettingsError, match=r"given TrainingEpisodes"):
        guarded_test(CANDIDATE, SAFE, TrainingEpisodes(_log()), PAIRED, [])  # type: ignore[arg-type]


def test_training_episodes_show_the_same_outcome() -> None:
    training, held_out = split_log(_log(harm=0.2), seed=1)
    settings = dataclasses.replace(PAIRED, value_model=RecentMeans())
    rail = Guardrail("complaints", 0.2)
    guarded = guarded_test(CANDIDATE, SAFE, held_out, settings, [rail], training=training, seed=2)
    level = guarded.guardrails[0].level
    alone = safety_test(
        CANDIDATE,
        SAFE,
        HeldOutEpisodes(held_out.log.with_outcome("complaints", -1.0), held_out.span),
        settings,
        training=TrainingEpisodes(training.log.with_outcome("complaints", -1.0), training.span),
        margin=0.2,
        level=level,
        seed=2,
    )
    assert guarded.guardrails[0].decision.to_dict() == alone.to_dict()


def test_wrong_deployments_when_harm_is_exactly_the_margin() -> None:
    """The reward improves clearly; what complaints rise by is the margin: DEPLOY is wrong.

    200 logs: the test errs in about α of them, as an intersection–union test may. So does Holm's rule,
    since the reward's p-value is so small that the guardrail's meets level α.
    """
    rise, wrong = 0.4 * (SHARE - 0.5), 0
    for seed in range(200):
        guarded = _guarded(_log(gap=1.0, harm=0.4, seed=seed), f"complaints:{rise}")
        assert guarded.guardrails[0].level == 0.05
        wrong += guarded.verdict is Verdict.DEPLOY
    assert abs(wrong / 200 - 0.05) < 3.5 * np.sqrt(0.05 * 0.95 / 200)


FRAME = pl.DataFrame(
    {
        "episode": np.arange(1, 301),
        "action": np.asarray(_log().actions)[:, 0],
        "behavior_prob": np.full(300, 0.5),
        "reward": np.asarray(_log(gap=2.0).rewards)[:, 0],
        "<b>calls": np.asarray(_log(harm=0.3).outcomes["complaints"])[:, 0],
        "kept": np.zeros(300),
        "new_prob": np.where(np.asarray(_log().actions)[:, 0] == 1, SHARE, 1 - SHARE),
    }
)
RAILS = (Guardrail("<b>calls", 0.5), Guardrail("kept", 0.1, lower_is_better=False))


@pytest.fixture(scope="module")
def guarded() -> GuardedDecision:
    opened = wf.open_log(with_outcomes(wf.LogFile(FRAME), RAILS))
    candidate, opened = opened.policy("column:new_prob")
    safe, opened = opened.policy("behavior")
    return guarded_test(candidate, safe, HeldOutEpisodes(opened.log), PAIRED, RAILS)


def test_the_columns_that_guardrails_watch_are_read() -> None:
    file = wf.LogFile(FRAME, Columns(outcomes=("kept",)))
    wanted: Any = with_outcomes(file, RAILS)
    assert wanted.columns.outcomes == ("kept", "<b>calls")
    fresh: Any = with_outcomes(FRAME, RAILS)
    assert fresh.columns.outcomes == ("<b>calls", "kept")
    assert with_outcomes(FRAME, ()) is FRAME
    opened = wf.open_log(wanted)
    assert set(opened.log.outcomes) == {"kept", "<b>calls"}
    assert with_outcomes(opened, RAILS) is opened
    assert opened.loaded.states.columns == ["new_prob"]


def test_the_record_of_the_guardrails(guarded: GuardedDecision) -> None:
    values = guardrail_values(guarded)
    assert values is not None
    values = json.loads(json.dumps(values, allow_nan=False))
    assert values["multiplicity"] == "HOLM"
    assert values["num_tests"] == 3
    calls, kept = values["outcomes"]
    assert (calls["holds"], kept["holds"]) == (True, False)
    assert calls["change"] == pytest.approx(calls["candidate"] - calls["safe"])
    assert calls["change"] < calls["bound"] <= 0.5
    assert kept["constant"] == 0.0
    assert guardrails_from(values) == (RAILS, Multiplicity.HOLM)
    assert guardrails_from(None) == ((), Multiplicity.HOLM)
    with pytest.raises(SettingsError, match="guardrails are incomplete"):
        guardrails_from({"multiplicity": "HOLM"})
    stored = json.loads(json.dumps(plain(guarded), allow_nan=False))
    assert stored["guardrails"][0]["decision"]["advantage"]["margin"] == 0.5
    assert stored["main"]["verdict"] == "DEPLOY"
    assert guarded.verdict is Verdict.KEEP


def test_the_table_in_a_terminal(guarded: GuardedDecision) -> None:
    text = io.StringIO()
    Console(file=text, width=120).print(guardrail_table(guarded))
    rows = {line.split("│")[1].strip(): line for line in text.getvalue().splitlines() if "│" in line}
    assert "+0.5" in rows["<b>calls"]
    assert "yes" in rows["<b>calls"]
    assert "-0.1" in rows["kept"]
    assert "no" in rows["kept"].split("│")[-2]


def test_flags() -> None:
    app, seen = typer.Typer(), []

    @app.command()
    @spread
    def command(flags: GuardrailFlags) -> None:
        seen.append(tuple(flags.choices().values()))

    run = CliRunner().invoke
    assert run(app, []).exit_code == 0
    texts = ["--guardrail", "<b>calls:0.5", "--guardrail", "kept:0.1:higher"]
    assert run(app, [*texts, "--multiplicity", "none"]).exit_code == 0
    assert seen == [((), Multiplicity.HOLM), (RAILS, Multiplicity.NONE)]
    assert isinstance(run(app, ["--guardrail", "calls"]).exception, SettingsError)
