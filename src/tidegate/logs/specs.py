"""Policies as a user names them on one line, resolved against a loaded log.

behavior                  the policy that wrote the log: ratio 1
column:NAME               a column with the policy's probability of the logged action
ratio:NAME                a column with the importance ratio π/β of the step itself
policy:PATH               a policy saved by `save_policy`, over the mapped features
python:MODULE:FUNCTION    a function from a frame of states to probabilities (rows × actions)
"""

import dataclasses
import enum
from collections.abc import Callable

import equinox as eqx
import numpy as np
import polars as pl

from ..arrays import Values
from ..door import check_log_probs
from ..errors import LogError, PolicyError, SettingsError
from ..policies import Policy, RecordedPolicy, load_policy
from .cells import floats, require_columns
from .columns import did_you_mean
from .functions import function_log_probs
from .loaded import LoadedLog, Propensities, missing_propensities
from .places import Places


class SpecKind(enum.Enum):
    """The word before the colon."""

    BEHAVIOR = "behavior"
    COLUMN = "column"
    RATIO = "ratio"
    POLICY = "policy"
    PYTHON = "python"


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """What a user wrote, taken apart."""

    kind: SpecKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value


def parse_spec(text: str) -> PolicySpec:
    """Take a policy's spec apart; columns and files are looked up later."""
    kind, _, name = text.partition(":")
    kinds = {member.value: member for member in SpecKind}
    if kind in kinds and bool(name) == (kind != SpecKind.BEHAVIOR.value):
        return PolicySpec(kinds[kind], name)
    raise SettingsError(
        f"'{text}' does not name a policy.{did_you_mean(kind, kinds)}",
        expected="behavior, column:NAME, ratio:NAME, policy:PATH or python:MODULE:FUNCTION",
    )


def resolve_policy(spec: str | PolicySpec, loaded: LoadedLog) -> tuple[Policy, LoadedLog]:
    """The policy that a spec names, and the log that knows its probabilities.

    Use the returned log from here on: the probabilities of a recorded policy travel in it, so that
    they are split and taken with the episodes. Resolve several policies one after the other.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    if spec.kind in (SpecKind.BEHAVIOR, SpecKind.RATIO):
        return _recorded(spec, _with_unit_behavior(loaded))
    if loaded.propensities is Propensities.ABSENT:
        raise missing_propensities(
            f"'{spec}' needs propensities, and the log was read without them."
        )
    if spec.kind is SpecKind.POLICY:
        return _fitting(load_policy(spec.name), spec, loaded), loaded
    return _recorded(spec, loaded)


def ratio_log(values: Values, spec: PolicySpec, places: Places) -> Values:
    """The logarithm of a column of importance ratios."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise LogError(
            f"{spec} is {values[bad[0]]:g}.",
            where=places.several(bad),
            expected="a finite ratio π/β, 0 or more",
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _behavior_log_probs(spec: PolicySpec, loaded: LoadedLog) -> Values:
    return np.asarray(loaded.log.behavior_log_probs)


def _ratio_log_probs(spec: PolicySpec, loaded: LoadedLog) -> Values:
    ratios = floats(loaded.frame, spec.name, loaded.places)
    logs = loaded.grid(ratio_log(ratios, spec, loaded.places))
    return np.asarray(logs + loaded.log.behavior_log_probs)


def _column_log_probs(spec: PolicySpec, loaded: LoadedLog) -> Values:
    return check_log_probs(
        loaded.grid(floats(loaded.frame, spec.name, loaded.places)),
        np.asarray(loaded.log.mask),
        loaded.columns.propensity,
        str(spec),
        loaded.where,
        zero_allowed=True,
    )


def _function_log_probs(spec: PolicySpec, loaded: LoadedLog) -> Values:
    return loaded.grid(function_log_probs(spec.name, loaded))


_LOG_PROBS: dict[SpecKind, Callable[[PolicySpec, LoadedLog], Values]] = {
    SpecKind.BEHAVIOR: _behavior_log_probs,
    SpecKind.RATIO: _ratio_log_probs,
    SpecKind.COLUMN: _column_log_probs,
    SpecKind.PYTHON: _function_log_probs,
}


def require_spec(spec: PolicySpec, frame: pl.DataFrame) -> None:
    """The column that a spec names is there."""
    if spec.kind in (SpecKind.COLUMN, SpecKind.RATIO):
        require_columns(frame, [spec.name], "Name a column of the log, as in column:NAME.")


def _recorded(spec: PolicySpec, loaded: LoadedLog) -> tuple[Policy, LoadedLog]:
    require_spec(spec, loaded.frame)
    recorded = {**loaded.log.recorded, str(spec): _LOG_PROBS[spec.kind](spec, loaded)}
    log = dataclasses.replace(loaded.log, recorded=recorded)
    return RecordedPolicy(str(spec)), dataclasses.replace(loaded, log=log)


def _with_unit_behavior(loaded: LoadedLog) -> LoadedLog:
    """Where only ratios are known, β = 1: then π/β is the ratio, and nothing else is asked of β."""
    if loaded.propensities is not Propensities.ABSENT:
        return loaded
    zeros = np.zeros(np.shape(loaded.log.mask))
    return dataclasses.replace(
        loaded, log=dataclasses.replace(loaded.log, behavior_log_probs=zeros)
    )


def _fitting(policy: Policy, spec: PolicySpec, loaded: LoadedLog) -> Policy:
    try:
        eqx.filter_eval_shape(policy.logged_log_probs, loaded.log)
    except (TypeError, ValueError) as error:
        if isinstance(error, PolicyError):
            raise
        shape = None if loaded.log.states is None else loaded.log.states.shape[2:]
        raise PolicyError(
            f"{spec} does not fit the log, whose states have the shape {shape} at each step.",
            remedy="Map the features that the policy was made for, in their order.",
        ) from error
    return policy
