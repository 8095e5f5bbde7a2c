"""Gradients against finite differences, and what the search climbs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    GaussianPolicy,
    HeldOutEpisodes,
    LinearPolicy,
    MLPPolicy,
    PolicyError,
    Propensity,
    RecordedPolicy,
    SearchSettings,
    SettingsError,
    SoftmaxPolicy,
    TrainingEpisodes,
    TwoBounds,
    search_candidate,
)
from tidegate.basis import TimeAxis
from tidegate.bootstrap import (
    KeyedMultipliers,
    Mammen,
    Rademacher,
    Side,
    Webb,
    percentile_interval,
    percentile_t_interval,
)
from tidegate.episodes import grow
from tidegate.forecast import estimated_returns
from tidegate.policies import ParametricPolicy
from tidegate.search import (
    Objective,
    is_tabular,
    mean_entropy,
    natural_gradient,
    search_objective,
    tabular_objective,
)
from tidegate.trend import TrendDesign, fit_trend, trend_design

from .oracles import finite_difference, one_step_frame

TEST = TwoBounds(CosineBasis(2))
FORECAST = ForecastSettings(4, TEST, discount=0.9)


def _multi_step_log() -> EpisodeLog:
    rng = np.random.default_rng(0)
    shape = (40, 3)
    mask = np.arange(3) < rng.integers(1, 4, (40, 1))
    return EpisodeLog.from_arrays(
        rng.integers(0, 3, shape),
        rng.normal(size=shape),
        np.full(shape, 1 / 3),
        mask=mask,
        states=rng.normal(size=(*shape, 2)),
    )


def _gaussian_log() -> EpisodeLog:
    rng = np.random.default_rng(1)
    actions = rng.normal(size=(40, 1, 2))
    densities = -0.5 * np.sum(actions**2, -1) - np.log(2 * np.pi)
    return EpisodeLog.from_arrays(
        actions, np.sum(actions, -1) + rng.normal(size=(40, 1)), densities,
        propensity=Propensity.LOG_DENSITY,
    )  # fmt: skip


RNG = np.random.default_rng(2)
CASES: list[tuple[ParametricPolicy, EpisodeLog]] = [
    (SoftmaxPolicy([0.3, -0.2, 0.1]), EpisodeLog.from_frame(pd.DataFrame(one_step_frame(40)))),
    (LinearPolicy(RNG.normal(size=(2, 3)), RNG.normal(size=3)), _multi_step_log()),
    (
        MLPPolicy([(RNG.normal(size=(2, 3)), np.zeros(3)), (RNG.normal(size=(3, 3)), np.zeros(3))]),
        _multi_step_log(),
    ),
    (GaussianPolicy([0.2, -0.1], [0.1, -0.1]), _gaussian_log()),
]


def _design(log: EpisodeLog) -> TrendDesign:
    times = np.asarray(log.episode_numbers)
    axis = TimeAxis.over(log.span, FORECAST.lookahead)
    return trend_design(TEST.basis, times, log.present, axis)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize(("policy", "log"), CASES)
def test_gradient_through_the_sort(policy: ParametricPolicy, log: EpisodeLog, objective: Objective) -> None:
    settings = SearchSettings(objective=objective, entropy_weight=0.3)
    design = _design(log)
    signs = Rademacher(jax.random.key(0), 200)
    policy = jax.tree.map(jnp.asarray, policy)
    flat, unravel = ravel_pytree(policy)

    @jax.jit
    def value(parameters: jax.Array) -> jax.Array:
        return search_objective(unravel(parameters), settings, FORECAST, log, design, signs)

    numeric = finite_difference(lambda x: float(value(jnp.asarray(x))), np.asarray(flat))
    np.testing.assert_allclose(jax.grad(value)(flat), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("objective", [Objective.PERCENTILE, Objective.MEAN])
@pytest.mark.parametrize("in_returns", [True, False])
def test_the_action_table_is_the_same_objective(objective: Objective, in_returns: bool) -> None:
    policy, log = CASES[0]
    padded = grow(log, 55)
    settings = SearchSettings(objective=objective, entropy_weight=0.3, entropy_in_returns=in_returns)
    design = _design(padded)
    signs = Webb(jax.random.key(0), 200)
    policy = jax.tree.map(jnp.asarray, policy)
    assert is_tabular(policy, log, FORECAST)
    tabled = tabular_objective(settings, policy, padded, design, signs)
    slow = functools.partial(
        search_objective,
        settings=settings, forecasting=FORECAST, log=padded, design=design, multipliers=signs,
    )  # fmt: skip
    for logits in ([0.3, -0.2, 0.1], [2.0, -1.0, 0.0]):
        at = SoftmaxPolicy(jnp.asarray(logits))
        value, gradient = jax.value_and_grad(tabled)(at)
        expected, expected_gradient = jax.value_and_grad(slow)(at)
        assert float(value) == pytest.approx(float(expected), rel=1e-10)
        np.testing.assert_allclose(gradient.logits, expected_gradient.logits, rtol=1e-9, atol=1e-12)


def test_the_action_table_is_only_for_one_decision_without_state() -> None:
    several, log = EpisodeLog.from_arrays(*(np.ones((5, 2)),) * 3), CASES[0][1]
    assert is_tabular(CASES[0][0], log, FORECAST)
    assert not is_tabular(CASES[0][0], several, FORECAST)
    assert not any(is_tabular(policy, other, FORECAST) for policy, other in CASES[1:])
    assert not is_tabular(SoftmaxPolicy(np.zeros(1000)), log, FORECAST)


@pytest.mark.parametrize("kind", [Rademacher, Mammen, Webb])
@pytest.mark.parametrize(
    ("objective", "interval"),
    [
        (Objective.PERCENTILE, percentile_interval),
        (Objective.PERCENTILE_T, percentile_t_interval),
    ],
)
def test_objective_is_the_interval_plus_entropy(
    objective: Objective, interval: Any, kind: type[KeyedMultipliers]
) -> None:
    policy, log = CASES[1]
    settings = SearchSettings(objective=objective, entropy_weight=0.7, alpha=0.05)
    design = _design(log)
    signs = kind(jax.random.key(3), 199)
    value = search_objective(policy, settings, FORECAST, log, design, signs)
    fit = fit_trend(design, estimated_returns(FORECAST, policy, log))
    bound = interval(fit, signs, 0.05, Side.LOWER).lower
    expected = float(bound) + 0.7 * float(mean_entropy(policy, log))
    assert float(value) == pytest.approx(expected, rel=1e-10)


def test_entropy_in_returns_is_a_reward_that_is_not_differentiated() -> None:
    """One step, point forecast: ∇ Σ aᵢ wᵢ (rᵢ − λ log π(aᵢ)) with the logarithm held fixed."""
    policy, log = CASES[0]
    settings = SearchSettings(objective=Objective.MEAN, entropy_weight=0.5, entropy_in_returns=True)
    design = _design(log)
    signs = Rademacher(jax.random.key(0), 20)
    gradient = jax.grad(search_objective)(
        jax.tree.map(jnp.asarray, policy), settings, FORECAST, log, design, signs
    )
    probs = np.exp(np.asarray(policy.log_prob(np.arange(3))))
    actions = np.asarray(log.actions)[:, 0]
    score = np.eye(3)[actions] - probs
    weight = probs[actions] * 3
    pay = np.asarray(log.rewards)[:, 0] - 0.5 * np.log(probs[actions])
    expected = (np.asarray(design.forecast_weights) * weight * pay) @ score
    np.testing.assert_allclose(gradient.logits, expected, rtol=1e-9)


def test_natural_gradient_of_a_softmax() -> None:
    policy, log = CASES[0]
    policy = jax.tree.map(jnp.asarray, policy)
    probs = np.exp(np.asarray(policy.log_prob(np.arange(3))))
    fisher = np.diag(probs) - np.outer(probs, probs) + 1e-4 * np.eye(3)
    gradient = SoftmaxPolicy(jnp.array([1.0, -2.0, 1.0]))
    natural = natural_gradient(policy, gradient, log, 1e-4)
    assert isinstance(natural, SoftmaxPolicy)
    np.testing.assert_allclose(natural.logits, np.linalg.solve(fisher, [1.0, -2.0, 1.0]), rtol=1e-9)


def test_natural_gradient_with_states_averages_over_logged_steps() -> None:
    policy, log = CASES[1]
    policy = jax.tree.map(jnp.asarray, policy)
    flat, unravel = ravel_pytree(policy)
    assert log.states is not None
    total = np.zeros((flat.size, flat.size))
    for i, t in np.argwhere(np.asarray(log.mask)):
        state = np.asarray(log.states)[i, t]
        probs = np.exp(np.asarray(policy.log_prob(np.arange(3), np.tile(state, (3, 1)))))
        for action in range(3):
            score = jax.grad(lambda x, a=action, s=state: unravel(x).log_prob(a, s))(flat)
            total += probs[action] * np.outer(score, score)
    fisher = total / np.sum(log.mask) + 1e-3 * np.eye(flat.size)
    vector = np.arange(1.0, flat.size + 1)
    natural = natural_gradient(policy, unravel(jnp.asarray(vector)), log, 1e-3)
    np.testing.assert_allclose(ravel_pytree(natural)[0], np.linalg.solve(fisher, vector), rtol=1e-7)


@pytest.mark.parametrize("natural", [False, True])
def test_the_search_finds_the_best_action(natural: bool) -> None:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, 300)
    rewards = np.array([0.0, 0.2, 1.0])[actions] + 0.1 * rng.normal(size=300)
    log = EpisodeLog.from_arrays(actions, rewards, np.full(300, 1 / 3))
    settings = SearchSettings(steps=400, learning_rate=0.05, entropy_weight=0.01, natural_gradient=natural)
    start = SoftmaxPolicy(np.zeros(3))
    found = search_candidate(start, TrainingEpisodes(log), ForecastSettings(5), settings, seed=1)
    assert isinstance(found, SoftmaxPolicy)
    assert np.exp(np.asarray(found.log_probs()))[2] > 0.9
    again = search_candidate(start, TrainingEpisodes(log), ForecastSettings(5), settings, seed=1)
    assert np.asarray(again.outputs()).tobytes() == np.asarray(found.outputs()).tobytes()
    other = search_candidate(start, TrainingEpisodes(log), ForecastSettings(5), settings, seed=2)
    assert np.any(np.asarray(other.outputs()) != np.asarray(found.outputs()))


def test_a_hopeless_log_leaves_the_policy_where_it_was() -> None:
    """Three episodes cannot carry four time features: no finite gradient, no step."""
    log = EpisodeLog.from_arrays([0, 1, 2], [1.0, 2.0, 3.0], [0.3, 0.3, 0.4])
    start = SoftmaxPolicy([0.1, 0.2, 0.3])
    found = search_candidate(start, TrainingEpisodes(log), ForecastSettings(5))
    np.testing.assert_array_equal(found.outputs(), start.outputs())


def test_misuse_is_refused() -> None:
    policy, log = CASES[0]
    with pytest.raises(SettingsError, match=r"given HeldOutEpisodes"):
        search_candidate(policy, HeldOutEpisodes(log), FORECAST)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"no parameters to search"):
        search_candidate(RecordedPolicy("x"), TrainingEpisodes(log), FORECAST)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"infinite or undefined parameter"):
        search_candidate(SoftmaxPolicy.from_probs([1.0, 0, 0]), TrainingEpisodes(log), FORECAST)
    with pytest.raises(SettingsError, match=r"steps is -1"):
        SearchSettings(steps=-1)
    with pytest.raises(SettingsError, match=r"at least 20 draws"):
        SearchSettings(draws=19)
