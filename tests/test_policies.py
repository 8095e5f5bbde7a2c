import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tidegate import (
    EpisodeLog,
    GaussianPolicy,
    LinearPolicy,
    MLPPolicy,
    Policy,
    PolicyError,
    Propensity,
    RecordedPolicy,
    SoftmaxPolicy,
    TabularPolicy,
    load_policy,
    save_policy,
)
from tidegate.policies import (
    BehaviorPolicy,
    DiscretePolicy,
    LinearGaussianPolicy,
    ParametricPolicy,
    lists_actions,
)

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(7, 3))
MLP = MLPPolicy(
    [(RNG.normal(size=(3, 5)), RNG.normal(size=5)), (RNG.normal(size=(5, 4)), RNG.normal(size=4))]
)
DISCRETE: list[tuple[DiscretePolicy, Any]] = [
    (SoftmaxPolicy(RNG.normal(size=4)), None),
    (TabularPolicy(RNG.normal(size=(6, 4))), np.array([0, 5, 2, 2, 1, 3, 4])),
    (LinearPolicy(RNG.normal(size=(3, 4)), RNG.normal(size=4)), FEATURES),
    (MLP, FEATURES),
]
CONTINUOUS: list[tuple[ParametricPolicy, Any]] = [
    (GaussianPolicy([1.0, -2.0], [0.3, -0.5]), None),
    (LinearGaussianPolicy(RNG.normal(size=(3, 2)), RNG.normal(size=2), [0.1, -0.2]), FEATURES),
]


@pytest.mark.parametrize(("policy", "states"), DISCRETE)
def test_discrete_policies_sum_to_one_and_know_their_entropy(policy: DiscretePolicy, states: Any) -> None:
    probs = np.exp(policy.log_probs(states))
    np.testing.assert_allclose(probs.sum(-1), 1.0)
    np.testing.assert_allclose(policy.entropy(states), stats.entropy(probs, axis=-1), rtol=1e-12)
    actions = np.array([3, 0, 1, 2, 2, 0, 1])
    expected = probs[actions] if states is None else probs[np.arange(7), actions]
    np.testing.assert_allclose(np.exp(policy.log_prob(actions, states)), expected)


@pytest.mark.parametrize(("policy", "states"), CONTINUOUS)
def test_gaussian_policies_agree_with_scipy(policy: ParametricPolicy, states: Any) -> None:
    outputs = np.asarray(policy.outputs(states))
    mean, log_std = np.split(outputs, 2, axis=-1)
    actions = RNG.normal(size=(7, 2))
    expected = stats.norm(mean, np.exp(log_std)).logpdf(actions).sum(-1)
    np.testing.assert_allclose(policy.log_prob(actions, states), expected, rtol=1e-12)
    entropy = stats.norm(mean, np.exp(log_std)).entropy().sum(-1)
    np.testing.assert_allclose(policy.entropy(states), entropy, rtol=1e-12)


@pytest.mark.parametrize(("policy", "states"), [*DISCRETE, *CONTINUOUS])
def test_output_fisher_is_the_variance_of_the_score(policy: ParametricPolicy, states: Any) -> None:
    """E[∇log π ∇log πᵀ] with respect to the outputs, by sampling: within 5 standard errors."""
    state = None if states is None else states[0]
    outputs = policy.outputs(state)

    def log_prob(values: jax.Array, action: jax.Array) -> jax.Array:
        if isinstance(policy, DiscretePolicy):
            return jax.nn.log_softmax(values)[action]
        mean, log_std = jnp.split(values, 2)
        return jnp.sum(jax.scipy.stats.norm.logpdf(action, mean, jnp.exp(log_std)))

    keys = jax.random.split(jax.random.key(0), 20_000)
    actions = jax.vmap(lambda key: policy.sample(key, state))(keys)
    scores = np.asarray(jax.vmap(lambda a: jax.grad(log_prob)(outputs, a))(actions))
    products = scores[:, :, None] * scores[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(keys))
    difference = np.abs(products.mean(axis=0) - policy.output_fisher(outputs))
    assert np.all(difference <= 5 * error + 1e-12)


@pytest.mark.parametrize(("policy", "states"), DISCRETE)
def test_sampling_frequencies(policy: DiscretePolicy, states: Any) -> None:
    state = None if states is None else states[1]
    keys = jax.random.split(jax.random.key(1), 20_000)
    actions = np.asarray(jax.vmap(lambda key: policy.sample(key, state))(keys))
    probs = np.exp(policy.log_probs(state))
    share = np.bincount(actions, minlength=4) / len(keys)
    assert np.all(np.abs(share - probs) <= 5 * np.sqrt(probs * (1 - probs) / len(keys)))
    again = jax.vmap(lambda key: policy.sample(key, state))(keys)
    np.testing.assert_array_equal(actions, again)


