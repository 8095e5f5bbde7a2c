"""What an environment's spaces mean to a policy: how it acts, what it sees, when it must stop."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Values
from ..errors import PolicyError, SettingsError
from ..inputs import whole
from ..policies import GaussianPolicy, ParametricPolicy, SoftmaxPolicy, TabularPolicy

try:
    import gymnasium as gymnasium
    from gymnasium import Env, spaces
except ImportError as error:
    raise SettingsError(
        "this part of Tidegate needs Gymnasium.",
        remedy="Install it: pip install 'tidegate[gymnasium]'.",
    ) from error


# These take a state's index, or no state at all; every other policy takes features.
INDEXED = (TabularPolicy, SoftmaxPolicy, GaussianPolicy)


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """Policies count actions from 0, the space from its `start`."""

    space: "spaces.Discrete[Any]"  # generic only in the newest Gymnasium

    @property
    def count(self) -> int | None:
        return int(self.space.n)

    @property
    def num_outputs(self) -> int:
        return int(self.space.n)

    @property
    def blank(self) -> Values:
        return np.zeros((), np.int64)

    def to_env(self, action: Values) -> Any:
        return int(action) + int(self.space.start)


@dataclasses.dataclass(frozen=True)
class BoxActions:
    """Policies draw vectors without bounds; the environment sees them shaped and clipped."""

    space: "spaces.Box[Any]"

    @property
    def count(self) -> int | None:
        return None

    @property
    def num_outputs(self) -> int:
        return 2 * self.blank.size

    @property
    def blank(self) -> Values:
        return np.zeros(math.prod(self.space.shape))

    def to_env(self, action: Values) -> Any:
        shaped = action.reshape(self.space.shape)
        return np.clip(shaped, self.space.low, self.space.high).astype(self.space.dtype)


ActionCodec: TypeAlias = DiscreteActions | BoxActions


def check_environments(envs: Sequence[Any]) -> None:
    """Each must be a Gymnasium environment of its own."""
    for env in envs:
        if not isinstance(env, Env):
            raise SettingsError(
                f"make_env returned {type(env).__module__}.{type(env).__name__}.",
                expected="a gymnasium.Env",
                remedy="An environment for the older package gym must be ported to Gymnasium.",
            )
    if len({id(env) for env in envs}) < len(envs):
        raise SettingsError(
            "make_env returned the same environment twice.",
            expected="a new one at each call, since episodes run side by side",
            remedy="Make it inside the function, or pass num_envs=1.",
        )


def step_limit(env: Env[Any, Any], given: int | None) -> int:
    """The longest that an episode can be: the smaller of the caller's limit and the registered one."""
    registered = None if env.spec is None else env.spec.max_episode_steps
    limits = [limit for limit in (given, registered) if limit is not None]
    if not limits:
        raise SettingsError(
            "episodes of this environment need not end.",
            remedy="Pass max_steps=…, or register the environment with max_episode_steps.",
        )
    return min(whole("max_steps", limit, 1) for limit in limits)


def action_codec(space: Any) -> ActionCodec:
    """How a policy's action becomes one of the environment's."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxActions(space)
    raise SettingsError(
        f"the environment's actions are {space}.",
        expected="a Discrete space or a Box of floats",
        remedy="Wrap it in a gymnasium.ActionWrapper whose action_space is Discrete: one number "
        "for each combination.",
    )


def feature_map(space: Any, policy: ParametricPolicy) -> Callable[[Any], Values]:
    """How an observation becomes what this policy takes as its state."""
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, np.float64).reshape(-1)
    if not isinstance(space, spaces.Discrete):
        raise SettingsError(
            f"the environment's observations are {space}.",
            expected="a Box or a Discrete space",
            remedy="Wrap it in gymnasium.wrappers.FlattenObservation, or pass features=….",
        )
    start, count = int(space.start), int(space.n)
    if not isinstance(policy, INDEXED):
        one_hot = np.eye(count)
        return lambda observation: one_hot[int(observation) - start]
    if isinstance(policy, TabularPolicy) and len(policy.table) < count:
        raise PolicyError(
            f"the policy's table has {len(policy.table)} rows, the environment has {count} states.",
            expected="one row of logits for each state",
        )
    return lambda observation: np.asarray(int(observation) - start, np.int64)
