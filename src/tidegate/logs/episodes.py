"""An `EpisodeLog` that was built in Python, with a table of its steps, as if it had been read from one."""

from typing import Any

import numpy as np
import polars as pl

from ..arrays import Values, in_double
from ..door import Propensity
from ..episodes import EpisodeLog, in_time_order
from ..errors import LogError
from ..policies import RecordedPolicy
from .columns import Columns, TimeUnit
from .encoding import features_of
from .reading import LoadedLog
from .table import Places, Table
from .timeline import TimeMeaning

SOURCE = "an EpisodeLog"


@in_double
def loaded_episodes(log: EpisodeLog) -> LoadedLog:
    """The log in the order of time, without spare rows; its table holds the logarithms of all probabilities.

    Each policy in `log.recorded` is a column of its name (of the logged actions), and so is each outcome.
    """
    if not log.num_episodes:
        raise LogError("the log has no episodes.", expected="at least one episode with one step")
    log = in_time_order(log)
    coded = log.states is not None and np.ndim(log.states) == log.mask.ndim
    actions = _parts("action", log.actions, log)
    states = {} if log.states is None else _parts("state" if coded else "feature", log.states, log)
    frame = pl.DataFrame(
        {
            **{name: _steps(RecordedPolicy(name).logged_log_probs(log), log) for name in log.recorded},
            **{name: _steps(values, log) for name, values in log.outcomes.items()},
            **actions,
            **states,
            "episode": _steps(log.layout.spread(np.asarray(log.episode_numbers)), log),
            "step": _steps(log.step_numbers, log),
            "behavior_prob": _steps(log.behavior_log_probs, log),
            "reward": _steps(log.rewards, log),
        }
    )
    columns = Columns(
        action=tuple(actions) if len(actions) > 1 else next(iter(actions)),
        features=() if coded else tuple(states),
        state="state" if coded else None,
        outcomes=tuple(log.outcomes),
        propensity=Propensity.LOG_DENSITY if log.num_actions is None else Propensity.LOG_PROBABILITY,
        num_actions=log.num_actions,
    )
    table = Table(frame, Places(("",), (0,), np.arange(frame.height), base=0), SOURCE)
    return LoadedLog(
        log,
        table,
        columns,
        TimeMeaning(TimeUnit.EPISODE, None),
        np.asarray(log.episode_numbers),
        features=features_of(table, columns.features),
    )


def _parts(name: str, values: Any, log: EpisodeLog) -> dict[str, Values]:
    """One column, or one for each component of a vector."""
    steps = _steps(values, log)
    if steps.ndim == 1:
        return {name: steps}
    flat = steps.reshape(steps.shape[0], -1)
    return {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}


def _steps(values: Any, log: EpisodeLog) -> Values:
    """The values of the steps that were taken, episode after episode."""
    mask, array = np.asarray(log.mask), np.asarray(values)
    shape = (*mask.shape, *array.shape[mask.ndim :])
    return np.asarray(np.broadcast_to(array, shape)[mask])
