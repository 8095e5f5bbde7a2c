"""Our worlds in Gymnasium, and Gymnasium's environments as our worlds, against exact values."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from tidegate import (
    ConstantBasis,
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    GaussianPolicy,
    LinearPolicy,
    LogError,
    MLPPolicy,
    PolicyError,
    Reason,
    SearchSettings,
    SettingsError,
    SoftmaxPolicy,
    SpinSettings,
    TabularPolicy,
    TwoBounds,
    Verdict,
    pdis_returns,
)
from tidegate.arrays import map_leaves
from tidegate.policies import LinearGaussianPolicy, ParametricPolicy
from tidegate.returns import episode_ratios, is_returns, observed_returns
from tidegate.simulators.diabetes.day import day_return
from tidegate.simulators.gymnasium_envs import RecoSysEnv, T1DEnv
from tidegate.simulators.gymnasium_world import GymnasiumWorld
from tidegate.simulators.live import LiveWindow, run_live
from tidegate.simulators.recommender import Recommender

KEY = jax.random.key(7)
# A path along the water, and one above it: the rougher the ice, the better the short one.
LAKE = ["FFFF", "SFFG", "HHHH"]
START, MAX_STEPS, DISCOUNT = 4, 15, 0.95
SAFE_MOVES = [2, 2, 2, 1, 3, 2, 2, 0, 0, 0, 0, 0]


def _lake(success_rate: float = 0.95) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(
        "FrozenLake-v1",
        desc=LAKE,
        success_rate=success_rate,
        reward_schedule=(1, -1, 0),
        max_episode_steps=MAX_STEPS,
    )


def _roughness(episode: float) -> float:
    return 0.95 - 0.5 * min(episode / 1200, 1.0)


def _melt(env: Any, episode: int) -> None:
    env.unwrapped.P = _lake(_roughness(episode)).unwrapped.P  # type: ignore[attr-defined]


def _mostly(moves: list[int], share: float = 0.6) -> TabularPolicy:
    probs = np.full((len(moves), 4), (1 - share) / 3)
    probs[np.arange(len(moves)), moves] = share
    return TabularPolicy(np.log(probs))


def _exact_value(
    policy: TabularPolicy, success_rate: float, max_steps: int = MAX_STEPS, discount: float = 1.0
) -> float:
    """Dynamic programming, backwards from the time limit, on Gymnasium's own transition table."""
    table = _lake(success_rate).unwrapped.P  # type: ignore[attr-defined]
    probs = np.exp(np.asarray(policy.log_probs(np.arange(12))))
    values = np.zeros(12)
    for _ in range(max_steps):
        values = np.array(
            [
                sum(
                    probs[s, a] * p * (reward + discount * (0.0 if over else values[after]))
                    for a in range(4)
                    for p, after, reward, over in table[s][a]
                )
                for s in range(12)
            ]
        )
    return float(values[START])


def _world(safe_policy: ParametricPolicy | None = None, **changes: Any) -> GymnasiumWorld:
    return GymnasiumWorld(_lake, safe_policy or _mostly(SAFE_MOVES), **changes)


def _same(first: EpisodeLog, second: EpisodeLog) -> bool:
    return first.digest() == second.digest()


def _states(log: EpisodeLog) -> Any:
    return np.asarray(log.states)


class Thermostat(gymnasium.Env[Any, Any]):
    """Two steps; the reward falls with the distance of the heat from a target that moves."""

    def __init__(self, reward: float | None = None) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2, 1))
        self.action_space = spaces.Box(0.0, 0.5, (1, 2))
        self.target, self.reward, self.seen = 0.0, reward, []  # type: ignore[var-annotated]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.target = 2, (options or {}).get("target", 0.0)
        return self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.seen.append(action)
        self.left -= 1
        reward = -abs(float(action.sum()) - self.target) if self.reward is None else self.reward
        return np.zeros((2, 1), np.float32), reward, self.left == 0, False, {}