@pytest.mark.parametrize("policy", [*(p for p, _ in [*DISCRETE, *CONTINUOUS]), RecordedPolicy("candidate")])
def test_saved_policies_come_back_bit_for_bit(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    assert type(loaded) is type(policy)
    for before, after in zip(jax.tree.leaves(policy), jax.tree.leaves(loaded), strict=True):
        assert np.asarray(before).dtype == np.asarray(after).dtype
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()


def test_saving_keeps_32_bit_and_extreme_values(tmp_path: Path) -> None:
    values = jnp.array([0.1, -0.0, 1e-45, 3.4e38, -jnp.inf], jnp.float32)
    save_policy(SoftmaxPolicy(values), tmp_path / "p.json")
    loaded = load_policy(tmp_path / "p.json")
    assert isinstance(loaded, SoftmaxPolicy)
    assert np.asarray(loaded.logits).tobytes() == np.asarray(values).tobytes()


def test_a_file_that_is_no_policy(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"policy": "Nonsense"}')
    with pytest.raises(PolicyError, match=r"cannot read a policy"):
        load_policy(tmp_path / "bad.json")


def test_parameters_stay_64_bit_whatever_the_mode() -> None:
    with jax.enable_x64(False):
        policy = SoftmaxPolicy([0.1, 0.2])
    assert np.asarray(policy.logits).dtype == np.float64


def test_a_recorded_policy_may_know_all_of_its_probabilities() -> None:
    log = EpisodeLog.from_arrays(
        [2, 0, 1], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5], recorded={"logged": [0.1, 0.2, 0.3]}
    )
    table = np.log([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])[:, None]
    log = dataclasses.replace(log, recorded={**log.recorded, "listed": table})
    logged, listed = RecordedPolicy("logged"), RecordedPolicy("listed")
    np.testing.assert_array_equal(logged.logged_log_probs(log), listed.logged_log_probs(log))
    assert logged.action_log_probs(log) is None
    np.testing.assert_array_equal(listed.action_log_probs(log), table)
    assert lists_actions(listed, log)
    assert not lists_actions(logged, log)
    # An action that was added to the log later is none of its own.
    wider = log.with_actions(4)
    assert lists_actions(listed, wider)
    np.testing.assert_array_equal(listed.logged_log_probs(wider), listed.logged_log_probs(log))
    np.testing.assert_array_equal(np.asarray(listed.action_log_probs(wider))[..., 3], -np.inf)
    assert wider.with_actions(4).digest() == wider.digest()


def test_which_policies_give_a_probability_to_each_action_of_the_log() -> None:
    log = EpisodeLog.from_arrays([0, 1], [1.0, 1.0], [0.5, 0.5])
    assert lists_actions(SoftmaxPolicy([0.0, 0.0]), log)
    assert not lists_actions(SoftmaxPolicy([0.0, 0.0, 0.0]), log)
    assert not lists_actions(BehaviorPolicy(), log)
    density = EpisodeLog.from_arrays([0.1, 0.2], [1.0, 1.0], [0.5, 0.5], propensity=Propensity.DENSITY)
    assert not lists_actions(GaussianPolicy([0.0], [0.0]), density)


def test_policies_that_need_states_say_so() -> None:
    log = EpisodeLog.from_arrays([0, 1], [1.0, 1.0], [0.5, 0.5])
    with pytest.raises(PolicyError, match=r"LinearPolicy needs states"):
        LinearPolicy(np.zeros((3, 2)), np.zeros(2)).logged_log_probs(log)
    with pytest.raises(PolicyError, match=r"knows 1 actions, the log has 2 actions"):
        SoftmaxPolicy([0.0]).logged_log_probs(log)
    with pytest.raises(PolicyError, match=r"acts continuously, the log has 2 discrete"):
        GaussianPolicy([0.0], [0.0]).logged_log_probs(log)
    with pytest.raises(PolicyError, match=r"no probabilities of policy 'other'"):
        RecordedPolicy("other").logged_log_probs(log)
    with pytest.raises(PolicyError, match=r"known only through the log"):
        RecordedPolicy("other").sample(jax.random.key(0))
    with pytest.raises(PolicyError, match=r"do not form a distribution"):
        SoftmaxPolicy.from_probs([0.5, 0.6])


def test_a_deterministic_policy_has_no_entropy() -> None:
    assert SoftmaxPolicy.from_probs([1.0, 0.0]).entropy() == 0.0


def test_a_state_outside_the_table_is_undefined() -> None:
    policy = TabularPolicy(np.zeros((2, 3)))
    assert np.isnan(policy.log_prob(np.array([0]), np.array([5]))).all()


def test_digests_tell_policies_apart() -> None:
    assert SoftmaxPolicy([0.0, 1.0]).digest() == SoftmaxPolicy([0.0, 1.0]).digest()
    assert SoftmaxPolicy([0.0, 1.0]).digest() != SoftmaxPolicy([0.0, 2.0]).digest()
