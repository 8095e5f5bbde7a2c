"""One pure step; the same live, scanned and vmapped."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    LiveLoop,
    LogError,
    Reason,
    SearchSettings,
    SettingsError,
    SoftmaxPolicy,
    SpinSettings,
    TabularPolicy,
    TwoBounds,
    Verdict,
    simulate,
    split_log,
)
from tidegate.basis import Basis
from tidegate.drivers import History, _stages
from tidegate.episodes import pad_steps, split_rows, training_count
from tidegate.loop import initial_state, observe, spin_step
from tidegate.simulators.recommender import Recommender


def _settings(basis: Basis | None = None, **changes: object) -> SpinSettings:
    search = SearchSettings(
        steps=6,
        learning_rate=0.03,
        entropy_weight=0.3,
        natural_gradient=True,
        entropy_in_returns=True,
        average_gradient=True,
        draws=40,
    )
    forecast = ForecastSettings(4, TwoBounds(basis or CosineBasis(1)), draws=80)
    return SpinSettings(forecast, search, **changes)  # type: ignore[arg-type]


WORLD = Recommender.at_speed(0, noise=0.05)


def _windows(count: int, size: int = 4) -> list[EpisodeLog]:
    keys = jax.random.split(jax.random.key(99), count)
    return [
        WORLD.collect(WORLD.safe_policy, jnp.arange(1.0, size + 1) + i * size, key)
        for i, key in enumerate(keys)
    ]


def _keys(seed: int) -> tuple[jax.Array, jax.Array]:
    key, sign_key = jax.random.split(jax.random.key(seed))
    return key, sign_key


def _run(key: jax.Array, settings: SpinSettings, episodes: int = 200, capacity: int = 64) -> History:
    sign_key = jax.random.fold_in(key, 1)
    return simulate(WORLD, settings, key, sign_key, num_episodes=episodes, window=4, capacity=capacity)


def test_every_episode_lands_in_exactly_one_split() -> None:
    settings = _settings(train_fraction=0.25)
    state = initial_state(settings, WORLD.safe_policy, _windows(1)[0], 32)
    for i, window in enumerate(_windows(6)):
        state = observe(settings, state, window, jax.random.key(i))
    train = np.asarray(state.training.log.episode_numbers)[np.asarray(state.training.log.present)]
    test = np.asarray(state.held_out.log.episode_numbers)[np.asarray(state.held_out.log.present)]
    assert (len(train), len(test)) == (6, 18) == (int(state.num_train), int(state.num_held_out))
    assert sorted([*train, *test]) == list(range(1, 25))
    assert (float(state.first_episode), float(state.last_episode)) == (1, 24)


def test_the_loop_and_split_log_draw_the_same_rows() -> None:
    """One rule of splitting: in a window, in a log, and in a record that repeats it."""
    settings, window = _settings(train_fraction=0.25), _windows(1, 12)[0]
    for seed in range(3):
        key = jax.random.key(seed)
        state = initial_state(settings, WORLD.safe_policy, window, 12)
        state = observe(settings, state, window, key)
        drawn = split_rows(key, 12, training_count(12, 0.25))
        training, held_out = split_log(window, train_fraction=0.25, seed=seed)
        parts = (state.training.log, state.held_out.log)
        for rows, part, other in zip(drawn, parts, (training.log, held_out.log), strict=True):
            kept = np.asarray(part.episode_numbers)[np.asarray(part.present)]
            np.testing.assert_array_equal(kept, window.take(rows).episode_numbers)
            np.testing.assert_array_equal(np.sort(kept), other.episode_numbers)


def test_search_never_sees_the_test_split_and_the_reverse() -> None:
    """Poison one split: the other stage's result does not move by a bit."""
    settings = _settings()
    state = initial_state(settings, WORLD.safe_policy, _windows(1)[0], 64)
    *first, last = _windows(20)
    for i, window in enumerate(first):
        state = observe(settings, state, window, jax.random.key(i))
    clean, outcome = spin_step(settings, state, last, *_keys(0))

    def poisoned(where: Any) -> Any:
        return eqx.tree_at(where, state, replace_fn=lambda rewards: rewards + 100.0)

    after, _ = spin_step(settings, poisoned(lambda s: s.held_out.log.rewards), last, *_keys(0))
    np.testing.assert_array_equal(after.search.policy.outputs(), clean.search.policy.outputs())
    _, other = spin_step(settings, poisoned(lambda s: s.training.log.rewards), last, *_keys(0))
    assert float(other.safe_interval.upper) == float(outcome.safe_interval.upper)


