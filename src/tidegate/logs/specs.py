"""Policies as a user names them on one line, resolved against a loaded log.

behavior                  the policy that wrote the log: ratio 1
column:NAME               a column with the policy's probability of the logged action
ratio:NAME                a column with the importance ratio π/β of the step itself
policy:PATH               a policy saved by `improve`, by the names of its features, or by `save_policy`
python:MODULE:FUNCTION    a function from a frame of states to probabilities (rows × actions)
"""

import dataclasses
import enum

import equinox as eqx
import numpy as np

from ..arrays import Floats
from ..door import Propensity, check_log_probs, refuse
from ..episodes import EpisodeLog
from ..errors import PolicyError, SettingsError
from ..inputs import did_you_mean, text
from ..policies import Policy, RecordedPolicy
from ..serving import read_policy_file
from .columns import Columns
from .fitting import by_name
from .functions import function_log_probs
from .parts import missing_propensities
from .reading import LoadedLog, Propensities
from .table import Table

SPECS = "behavior, column:NAME, ratio:NAME, policy:PATH or python:MODULE:FUNCTION"


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


def parse_spec(spec: str) -> PolicySpec:
    """Take a policy's spec apart; columns and files are looked up later."""
    kind, _, name = text("the policy", spec, SPECS).partition(":")
    kinds = {member.value: member for member in SpecKind}
    if kind in kinds and bool(name) == (kind != SpecKind.BEHAVIOR.value):
        return PolicySpec(kinds[kind], name)
    raise SettingsError(
        f"'{spec}' does not name a policy.{did_you_mean(kind, kinds)}",
        expected=SPECS,
    )


def resolve_policy(spec: str | PolicySpec, loaded: LoadedLog) -> tuple[Policy, LoadedLog]:
    """The policy that a spec names, and the log that knows its probabilities.

    Use the returned log from here on: the probabilities of a recorded policy travel in it, so that
    they are split and taken with the episodes. Resolve several policies one after the other.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    log = loaded.log
    if loaded.propensities is Propensities.ABSENT:
        if spec.kind not in (SpecKind.BEHAVIOR, SpecKind.RATIO):
            raise missing_propensities(f"'{spec}' needs propensities, and the log was read without them.")
        # Where only ratios are known, β = 1: then π/β is the ratio, and nothing else is asked of β.
        log = dataclasses.replace(log, behavior_log_probs=np.zeros(np.shape(log.mask)))
    if spec.kind is SpecKind.POLICY:
        policy, loaded = by_name(read_policy_file(spec.name), str(spec), loaded)
        return require_fit(policy, str(spec), loaded.log), loaded
    require_spec(spec, loaded.table, loaded.columns)
    recorded = {**log.recorded, str(spec): _log_probs(spec, log, loaded)}
    log = dataclasses.replace(log, recorded=recorded)
    return RecordedPolicy(str(spec)), dataclasses.replace(loaded, log=log)


def column_logs(spec: PolicySpec, table: Table, propensity: Propensity) -> Floats:
    """The logarithm of the column that a spec names: of ratios, or of probabilities."""
    values = table.floats(spec.name)
    if spec.kind is SpecKind.COLUMN:
        return check_log_probs(values, propensity, str(spec), table.places, zero_allowed=True)
    bad = ~(np.isfinite(values) & (values >= 0))
    refuse(bad, values, str(spec), table.places, expected="a finite ratio π/β, 0 or more")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def require_spec(spec: PolicySpec, table: Table, columns: Columns) -> None:
    """The column that a spec names exists, and is nothing else of the log."""
    if spec.kind not in (SpecKind.COLUMN, SpecKind.RATIO):
        return
    table.require([spec.name], "Name a column of the log, as in column:NAME.")
    part = columns.parts.get(spec.name)
    if part is not None:
        logged = part == "behavior_prob"
        raise SettingsError(
            f"'{spec}' cannot be a policy: column '{spec.name}' is the log's {part}.",
            expected="a column with the policy's own probability, or ratio, of each logged action",
            remedy="The policy that wrote the log is called 'behavior'."
            if logged
            else "Name another column.",
        )


def _log_probs(spec: PolicySpec, log: EpisodeLog, loaded: LoadedLog) -> Floats:
    behavior = np.asarray(log.behavior_log_probs)
    if spec.kind is SpecKind.BEHAVIOR:
        return behavior
    if spec.kind is SpecKind.PYTHON:
        return loaded.grid(function_log_probs(spec.name, loaded))
    logs = loaded.grid(column_logs(spec, loaded.table, loaded.columns.propensity))
    return logs + behavior if spec.kind is SpecKind.RATIO else logs


def require_fit(policy: Policy, name: str, log: EpisodeLog) -> Policy:
    """The policy, if it can say how likely the logged actions were."""
    try:
        eqx.filter_eval_shape(policy.logged_log_probs, log)
    except PolicyError:
        raise
    except (TypeError, ValueError) as error:
        shape = None if log.states is None else log.states.shape[log.mask.ndim :]
        raise PolicyError(
            f"{name} does not fit the log, whose states have the shape {shape} at each step.",
            remedy="Map the features that the policy was made for, in their order.",
        ) from error
    return policy
