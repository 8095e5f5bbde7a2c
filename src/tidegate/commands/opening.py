"""Which log, and how to read it: every command starts here."""

import dataclasses
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..arrays import Integers, Progress, in_double
from ..episodes import EpisodeLog, very_roomy
from ..errors import LogError, SettingsError
from ..forecast import ForecastSettings
from ..inputs import flag, member, none_or, path, seed_of, whole
from ..logs import (
    Columns,
    Format,
    LoadedLog,
    SpecKind,
    estimate_propensities,
    parse_spec,
    read_log,
    resolve_policy,
)
from ..logs.columns import columns_of
from ..logs.engines import EngineKind, engine_of
from ..logs.episodes import loaded_episodes
from ..logs.keys import episode_keys
from ..logs.large import LargeLog, large_log
from ..logs.memory import memory_limit
from ..logs.reducing import Outline, assembled, reduction, sampled_places, share_of_sample
from ..logs.reducing import known as known_as
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

    `memory_limit` is that of `read_log`. The columns of an `EpisodeLog` are its own. A log of many steps is
    not held but read again and again, in parts; `stream` says that this one is, or is not. If the rows of its
    episodes are scattered, they are brought together in a `scratch` folder. The parts are read by an `engine`
    with so many `workers`; whoever names these has the log read in parts, however short it is.
    """

    source: Source | EpisodeLog
    columns: Columns = dataclasses.field(default_factory=Columns)
    format: Format | None = None
    estimate_propensities: bool = False
    memory_limit: int | str | None = None
    stream: bool | None = None
    scratch: str | Path | None = None
    engine: EngineKind | str = EngineKind.THREADS
    workers: int | None = None

    def __post_init__(self) -> None:
        format = None if self.format is None else member("the format", Format, self.format)
        estimate = flag("estimate_propensities", self.estimate_propensities)
        object.__setattr__(self, "columns", columns_of(self.columns))
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "estimate_propensities", estimate)
        object.__setattr__(self, "stream", none_or(partial(flag, "stream"), self.stream))
        object.__setattr__(self, "scratch", none_or(partial(path, "scratch"), self.scratch))
        object.__setattr__(self, "engine", member("engine", EngineKind, self.engine))
        object.__setattr__(self, "workers", none_or(partial(whole, "workers", low=1), self.workers))
        if self.stream is False and self.asking_for_parts:
            raise SettingsError(
                f"the log is to be held, and `{self.asking_for_parts}` says who reads its parts.",
                remedy=f"Leave out `{self.asking_for_parts}` or `stream=False`.",
            )

    @property
    def asking_for_parts(self) -> str | None:
        """The setting that has the log read in parts, whatever its length."""
        asking = {
            "stream": self.stream,
            "engine": self.engine is not EngineKind.THREADS,
            "workers": self.workers is not None,
        }
        return next((name for name, given in asking.items() if given), None)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenLog:
    """A log that was read and checked; `data_hash` is that of the log before anything was estimated.

    Of a `large` log, a sample is `loaded` until the log is `reduced`. Then `sample` holds the sample,
    `stepwise` the policies as the sample knows them, and `whole` all steps, if these are held.
    """

    loaded: LoadedLog
    outline: Outline
    data_hash: str
    read_as: str | None = None
    large: LargeLog | None = None
    whole: LoadedLog | None = None
    sample: LoadedLog | None = None
    stepwise: tuple[Policy, ...] = ()

    @property
    def steps(self) -> LoadedLog:
        """The log step by step, or a sample of it."""
        return self.sample or self.loaded

    @property
    def num_episodes(self) -> int:
        return self.outline.num_episodes

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last episode number."""
        return self.outline.span

    def gathered(self, rows: Integers) -> LoadedLog:
        """Some episodes, step by step, in the layout of the whole log."""
        held = self.whole or self.loaded
        loaded = held.taken(rows) if self.large is None else self.large.gather(rows)
        return dataclasses.replace(loaded, log=self.outline.laid_out(loaded.log))

    def noting(self, sentence: str) -> "OpenLog":
        """The log with one more sentence for the user."""
        return dataclasses.replace(
            self, loaded=dataclasses.replace(self.loaded, notes=(*self.loaded.notes, sentence))
        )

    def part(self, rows: Integers) -> "OpenLog":
        """The log of some episodes, which are held."""
        loaded = self.loaded.taken(rows)
        return dataclasses.replace(self, loaded=loaded, outline=_outline(loaded))

    def reduced(
        self,
        given: tuple[PolicyLike, ...],
        policies: tuple[Policy, ...],
        settings: ForecastSettings,
        stage: Stage,
    ) -> tuple[tuple[Policy, ...], "OpenLog"]:
        """What the policies would have earned in each episode."""
        sample = self.loaded if self.large is not None else self.gathered(self.outline.sampled)
        task = reduction(settings, policies, self.outline, sample.log)
        specs = tuple(None if is_object(one) else parse_spec(policy_name(one)) for one in given)
        known = tuple(known_as(one, spec) for one, spec in zip(policies, specs, strict=True))
        if self.large is None:
            blocks = task.measured(self.loaded.log, np.arange(self.num_episodes))
            log = assembled(self.outline, task, known, [blocks])
        else:
            stage(f"reading {self.large.rows.num_rows:,} rows")
            log = self.large.measured(task, specs, known)
        notes = (*self.loaded.notes, *self.outline.notes)
        loaded = dataclasses.replace(self.loaded, log=log, notes=notes, began=self.outline.began)
        whole = self.loaded if self.large is None else None
        return known, dataclasses.replace(self, loaded=loaded, whole=whole, sample=sample, stepwise=policies)

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