def test_a_step_is_pure_and_compiled_once_per_capacity() -> None:
    traces = 0

    @eqx.filter_jit
    def step(settings: Any, state: Any, window: Any, key: Any, sign_key: Any) -> Any:
        nonlocal traces
        traces += 1
        return spin_step(settings, state, window, key, sign_key)

    settings = _settings()
    state = initial_state(settings, WORLD.safe_policy, _windows(1)[0], 32)
    for i, window in enumerate(_windows(8)):
        state, _ = step(settings, state, window, *_keys(i))
    assert traces == 1


def test_one_run_alone_and_in_a_batch_decide_identically() -> None:
    settings = _settings(ConstantBasis())
    keys = jax.random.split(jax.random.key(1), 3)
    run = jax.jit(lambda k: _run(k, settings))
    alone = [run(key) for key in keys]
    batch = jax.jit(jax.vmap(lambda k: _run(k, settings)))(keys)
    mapped = jax.jit(lambda ks: jax.lax.map(lambda k: _run(k, settings), ks))(keys)
    assert sum(int(h.deployed.sum()) for h in alone) > 0
    for i, history in enumerate(alone):
        for together in (batch, mapped):
            np.testing.assert_array_equal(together.deployed[i], history.deployed)
            np.testing.assert_array_equal(together.reason[i], history.reason)
            np.testing.assert_allclose(together.performance[i], history.performance, rtol=1e-6)


def test_a_run_repeats_to_the_bit_from_its_seed() -> None:
    run = jax.jit(lambda k: _run(k, _settings()))
    first, second = run(jax.random.key(5)), run(jax.random.key(5))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    other = run(jax.random.key(6))
    assert np.any(np.asarray(other.lower) != np.asarray(first.lower))


def test_capacity_does_not_change_decisions() -> None:
    settings = _settings(ConstantBasis())
    small = jax.jit(lambda k: _run(k, settings, capacity=32))(jax.random.key(2))
    large = jax.jit(lambda k: _run(k, settings, capacity=128))(jax.random.key(2))
    np.testing.assert_array_equal(small.reason, large.reason)
    np.testing.assert_allclose(small.lower, large.lower, rtol=1e-6)


def test_32_bit_runs_reach_the_same_verdicts() -> None:
    """Compare on data that do not depend on earlier verdicts: windows of the safe policy."""
    settings = _settings(ConstantBasis())

    def verdicts() -> list[int]:
        state = initial_state(settings, WORLD.safe_policy, _windows(1, 12)[0], 256)
        step = eqx.filter_jit(spin_step)
        reasons = []
        for i, window in enumerate(windows):
            state, outcome = step(settings, state, window, *_keys(i))
            reasons.append(int(outcome.reason))
        return reasons

    windows = [jax.tree.map(np.asarray, w) for w in _windows(40, 12)]
    wide = verdicts()
    with jax.enable_x64(False):
        windows = [
            jax.tree.map(lambda a: a.astype(np.float32) if a.dtype == np.float64 else a, w) for w in windows
        ]
        narrow = verdicts()
    assert wide == narrow
    assert {Reason.BETTER, Reason.NOT_BETTER} <= set(wide)


def test_live_equals_scanned() -> None:
    """The live loop over the same windows and keys decides as the scan does."""
    settings = _settings(ConstantBasis())
    loop = LiveLoop(settings, WORLD.safe_policy, seed=3, capacity=16)
    decisions = [loop.step(window) for window in _windows(40, 12)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *_windows(40, 12))
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(jnp.arange(40))
    state = initial_state(settings, WORLD.safe_policy, _windows(1, 12)[0], 256)
    _, outcomes = jax.lax.scan(
        lambda s, x: spin_step(settings, s, x[0], *jax.random.split(x[1])), state, (stacked, keys)
    )
    assert [d.reason for d in decisions] == [Reason(int(r)) for r in outcomes.reason]
    np.testing.assert_allclose(
        [d.candidate.lower for d in decisions][8:], outcomes.candidate_interval.lower[8:], rtol=1e-6
    )
    assert any(d.verdict is Verdict.DEPLOY for d in decisions)


def test_saving_and_resuming_changes_nothing(tmp_path: Path) -> None:
    settings, windows = _settings(), _windows(30)
    through = LiveLoop(settings, WORLD.safe_policy, seed=8, capacity=11)
    expected = [through.step(window).to_dict() for window in windows]
    loop = LiveLoop(settings, WORLD.safe_policy, seed=8, capacity=11)
    records = []
    for i, window in enumerate(windows):
        records.append(loop.step(window).to_dict())
        if i in (3, 17):
            loop.save(tmp_path / "loop")
            loop = LiveLoop.load(tmp_path / "loop", settings, WORLD.safe_policy, window)
    assert records == expected
    assert loop.policy.outputs().tobytes() == through.policy.outputs().tobytes()


