"""Tidegate's worlds as Gymnasium environments. Importing this module registers them.

`gymnasium.make("tidegate.simulators.gymnasium_envs:tidegate/RecoSys-v0")` does both at once.

An episode is one decision. Its number says how far the world has drifted: `reset(seed=…)` goes back to
`first_episode`, each plain `reset()` moves on by one, and `reset(options={"episode": n})` jumps.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Shaped

from ..arrays import ArrayLike, in_double
from ..errors import SettingsError
from ..inputs import flag, number, whole
from .diabetes.day import DayRecord
from .diabetes.environment import (
    CARB_RATIOS,
    CORRECTION_FACTORS,
    FIRST,
    SECOND,
    TREATMENTS,
    ContinuousDiabetes,
    DiscreteDiabetes,
    DriftingPatient,
)
from .gymnasium_spaces import gymnasium
from .recommender import Recommender

NOTHING = np.int64(0)
DAY_FACTS = ("glucose", "readings", "meals", "boluses")


class OneDecisionEnv(gymnasium.Env[np.int64, Any]):
    """A world that asks for one action per episode and shows nothing before it."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (an instance attribute in the base)

    def __init__(self, action_space: gymnasium.Space[Any], first_episode: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(1)
        self.action_space = action_space
        self.first_episode = _episode(first_episode, "first_episode")
        self.episode: int | None = None
        self._decided = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        if options and "episode" in options:
            self.episode = _episode(options["episode"], "options['episode']")
        elif seed is not None or self.episode is None:
            self.episode = self.first_episode
        else:
            self.episode += 1
        self._decided = False
        return NOTHING, {"episode": self.episode}

    def step(self, action: Any) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        if self._decided or self.episode is None:
            raise gymnasium.error.ResetNeeded("an episode is one decision: call reset() first")
        if not self.action_space.contains(action):
            raise SettingsError(
                f"the action is {action!r}.",
                where=f"episode {self.episode}",
                expected=f"a member of {self.action_space}",
            )
        self._decided = True
        reward, facts = self._outcome(action, self.episode)
        return NOTHING, reward, True, False, {"episode": self.episode, **facts}

    @abc.abstractmethod
    def _outcome(self, action: Any, episode: int) -> tuple[float, dict[str, Any]]:
        """The reward, and what else is worth knowing about it."""


class RecoSysEnv(OneDecisionEnv):
    """The paper's recommender: choose one of five items. `info` has the item's true mean reward."""

    def __init__(self, *, speed: int = 1, noise: float = 0.05, first_episode: int = 1) -> None:
        self.world = Recommender.at_speed(speed, noise=noise)
        super().__init__(gymnasium.spaces.Discrete(self.world.arms), first_episode)

    def _outcome(self, action: Any, episode: int) -> tuple[float, dict[str, Any]]:
        expected = float(_expected_rewards(self.world, np.array([float(episode)]))[0, action])
        noise = float(self.world.noise) * self.np_random.standard_normal()
        return expected + noise, {"expected_reward": expected}


class T1DEnv(OneDecisionEnv):
    """A drifting patient with type-1 diabetes: choose the day's treatment, earn the day's return.

    The action is one of the five published treatments, or with `continuous=True` a pair (CR in g/U, CF in
    mg/dL per U). `info` has the day sample by sample, the share of the first patient in who was treated,
    and whether glucose left the range in which the model holds.
    """

    def __init__(
        self,
        *,
        speed: float = 1.0,
        patients: tuple[str, str] = (FIRST, SECOND),
        continuous: bool = False,
        first_episode: int = 1,
    ) -> None:
        speed, continuous = number("speed", speed), flag("continuous", continuous)
        # A NumPy number is traced, a Python one would be compiled in: all speeds share one program.
        patient = DriftingPatient.between(*patients, speed=np.float64(speed))
        self.world = ContinuousDiabetes(patient) if continuous else DiscreteDiabetes(patient)
        super().__init__(_treatment_space(continuous), first_episode)

    def _outcome(self, action: Any, episode: int) -> tuple[float, dict[str, Any]]:
        seed = np.array(self.np_random.integers(2**32), np.uint32)
        day, share = _day(self.world, np.asarray(action)[None], np.array([float(episode)]), seed)
        facts = {name: np.array(getattr(day, name)[0]) for name in DAY_FACTS}
        return float(day.episode_return[0]), {
            **facts,
            "out_of_range": bool(day.out_of_range[0]),
            "first_patient_share": float(share[0]),
        }


@in_double
@eqx.filter_jit
def _day(
    world: DiscreteDiabetes | ContinuousDiabetes,
    actions: Shaped[ArrayLike, "1 ..."],
    episode_numbers: Float[ArrayLike, " 1"],
    seed: ArrayLike,
) -> tuple[DayRecord, Float[Array, " 1"]]:
    day = world.days(actions, episode_numbers, jax.random.key(seed))
    return day, world.patient.weight(episode_numbers)


def _treatment_space(continuous: bool) -> gymnasium.Space[Any]:
    if not continuous:
        return gymnasium.spaces.Discrete(len(TREATMENTS))
    limits = np.array([CARB_RATIOS[[0, -1]], CORRECTION_FACTORS[[0, -1]]], np.float32)
    return gymnasium.spaces.Box(limits[:, 0], limits[:, 1], dtype=np.float32)


_expected_rewards = in_double(eqx.filter_jit(Recommender.expected_rewards))


def _episode(episode: Any, name: str) -> int:
    return whole(name, episode, 1)


gymnasium.register("tidegate/RecoSys-v0", entry_point=f"{__name__}:RecoSysEnv")
gymnasium.register("tidegate/T1D-v0", entry_point=f"{__name__}:T1DEnv")
