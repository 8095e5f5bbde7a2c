"""Is this log fit for use, and what does each finding mean for the user?"""

import dataclasses
from typing import Any, Unpack

from ..checks.fitness import LogCheck, forecast_and_check, with_support
from ..forecast import Forecast
from ..inputs import seed_of
from ..record import plain, sealed
from .asking import ColumnNames, Named, asked
from .opening import Log, PolicyLike, Stage, open_log, policy_name, silent
from .provenance import Provenance, names_of, provenance
from .room import require_room
from .settings import PlainSettings, Settings
from .showing import Shown


@dataclasses.dataclass(frozen=True, eq=False)
class CheckRecord(Shown):
    """The findings about a log: for a policy, or for what was observed."""

    policy: str
    check: LogCheck
    forecast: Forecast
    settings: PlainSettings
    seed: int
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate check --json` prints."""
        return sealed("check", {"level": self.check.level.name, **plain(self)})


def check(
    log: Log,
    *,
    policy: PolicyLike | None = None,
    settings: Settings = None,
    columns: ColumnNames = None,
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> CheckRecord:
    """Check a log, for a policy if one is named. An unfit log raises a `LogError` that names the rows.

    Without a policy nothing can be said about overlap: the findings are about what was observed.
    """
    wanted, seed = asked(check, log, settings, columns, named), seed_of(seed)
    given = "behavior" if policy is None else policy
    chosen, opened = open_log(wanted.log, seed=seed, stage=stage).policy(given)
    chosen_settings = wanted.settings.over(opened.span, opened.loaded.time)
    require_room(opened, chosen_settings, chosen)
    (chosen,), opened = opened.reduced((given,), (chosen,), chosen_settings.forecast(), stage)
    stage("checking the log")
    forecast, findings = forecast_and_check(
        opened.log,
        chosen_settings.forecast(),
        None if policy is None else chosen,
        names=names_of(opened),
    )
    if opened.stepwise:
        known = None if policy is None else opened.stepwise[0]
        findings = with_support(findings, known, opened.steps.log, names_of(opened))
    return CheckRecord(
        policy=policy_name(given),
        check=findings,
        forecast=forecast,
        settings=chosen_settings,
        seed=seed,
        provenance=provenance(opened),
    )
