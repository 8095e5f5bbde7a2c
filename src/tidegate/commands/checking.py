"""Is this log fit for use, and what does each finding mean for the user?"""

import dataclasses
from typing import Any

from ..checks.fitness import LogCheck, check_log
from ..forecast import Forecast, forecast_performance
from ..inputs import record_of, seed_of
from ..record import plain, sealed
from .lookaheads import in_units_of
from .opening import Log, Stage, open_log, silent
from .provenance import Provenance, names_of, provenance
from .room import require_room
from .settings import PlainSettings, Settings


@dataclasses.dataclass(frozen=True, eq=False)
class CheckRecord:
    """The findings about a log: for a policy, or for what was observed."""

    policy: str
    check: LogCheck
    forecast: Forecast
    settings: PlainSettings
    seed: int
    provenance: Provenance

    def __str__(self) -> str:
        return str(self.check)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate check --json` prints."""
        return sealed("check", {"level": self.check.level.name, **plain(self)})


def check(
    log: Log,
    *,
    policy: str | None = None,
    settings: Settings = None,
    seed: int = 0,
    stage: Stage = silent,
) -> CheckRecord:
    """Check a log, for a policy if one is named. An unfit log raises a `LogError` that names the rows.

    Without a policy nothing can be said about overlap: the findings are about what was observed.
    """
    wanted, seed = record_of("settings", PlainSettings, settings), seed_of(seed)
    spec = "behavior" if policy is None else policy
    opened = open_log(in_units_of(log, wanted.lookahead), seed=seed, stage=stage)
    chosen, opened = opened.policy(spec)
    chosen_settings = wanted.over(opened.log.span, opened.loaded.time)
    require_room(opened, chosen_settings, chosen)
    forecasting = chosen_settings.forecast()
    stage("checking the log")
    return CheckRecord(
        policy=spec,
        check=check_log(opened.log, forecasting, None if policy is None else chosen, names=names_of(opened)),
        forecast=forecast_performance(chosen, opened.log, forecasting, seed=seed),
        settings=chosen_settings,
        seed=seed,
        provenance=provenance(opened),
    )
