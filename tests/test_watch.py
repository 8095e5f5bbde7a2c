"""Watching a release: the sequences against slow twins, rates, and every way to end."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from typer.testing import CliRunner

from tidegate import EpisodeLog, LogError, SettingsError
from tidegate.arrays import Floats
from tidegate.cli.app import app
from tidegate.commands import gate, watch
from tidegate.commands.watching import WatchRecord
from tidegate.experiments.watches import (
    NEVER,
    NEW,
    OLD,
    WatchedWorld,
    harms,
    one_step_advantages,
    rate_interval,
    rollbacks,
    watch_with,
    worlds,
)
from tidegate.gates.confidence import (
    RunningSums,
    accumulated,
    best_mixture,
    boundary,
    lower_bounds,
    upper_bounds,
)
from tidegate.gates.watch import watch_episodes, watch_step
from tidegate.gates.watch_records import Watch, WatchReason, WatchState, restored_state
from tidegate.gates.weighing import Expected, WeighedEpisodes, weigh
from tidegate.policies import BehaviorPolicy, RecordedPolicy
from tidegate.reasons import Status
from tidegate.reports.log_page import log_page

ALPHA, START, TIGHTEST = 0.05, 20, 50
NEW_POLICY, SAFE = BehaviorPolicy(), RecordedPolicy("safe")
RUN = CliRunner().invoke


def _exact(variance: float, rho_squared: float, level: float) -> float:
    """Where the mixture over positive slopes itself reaches 1/level."""

    def excess(y: float) -> float:
        log_mixture = math.log(2) - 0.5 * math.log(rho_squared * variance + 1) + y * y / 2 + norm.logcdf(y)
        return float(log_mixture + math.log(level))

    return float(brentq(excess, 0, 50) * math.sqrt(variance + 1 / rho_squared))


@pytest.mark.parametrize("level", [0.2, 0.05, 0.01, 1e-6])
def test_the_boundary_is_that_of_the_mixture_or_a_little_wider(level: float) -> None:
    rho_squared = best_mixture(level) / TIGHTEST
    for variance in (1.0, 20.0, 50.0, 5_000.0):
        exact, found = (
            _exact(variance, rho_squared, level),
            float(boundary(np.asarray(variance), rho_squared, level)),
        )
        assert exact <= found <= 1.05 * exact


def test_it_is_narrower_than_the_two_sided_sequence_of_the_paper_at_the_same_level() -> None:
    variance, rho_squared = np.array([20.0, 50.0, 500.0]), best_mixture(ALPHA) / TIGHTEST
    published = np.sqrt(
        2 * (variance * rho_squared + 1) / rho_squared * np.log(np.sqrt(variance * rho_squared + 1) / ALPHA)
    )
    found = boundary(variance, rho_squared, ALPHA)
    assert np.all((0.8 * published < found) & (found < published))


@pytest.mark.parametrize("level", [0.2, 0.05, 0.001])
def test_it_is_tightest_where_it_says(level: float) -> None:
    def standard_errors(variance: float) -> float:
        rho_squared = best_mixture(level) / TIGHTEST
        return float(boundary(np.asarray(variance), rho_squared, level)) / math.sqrt(variance)

    assert min(map(standard_errors, range(10, 200))) == pytest.approx(standard_errors(TIGHTEST), rel=1e-5)


def _slow_bounds(values: list[float], level: float) -> tuple[float, float]:
    """The bounds after all of these values, as the text of the module says them."""
    varied = [n for n in range(START, len(values) + 1) if np.ptp(values[:n]) > 0]
    if not varied:
        return -math.inf, math.inf
    scale, n, mean = float(np.var(values[: varied[0]], ddof=1)), len(values), float(np.mean(values))
    variance, mixed = n * float(np.var(values, ddof=1)), best_mixture(level) / (TIGHTEST * scale)
    edge = (variance + 1 / mixed) * 2 * math.log((1 + math.sqrt(mixed * variance + 1) / level) / 2)
    reach = (math.sqrt(edge) + max(abs(one - mean) for one in values)) / n
    return mean - reach, mean + reach


def test_the_bounds_are_those_of_a_slow_twin() -> None:
    values = np.random.default_rng(0).gamma(2, size=120)
    values[:23] = 3.0  # nothing is said until the numbers vary
    path = accumulated(RunningSums.empty((1,)), values[:, None], START)
    lower, upper = lower_bounds(path, ALPHA, TIGHTEST)[:, 0], upper_bounds(path, ALPHA, TIGHTEST)[:, 0]
    for count in (1, 19, 20, 23, 24, 25, 60, 120):
        twin = _slow_bounds(values[:count].tolist(), ALPHA)
        assert (lower[count - 1], upper[count - 1]) == pytest.approx(twin, rel=1e-9), count
    assert np.isinf(upper[:23]).all()
    assert np.isfinite(upper[24:]).all()


def test_the_bound_scales_and_shifts_with_the_numbers() -> None:
    values = np.random.default_rng(1).normal(size=(80, 1))

    def upper(numbers: Floats) -> float:
        path = accumulated(RunningSums.empty((1,)), numbers, START)
        return float(upper_bounds(path, ALPHA, TIGHTEST)[-1, 0])

    assert upper(1e4 * values + 7e4) == pytest.approx(1e4 * upper(values) + 7e4, rel=1e-9)
    mirrored = accumulated(RunningSums.empty((1,)), -values, START)
    assert lower_bounds(mirrored, ALPHA, TIGHTEST)[-1, 0] == pytest.approx(-upper(values))


def _log(count: int, seed: int = 0, *, gain: float = 0.0, steps: int = 1) -> EpisodeLog:
    rng = np.random.default_rng(seed)
    shape = (count, steps)
    actions = (rng.random(shape) < 0.7).astype(int)
    lengths = rng.integers(1, steps + 1, count)
    return EpisodeLog.from_arrays(
        actions,
        5.0 + gain * actions + 0.5 * rng.normal(size=shape),
        np.where(actions == 1, 0.7, 0.3),
        recorded={"safe": np.where(actions == 1, 0.4, 0.6)},
        outcomes={"calls": 1.0 * (rng.random(shape) < 0.1)},
        mask=np.arange(steps) < lengths[:, None],
        num_actions=2,
    )


def _advantages_in_a_loop(log: EpisodeLog, discount: float, memory: float) -> list[float]:
    """Each episode against what was known before it: sums over steps, one after the other."""
    sums, counts, found = [0.0] * log.num_steps, [0.0] * log.num_steps, []
    rewards, mask = np.asarray(log.rewards), np.asarray(log.mask)
    ratios = np.asarray(log.recorded["safe"]) - np.asarray(log.behavior_log_probs)
    for row in range(log.capacity):
        length = int(mask[row].sum())
        known = [step for step in range(log.num_steps) if counts[step] > 1e-9]
        if row:
            total, before = 0.0, 1.0
            for step in range(length):
                at = min(step, known[-1])
                value = sums[at] / counts[at]
                weight = before * math.exp(ratios[row, step])
                mine = rewards[row, step] - value + value
                safes = weight * (rewards[row, step] - value) + before * value
                total += discount**step * (mine - safes)
                before = weight
            found.append(total)
        for step in range(log.num_steps):
            sums[step], counts[step] = sums[step] * (1 - 1 / memory), counts[step] * (1 - 1 / memory)
            if step < length:
                to_go = sum(discount ** (t - step) * rewards[row, t] for t in range(step, length))
                sums[step], counts[step] = sums[step] + to_go, counts[step] + 1
    return found


@pytest.mark.parametrize(("steps", "discount"), [(1, 1.0), (4, 0.9)])
def test_the_advantage_of_each_episode_is_that_of_a_slow_twin(steps: int, discount: float) -> None:
    log = _log(60, steps=steps)
    weighed, _ = weigh(
        NEW_POLICY, SAFE, log, ((None, 1.0),), Expected.nothing((1,)), discount=discount, memory=30
    )
    assert weighed.advantages[:, 0] == pytest.approx(_advantages_in_a_loop(log, discount, 30), abs=1e-12)
    assert np.asarray(weighed.ratios)[:, 0] == pytest.approx(1.0)


def test_worlds_of_many_runs_weigh_as_the_watch_does() -> None:
    log = _log(50)
    weighed, _ = weigh(NEW_POLICY, SAFE, log, ((None, 1.0),), Expected.nothing((1,)))
    ratios = np.exp(np.asarray(log.recorded["safe"]) - np.asarray(log.behavior_log_probs))
    found = one_step_advantages(ratios, np.asarray(log.rewards, np.float64))
    assert weighed.advantages == pytest.approx(found[1:], abs=1e-12)


def test_the_advantage_is_unbiased_and_its_baseline_takes_noise_out() -> None:
    log = _log(20_000, gain=0.4)
    weighed, _ = weigh(NEW_POLICY, SAFE, log, ((None, 1.0),), Expected.nothing((1,)))
    found = weighed.advantages[:, 0]
    assert found.mean() == pytest.approx(0.4 * 0.3, abs=4 * found.std() / math.sqrt(found.size))
    ratios = weighed.ratios[:, 1]
    plain = (1 - ratios) * np.asarray(log.rewards)[1:, 0]
    assert found.std() < 0.15 * plain.std()


def test_a_partly_released_policy_is_watched_from_a_mixture() -> None:
    log = _log(4_000, gain=0.4)
    both = RecordedPolicy("mixed")
    mixed = np.where(np.asarray(log.actions) == 1, 0.55, 0.45)
    log = EpisodeLog.from_arrays(
        log.actions, log.rewards, np.exp(np.asarray(log.behavior_log_probs)),
        recorded={"safe": np.exp(np.asarray(log.recorded["safe"])), "mixed": mixed}, num_actions=2,
    )  # fmt: skip
    _, signal = watch_episodes(Watch(), Watch().begin(), both, SAFE, log)
    mean = signal.sequences[0].mean
    assert mean is not None
    assert mean == pytest.approx(0.4 * 0.15, abs=0.03)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_state_does_not_depend_on_how_episodes_come_in(steps: int) -> None:
    rng, log, rules = np.random.default_rng(3), _log(160, steps=steps), Watch(guardrails=("calls:0.1",))  # type: ignore[arg-type]
    whole, signal = watch_episodes(rules, rules.begin(), NEW_POLICY, SAFE, log)
    state, start = rules.begin(), 0
    while start < 160:
        end = min(160, start + int(rng.integers(1, 40)))
        state, last = watch_episodes(rules, state, NEW_POLICY, SAFE, log.take(np.arange(start, end)))
        state, start = _through_json(state), end
    assert state.to_dict() == whole.to_dict()
    assert last == signal


def _through_json(state: WatchState) -> WatchState:
    return restored_state(json.loads(json.dumps(state.to_dict(), allow_nan=False)))


def test_harm_ends_the_watch_for_good() -> None:
    rules, log = Watch(), _log(600, gain=-1.5)
    whole, signal = watch_episodes(rules, rules.begin(), NEW_POLICY, SAFE, log)
    assert (signal.reason, signal.status, signal.rolls_back) == (WatchReason.HARM, Status.FAIL, True)
    harm = signal.harm
    assert harm is not None
    assert harm.upper is not None
    assert harm.upper < 0 < harm.level
    assert (harm.sequence, harm.episode) == ("reward", harm.num_episodes + 1)  # the first is no evidence
    before, _ = watch_episodes(rules, rules.begin(), NEW_POLICY, SAFE, log.take(np.arange(harm.num_episodes)))
    assert before.harm is None
    one = log.take(np.arange(harm.num_episodes, harm.num_episodes + 1))
    after, _ = watch_episodes(rules, before, NEW_POLICY, SAFE, one)
    assert after.to_dict() == whole.to_dict()
    same, again = watch_episodes(rules, after, NEW_POLICY, SAFE, _log(50, 9, gain=3.0))
    assert same is after
    assert again == signal
    assert restored_state(after.to_dict()).harm == harm


def _weighed(advantages: Any, ratios: Any) -> WeighedEpisodes:
    count = len(advantages)
    return WeighedEpisodes(
        np.arange(count, dtype=np.float64),
        np.asarray(advantages, np.float64)[:, None],
        np.stack([np.ones(count), np.broadcast_to(ratios, count)], axis=1),
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("place", [0, 5, 50])
def test_what_is_not_finite_rolls_back_at_once(bad: float, place: int) -> None:
    rng = np.random.default_rng(0)
    advantages = rng.normal(1.0, size=60)
    advantages[place] = bad
    state, signal = watch_step(Watch(), Watch().begin(), _weighed(advantages, rng.choice([0.5, 1.5], 60)))
    assert (signal.reason, signal.status) == (WatchReason.NOT_FINITE, Status.FAIL)
    assert signal.harm is not None
    assert (signal.harm.episode, signal.harm.upper) == (place, None)
    json.dumps(state.to_dict(), allow_nan=False)


def test_a_policy_that_does_not_explore_cannot_be_watched() -> None:
    rng = np.random.default_rng(0)
    _, signal = watch_step(Watch(), Watch().begin(), _weighed(rng.normal(-5, size=300), 0.4))
    assert (signal.reason, signal.status) == (WatchReason.NO_SUPPORT, Status.ERROR)
    assert not signal.rolls_back
    assert signal.sequences[0].upper is None


def test_a_difference_that_hangs_on_few_episodes_shows_nothing() -> None:
    rng, ratios = np.random.default_rng(0), np.full(300, 0.7)
    ratios[::60] = 19.0  # they do average to one
    _, signal = watch_step(Watch(), Watch().begin(), _weighed(rng.normal(-5, size=300), ratios))
    assert signal.reason is WatchReason.TOO_FEW
    _, signal = watch_step(Watch(), Watch().begin(), _weighed(np.zeros(300), 1.0))
    assert signal.reason is WatchReason.TOO_FEW  # the same policy twice


def test_settings_are_checked() -> None:
    for wrong in (
        {"alpha": 0.0}, {"alpha": 1.0}, {"margin": -1.0}, {"margin": math.nan}, {"min_episodes": 1},
        {"tightest_at": 0}, {"memory": 1}, {"guardrails": ("calls",)}, {"guardrails": ("c:1", "c:2")},
    ):  # fmt: skip
        with pytest.raises(SettingsError):
            Watch(**wrong)
    for values in ({}, {"harm": None}, {**Watch().begin().to_dict(), "sums": {"count": "x"}}):
        with pytest.raises(SettingsError, match="incomplete"):
            restored_state(values)


def _harmless(world: WatchedWorld, guardrails: int, runs: int, episodes: int) -> None:
    course = world.advantage(np.arange(1.0, episodes))
    assert (np.cumsum(course) >= -1e-6).all(), "the world does harm"
    count = int(np.sum(rollbacks(watch_with(guardrails), world, runs, episodes, seed=7) < NEVER))
    assert rate_interval(count, runs)[0] <= ALPHA, (world.name, count / runs)


@pytest.mark.parametrize("world", worlds(), ids=lambda one: one.name)
def test_without_harm_few_are_rolled_back(world: WatchedWorld) -> None:
    _harmless(world, 2, runs=100, episodes=500)


@pytest.mark.verify
@pytest.mark.parametrize("guardrails", [0, 2])
@pytest.mark.parametrize("world", worlds(), ids=lambda one: one.name)
def test_without_harm_at_most_alpha_are_ever_rolled_back(world: WatchedWorld, guardrails: int) -> None:
    _harmless(world, guardrails, runs=1_000, episodes=5_000)


@pytest.mark.parametrize("guardrails", [0, 2])
@pytest.mark.parametrize("world", harms()[:3], ids=lambda one: one.name)
def test_harm_of_half_a_standard_deviation_shows_within_60_episodes(
    world: WatchedWorld, guardrails: int
) -> None:
    assert world.advantage(np.arange(3.0)) == pytest.approx(world.advantage(np.zeros(1))[0])
    assert np.median(rollbacks(watch_with(guardrails), world, 300, 300, seed=3)) <= 60


def test_the_worlds_of_harm_do_as_much_as_they_say() -> None:
    rng = np.random.default_rng(0)
    advantage, reward = harms()[:2]
    drawn = advantage.draw(rng, 200, 300).advantages
    assert drawn.mean() / drawn.std() == pytest.approx(-0.5, abs=0.01)
    means = reward.means(np.zeros(1))[0]
    spread = math.sqrt(1 + NEW @ (means - NEW @ means) ** 2)
    assert means @ (NEW - OLD) == pytest.approx(-0.5 * spread)


# The command


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(3), 800
    action = (rng.random(n) < 0.7).astype(int)
    common = {
        "episode": np.arange(1, n + 1),
        "action": action,
        "behavior_prob": np.where(action == 1, 0.7, 0.3),
        "safe_prob": np.where(action == 1, 0.4, 0.6),
        "calls": 1.0 * (rng.random(n) < 0.1 + 0.4 * action),
    }
    for name, gain in (("worse", -1.0), ("same", 0.0), ("better", 1.0)):
        reward = 5 + gain * action + 0.5 * rng.normal(size=n)
        pl.DataFrame({**common, "reward": reward}).write_csv(f"{name}.csv")


def _watch(*options: str) -> tuple[int, dict[str, Any]]:
    done = RUN(app, ["watch", *options, "--safe", "column:safe_prob", "--json"])
    return done.exit_code, json.loads(done.stdout[: done.stdout.rindex("}") + 1])


@pytest.mark.usefixtures("logged")
def test_the_command() -> None:
    code, record = _watch("worse.csv", "--out", "w.json", "--report", "w.html")
    assert (code, record["status"], record["rolls_back"]) == (1, "fail", True)
    assert record == json.loads(Path("w.json").read_text())
    assert record["signal"]["harm"]["sequence"] == "reward"
    page = Path("w.html").read_text()
    assert "ROLL BACK" in page
    assert page == log_page(record)
    code, record = _watch("same.csv")
    assert (code, record["status"], record["rolls_back"]) == (0, "inconclusive", False)
    code, record = _watch("better.csv")
    assert (code, record["status"], record["reason"]) == (0, "pass", "BETTER")
    code, record = _watch("better.csv", "--guardrail", "calls:0.01")
    assert (code, record["signal"]["harm"]["sequence"]) == (1, "calls")
    assert "the guardrail 'calls' is shown to be broken" in record["headline"]
    assert record["signal"]["sequences"][0]["level"] == 0.025
    assert _watch("better.csv", "--guardrail", "calls:0.5")[0] == 0
    assert _watch("worse.csv", "--margin", "1")[1]["status"] == "inconclusive"
    assert _watch("worse.csv", "--since", "790")[1]["reason"] == "TOO_FEW"


@pytest.mark.usefixtures("logged")
def test_the_command_in_words() -> None:
    done = RUN(app, ["watch", "worse.csv", "--safe", "column:safe_prob", "--guardrail", "calls:0.5"])
    words = " ".join(done.stdout.split())
    assert "ROLL BACK: the new policy is shown to do worse than the safe one" in words
    assert "which is below 0 (level 0.025)." in words
    done = RUN(app, ["watch", "same.csv", "--safe", "column:safe_prob"])
    assert "KEEP RUNNING: neither harm nor an advantage is shown" in " ".join(done.stdout.split())


@pytest.mark.usefixtures("logged")
def test_a_log_that_cannot_tell() -> None:
    frame = pl.read_csv("worse.csv").filter(pl.col("action") == 1)
    frame.with_columns(behavior_prob=pl.lit(1.0), episode=pl.int_range(pl.len())).write_csv("sure.csv")
    code, record = _watch("sure.csv")
    assert (code, record["status"], record["reason"]) == (2, "error", "NO_SUPPORT")
    done = RUN(app, ["watch", "none.csv", "--safe", "column:safe_prob", "--out", "e.json"])
    assert done.exit_code != 0
    content = json.loads(Path("e.json").read_text())
    assert (content["kind"], content["status"], content["rolls_back"]) == ("watch", "error", None)
    with pytest.raises(LogError, match="no episode of the log is at 5000 or later"):
        watch("worse.csv", safe="column:safe_prob", since=5000)
    with pytest.raises(SettingsError, match="since 'soon' is not a time of this log"):
        watch("worse.csv", safe="column:safe_prob", since="soon")
    with pytest.raises(SettingsError, match="watch takes no 'lookahed'"):
        watch("worse.csv", safe="column:safe_prob", lookahed=3)  # type: ignore[call-arg]


@pytest.mark.usefixtures("logged")
def test_the_forecast_warns() -> None:
    def warned(name: str) -> WatchRecord:
        return watch(f"{name}.csv", safe="column:safe_prob", lookahead=50, preset="paper", order=1)

    worse, better = warned("worse"), warned("better")
    assert worse.warning is not None
    assert worse.warning.warns
    assert "Warning: the gate no longer forecasts an advantage" in str(worse)
    assert "<b>Warning:</b>" in log_page(worse)
    assert better.warning is not None
    assert not better.warning.warns
    forecast = gate(
        "better.csv", candidate="behavior", safe="column:safe_prob", candidate_from="elsewhere",
        lookahead=50, preset="paper", order=1,
    )  # fmt: skip
    assert better.warning.lower == forecast.advantage.lower
    assert "KEEP RUNNING" in better._repr_html_()
