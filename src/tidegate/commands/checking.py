"""Is this log fit for use, and what does each finding mean for the user?"""

import dataclasses
from typing import Any

from ..checks.fitness import LogCheck, forecast_and_check
from ..forecast import Forecast
from ..inputs import record_of, seed_of
from ..record import plain, sealed
from .opening import Log, Stage, open_log, silent
from .provenance import Provenance, provenance
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
    chosen, opened = open_log(log, seed=seed, stage=stage).policy(spec)
    chosen_settings = wanted.over(opened.log.span)
    require_room(opened, chosen_settings, chosen)
    stage("checking the log")
    asked = None if policy is None else chosen
    forecast, findings = forecast_and_check(opened.log, chosen_settings.forecast(), asked)
    return CheckRecord(
        policy=spec,
        check=findings,
        forecast=forecast,
        settings=chosen_settings,
        seed=seed,
        provenance=provenance(opened),
    )
