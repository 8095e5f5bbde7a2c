"""What the gate would have said at past dates of a log, and what came next."""

import dataclasses
from functools import partial
from typing import Any

from ..checks.backtest import Backtest
from ..checks.backtest import backtest as backtest_log
from ..errors import LogError
from ..inputs import none_or, whole
from ..record import plain, sealed
from .opening import Log, Stage, counted, silent
from .settings import Settings
from .trials import Origin, Training, TrialRecord, about, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class BacktestRecord(TrialRecord):
    """What the gate would have said at past dates of the log, and what came next."""

    backtest: Backtest

    def __str__(self) -> str:
        return str(self.backtest)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate backtest --json` prints."""
        return sealed("backtest", {**self.told, **plain(self)})


def backtest(
    log: Log,
    *,
    candidate: str = "behavior",
    safe: str = "behavior",
    settings: Settings = None,
    training: Training = None,
    candidate_from: Origin = None,
    dates: int = 20,
    every: int | None = None,
    seed: int = 0,
    stage: Stage = silent,
) -> BacktestRecord:
    """Use the gate at up to `dates` past dates of the log, `every` apart (by default the lookahead).

    Without a candidate, only the coverage of the intervals for the logged policy is of interest. For a
    candidate that `improve` found with this log, only episodes that its search has not seen are used.
    """
    dates, every = whole("dates", dates, 1), none_or(partial(whole, "every", low=1), every)
    trial = prepare(log, candidate, safe, settings, training, candidate_from, seed, stage)
    if trial.held_out.log.num_episodes == 0:
        raise LogError(f"no episode is left to backtest: {trial.overlap.value}")
    result = backtest_log(
        *trial.policies,
        trial.held_out.log,
        trial.settings.forecast(),
        training=None if trial.seen is None else trial.seen.log,
        dates=dates,
        every=every,
        progress=counted(stage, "using the gate at past dates"),
    )
    return BacktestRecord(*about(trial), result)