class Strange(gymnasium.Env[Any, Any]):
    """An environment with any spaces."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}


# Our worlds in Gymnasium.


@pytest.mark.parametrize("name", ["tidegate/RecoSys-v0", "tidegate/T1D-v0"])
def test_our_worlds_pass_the_environment_checker(name: str) -> None:
    check_env(gymnasium.make(name).unwrapped)


@pytest.mark.parametrize(
    "code",
    [
        "import tidegate.simulators.gymnasium_envs, gymnasium",
        "import gymnasium, tidegate.simulators.gymnasium_envs",
        "import gymnasium; gymnasium.make('tidegate.simulators.gymnasium_envs:tidegate/RecoSys-v0')",
    ],
    ids=["ours first", "gymnasium first", "module in the name"],
)
def test_importing_the_module_registers_its_worlds(code: str) -> None:
    made = "print(*(gymnasium.make(f'tidegate/{name}-v0').spec.name for name in ('RecoSys', 'T1D')))"
    program = [sys.executable, "-W", "error", "-c", f"{code}; {made}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["RecoSys", "T1D"], done.stderr


def test_importing_the_package_leaves_gymnasium_and_the_import_system_alone() -> None:
    code = "import sys; before = list(sys.meta_path); import tidegate; "
    code += "print(sys.meta_path == before, 'gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_the_episode_number_moves_with_each_reset() -> None:
    env = gymnasium.make("tidegate/RecoSys-v0", speed=2, first_episode=30)
    numbers = [env.reset()[1], env.reset()[1], env.reset(options={"episode": 400})[1]]
    numbers += [env.reset()[1], env.reset(seed=3)[1]]
    assert [info["episode"] for info in numbers] == [30, 31, 400, 401, 30]


def test_recommender_rewards_follow_the_world() -> None:
    env, world = RecoSysEnv(speed=3, noise=0.2), Recommender.at_speed(3)
    env.reset(seed=0)
    noise = []
    for episode in range(400, 700):
        env.reset(options={"episode": episode})
        _, reward, over, _, info = env.step(episode % 5)
        truth = float(world.expected_rewards(np.array([float(episode)]))[0, episode % 5])
        assert over
        assert info["expected_reward"] == pytest.approx(truth, abs=1e-12)
        noise.append(reward - truth)
    assert abs(np.mean(noise)) < 4 * 0.2 / np.sqrt(300)
    assert np.std(noise) == pytest.approx(0.2, rel=0.2)


def test_a_day_of_the_drifting_patient() -> None:
    """Far along the drift the strongest treatment is the best one; at its start it is the worst."""
    env = gymnasium.make("tidegate/T1D-v0", speed=1)
    env.reset(seed=0)
    returns = {}
    for episode, share in ((1, 1.0), (1048, 0.0)):
        for action in (0, 4):
            earned = []
            for _ in range(12):
                env.reset(options={"episode": episode})
                _, reward, over, _, info = env.step(action)
                earned.append(float(reward))
                assert over
                assert info["first_patient_share"] == pytest.approx(share, abs=1e-4)
                assert reward == pytest.approx(float(day_return(info["readings"])))
            returns[episode, action] = np.mean(earned)
    assert returns[1, 0] > returns[1, 4] + 10
    assert returns[1048, 4] > returns[1048, 0] + 10


def test_treatments_by_value_are_those_by_number() -> None:
    discrete, continuous = T1DEnv(speed=3), T1DEnv(speed=3, continuous=True)
    days = []
    for env, action in ((discrete, 1), (continuous, np.array([19, 26], np.float32))):
        env.reset(seed=5, options={"episode": 200})
        days.append(env.step(action))
    assert days[0][1] == pytest.approx(days[1][1], rel=1e-6)
    np.testing.assert_allclose(days[0][4]["glucose"], days[1][4]["glucose"], rtol=1e-6)
    continuous.reset()
    with pytest.raises(SettingsError, match=r"a member of Box"):
        continuous.step(np.array([-1, 26], np.float32))
    with pytest.raises(SettingsError, match=r"no patient 'adult#011'"):
        T1DEnv(patients=("adult#011", "adult#001"))
    with pytest.raises(SettingsError, match=r"speed is nan"):
        T1DEnv(speed=float("nan"))


def test_misuse_of_our_worlds() -> None:
    env = RecoSysEnv()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    with pytest.raises(SettingsError, match=r"episode 1: the action is 5.*Discrete\(5\)"):
        env.step(5)
    env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    with pytest.raises(SettingsError, match=r"first_episode is 0.*from 1 up"):
        RecoSysEnv(first_episode=0)
    with pytest.raises(SettingsError, match=r"options\['episode'\] is 2.5"):
        env.reset(options={"episode": 2.5})
    with pytest.raises(SettingsError, match=r"speed is 9"):
        RecoSysEnv(speed=9)


def test_our_world_comes_back_through_the_adapter() -> None:
    policy = SoftmaxPolicy([1.0, 0.0, 0.5, 0.2, -1.0])
    world = GymnasiumWorld(
        lambda: gymnasium.make("tidegate/RecoSys-v0", speed=2, noise=0.0),
        policy,
        drift=lambda env, episode: {"episode": episode},
        max_steps=1,
    )
    numbers = np.arange(300.0, 400.0)
    log = world.collect(policy, numbers, KEY)
    actions = np.asarray(log.actions)[:, 0]
    expected = np.asarray(Recommender.at_speed(2).expected_rewards(numbers))
    np.testing.assert_allclose(log.rewards[:, 0], expected[np.arange(100), actions], atol=1e-12)
    assert len(set(actions.tolist())) >= 4


# Gymnasium's environments as our worlds.


@pytest.fixture(scope="module")
def lake_log() -> EpisodeLog:
    with jax.enable_x64(True):
        return _world().collect(_mostly(SAFE_MOVES), np.ones(4000), KEY)


def test_the_log_has_episodes_of_different_length(lake_log: EpisodeLog) -> None:
    mask = np.asarray(lake_log.mask)
    lengths = mask.sum(axis=1)
    assert (lengths.min(), lengths.max()) == (1, MAX_STEPS)
    np.testing.assert_array_equal(mask, np.arange(MAX_STEPS) < lengths[:, None])
    rewards = np.asarray(lake_log.rewards)
    assert np.all(rewards[:, :-1][mask[:, 1:]] == 0)  # only the last step of an episode pays
    last = rewards[np.arange(4000), lengths - 1]
    assert set(last[lengths < MAX_STEPS].tolist()) == {-1.0, 1.0}
    states = np.asarray(lake_log.states)
    assert np.all(states[:, 0] == START)
    columns = np.abs(states[:, 1:] % 4 - states[:, :-1] % 4)[mask[:, 1:]]
    rows = np.abs(states[:, 1:] // 4 - states[:, :-1] // 4)[mask[:, 1:]]
    assert np.all(columns + rows <= 1)  # the states are those in which the actions were chosen


def test_recorded_probabilities_are_those_of_the_policy_that_acted(lake_log: EpisodeLog) -> None:
    np.testing.assert_allclose(episode_ratios(_mostly(SAFE_MOVES), lake_log), 1.0, rtol=1e-12)


@pytest.mark.parametrize("discount", [1.0, DISCOUNT])
@pytest.mark.parametrize("estimator", [pdis_returns, is_returns])
def test_importance_sampling_is_unbiased_for_another_policys_exact_value(
    lake_log: EpisodeLog, estimator: Callable[..., Any], discount: float
) -> None:
    other = _mostly([2, 2, 2, 1, 3, 3, 2, 0, 0, 0, 0, 0], 0.7)
    truth = _exact_value(other, 0.95, discount=discount)
    returns = np.asarray(estimator(other, lake_log, discount))
    error = returns.std() / np.sqrt(returns.size)
    assert abs(returns.mean() - truth) < 4 * error
    assert error < 0.03
    behavior_value = float(np.mean(np.asarray(observed_returns(lake_log, discount))))
    assert truth - behavior_value > 4 * error  # the estimate is not just the behaviour's own value


def test_on_policy_returns_have_the_exact_mean_and_the_dynamics_drift() -> None:
    world = _world(drift=_melt)
    for episode in (1, 1200):
        log = world.collect(_mostly(SAFE_MOVES), np.full(1000, float(episode)), KEY)
        returns = np.asarray(observed_returns(log, DISCOUNT))
        truth = _exact_value(_mostly(SAFE_MOVES), _roughness(episode), discount=DISCOUNT)
        assert abs(returns.mean() - truth) < 4 * returns.std() / np.sqrt(1000)


def test_a_log_depends_on_the_key_and_not_on_the_number_of_copies() -> None:
    numbers, policy = np.arange(1.0, 41.0), _mostly(SAFE_MOVES)
    log = _world(num_envs=3, drift=_melt).collect(policy, numbers, KEY)
    world = _world(num_envs=50, drift=_melt)
    assert _same(log, world.collect(policy, numbers, KEY))
    assert _same(log, world.collect(policy, numbers, KEY))
    assert not _same(log, world.collect(policy, numbers, jax.random.key(8)))


def test_windows_of_any_size_share_one_program() -> None:
    traces = 0

    class Counting(TabularPolicy):
        def sample(self, key: Any, states: Any = None) -> Any:
            nonlocal traces
            traces += 1
            return super().sample(key, states)

    policy = Counting(np.zeros((12, 4)))
    world = _world(policy)
    for count in (1, 5, 70):
        world.collect(policy, np.arange(1.0, count + 1), KEY)
    assert traces == 1


def test_policies_over_features_see_one_hot_states() -> None:
    rng = np.random.default_rng(0)
    table, numbers = rng.normal(size=(12, 4)), np.arange(1.0, 31.0)
    by_index = _world(TabularPolicy(table)).collect(TabularPolicy(table), numbers, KEY)
    linear = LinearPolicy(table, np.zeros(4))
    one_hot = _world(linear).collect(linear, numbers, KEY)
    np.testing.assert_array_equal(by_index.actions, one_hot.actions)
    np.testing.assert_array_equal(np.eye(12)[_states(by_index)[:, 0]], _states(one_hot)[:, 0])
    rows = LinearPolicy(rng.normal(size=(1, 4)), np.zeros(4))
    seen = _world(rows, features=lambda state: [state // 4]).collect(rows, numbers, KEY)
    assert set(np.unique(_states(seen)[seen.mask]).tolist()) <= {0.0, 1.0}


def test_a_network_balances_a_pole_on_flattened_observations() -> None:
    policy = MLPPolicy.init((4, 8, 2))
    world = GymnasiumWorld(lambda: gymnasium.make("CartPole-v1"), policy, max_steps=60)
    log = world.collect(policy, np.arange(1.0, 51.0), KEY)
    assert (_states(log).shape, log.num_actions) == ((50, 60, 4), 2)
    lengths = np.asarray(log.mask).sum(axis=1)
    assert 10 < np.median(lengths) < 40  # what uniformly random pushes achieve


def test_continuous_actions_are_clipped_for_the_environment_but_logged_as_drawn() -> None:
    made: list[Thermostat] = []

    def make() -> Thermostat:
        made.append(Thermostat())
        return made[-1]

    policy = LinearGaussianPolicy(np.full((2, 2), 0.1), [0.2, 0.3], np.log([0.3, 0.2]))
    world = GymnasiumWorld(make, policy, max_steps=5, num_envs=4, drift=lambda env, i: {"target": i / 10})
    log = world.collect(policy, np.arange(1.0, 201.0), KEY)
    drawn = np.asarray(log.actions)
    assert (drawn.shape, log.num_actions) == ((200, 5, 2), None)
    np.testing.assert_array_equal(np.asarray(log.mask).sum(axis=1), 2)
    assert drawn.min() < 0
    assert drawn.max() > 0.5
    seen = np.array([action for env in made for action in env.seen])
    assert seen.shape == (400, 1, 2)
    assert seen.dtype == np.float32
    assert (seen.min(), seen.max()) == (0.0, 0.5)
    clipped = np.clip(drawn[:, :2], 0, 0.5).astype(np.float32).sum(axis=-1)
    targets = np.arange(1, 201)[:, None] / 10
    np.testing.assert_allclose(log.rewards[:, :2], -np.abs(clipped - targets), atol=1e-5)
    np.testing.assert_allclose(episode_ratios(policy, log), 1.0, rtol=1e-12)


def _spin(basis: Any, lookahead: int, discount: float = DISCOUNT, **search: Any) -> SpinSettings:
    return SpinSettings(
        ForecastSettings(lookahead, TwoBounds(basis), discount=discount, draws=200),
        SearchSettings(draws=100, **search),
        warm_start=False,
    )


def test_spin_on_a_melting_lake() -> None:
    """Candidates are deployed over many-step episodes, and each is worth more than the safe policy."""
    seen: list[LiveWindow] = []
    settings = _spin(CosineBasis(1), 100, steps=40, learning_rate=0.03, entropy_weight=0.3)
    history = run_live(
        _world(drift=_melt), settings,
        num_windows=6, window=100, warmup=400, seed=0, capacity=512, on_window=seen.append,
    )  # fmt: skip
    assert seen == history
    numbers = np.concatenate([window.episode_numbers for window in history])
    np.testing.assert_array_equal(numbers, np.arange(401.0, 1001.0))
    for before, after in itertools.pairwise(history):
        decision = before.decision
        better = decision.candidate.lower > decision.safe.upper
        assert np.isfinite([decision.candidate.lower, decision.safe.upper]).all()
        assert after.deployed == (decision.verdict is Verdict.DEPLOY)
        assert not after.deployed or (better and decision.reason is Reason.BETTER)
    ran = [window for window in history if window.deployed]
    assert ran
    for window in ran:
        roughness = _roughness(float(np.median(window.episode_numbers)))
        candidate, safe = (
            _exact_value(policy, roughness, discount=DISCOUNT)  # type: ignore[arg-type]
            for policy in (window.policy, _mostly(SAFE_MOVES))
        )
        assert candidate > safe
        error = window.returns.std() / np.sqrt(window.returns.size)
        assert abs(window.returns.mean() - candidate) < 4 * error


def test_spin_on_continuous_actions() -> None:
    safe = GaussianPolicy([0.25, 0.25], np.log([0.15, 0.15]))
    world = GymnasiumWorld(Thermostat, safe, max_steps=2, drift=lambda env, i: {"target": 0.6 + i / 2000})
    settings = _spin(ConstantBasis(), 50, steps=30, learning_rate=0.01, entropy_weight=0.01)
    history = run_live(world, settings, num_windows=4, window=50, warmup=200, seed=1)
    ran = [window for window in history if window.deployed]
    assert ran
    for window in ran:
        assert isinstance(window.policy, GaussianPolicy)
        assert np.sum(window.policy.mean) > 0.5  # towards the target
    with pytest.raises(SettingsError, match=r"warmup is 0"):
        run_live(world, settings, num_windows=1, window=50, warmup=0)


# Bad input.

FLAT = spaces.Box(-1.0, 1.0, (3,))
TWO = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("observations", "actions", "policy", "message"),
    [
        (spaces.Dict(a=FLAT), TWO, SoftmaxPolicy([0, 0]), r"observations are Dict.*FlattenObs"),
        (spaces.MultiDiscrete([2, 2]), TWO, SoftmaxPolicy([0, 0]), r"observations are MultiDis"),
        (FLAT, spaces.Tuple([TWO, TWO]), SoftmaxPolicy([0, 0]), r"actions are Tuple.*Discrete"),
        (FLAT, spaces.MultiDiscrete([2, 3]), SoftmaxPolicy([0, 0]), r"actions are MultiDiscrete"),
        (FLAT, spaces.Box(0, 5, (2,), np.int32), GaussianPolicy([0, 0], [0, 0]), r"Box of floats"),
    ],
)
def test_unsupported_spaces(observations: Any, actions: Any, policy: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        GymnasiumWorld(lambda: Strange(observations, actions), policy, max_steps=1)


@pytest.mark.parametrize(
    ("actions", "policy", "message"),
    [
        (TWO, GaussianPolicy([0.0], [0.0]), r"GaussianPolicy cannot act in Discrete\(2\)"),
        (FLAT, SoftmaxPolicy([0, 0]), r"SoftmaxPolicy cannot act in Box.*Gaussian policy for Box"),
        (TWO, SoftmaxPolicy([0, 0, 0]), r"has 3 outputs.*Expected 2: one logit per action"),
        (FLAT, GaussianPolicy([0.0], [0.0]), r"has 2 outputs.*Expected 6"),
        (TWO, LinearPolicy(np.zeros((4, 2)), [0, 0]), r"cannot read an observation of shape \(3,"),
    ],
)
def test_policies_that_do_not_fit(actions: Any, policy: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        GymnasiumWorld(lambda: Strange(FLAT, actions), policy, max_steps=1)


def test_policies_that_do_not_fit_later() -> None:
    with pytest.raises(PolicyError, match=r"table has 5 rows.*has 12 states"):
        _world(TabularPolicy(np.zeros((5, 4))))
    with pytest.raises(PolicyError, match=r"has 3 outputs"):
        _world().collect(TabularPolicy(np.zeros((12, 3))), np.ones(1), KEY)
    undefined = map_leaves(lambda leaf: np.full_like(leaf, np.nan), TabularPolicy(np.zeros((12, 4))))
    with pytest.raises(PolicyError, match=r"episode 6, step 0.*own action is nan in state 4"):
        _world().collect(undefined, np.full(1, 6.0), KEY)


def test_environments_that_do_not_serve() -> None:
    safe = GaussianPolicy([0.0, 0.0], [0.0, 0.0])
    with pytest.raises(SettingsError, match=r"need not end.*Pass max_steps"):
        GymnasiumWorld(Thermostat, safe)
    with pytest.raises(SettingsError, match=r"max_steps is 0"):
        GymnasiumWorld(Thermostat, safe, max_steps=0)
    with pytest.raises(SettingsError, match=r"num_envs is 0"):
        GymnasiumWorld(Thermostat, safe, max_steps=2, num_envs=0)
    with pytest.raises(SettingsError, match=r"a function that makes an environment"):
        GymnasiumWorld(Thermostat(), safe, max_steps=2)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"returned builtins.dict.*gymnasium.Env"):
        GymnasiumWorld(dict, safe, max_steps=2)
    only = Thermostat()
    with pytest.raises(SettingsError, match=r"same environment twice"):
        GymnasiumWorld(lambda: only, safe, max_steps=2)
    broken = GymnasiumWorld(lambda: Thermostat(np.nan), safe, max_steps=2)
    with pytest.raises(LogError, match=r"episode 3, step 0: .*reward nan.*finite"):
        broken.collect(safe, np.array([3.0, 4.0]), KEY)
    with pytest.raises(SettingsError, match=r"at least one whole number"):
        broken.collect(safe, np.array([1.5]), KEY)
    broken.close()


def test_without_gymnasium_the_rest_works_and_the_message_says_what_to_install() -> None:
    code = """
import importlib, sys
sys.modules["gymnasium"] = None
import tidegate.simulators.recommender, tidegate.simulators.live
for name in ("gymnasium_envs", "gymnasium_world", "gymnasium_spaces"):
    try:
        importlib.import_module(f"tidegate.simulators.{name}")
    except tidegate.SettingsError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.count("pip install 'tidegate[gymnasium]'") == 3, done.stderr
