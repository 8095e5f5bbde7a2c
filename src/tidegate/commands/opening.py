"""Which log, and how to read it: every command starts here."""

import dataclasses
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..arrays import Progress, in_double
from ..episodes import EpisodeLog
from ..errors import LogError
from ..inputs import flag, member, seed_of
from ..logs import Columns, Format, LoadedLog, SpecKind, estimate_propensities, read_log, resolve_policy
from ..logs.columns import columns_of
from ..logs.episodes import loaded_episodes
from ..logs.sources import Source
from ..logs.specs import require_fit
from ..logs.stages import Stage as Stage
from ..logs.stages import silent as silent
from ..policies import BehaviorPolicy, Policy, RecordedPolicy

PolicyLike = str | Path | Policy
OBJECT = " (a Python object)"
WORTH_TELLING = 2.0  # seconds


def counted(stage: Stage, what: str) -> Progress:
    """Report long work as it goes on: how much of it is done, and how long the rest will take."""

    def run(items: Iterable[Any]) -> Iterable[Any]:
        work, began = list(items), time.monotonic()
        for done, item in enumerate(work):
            passed = time.monotonic() - began
            left = passed / max(done, 1) * (len(work) - done)
            told = done and passed + left > WORTH_TELLING
            stage(f"{what}: {done / len(work):.0%}, about {left:.0f} s left" if told else what)
            yield item

    return run


@dataclasses.dataclass(frozen=True, eq=False)
class LogFile:
    """A log by name (or a frame), with its columns, its format, and what to do without propensities.

    `memory_limit` is that of `read_log`. The columns of an `EpisodeLog` are its own.
    """

    source: Source | EpisodeLog
    columns: Columns = dataclasses.field(default_factory=Columns)
    format: Format | None = None
    estimate_propensities: bool = False
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        format = None if self.format is None else member("the format", Format, self.format)
        estimate = flag("estimate_propensities", self.estimate_propensities)
        object.__setattr__(self, "columns", columns_of(self.columns))
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "estimate_propensities", estimate)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenLog:
    """A log that was read and checked; `data_hash` is that of the log before anything was estimated."""

    loaded: LoadedLog
    data_hash: str
    read_as: str | None = None

    def policy(self, given: PolicyLike) -> tuple[Policy, "OpenLog"]:
        """The policy that was given, or that a spec names, and the log with its probabilities."""
        name, loaded = policy_name(given), self.loaded
        if is_object(given):
            policy = require_fit(given, name, loaded.log)
        else:
            policy, loaded = resolve_policy(name, loaded)
        _require_numbers(policy, loaded, name)
        return policy, dataclasses.replace(self, loaded=loaded)

    @property
    def log(self) -> EpisodeLog:
        return self.loaded.log


Log = OpenLog | LogFile | EpisodeLog | Any


def policy_name(given: PolicyLike) -> str:
    """The spec of a policy as records hold it: a file is policy:PATH, a recorded policy a column.

    Any other policy object has no spec; its record can be replayed with the object at hand.
    """
    if isinstance(given, BehaviorPolicy):
        return SpecKind.BEHAVIOR.value
    if isinstance(given, RecordedPolicy):
        return given.name if _has_kind(given.name) else f"{SpecKind.COLUMN.value}:{given.name}"
    if isinstance(given, Policy):
        return f"{type(given).__name__}{OBJECT}"
    if isinstance(given, Path) or (isinstance(given, str) and not _has_kind(given) and Path(given).is_file()):
        return f"{SpecKind.POLICY.value}:{given}"
    return given


def is_object(given: PolicyLike) -> TypeGuard[Policy]:
    """Whether this is a policy that no spec names."""
    return isinstance(given, Policy) and policy_name(given).endswith(OBJECT)


def _has_kind(name: str) -> bool:
    return name.partition(":")[0] in [kind.value for kind in SpecKind]


def open_log(log: Log, *, seed: int = 0, stage: Stage = silent) -> OpenLog:
    """Read a log: a `LogFile`, an `EpisodeLog`, or whatever `read_log` takes. An open log stays as it is."""
    seed = seed_of(seed)
    if isinstance(log, OpenLog):
        return log
    file = log_file(log)
    if isinstance(file.source, EpisodeLog):
        episodes = loaded_episodes(file.source)
        return OpenLog(episodes, episodes.log.digest())
    columns = file.columns
    if file.estimate_propensities:
        columns = dataclasses.replace(columns, behavior_prob=None)
    stage("reading the log")
    loaded = read_log(file.source, columns, format=file.format, memory_limit=file.memory_limit)
    data_hash = loaded.log.digest()
    if file.estimate_propensities:
        stage("estimating propensities")
        loaded = estimate_propensities(loaded, seed=seed)
    return OpenLog(loaded, data_hash, None if file.format is None else file.format.name.lower())


def log_file(log: Log) -> LogFile:
    """The log to read; a bare source gets the default columns."""
    return log if isinstance(log, LogFile) else LogFile(log)


@in_double
def _require_numbers(policy: Policy, loaded: LoadedLog, spec: str) -> None:
    """A saved policy may be undefined at some steps: name them instead of forecasting NaN."""
    log_probs = np.asarray(policy.logged_log_probs(loaded.log))
    undefined = np.flatnonzero(np.isnan(log_probs)[np.asarray(loaded.log.mask)])
    if undefined.size:
        raise LogError(
            f"{spec} gives no probability to the logged action of {undefined.size:,} steps.",
            where=loaded.table.places.several(undefined),
            expected="a probability, which may be 0",
            remedy="Check for states outside the policy's table, or features it was not made for.",
        )
