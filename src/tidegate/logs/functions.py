"""A Python function as a policy: its probabilities of the logged actions, checked row by row."""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import PolicyError, TidegateError, foreign_code
from .reading import LoadedLog

SUM_TOLERANCE = 1e-6


def function_log_probs(name: str, loaded: LoadedLog) -> Floats:
    """log π of the logged action in each row of the table.

    The function `MODULE:FUNCTION` gets a polars frame of states (the mapped features, else every
    column without another part) and returns an array of rows × actions, in the order of `labels`.
    """
    if loaded.log.num_actions is None:
        raise PolicyError(
            f"python:{name} gives probabilities of actions, and the log's actions are continuous.",
            remedy="Write its density of the logged action into a column, and name it column:NAME.",
        )
    expected = "python:MODULE:FUNCTION, as in python:rules:propose"
    function, states = imported(name, PolicyError, expected), loaded.states
    with foreign_code(
        lambda error: PolicyError(
            f"python:{name} failed: {error!r}.",
            expected=f"a function of a polars frame with the columns {states.columns}",
        )
    ):
        answer = function(states)
    probs = _probabilities(answer, name, loaded)
    actions = np.asarray(loaded.log.actions)[np.asarray(loaded.log.mask)]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs[np.arange(actions.size), actions]))


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
