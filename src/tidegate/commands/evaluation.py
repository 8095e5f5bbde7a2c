"""Past performance over time and the forecast, with a stationary estimate for comparison."""

import dataclasses
import hashlib
from typing import Any, Unpack

import numpy as np

from ..checks.findings import Finding
from ..checks.fitness import forecast_and_check, mean_ratio_finding
from ..errors import SettingsError
from ..forecast import Forecast, forecast_returns
from ..inputs import flag, seed_of
from ..logs import Columns, Format, Propensities, SpecKind, StreamedReturns, parse_spec
from ..logs.formats import format_of
from ..logs.memory import memory_limit
from ..logs.sources import source_paths
from ..logs.streaming import stream_returns
from ..record import plain, sealed
from .asking import ColumnNames, Named, asked
from .opening import Log, LogFile, OpenLog, PolicyLike, Stage, is_object, log_file, policy_name, silent
from .provenance import Provenance, all_versions, names_of, plain_columns, provenance
from .room import require_forecast_room
from .settings import PlainSettings, Settings
from .showing import Shown
from .training import Overlap
from .trials import Trial, prepare

STREAM_BYTES = 200_000_000
UNMODELLED = (
    "A streamed log has no model of the rewards to take noise out of the estimates: the interval is wider "
    "than if the log were read whole."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation(Shown):
    """What a policy would have earned, and what it is expected to earn next.

    `stationary` is the forecast that assumes nothing changes. A streamed log gets fewer findings.
    """

    policy: str
    forecast: Forecast
    stationary: Forecast
    findings: tuple[Finding, ...]
    settings: PlainSettings
    seed: int
    streamed: bool
    overlap: Overlap
    provenance: Provenance

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know first."""
        estimated = (self.provenance.propensities,) if self.provenance.estimated else ()
        return (*estimated, *self.provenance.caveats)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate evaluate --json` prints."""
        return sealed("evaluate", {"caveats": list(self.caveats), **plain(self)})


def evaluate(
    log: Log,
    *,
    policy: PolicyLike,
    settings: Settings = None,
    columns: ColumnNames = None,
    stream: bool | None = None,
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> Evaluation:
    """Forecast a policy from a log: the forecast that `gate` makes for it.

    Like the gate, it looks at episodes that the policy's search has not seen, if `improve` found it with this
    log, and at those that no model was fitted to.

    `stream` reads Parquet a chunk at a time, in bounded memory, for policies given as columns. By
    default, this is done for files of more than 200 MB where possible.
    """
    wanted, seed = asked(evaluate, log, settings, columns, named), seed_of(seed)
    streams = should_stream(wanted.log, policy) if stream is None else flag("stream", stream)
    if not streams:
        return _whole(prepare(wanted, policy, "behavior", None, None, seed, stage), stage)
    if isinstance(wanted.log, OpenLog):
        raise SettingsError("an open log cannot be streamed.", expected="the file's name")
    if is_object(policy):
        raise SettingsError("a policy object cannot be streamed.", expected="a column of the file")
    return _streamed(log_file(wanted.log), policy_name(policy), wanted.settings, seed, stage)


def should_stream(log: Log, policy: PolicyLike) -> bool:
    """Whether the log is a large Parquet file and the policy can be streamed."""
    if isinstance(log, OpenLog) or is_object(policy) or log_file(log).estimate_propensities:
        return False
    source = log_file(log).source
    if not isinstance(source, str | list | tuple) and not hasattr(source, "__fspath__"):
        return False
    if source == "-" or parse_spec(policy_name(policy)).kind in (SpecKind.POLICY, SpecKind.PYTHON):
        return False
    paths = source_paths(source)
    parquet = all(format_of(path) is Format.PARQUET for path in paths)
    return parquet and sum(path.stat().st_size for path in paths) > STREAM_BYTES


def _whole(trial: Trial, stage: Stage) -> Evaluation:
    settings, log = trial.settings, trial.held_out.log
    stage("forecasting")
    forecast, check = forecast_and_check(
        log,
        settings.forecast(),
        trial.policies[0],
        training=None if trial.seen is None else trial.seen.log,
        span=trial.held_out.span,
        names=names_of(trial.opened),
    )
    flat = forecast_returns(
        forecast.returns, forecast.episode_numbers, settings.stationary().forecast(), seed=trial.seed
    )
    flat = dataclasses.replace(flat, effective_sample_size=forecast.effective_sample_size)
    return Evaluation(
        trial.names[0],
        forecast,
        flat,
        check.findings,
        settings,
        trial.seed,
        False,
        trial.overlap,
        provenance(trial.opened),
    )


def _streamed(file: LogFile, spec: str, settings: PlainSettings, seed: int, stage: Stage) -> Evaluation:
    if file.estimate_propensities:
        raise SettingsError("propensities cannot be estimated from a stream.", remedy="Read the log whole.")
    stage("streaming the log")
    streamed = stream_returns(
        file.source, [spec], file.columns, discount=settings.discount, memory_limit=file.memory_limit
    )
    one, numbers = streamed.policies[0], streamed.episode_numbers
    settings = settings.over((float(numbers.min()), float(numbers.max())), streamed.time)
    require_forecast_room(memory_limit(file.memory_limit), numbers.size, settings)
    stage("forecasting")
    forecast, stationary = (
        forecast_returns(one.returns, numbers, chosen.forecast(), ratios=one.ratios, seed=seed)
        for chosen in (settings, settings.stationary())
    )
    findings = (mean_ratio_finding(one.stopped_ratios),)
    origin = _stream_provenance(file, streamed, settings)
    return Evaluation(spec, forecast, stationary, findings, settings, seed, True, Overlap.UNTRAINED, origin)


def _stream_provenance(file: LogFile, streamed: StreamedReturns, settings: PlainSettings) -> Provenance:
    columns: Columns = file.columns
    names = [path.name for path in source_paths(file.source)]
    absent = columns.behavior_prob is None
    return Provenance(
        source=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        data_hash=_stream_hash(streamed),
        num_episodes=streamed.num_episodes,
        num_steps=streamed.num_steps,
        columns=plain_columns(columns),
        read_as=None,
        time=str(streamed.time),
        time_unit=streamed.time.unit.value,
        time_origin=streamed.time.origin,
        time_last=streamed.time.last,
        moments=streamed.time.moments,
        labels=(),
        propensities=(Propensities.ABSENT if absent else Propensities.LOGGED).value,
        estimated=False,
        calibration=None,
        notes=(
            "The log was streamed: only the mean ratio was checked. Run `check` on a part "
            "of it for the rest.",
            *((UNMODELLED,) if settings.doubly_robust else ()),
        ),
        caveats=(),
        versions=all_versions(),
    )


def _stream_hash(streamed: StreamedReturns) -> str:
    """SHA-256 of what was streamed; it differs from the hash of the same log read whole."""
    sha = hashlib.sha256(f"tidegate-stream-1 {streamed.discount}".encode())
    for one in streamed.policies:
        arrays = (streamed.episode_numbers, streamed.lengths, one.returns, one.ratios)
        for array in arrays:
            sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
