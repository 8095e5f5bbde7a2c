"""Many gates at once: the comparison of the default preset on a batch of one-step logs, compiled once."""

import dataclasses
import functools
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arrays import LARGE, Flags, Floats, compiler_options, in_double
from ..basis import TimeAxis
from ..comparison import Terms
from ..episodes import EpisodeLog, HeldOutEpisodes
from ..forecast import ForecastSettings
from ..policies import BehaviorPolicy, RecordedPolicy
from ..presets import multiscale_forecast
from ..reasons import Reason
from ..safety import compare_policies

CANDIDATE = "candidate"
TOGETHER = 16  # logs that are compared at once


@dataclasses.dataclass(frozen=True, eq=False)
class OneStepLogs:
    """Logs (the first axis) of one-step episodes, with the probabilities of the logged actions."""

    rewards: Floats
    behavior: Floats
    candidate: Floats


@dataclasses.dataclass(frozen=True, eq=False)
class Verdicts:
    """What the gate says about each log, and the interval of the candidate's own forecast."""

    deploys: Flags
    p_values: Floats
    advantage: Floats
    lower: Floats
    candidate_lower: Floats
    candidate_upper: Floats


@in_double
def gate_many(logs: OneStepLogs, lookahead: int, settings: ForecastSettings | None = None) -> Verdicts:
    """The comparison of every log; the bootstrap's draws play no part in the default test."""
    chosen = multiscale_forecast(ForecastSettings(lookahead)) if settings is None else settings
    columns = tuple(jnp.asarray(one) for one in (logs.rewards, np.log(logs.behavior), np.log(logs.candidate)))
    reasons, *numbers = (np.asarray(one) for one in _program()(chosen, columns))
    return Verdicts(reasons == Reason.BETTER, *numbers)


def _compared(settings: ForecastSettings, columns: tuple[Array, ...]) -> tuple[Array, ...]:
    compared: tuple[Array, ...] = jax.lax.map(partial(_one, settings), columns, batch_size=TOGETHER)
    return compared


@functools.cache
def _program() -> Any:
    """Compiled quickly where the compiler can: a study compiles for each length of a log."""
    return eqx.filter_jit(_compared, compiler_options=compiler_options(LARGE))  # type: ignore[call-overload]


def _one(settings: ForecastSettings, columns: tuple[Float[Array, " n"], ...]) -> Any:
    rewards, behavior, candidate = (one[:, None] for one in columns)
    count = rewards.shape[0]
    log = EpisodeLog(
        jnp.arange(1.0, count + 1),
        jnp.zeros((count, 1), int),  # which action it was matters to no policy that is a column
        behavior,
        rewards,
        jnp.ones((count, 1), bool),
        recorded={CANDIDATE: candidate},
        num_actions=1,
    )
    axis = TimeAxis(0.0, float(count), settings.lookahead)
    terms = Terms(axis, settings.multipliers(jax.random.key(0), settings.draws), settings.alpha)
    found = compare_policies(
        settings, RecordedPolicy(CANDIDATE), BehaviorPolicy(), HeldOutEpisodes(log), terms
    )
    interval = found.candidate_interval
    p_value = jnp.zeros(()) if found.p_value is None else found.p_value
    return found.reason, p_value, found.point, found.lower, interval.lower, interval.upper
