"""Logs made to be believed: none of them may open the gate without evidence."""

import datetime
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from tidegate import (
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    LogError,
    Reason,
    SettingsError,
    SoftmaxPolicy,
    Verdict,
    safety_test,
)
from tidegate.basis import TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.commands import LogFile, PlainSettings, gate
from tidegate.comparison import Paired, Terms
from tidegate.gates.finite_sample import SHARES, log_capital, mean_above, range_bound
from tidegate.presets import multiscale_forecast
from tidegate.reasons import Status
from tidegate.record import record_hash
from tidegate.reports.log_page import log_page
from tidegate.safety import compare_policies

ROWS = 600
NEW = "column:new_prob"
SETTINGS = PlainSettings(lookahead=20, draws=200)
CANDIDATE, SAFE = SoftmaxPolicy(np.log([0.1, 0.9])), SoftmaxPolicy(np.log([0.5, 0.5]))
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def _frame(times: Any = None, *, gap: Any = 0.3, noise: float = 1.0, seed: int = 0) -> pl.DataFrame:
    """Two actions at even odds; the candidate takes the second one, which is better by gap/0.4."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 2, ROWS)
    return pl.DataFrame(
        {
            "episode": np.arange(1, ROWS + 1) if times is None else times,
            "action": action,
            "behavior_prob": np.full(ROWS, 0.5),
            "new_prob": np.where(action == 1, 0.9, 0.1),
            "reward": action * np.broadcast_to(gap, ROWS) / 0.4 + noise * rng.normal(size=ROWS),
        }
    )


def _gate(frame: pl.DataFrame, settings: PlainSettings = SETTINGS, **more: Any) -> Any:
    return gate(frame, candidate=NEW, settings=settings, **more)


def test_an_honest_advantage_still_passes() -> None:
    record = _gate(_frame(noise=0.3), now=NOW)
    assert (record.verdict, record.status, record.reason) == (Verdict.DEPLOY, Status.PASS, Reason.BETTER)
    assert (record.decided_at, record.expires_at) == ("2026-03-01T12:00:00Z", "2026-03-08T12:00:00Z")


@pytest.mark.parametrize("lookahead", [ROWS, 300_000])
def test_a_lookahead_that_the_past_cannot_try(lookahead: int) -> None:
    """A quarter of a season: over the rest of it, the advantage that rises here falls."""
    season = 0.3 * np.sin(2 * np.pi * np.arange(ROWS) / (4 * ROWS))
    record = _gate(_frame(gap=season, noise=0.1), PlainSettings(lookahead=lookahead, draws=200))
    assert (record.verdict, record.status) == (Verdict.KEEP, Status.INCONCLUSIVE)
    assert record.reason is Reason.LOOKAHEAD_TOO_LONG
    longest = int(record.decision.advantage.longest_lookahead)
    assert ROWS / 5 < longest <= ROWS / 3
    limit = f"too short to try a lookahead of {lookahead:,} episodes; at most {longest:,} episodes."
    assert limit in record.headline
    assert record.checks["difference"]["lookahead"].level.name == "WARNING"


@pytest.mark.parametrize("times", [[1e9], [6_600.0], [6_600.0, 6_601.0]])
def test_one_episode_does_not_decide(times: list[float]) -> None:
    """The last episodes have leverage 1, so no residual, and the best of actions by chance."""
    early = np.arange(1.0, ROWS + 1 - len(times))
    frame = _frame(np.concatenate([early, times]), gap=-0.3, noise=0.1)
    lucky = np.arange(ROWS) >= ROWS - len(times)
    frame = frame.with_columns(
        pl.when(lucky).then(9.0).otherwise(pl.col("reward")).alias("reward"),
        pl.when(lucky).then(0.9).otherwise(pl.col("new_prob")).alias("new_prob"),
        pl.when(lucky).then(1).otherwise(pl.col("action")).alias("action"),
    )
    assert _gate(frame).status is not Status.PASS
    log = EpisodeLog.from_frame(frame, recorded={"new": "new_prob"})
    paired = ForecastSettings(20, Paired())
    decision = safety_test(CANDIDATE, SAFE, HeldOutEpisodes(log), paired)
    assert decision.reason in (Reason.FEW_DECIDE, Reason.SINGULAR_TREND)


def test_several_rows_a_day_are_ordinary() -> None:
    """Ties: every number is finite, and no model rests on a handful of episodes."""
    days = np.arange(ROWS) // 7
    record = gate(
        LogFile(_frame(noise=0.3).with_columns(day=days), {"time": "day", "time_unit": "number"}),  # type: ignore[arg-type]
        candidate=NEW,
        settings=PlainSettings(lookahead=5, draws=200),
    )
    advantage = record.decision.advantage
    for one in advantage.models:
        assert one.p_value is not None
        assert math.isfinite(one.point + one.lower + one.p_value)
        assert 0 < one.standard_error < 10
    assert math.isfinite(advantage.lower)
    leverage = record.checks["difference"]["horizon_leverage"].value
    assert leverage is not None
    assert leverage < 0.1
    assert record.status is Status.PASS


def test_the_verdict_depends_on_no_seed() -> None:
    """Close to the border, where another split or other draws would turn it."""
    frame = _frame(gap=0.12)
    records = [_gate(frame, seed=seed, now=NOW).to_dict() for seed in (0, 1, 77)]
    for one in records:
        del one["seed"], one["record_hash"], one["settings"]["forecast"]
    assert len({record_hash(one) for one in records}) == 1


def test_what_is_not_guaranteed_is_kept_unless_that_is_allowed() -> None:
    file = LogFile(_frame(noise=0.1), estimate_propensities=True)
    kept = gate(file, candidate=NEW, settings=SETTINGS, now=NOW)
    assert (kept.verdict, kept.status, kept.reason) == (
        Verdict.KEEP, Status.INCONCLUSIVE, Reason.NOT_GUARANTEED,
    )  # fmt: skip
    assert "not guaranteed" in kept.headline
    allowed = gate(file, candidate=NEW, settings=SETTINGS, now=NOW, allow_unguaranteed=True, valid_for="12h")
    assert (allowed.verdict, allowed.status) == (Verdict.DEPLOY, Status.PASS)
    content = allowed.to_dict()
    assert content["allow_unguaranteed"]
    assert not content["guaranteed"]
    assert content["expires_at"] == "2026-03-02T00:00:00Z"
    assert "DEPLOY (not guaranteed, as allowed)" in content["headline"]
    assert {kept.to_dict()["status"], content["status"]} == {"inconclusive", "pass"}
    for record in (kept, allowed):
        page = log_page(record)
        assert str(record.status) in page
        assert "What was assumed" in page
        assert all(one in page.replace("&#39;", "'") for one in record.assumptions)


def test_harm_is_a_word_of_its_own() -> None:
    record = _gate(_frame(gap=-0.3, noise=0.1))
    assert (record.verdict, record.status) == (Verdict.KEEP, Status.FAIL)
    assert record.decision.advantage.upper < 0
    assert "do worse than the safe policy" in record.headline


@pytest.mark.parametrize("text", ["7", "d", "-3d", "0h", "3 weeks", "999999w", ""])
def test_an_unclear_validity_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="valid is unclear"):
        _gate(_frame(), valid_for=text)


def test_the_bound_by_betting_is_its_definition() -> None:
    """The capital of each gambler, bet by bet; at the bound, their mean has just grown to 1/level."""
    values = np.random.default_rng(3).exponential(size=40)
    bound = mean_above(values, 0.05)
    for mean in (bound, 0.7 * bound):
        capital = []
        for share in SHARES:
            money = 1.0
            for value in values:
                money *= 1 - share + share * value / mean
            capital.append(money)
        assert log_capital(values, mean) == pytest.approx(math.log(np.mean(capital)), abs=1e-9)
    assert log_capital(values, bound) == pytest.approx(-math.log(0.05), abs=1e-6)
    assert 0 < bound < values.mean()
    assert mean_above(np.zeros(5), 0.05) == mean_above(np.zeros(0), 0.05) == mean_above(values, 0.0) == 0.0


def test_the_bound_by_betting_holds_for_few_skewed_numbers_that_drift() -> None:
    """A mean of 1 throughout a log of 25, in rare large numbers that become rarer: asymptotics fail here."""
    rng, trials, count = np.random.default_rng(0), 1_500, 25
    share = np.linspace(0.3, 0.02, count)
    values = (rng.random((trials, count)) < share) / share
    # The bound is above 1 if and only if the gamblers have refuted a mean of 1.
    above = np.mean([log_capital(one, 1.0) >= -math.log(0.05) for one in values])
    assert above <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    tight = rng.uniform(0.5, 1.5, (5, 2_000))
    assert np.mean([mean_above(one, 0.05) for one in tight]) > 0.97


def test_the_range_of_the_rewards_insures_against_what_was_not_seen() -> None:
    frame = _frame(noise=0.1)
    narrow = _gate(frame, reward_range=(-1.0, 2.0))
    assert narrow.status is Status.PASS
    assert narrow.range is not None
    assert narrow.range.agrees
    wide = _gate(frame, reward_range=(-500.0, 2.0))
    assert (wide.status, wide.reason) == (Status.INCONCLUSIVE, Reason.RANGE_DISAGREES)
    assert any("may still occur" in one for one in _gate(frame).assumptions)
    assert not any("may still occur" in one for one in wide.assumptions)
    with pytest.raises(LogError, match=r"outside the range 0 to 0.1"):
        _gate(frame, reward_range=(0.0, 0.1))
    for wrong in ((1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(SettingsError, match="reward range"):
            _gate(frame, reward_range=wrong)


def test_the_range_bound_is_about_the_advantage() -> None:
    """Two policies, exact values, many episodes: the bound is close below the truth."""
    rng = np.random.default_rng(1)
    actions = rng.integers(0, 2, 40_000)
    rewards = (rng.random(40_000) < np.where(actions == 1, 0.6, 0.4)).astype(float)
    log = EpisodeLog.from_arrays(actions, rewards, np.full(40_000, 0.5))
    found = range_bound(CANDIDATE, SAFE, log, (0.0, 1.0), 0.05)
    assert 0.06 < found.lower < 0.08  # 0.9 · 0.6 + 0.1 · 0.4 − 0.5 = 0.08
    assert found.num_episodes == 40_000
    late = range_bound(CANDIDATE, SAFE, log, (0.0, 1.0), 0.05, since=39_000.0)
    assert late.num_episodes == 1_000
    assert late.lower < found.lower


def _reasons(times: Any, rewards: Any, actions: Any, settings: ForecastSettings) -> Any:
    """The reasons of many logs at the same times, in one program."""
    axis = TimeAxis.over((float(times[0]), float(times[-1])), settings.lookahead)
    terms = Terms(axis, Rademacher(jax.random.key(0), settings.draws), settings.alpha)

    def reason(one: Any) -> Any:
        chosen, earned = (values[:, None] for values in one)
        probs, mask = jnp.full(chosen.shape, math.log(0.5)), jnp.ones(chosen.shape, bool)
        log = EpisodeLog(jnp.asarray(times), chosen, probs, earned, mask, num_actions=2)
        return compare_policies(settings, CANDIDATE, SAFE, HeldOutEpisodes(log), terms).reason

    run = eqx.filter_jit(lambda a, r: jax.lax.map(reason, (a, r), batch_size=16))
    return np.asarray(run(jnp.asarray(actions), jnp.asarray(rewards)))


@pytest.mark.verify
@pytest.mark.parametrize(
    ("name", "times", "lookahead", "gap"),
    [
        ("mistyped", [*range(1, ROWS), 1e9], 20, -0.3),
        ("gap 1", [*range(1, ROWS), 6_600], 20, -0.3),
        ("gap 2", [*range(1, ROWS - 1), 6_600, 6_601], 20, -0.3),
        ("gap 30", [*range(1, ROWS - 29), *range(6_600, 6_630)], 20, -0.3),
        ("ties", list(np.arange(ROWS) // 7), 5, 0.0),
        *((f"null {n}", list(range(1, n + 1)), max(1, n // 10), 0.0) for n in (18, 30, 40, 60, 80, 120, 300)),
    ],
)
def test_how_often_the_gate_opens_without_an_advantage(
    name: str, times: list[float], lookahead: int, gap: float
) -> None:
    """At most 5.5 % of the null logs, and none with a clear disadvantage, beyond the binomial error."""
    logs, rng = 1_000, np.random.default_rng(11)
    actions = rng.integers(0, 2, (logs, len(times)))
    rewards = actions * gap / 0.4 + rng.normal(size=actions.shape)
    settings = multiscale_forecast(ForecastSettings(lookahead))
    opened = np.mean(_reasons(np.asarray(times, float), rewards, actions, settings) == Reason.BETTER)
    print(f"{name}: {opened:.1%} of {logs}")
    limit = 0.055 if gap == 0 else 0.005
    assert opened <= limit + 2 * math.sqrt(limit / logs)


@pytest.mark.verify
def test_no_borderline_log_flips_with_the_seed() -> None:
    """Fifty logs near the border, fifty seeds each."""
    flipped = 0
    for log in range(50):
        frame = _frame(gap=0.1, seed=log)
        flipped += len({_gate(frame, seed=seed).verdict for seed in range(0, 50, 7)}) > 1
    assert flipped == 0
