"""Which log, and how to read it: every command starts here."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..arrays import Progress, in_double
from ..episodes import EpisodeLog
from ..errors import LogError
from ..inputs import flag, member, seed_of
from ..logs import Columns, Format, LoadedLog, estimate_propensities, read_log, resolve_policy
from ..logs.columns import columns_of
from ..logs.sources import Source
from ..policies import Policy

Stage = Callable[[str], None]
WORTH_TELLING = 2.0  # seconds


def silent(stage: str) -> None:
    """Report no progress."""


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

    `memory_limit` is that of `read_log`.
    """

    source: Source
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

    def policy(self, spec: str) -> tuple[Policy, "OpenLog"]:
        """The policy that a spec names, and the log with its probabilities."""
        policy, loaded = resolve_policy(spec, self.loaded)
        _require_numbers(policy, loaded.log, spec)
        return policy, dataclasses.replace(self, loaded=loaded)

    @property
    def log(self) -> EpisodeLog:
        return self.loaded.log


Log = OpenLog | LogFile | Any


def open_log(log: Log, *, seed: int = 0, stage: Stage = silent) -> OpenLog:
    """Read a log: a `LogFile`, or whatever `read_log` takes. An open log is returned as it is."""
    seed = seed_of(seed)
    if isinstance(log, OpenLog):
        return log
    file = log_file(log)
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
def _require_numbers(policy: Policy, log: EpisodeLog, spec: str) -> None:
    """A saved policy may be undefined at some steps: name them instead of forecasting NaN."""
    mask = np.asarray(log.mask)
    undefined = np.isnan(np.asarray(policy.logged_log_probs(log))) & mask
    if undefined.any():
        numbers = np.broadcast_to(log.layout.spread(np.asarray(log.episode_numbers)), mask.shape)
        steps = np.broadcast_to(log.step_numbers, mask.shape)
        number, step = float(numbers[undefined][0]), int(steps[undefined][0])
        raise LogError(
            f"{spec} gives no probability to the logged action of {np.sum(undefined)} steps.",
            where=f"episode {number:g}, step {step}",
            expected="a probability, which may be 0",
            remedy="Check for states outside the policy's table, or features it was not made for.",
        )
