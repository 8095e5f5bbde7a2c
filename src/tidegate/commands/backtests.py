"""What the gate would have said at past dates of a log, and what came next."""

import dataclasses
import datetime
from functools import partial
from typing import Any, Unpack

from ..checks.backtest import Backtest
from ..checks.backtest import backtest as backtest_log
from ..errors import LogError
from ..inputs import none_or, whole
from ..record import plain, sealed
from .asking import ColumnNames, Named, asked
from .lookaheads import as_units, length_of
from .opening import Log, PolicyLike, Stage, counted, silent
from .settings import Settings
from .trials import Origin, Training, TrialRecord, about, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class BacktestRecord(TrialRecord):
    """What the gate would have said at past dates of the log, and what came next."""

    backtest: Backtest

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate backtest --json` prints."""
        return sealed("backtest", {**self.told, **plain(self)})


def backtest(
    log: Log,
    *,
    candidate: PolicyLike = "behavior",
    safe: PolicyLike = "behavior",
    settings: Settings = None,
    columns: ColumnNames = None,
    training: Training = None,
    candidate_from: Origin = None,
    dates: int = 20,
    every: int | str | datetime.timedelta | None = None,
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> BacktestRecord:
    """Use the gate at up to `dates` past dates of the log, `every` apart (by default the lookahead).

    `every` is given as a lookahead is: in units of the time axis, or as a length of time.
    Without a candidate, only the coverage of the intervals for the logged policy is of interest. For a
    candidate that `improve` found with this log, only episodes that its search has not seen are used.
    """
    dates, apart = whole("dates", dates, 1), none_or(partial(length_of, "every"), every)
    wanted = asked(backtest, log, settings, columns, named)
    trial = prepare(wanted, candidate, safe, training, candidate_from, seed, stage)
    if trial.held_out.log.num_episodes == 0:
        raise LogError(f"no episode is left to backtest: {trial.overlap.value}")
    result = backtest_log(
        *trial.policies,
        trial.held_out.log,
        trial.settings.forecast(),
        training=None if trial.seen is None else trial.seen.log,
        dates=dates,
        every=none_or(partial(as_units, "every", time=trial.opened.loaded.time), apart),
        progress=counted(stage, "asking the gate at past dates"),
    )
    return BacktestRecord(*about(trial), result)
