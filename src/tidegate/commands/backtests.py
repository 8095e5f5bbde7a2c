"""Had the gate been used in the past of this log."""

import dataclasses
from typing import Any

from ..checks.backtest import Backtest
from ..checks.backtest import backtest as backtest_log
from ..record import plain, sealed
from .opening import Log, Stage, silent
from .provenance import Provenance, provenance
from .settings import PlainSettings
from .training import Overlap
from .trials import Training, origin_caveats, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class BacktestRecord:
    """What the gate would have said at past dates of the log, and what came next."""

    backtest: Backtest
    candidate: str
    safe: str
    overlap: Overlap
    settings: PlainSettings
    seed: int
    provenance: Provenance

    def __str__(self) -> str:
        return str(self.backtest)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know first."""
        return origin_caveats(self.provenance, self.overlap, self.candidate)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate backtest --json` prints."""
        return sealed("backtest", {"caveats": list(self.caveats), **plain(self)})


def backtest(
    log: Log,
    *,
    candidate: str = "behavior",
    safe: str = "behavior",
    settings: PlainSettings | None = None,
    training: Training = None,
    dates: int = 20,
    every: int | None = None,
    seed: int = 0,
    stage: Stage = silent,
) -> BacktestRecord:
    """Use the gate at up to `dates` past dates of the log, `every` apart (by default the lookahead).

    Without a candidate, only the coverage of the intervals for the logged policy is of interest. Of a
    candidate that `improve` found with this log, only the episodes that its search has not seen count.
    """
    trial = prepare(log, candidate, safe, settings, training, seed, stage)
    stage("using the gate at past dates")
    result = backtest_log(
        *trial.policies,
        trial.held_out.log,
        trial.settings.forecast(),
        training=None if trial.seen is None else trial.seen.log,
        dates=dates,
        every=every,
        seed=seed,
    )
    origin = provenance(trial.opened)
    return BacktestRecord(result, candidate, safe, trial.overlap, trial.settings, seed, origin)
