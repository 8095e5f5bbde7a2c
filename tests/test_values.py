"""Dense twins, ends and gaps, folds that never meet, and batches."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tidegate import EpisodeLog, LogError, RecentMeans, SettingsError
from tidegate.values import LinearValues, ValueModel, remembered, reward_to_go

Cells = np.ndarray[Any, Any]


@eqx.filter_jit
def _predict(model: ValueModel, training: EpisodeLog, log: EpisodeLog, *, per_action: bool = True) -> Array:
    return model.predict(training, log, 0.9, per_action=per_action)


@eqx.filter_jit
def _cross_fit(model: ValueModel, log: EpisodeLog, *, per_action: bool = True) -> Array:
    return model.cross_fit(log, 0.9, per_action=per_action)


def _log(rows: int, seed: int = 0, *, steps: int = 2, spare: int = 3, states: str = "") -> EpisodeLog:
    """Uneven times with ties, three actions, episodes of different lengths, spare rows last."""
    rng = np.random.default_rng(seed)
    shape = (rows + spare, steps)
    times = np.round(np.cumsum(rng.exponential(3.0, rows + spare)), 0)
    times[rows:] = 0.0
    mask = np.arange(steps) < rng.integers(1, steps + 1, rows + spare)[:, None]
    mask[rows:] = False
    drift = np.sin(times / 20)[:, None]
    actions = rng.integers(0, 3, shape)
    kinds = {
        "floats": rng.normal(50.0, 2.0, (*shape, 2)),
        "integers": rng.integers(0, 4, shape),
        "": None,
    }
    found = kinds[states]
    signal = 0.0 if found is None else 0.3 * np.reshape(found, (*shape, -1)).sum(axis=-1)
    return EpisodeLog(
        episode_numbers=times,
        actions=actions,
        behavior_log_probs=np.full(shape, -np.log(3.0)),
        rewards=actions * drift + signal + 0.1 * rng.normal(size=shape),
        mask=mask,
        states=found,
        num_actions=3,
    )


def _to_go(log: EpisodeLog, discount: float) -> Cells:
    totals = np.zeros(log.mask.shape)
    for i, t in zip(*np.nonzero(log.mask), strict=True):
        later = [s for s in range(t, log.mask.shape[1]) if log.mask[i, s]]
        totals[i, t] = sum(discount ** (s - t) * log.rewards[i, s] for s in later)
    return totals


def _dense_means(weights: Cells, targets: Cells, cells: Cells, shrinkage: float = 0.1) -> Cells:
    """Means per step and action, from one weight per pair of (asked, training) row."""
    sums = np.einsum("nm,mt,mta->nta", weights, targets, cells)
    counts = np.einsum("nm,mta->nta", weights, cells.astype(float))
    everything = counts.sum(axis=-1, keepdims=True)
    overall = sums.sum(axis=-1, keepdims=True) / np.where(everything > 0, everything, 1.0)
    return np.asarray((sums + shrinkage * overall) / (counts + shrinkage))


def _dense_recent(training: EpisodeLog, targets: Cells, cells: Cells, at: Cells) -> Cells:
    """`RecentMeans` with an n × m matrix of weights."""
    rows = np.flatnonzero(np.asarray(training.present))
    rows = rows[np.argsort(np.asarray(training.episode_numbers)[rows], kind="stable")]
    times, targets, cells = np.asarray(training.episode_numbers)[rows], targets[rows], cells[rows]
    span = times[-1] - times[0] or 1.0
    errors = []
    for half_life in span / 2.0 ** np.arange(7):
        past = np.tril(2.0 ** (-np.abs(times[:, None] - times) / half_life), -1)
        means = _dense_means(past, targets, cells)
        errors.append(np.sum(cells * (targets[..., None] - means) ** 2))
    best = span / 2.0 ** np.argmin(errors)
    asked = np.clip(at, times[0], times[-1])
    return _dense_means(2.0 ** (-np.abs(asked[:, None] - times) / best), targets, cells)


def _cells(log: EpisodeLog, per_action: bool) -> Cells:
    mask = np.asarray(log.mask)[..., None]
    return mask & (np.asarray(log.actions)[..., None] == np.arange(3)) if per_action else mask


@pytest.mark.parametrize("discount", [1.0, 0.7, 0.0])
def test_reward_to_go_is_the_loop(discount: float) -> None:
    log = _log(9, steps=5)
    np.testing.assert_allclose(reward_to_go(log, discount), _to_go(log, discount), atol=1e-12)


def test_a_filter_runs_both_ways() -> None:
    values = np.random.default_rng(0).normal(size=(3, 50))
    powers = np.tril(0.6 ** np.maximum(np.subtract.outer(np.arange(50), np.arange(50)), 0))
    forward, backward = (remembered(jnp.asarray(values), 0.6, reverse=reverse) for reverse in (False, True))
    np.testing.assert_allclose(forward, values @ powers.T, atol=1e-12)
    np.testing.assert_allclose(backward, values @ powers, atol=1e-12)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 2000])
def test_prefix_sums_are_the_cumulated_ones(length: int) -> None:
    rows = np.random.default_rng(0).normal(size=(2, length)) * 2.0 ** np.linspace(-32, 32, length)
    expected, scale = np.cumsum(rows, axis=-1), np.cumsum(np.abs(rows), axis=-1)
    for dtype, tolerance in ((jnp.float64, 1e-13), (jnp.float32, 1e-5)):
        found = np.asarray(remembered(jnp.asarray(rows, dtype), 1.0))
        assert np.max(np.abs(found - expected) / scale) < tolerance


@pytest.mark.parametrize("per_action", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recent_means_equal_the_dense_twin(seed: int, per_action: bool) -> None:
    training, log = _log(60, seed), _log(25, seed + 10)
    # Before the first episode, after the last, between, and at one of them.
    ends = [-40.0, training.episode_numbers[7], 1e4]
    log = dataclasses.replace(log, episode_numbers=np.r_[ends, log.episode_numbers[3:]])
    values = _predict(RecentMeans(), training, log, per_action=per_action)
    expected = _dense_recent(
        training,
        _to_go(training, 0.9),
        _cells(training, per_action),
        np.asarray(log.episode_numbers),
    )
    assert values.shape == (28, 2, 3 if per_action else 1)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)


def test_the_order_of_rows_does_not_matter() -> None:
    training, log = _log(60), _log(25, 5)
    # Rows of equal time may be foretold in either order, so the half-life is fixed here.
    model = RecentMeans(ladder=1)
    shuffled = training.take(np.random.default_rng(3).permutation(training.capacity))
    np.testing.assert_allclose(
        _predict(model, training, log),
        _predict(model, shuffled, log),
    )


def test_the_half_life_follows_the_drift() -> None:
    """A fast wave is followed more closely than one half-life of the whole span would allow."""
    rng = np.random.default_rng(0)
    times = np.arange(1.0, 201.0)
    wave = np.sin(times / 10)
    log = EpisodeLog.from_arrays(
        np.zeros(200), wave + 0.1 * rng.normal(size=200), np.ones(200), episode_numbers=times
    )
    errors = [
        np.mean((np.asarray(_cross_fit(model, log, per_action=False))[:, 0, 0] - wave) ** 2)
        for model in (RecentMeans(ladder=1), RecentMeans())
    ]
    assert errors[1] < 0.05 < 0.3 < errors[0]


@pytest.mark.parametrize("model", [RecentMeans(), LinearValues(num_states=4)])
def test_no_data_is_worth_zero(model: ValueModel) -> None:
    training, log = _log(60, 1, states="integers"), _log(25, 2, states="integers")
    empty = dataclasses.replace(training, mask=np.zeros_like(training.mask))
    for nothing in (empty, training.take(np.arange(0))):
        np.testing.assert_array_equal(_predict(model, nothing, log), np.zeros((28, 2, 3)))
    assert np.all(np.isfinite(_cross_fit(model, log.take(np.arange(1)))))


def test_an_unseen_action_is_worth_the_mean_of_the_others() -> None:
    log = EpisodeLog.from_arrays([0, 1] * 10, [1.0, 3.0] * 10, np.ones(20), num_actions=3)
    values = np.asarray(_predict(RecentMeans(ladder=1), log, log))[:, 0]
    assert np.all((values[:, 2] > 1.9) & (values[:, 2] < 2.1))
    np.testing.assert_allclose(values[:, 0], 1.0, atol=0.05)
    np.testing.assert_allclose(values[:, 1], 3.0, atol=0.05)


@pytest.mark.parametrize("model", [RecentMeans(), LinearValues()])
def test_cross_fit_never_predicts_an_episode_from_itself(model: ValueModel) -> None:
    log = _log(50, states="floats")
    before = np.asarray(_cross_fit(model, log))
    for row in (0, 1, 28, 49):
        rewards = np.array(log.rewards)
        rewards[row] += 100.0
        after = np.asarray(_cross_fit(model, dataclasses.replace(log, rewards=rewards)))
        np.testing.assert_array_equal(after[row], before[row])
        assert np.any(after != before)


def _dense_linear(training: EpisodeLog, log: EpisodeLog, num_states: int | None) -> Cells:
    """Loops over actions, `numpy.linalg.solve`, and the dense recent means of the residuals."""

    def features(one: EpisodeLog) -> Cells:
        n, t = one.mask.shape
        states = np.asarray(one.states)
        states = np.eye(num_states)[states] if num_states else states.reshape(n, t, -1)
        steps = np.broadcast_to(np.linspace(0, 1, t), (n, t))[..., None]
        return np.concatenate([steps, states], axis=-1)

    mask, targets = np.asarray(training.mask), _to_go(training, 0.9)
    seen, asked = features(training), features(log)
    centre, scale = seen[mask].mean(axis=0), seen[mask].std(axis=0)
    level = targets[mask].mean()
    seen, asked = (
        np.concatenate([np.ones((*x.shape[:2], 1)), (x - centre) / scale], axis=-1) for x in (seen, asked)
    )
    cells = _cells(training, per_action=True)
    fitted, left = np.zeros((*log.mask.shape, 3)), np.zeros(mask.shape)
    for action in range(3):
        chosen = cells[..., action]
        x, y = seen[chosen], targets[chosen] - level
        gram = x.T @ x + 1e-3 * (len(x) + 1) * np.eye(x.shape[1])
        slope = np.linalg.solve(gram, x.T @ y)
        fitted[..., action] = level + asked @ slope
        left[chosen] = y - x @ slope
    return fitted + _dense_recent(training, left, cells, np.asarray(log.episode_numbers))


@pytest.mark.parametrize(("states", "num_states"), [("floats", None), ("integers", None), ("integers", 4)])
def test_linear_values_equal_the_dense_twin(states: str, num_states: int | None) -> None:
    training, log = _log(60, 1, states=states), _log(25, 2, states=states)
    values = _predict(LinearValues(num_states), training, log)
    expected = _dense_linear(training, log, num_states)
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-8)


def test_linear_values_without_states_are_recent_means() -> None:
    training, log = _log(5, spare=1), _log(5, 1, spare=1)
    np.testing.assert_array_equal(
        _predict(LinearValues(), training, log),
        _predict(RecentMeans(), training, log),
    )


def test_states_explain_what_means_cannot() -> None:
    log = _log(50, 3, states="floats")
    log = dataclasses.replace(log, mask=log.mask & np.array([True, False]))
    truth, cells = _to_go(log, 0.9)[..., None], _cells(log, per_action=True)
    mean_error, linear_error = (
        np.mean((truth - np.asarray(_cross_fit(model, log)))[cells] ** 2)
        for model in (RecentMeans(), LinearValues())
    )
    assert linear_error < 0.6 * mean_error


def test_batches_in_single_precision_agree_with_one_by_one_in_double() -> None:
    logs = [_log(50, seed, states="floats") for seed in (0, 1, 2)]
    expected = np.stack([np.asarray(_cross_fit(LinearValues(), log)) for log in logs])
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *logs)
    with jax.enable_x64(False):
        single = jax.jit(jax.vmap(lambda log: _cross_fit(LinearValues(), log)))(
            jax.tree.map(jnp.asarray, stacked)
        )
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, expected, rtol=1e-3, atol=1e-3)


def test_continuous_actions_have_one_value_or_an_error() -> None:
    log = dataclasses.replace(_log(10), num_actions=None, actions=np.zeros((13, 2, 1)))
    assert _predict(RecentMeans(), log, log, per_action=False).shape == (13, 2, 1)
    with pytest.raises(LogError, match="continuous"):
        RecentMeans().predict(log, log, 1.0, per_action=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecentMeans(ladder=0), "ladder"),
        (lambda: RecentMeans(shrinkage=0.0), "shrinkage"),
        (lambda: LinearValues(ridge=0.0), "ridge"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make()
