"""A Python function as a policy: its probabilities of the actions, checked row by row."""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import PolicyError, TidegateError, foreign_code
from .reading import LOG_COPIES, LoadedLog

SUM_TOLERANCE = 1e-6
PROB_BYTES = 8
MOST_LISTED = 100  # actions; of more, only the logged one's probability is kept


def function_log_probs(name: str, loaded: LoadedLog) -> Floats:
    """log π of all actions in each row of the table, or of the logged one if there are too many.

    The function `MODULE:FUNCTION` gets a polars frame of states (the mapped features, else every
    column without another part) and returns an array of rows × actions, in the order of `labels`.
    """
    count = loaded.log.num_actions
    if count is None:
        raise PolicyError(
            f"python:{name} gives probabilities of actions, and the log's actions are continuous.",
            remedy="Write its density of the logged action into a column, and name it column:NAME.",
        )
    if count <= MOST_LISTED:
        _require_room(loaded, count)
    probs = _probabilities(_answer(name, loaded), name, loaded)
    if count > MOST_LISTED:
        actions = np.asarray(loaded.log.actions)[np.asarray(loaded.log.mask)]
        probs = probs[np.arange(actions.size), actions]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs))


def _require_room(loaded: LoadedLog, count: int) -> None:
    """A machine with less memory must not decide otherwise, so what does not fit is an error."""
    steps = loaded.log.mask.size
    loaded.limit.require(
        steps * count * PROB_BYTES * LOG_COPIES,
        f"the probabilities of {count:,} actions at each of {steps:,} steps",
        remedy="give the policy as a column of probabilities (column:NAME)",
    )


def _answer(name: str, loaded: LoadedLog) -> Any:
    function = imported(name, PolicyError, "python:MODULE:FUNCTION, as in python:rules:propose")
    states = loaded.states
    with foreign_code(
        lambda error: PolicyError(
            f"python:{name} failed: {error!r}.",
            expected=f"a function of a polars frame with the columns {states.columns}",
        )
    ):
        return function(states)


def imported(name: str, kind: type[TidegateError], expected: str) -> Any:
    """What `MODULE:NAME` names, which must be callable; modules of the current folder are found too.

    This runs the module's code, with the user's rights: nothing is imported so unless the user has named it.
    """
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with foreign_code(
            lambda error: kind(
                f"cannot import '{attribute}' from '{module}': {error!r}.",
                expected=expected,
                remedy="Run from the folder of the module, or install it.",
            )
        ):
            function = getattr(importlib.import_module(module), attribute)
    finally:
        with contextlib.suppress(ValueError):  # the module may have removed it
            sys.path.remove(folder)
    if not callable(function):
        raise kind(f"'{attribute}' of '{module}' is of type {type(function).__name__}, not a function.")
    return function


def _probabilities(answer: Any, name: str, loaded: LoadedLog) -> Floats:
    with foreign_code(
        lambda error: PolicyError(f"python:{name} did not return an array of numbers ({error!r}).")
    ):
        probs = np.asarray(answer, np.float64)
    wanted = (loaded.table.frame.height, loaded.log.num_actions)
    if probs.shape != wanted:
        raise PolicyError(
            f"python:{name} returned an array of shape {probs.shape}.",
            expected=f"{wanted}: a row per step, a column per action",
            remedy="Set `num_actions` or `actions` if the log has not seen all actions.",
        )
    with np.errstate(invalid="ignore"):
        inside = np.all((probs >= 0) & (probs <= 1), axis=1)
        bad = np.flatnonzero(~(inside & (np.abs(probs.sum(axis=1) - 1) <= SUM_TOLERANCE)))
    if bad.size:
        raise PolicyError(
            f"python:{name} returned {probs[bad[0]][:8].tolist()}.",
            where=loaded.table.places.several(bad),
            expected="probabilities in [0, 1] that sum to 1",
        )
    return probs