def test_a_full_log_is_never_overwritten_in_silence() -> None:
    settings = _settings()
    state = initial_state(settings, WORLD.safe_policy, _windows(1)[0], 30)
    reasons = []
    step = eqx.filter_jit(spin_step)
    for i, window in enumerate(_windows(20)):
        state, outcome = step(settings, state, window, *_keys(i))
        reasons.append(int(outcome.reason))
    assert reasons[-5:] == [Reason.LOG_FULL] * 5
    assert not bool(state.deployed)


def test_without_a_test_every_candidate_is_deployed() -> None:
    history = jax.jit(lambda k: _run(k, _settings(train_fraction=1.0, test_candidates=False), 80))(
        jax.random.key(0)
    )
    assert not bool(history.deployed[0])
    assert bool(jnp.all(history.deployed[1:]))


def test_cold_start_searches_from_the_safe_policy() -> None:
    settings = _settings(warm_start=False)
    state = initial_state(settings, WORLD.safe_policy, _windows(1)[0], 64)
    moved = eqx.tree_at(lambda s: s.search.policy.logits, state, replace_fn=lambda x: x + 50.0)
    for window in _windows(5):
        state, _ = spin_step(settings, state, window, *_keys(0))
        moved, _ = spin_step(settings, moved, window, *_keys(0))
    np.testing.assert_array_equal(state.search.policy.outputs(), moved.search.policy.outputs())


def test_speed_zero_improves_and_is_safe() -> None:
    history = jax.jit(lambda k: _run(k, _settings(ConstantBasis()), 800))(jax.random.key(0))
    assert float(history.improvement_over_safe) > 0.05
    assert float(history.violation_rate) == 0
    assert 0.3 < float(history.deployment_rate) < 1


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_stages_cover_all_windows_with_room(fraction: float) -> None:
    stages = _stages(_settings(train_fraction=fraction), 2000, 6, 20, 64)
    assert [s[0] for s in stages] == [0, *(s[1] for s in stages[:-1])]
    assert stages[-1][1] == 333
    assert stages[-1][2] + stages[-1][3] >= 20 + 333 * 6


def test_multi_step_windows_with_states_and_shorter_episodes() -> None:
    rng = np.random.default_rng(0)
    loop = LiveLoop(_settings(), TabularPolicy(np.zeros((2, 3))), seed=0, capacity=16)
    for i in range(12):
        steps = 3 if i == 0 else int(rng.integers(1, 4))
        shape = (8, steps)
        actions = rng.integers(0, 3, shape)
        window = EpisodeLog.from_arrays(
            actions,
            (actions == 2) + 0.1 * rng.normal(size=shape),
            np.full(shape, 1 / 3),
            states=rng.integers(0, 2, shape),
            episode_numbers=1 + 8 * i + np.arange(8),
            num_actions=3,
        )
        decision = loop.step(window)
    assert np.isfinite(decision.candidate.lower)
    with pytest.raises(LogError, match=r"has 3 steps.*at most 2"):
        pad_steps(window if steps == 3 else pad_steps(window, 3), 2)


def test_softmax_policy_type_is_kept() -> None:
    loop = LiveLoop(_settings(), SoftmaxPolicy(np.zeros(5)), seed=0)
    assert isinstance(loop.policy, SoftmaxPolicy)
    loop.observe(_windows(1)[0])
    assert np.asarray(loop.policy.outputs()).dtype == np.float64


def test_windows_that_do_not_fit_are_refused() -> None:
    loop = LiveLoop(_settings(), WORLD.safe_policy, seed=0)
    with pytest.raises(SettingsError, match=r"nothing to save"):
        loop.save("never")
    first, second = _windows(2)
    loop.step(first)
    with pytest.raises(LogError, match=r"window starts at episode 1.*after 4"):
        loop.step(first)
    few = EpisodeLog.from_arrays(
        [0, 1], [0.0, 1.0], [0.5, 0.5], episode_numbers=[5, 6]
    )  # two actions seen, five known
    loop.step(few)
    many = EpisodeLog.from_arrays([7], [0.0], [0.5], episode_numbers=[9])
    with pytest.raises(LogError, match=r"window has 8 actions.*at most 5"):
        loop.step(many)
    stated = EpisodeLog.from_arrays([0], [0.0], [0.5], episode_numbers=[9], states=[[1.0]])
    with pytest.raises(LogError, match=r"states differ"):
        loop.step(stated)
    assert second.num_episodes == 4


def test_a_live_loop_always_tests() -> None:
    with pytest.raises(SettingsError, match=r"tests every candidate"):
        LiveLoop(_settings(test_candidates=False), WORLD.safe_policy)
    exact = ForecastSettings(4, exact=True)
    with pytest.raises(SettingsError, match=r"cannot enumerate"):
        SpinSettings(exact, SearchSettings())
