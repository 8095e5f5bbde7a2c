"""How many more episodes until this candidate could pass, and which actions lack data."""

import dataclasses
from typing import Any, Unpack

from ..checks.findings import Names
from ..checks.plan import Plan
from ..checks.plan import plan as plan_log
from ..record import plain, sealed
from .asking import ColumnNames, Named, asked
from .opening import Log, PolicyLike, Stage, silent
from .provenance import names_of
from .settings import Settings
from .trials import Origin, Training, TrialRecord, about, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class PlanRecord(TrialRecord):
    """A rough answer to "is it worth waiting?"; `overlap` says which episodes it rests on."""

    plan: Plan

    @property
    def lacking_actions(self) -> tuple[str, ...]:
        """The actions that lack data, by their names in the log."""
        if self.plan.actions is None:
            return ()
        names = Names(labels=self.provenance.labels)
        return tuple(names.action(int(code)) for code in self.plan.actions.lacking)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate plan --json` prints."""
        derived = {"lacking_actions": list(self.lacking_actions)}
        return sealed("plan", {**self.told, **derived, **plain(self)})


def plan(
    log: Log,
    *,
    candidate: PolicyLike,
    safe: PolicyLike = "behavior",
    settings: Settings = None,
    columns: ColumnNames = None,
    training: Training = None,
    candidate_from: Origin = None,
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> PlanRecord:
    """How many more episodes like these would the gate need? The episodes are those it would test."""
    wanted = asked(plan, log, settings, columns, named)
    trial = prepare(wanted, candidate, safe, training, candidate_from, seed, stage)
    stage("planning")
    result = plan_log(
        *trial.policies,
        trial.held_out.log,
        trial.settings.forecast(),
        training=None if trial.seen is None else trial.seen.log,
        span=trial.held_out.span,
        steps=(trial.opened.stepwise[0], trial.opened.steps.log),
        names=names_of(trial.opened),
    )
    return PlanRecord(*about(trial), result)