def open_log(log: Log, *, seed: int = 0, stage: Stage = silent, hold: bool = False) -> OpenLog:
    """Read a log: a `LogFile`, an `EpisodeLog`, or whatever `read_log` takes. An open log stays as it is.

    `hold` is for whoever needs all steps at once, however many they are.
    """
    seed = seed_of(seed)
    if isinstance(log, OpenLog):
        return log
    file = log_file(log)
    whole = isinstance(file.source, EpisodeLog)
    held = hold or whole or file.estimate_propensities
    if held and file.asking_for_parts:
        what = "an EpisodeLog is held as it is" if whole else "this needs all steps of the log at once"
        raise SettingsError(
            f"{what}, so it cannot be streamed.", remedy=f"Leave out `{file.asking_for_parts}`."
        )
    if isinstance(file.source, EpisodeLog):
        return _held(loaded_episodes(file.source))
    columns = file.columns
    if file.estimate_propensities:
        columns = dataclasses.replace(columns, behavior_prob=None)
    stage("reading the log")
    read_as = None if file.format is None else file.format.name.lower()
    large = None if held or file.stream is False else _large(file, columns, stage)
    if large is not None:
        return OpenLog(large.sample, large.outline, large.outline.digest(large.sample.log), read_as, large)
    opened = _held(
        read_log(file.source, columns, format=file.format, memory_limit=file.memory_limit), read_as
    )
    if not file.estimate_propensities:
        return opened
    stage("estimating propensities")
    return dataclasses.replace(opened, loaded=estimate_propensities(opened.loaded, seed=seed))


def _held(loaded: LoadedLog, read_as: str | None = None) -> OpenLog:
    outline = _outline(loaded)
    return OpenLog(loaded, outline, outline.digest(loaded.taken(outline.sampled).log), read_as)


def _outline(loaded: LoadedLog) -> Outline:
    numbers, lengths = np.asarray(loaded.log.episode_numbers, np.float64), loaded.log.lengths
    share, sampled = share_of_sample(int(lengths.sum())), np.arange(numbers.size)
    if share < 1:
        firsts = loaded.table.take(np.cumsum(lengths) - lengths)
        sampled = sampled_places(episode_keys(firsts, loaded.columns), share)
    return Outline(numbers, loaded.began, lengths, sampled)


def _large(file: LogFile, columns: Columns, stage: Stage) -> LargeLog | None:
    limit = memory_limit(file.memory_limit)
    scratch = None if file.scratch is None else Path(file.scratch)
    engine = engine_of(member("engine", EngineKind, file.engine), file.workers)
    return large_log(
        file.source,
        columns,
        file.format,
        limit,
        engine,
        scratch=scratch,
        stage=stage,
        always=file.asking_for_parts is not None,
    )


def log_file(log: Log) -> LogFile:
    """The log to read; a bare source gets the default columns."""
    return log if isinstance(log, LogFile) else LogFile(log)


@in_double
def _require_numbers(policy: Policy, loaded: LoadedLog, spec: str) -> None:
    """A saved policy may be undefined at some steps: name them instead of forecasting NaN."""
    log = very_roomy(loaded.log)
    undefined = np.flatnonzero(np.isnan(np.asarray(policy.logged_log_probs(log)))[np.asarray(log.mask)])
    if undefined.size:
        raise LogError(
            f"{spec} gives no probability to the logged action of {undefined.size:,} steps.",
            where=loaded.table.places.several(undefined),
            expected="a probability, which may be 0",
            remedy="Check for states outside the policy's table, or features it was not made for.",
        )
