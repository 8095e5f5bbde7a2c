"""The best mixture of a few actions: closed form, against a numerical optimum and a slow twin."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from tidegate import EpisodeLog, SettingsError, SoftmaxPolicy, TrainingEpisodes
from tidegate.basis import TimeAxis
from tidegate.bootstrap import Rademacher
from tidegate.forecast import cross_fitted_returns, cross_fitted_values, series_of
from tidegate.mixture import Trend
from tidegate.policies import ExploringPolicy
from tidegate.presets import multiscale_settings
from tidegate.search import (
    ActionForecasts,
    ByAction,
    Objective,
    SearchSettings,
    action_forecasts,
    action_returns,
    begin_search,
    continue_search,
    mixes_actions,
    preferred,
    search_candidate,
)
from tidegate.simulators.drifting import DriftingBandit

SETTINGS = multiscale_settings()
FORECAST, SEARCH = SETTINGS.forecast, SETTINGS.search
WORLD = DriftingBandit.seasonal(400.0, 0.1, arms=3)
SAFE = WORLD.safe_policy
LOG = jax.jit(lambda key: WORLD.collect(SAFE, jnp.arange(1.0, 121.0), key))(jax.random.key(4))
AXIS = TimeAxis.over(LOG.span, FORECAST.lookahead)


def test_the_closed_form_is_the_maximum() -> None:
    bounds, unit, weight, how = np.array([0.3, -0.1, 0.25]), 0.2, 0.3, ByAction(sharpness=2.0, memory=0.25)
    previous, safe = SoftmaxPolicy([0.5, 0.2, -1.0]), SoftmaxPolicy([0.0, 1.0, 0.3])
    start = np.asarray(jax.nn.log_softmax(0.25 * previous.log_probs() + 0.75 * safe.log_probs()))

    def loss(logits: np.ndarray) -> float:
        log_probs = np.asarray(jax.nn.log_softmax(logits))
        probs = np.exp(log_probs)
        distance = probs @ (log_probs - start)
        return float(-(probs @ bounds) + weight * probs @ log_probs + distance * unit / how.sharpness)

    found = preferred(how, jnp.asarray(bounds), jnp.asarray(unit), weight, previous, safe)
    best = minimize(loss, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(jnp.exp(found.log_probs()), jax.nn.softmax(best.x), atol=1e-5)
    assert loss(np.asarray(found.logits)) <= best.fun + 1e-9


def test_the_unit_of_the_rewards_does_not_matter() -> None:
    how, bounds = ByAction(), jnp.array([0.3, -0.1, 0.25])
    small, large = (
        preferred(how, scale * bounds, jnp.asarray(0.2 * scale), 0.05 * scale, SAFE, SAFE)
        for scale in (1.0, 1e3)
    )
    np.testing.assert_allclose(small.logits, large.logits, rtol=1e-9)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_without_a_number_the_candidate_stays(bad: float) -> None:
    bounds = jnp.array([bad, 0.0, 1.0])
    found = preferred(ByAction(), bounds, jnp.asarray(1.0), 0.05, SAFE, SoftmaxPolicy([0.0, 1.0, 0.3]))
    np.testing.assert_array_equal(found.log_probs(), SAFE.log_probs())


@eqx.filter_jit
def _forecast_alone(log: EpisodeLog, policy: SoftmaxPolicy) -> Trend:
    """The trend that leads for the returns of a policy, less those of the safe one."""
    mine, rival = (cross_fitted_returns(FORECAST, log, one)[0] for one in (policy, SAFE))
    return FORECAST.test.lead(series_of(log, mine - rival), AXIS)


@eqx.filter_jit
def _forecast_together(log: EpisodeLog) -> ActionForecasts:
    values = cross_fitted_values(FORECAST, log, SAFE)(SAFE)
    rival = cross_fitted_returns(FORECAST, log, SAFE)[0]
    returns, _ = action_returns(3, log, values)
    return action_forecasts(FORECAST.test, log, AXIS, returns - rival)


def test_each_action_is_forecast_as_a_policy_of_its_own() -> None:
    """Slow twin: the returns of a policy that always takes the action, and the trend that leads for it."""
    found = _forecast_together(LOG)
    for action in range(3):
        always = SoftmaxPolicy(np.where(np.arange(3) == action, 0.0, -np.inf))
        fit = _forecast_alone(LOG, always)
        np.testing.assert_allclose(found.points[action], fit.point, rtol=1e-6)
        np.testing.assert_allclose(found.errors[action], jnp.sqrt(fit.variance), rtol=1e-6)


def test_a_search_over_actions_prefers_the_best_one() -> None:
    best = int(jnp.argmax(WORLD.expected_rewards(jnp.array([122.0]))))
    found = search_candidate(SAFE, TrainingEpisodes(LOG), FORECAST, SEARCH, against=SAFE)
    assert found.log_prob(best) > np.log(0.9)
    state = begin_search(SEARCH, SAFE)
    signs = Rademacher(jax.random.key(0), 200)
    stepped = jax.jit(partial(continue_search, SEARCH, FORECAST, axis=AXIS, against=SAFE, multipliers=signs))
    again = stepped(state, TrainingEpisodes(LOG)).policy
    np.testing.assert_allclose(again.outputs(), found.outputs(), rtol=1e-4)


def test_other_policies_are_still_climbed_to() -> None:
    assert mixes_actions(SAFE, SEARCH, FORECAST, LOG)
    assert not mixes_actions(ExploringPolicy(SAFE, 0.05), SEARCH, FORECAST, LOG)
    assert not mixes_actions(SAFE, dataclasses.replace(SEARCH, by_action=None), FORECAST, LOG)


@pytest.mark.parametrize(
    "changes", [{"objective": Objective.PERCENTILE}, {"objective": "normal", "entropy_in_returns": True}]
)
def test_bounds_without_a_closed_form_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="closed form"):
        SearchSettings(by_action=ByAction(), **changes)  # type: ignore[arg-type]
