"""Any Gymnasium environment with Discrete or Box actions as a world that SPIN can act in.

Episodes run side by side in a fixed number of copies of the environment, so that the policy is asked
once per step for all of them, in one compiled call of one shape. What an episode draws depends only
on the key and on its row, not on how many copies there are.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..arrays import ArrayLike, Values, in_double
from ..episodes import EpisodeLog
from ..errors import LogError, PolicyError, SettingsError
from ..inputs import whole
from ..policies import ContinuousPolicy, DiscretePolicy, ParametricPolicy
from .gymnasium_spaces import ActionCodec, action_codec, check_environments, feature_map, step_limit

Drift: TypeAlias = Callable[[Any, int], Mapping[str, Any] | None]


class GymnasiumWorld:
    """Runs policies in copies of an environment and logs their actions with the probabilities.

    `drift(env, episode_number)` is called before each episode: it may change the environment, and what
    it returns goes to `reset` as options. An episode ends when the environment says so, or after
    `max_steps`, which may be left out if the environment was registered with a limit.

    A Box observation is flattened; a Discrete one is an index for a `TabularPolicy` and a one-hot vector
    for policies over features; `features` replaces both. Box actions reach the environment clipped to
    its bounds; the log keeps them as drawn, since that is what the recorded density belongs to.
    """

    def __init__(
        self,
        make_env: Callable[[], Any],
        safe_policy: ParametricPolicy,
        *,
        drift: Drift | None = None,
        max_steps: int | None = None,
        features: Callable[[Any], Any] | None = None,
        num_envs: int = 32,
    ) -> None:
        num_envs = whole("num_envs", num_envs, 1)
        if not callable(make_env):
            raise SettingsError(
                f"make_env is {make_env!r}.",
                expected="a function that makes an environment",
                remedy="Pass for example lambda: gymnasium.make('FrozenLake-v1').",
            )
        self._envs = [make_env() for _ in range(num_envs)]
        check_environments(self._envs)
        first = self._envs[0]
        self.safe_policy = safe_policy
        self.max_steps = step_limit(first, max_steps)
        self._observe = features or feature_map(first.observation_space, safe_policy)
        self._actions = action_codec(first.action_space)
        self._drift = drift or _standing
        self._state = self._features(first.reset(seed=0)[0])
        self._check_policy(safe_policy)

    @in_double
    def collect(
        self, policy: ParametricPolicy, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog:
        """Run the policy for these episodes."""
        numbers = np.asarray(episode_numbers, np.float64)
        if numbers.size == 0 or not np.array_equal(numbers, np.round(numbers)):
            raise SettingsError(f"episode_numbers are {numbers}", expected="at least one whole number")
        self._check_policy(policy)
        seed_key, action_key = jax.random.split(key)
        log = _blank(numbers, self.max_steps, self._state, self._actions.blank)
        seeds = np.asarray(jax.random.bits(seed_key, (numbers.size,), np.uint32))
        running = _Running(self._envs, self._drift, self._features, log, seeds)
        while running.any:
            actions, log_probs = _act(policy, action_key, running.rows, running.steps, running.states)
            running.advance(np.asarray(actions), np.asarray(log_probs), self._actions)
        return EpisodeLog(**log, num_actions=self._actions.count)

    def close(self) -> None:
        """Close all copies of the environment."""
        for env in self._envs:
            env.close()

    def _features(self, observation: Any) -> Values:
        """A single whole number is an index; everything else holds features."""
        array = np.asarray(self._observe(observation))
        index = array.ndim == 0 and np.issubdtype(array.dtype, np.integer)
        return array.astype(np.int64 if index else np.float64)

    def _check_policy(self, policy: ParametricPolicy) -> None:
        space, name = self._actions.space, type(policy).__name__
        kind = ContinuousPolicy if self._actions.count is None else DiscretePolicy
        if not isinstance(policy, kind):
            raise PolicyError(
                f"{name} cannot act in {space}.",
                expected="a Gaussian policy for Box actions, a softmax one for Discrete actions",
            )
        try:
            found = jax.eval_shape(policy.outputs, self._state).shape[-1]
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"{name} cannot read an observation of shape {self._state.shape}: {error}.",
                remedy="Give the policy as many features as the observation has, or pass features=….",
            ) from error
        expected = self._actions.num_outputs
        if found != expected:
            raise PolicyError(
                f"{name} has {found} outputs, the environment acts in {space}.",
                expected=f"{expected}: one logit per action, or a mean and a log-sd per coordinate",
            )


def _blank(numbers: Values, max_steps: int, state: Values, action: Values) -> dict[str, Any]:
    """The arrays of a log, by the names of its fields, before anything is written."""
    shape = (numbers.size, max_steps)
    return {
        "episode_numbers": numbers,
        "states": np.zeros((*shape, *state.shape), state.dtype),
        "actions": np.zeros((*shape, *action.shape), action.dtype),
        "behavior_log_probs": np.zeros(shape),
        "rewards": np.zeros(shape),
        "mask": np.zeros(shape, bool),
    }


class _Running:
    """Which episode each copy of the environment is in, at which step, in which state."""

    def __init__(
        self,
        envs: list[Any],
        drift: Drift,
        features: Callable[[Any], Values],
        log: dict[str, Any],
        seeds: Values,
    ) -> None:
        self.envs, self.drift, self.features = envs, drift, features
        self.log, self.seeds = log, seeds
        self.rows = np.full(len(envs), -1)
        self.steps = np.zeros(len(envs), np.int64)
        states = log["states"]
        self.states = np.zeros((len(envs), *states.shape[2:]), states.dtype)
        self._waiting: Iterator[int] = iter(range(len(states)))
        for slot in range(len(envs)):
            self._begin(slot)

    @property
    def any(self) -> bool:
        return bool(np.any(self.rows >= 0))

    def advance(self, actions: Values, log_probs: Values, codec: ActionCodec) -> None:
        """One step of every running episode; where one ends, the next in line begins."""
        for slot in np.flatnonzero(self.rows >= 0).tolist():
            row, step = self.rows[slot], self.steps[slot]
            where = f"episode {self.log['episode_numbers'][row]:g}, step {step}"
            _check_drawn(log_probs[slot], self.states[slot], where)
            observation, reward, terminated, truncated, _ = self.envs[slot].step(codec.to_env(actions[slot]))
            for name, value in {
                "states": self.states[slot],
                "actions": actions[slot],
                "behavior_log_probs": log_probs[slot],
                "rewards": _finite_reward(reward, where),
                "mask": True,
            }.items():
                self.log[name][row, step] = value
            self.steps[slot] = step + 1
            if terminated or truncated or step + 1 == self.log["mask"].shape[1]:
                self._begin(slot)
            else:
                self.states[slot] = self.features(observation)

    def _begin(self, slot: int) -> None:
        row = next(self._waiting, -1)
        self.rows[slot], self.steps[slot] = row, 0
        if row >= 0:
            env = self.envs[slot]
            options = self.drift(env, int(self.log["episode_numbers"][row]))
            observation, _ = env.reset(seed=int(self.seeds[row]), options=_as_dict(options))
            self.states[slot] = self.features(observation)


@eqx.filter_jit
def _act(
    policy: ParametricPolicy,
    key: PRNGKeyArray,
    rows: Int[ArrayLike, " e"],
    steps: Int[ArrayLike, " e"],
    states: Shaped[ArrayLike, "e ..."],
) -> tuple[Shaped[Array, "e ..."], Float[Array, " e"]]:
    def one(row: ArrayLike, step: ArrayLike, state: ArrayLike) -> tuple[Array, Array]:
        action = policy.sample(jax.random.fold_in(jax.random.fold_in(key, row), step), state)
        return action, policy.log_prob(action, state)

    drawn: tuple[Array, Array] = jax.vmap(one)(rows, steps, states)
    return drawn


def _standing(env: Any, episode_number: int) -> None:
    """No drift."""


def _as_dict(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if options is None else dict(options)


def _check_drawn(log_prob: float, state: Values, where: str) -> None:
    if not np.isfinite(log_prob):
        raise PolicyError(
            f"the policy's log-probability of its own action is {log_prob} in state {state}.",
            where=where,
            expected="a finite number",
            remedy="Check the policy's parameters, that its table covers every state, and that the "
            "environment's observations are finite.",
        )


def _finite_reward(reward: Any, where: str) -> float:
    value = float(reward)
    if not np.isfinite(value):
        raise LogError(
            f"the environment returned the reward {value}.",
            where=where,
            expected="a finite number",
            remedy="Fix the environment, or bound its rewards in a wrapper.",
        )
    return value
