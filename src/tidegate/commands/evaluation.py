"""Past performance over time and the forecast, with a stationary estimate for comparison."""

import dataclasses
from typing import Any, Unpack

from ..checks.findings import Finding
from ..checks.fitness import forecast_and_check
from ..forecast import Forecast, forecast_returns
from ..inputs import seed_of
from ..record import plain, sealed
from .asking import ColumnNames, Named, asked
from .opening import Log, PolicyLike, Stage, silent
from .provenance import Provenance, names_of, provenance
from .settings import PlainSettings, Settings
from .showing import Shown
from .training import Overlap
from .trials import Trial, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation(Shown):
    """What a policy would have earned, and what it is expected to earn next.

    `stationary` is the forecast that assumes nothing changes.
    """

    policy: str
    forecast: Forecast
    stationary: Forecast
    findings: tuple[Finding, ...]
    settings: PlainSettings
    seed: int
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
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> Evaluation:
    """Forecast a policy from a log: the forecast that `gate` makes for it.

    Like the gate, it looks at episodes that the policy's search has not seen, if `improve` found it with this
    log, and at those that no model was fitted to.
    """
    wanted, seed = asked(evaluate, log, settings, columns, named), seed_of(seed)
    return _whole(prepare(wanted, policy, "behavior", None, None, seed, stage), stage)


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
        trial.overlap,
        provenance(trial.opened),
    )
