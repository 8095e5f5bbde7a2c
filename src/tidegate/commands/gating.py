"""DEPLOY or KEEP, as a record that can be defended and replayed."""

import dataclasses
import datetime
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

from ..checks.backtest import Backtest, backtest
from ..checks.findings import Finding, Level
from ..checks.fitness import LogCheck, check_tested, with_support
from ..checks.goodness import TESTS
from ..checks.plan import Plan, outlook
from ..forecast import ForecastSettings
from ..gates.finite_sample import RangeBound, range_bound
from ..gates.guardrails import GuardedDecision, Guardrail, guarded_test
from ..gates.ledger import (
    Budget,
    Grant,
    Granting,
    budget_of,
    entered,
    granted,
    next_test,
    open_ledger,
    save_ledger,
    using_ledger,
)
from ..gates.multiplicity import Multiplicity
from ..logs.memory import give_back
from ..reasons import Reason, Status, Verdict
from ..record import SEAL, Advantage, Decision, plain, sealed
from ..reports.calendar import Clock
from .asking import ColumnNames, Named, asked
from .assumptions import assumptions
from .conditions import WEEK, Conditions, written
from .guarding import guardrail_values, with_outcomes
from .leaks import candidate_leak
from .opening import Log, OpenLog, PolicyLike, Stage, counted, silent
from .provenance import Provenance, names_of, provenance
from .questions import allowed, last_episode, question, require_p_value
from .settings import PlainSettings, Settings
from .showing import Shown
from .training import Overlap, TrainingRecord
from .trials import Origin, Training, Trial, origin_assumptions, origin_caveats, prepare

ROLES = ("candidate", "safe")
WHOSE = {"candidate": "the candidate", "safe": "the safe policy", "difference": "the candidate's advantage"}


@dataclasses.dataclass(frozen=True, eq=False)
class GateRecord(Shown):
    """A verdict with everything behind it.

    `guarded` holds the test of the reward (`decision`) and those of the guardrails, if there are any.
    `checks` are the findings about the test episodes: for each policy, and for their difference where the
    test rests on it. `caveats` are sentences that belong beside the verdict: with any of them it is not
    guaranteed, and KEEP, unless the user has allowed that. `assumptions` are what no log can show. `range`
    is a finite-sample bound, if the range of the rewards was given. `outlook` says how many more episodes the
    test of the reward would need. `backtest` is None if no past dates were
    asked for, `budget` if the test used all of α. Times are in UTC; after `expires_at`, ask again.
    """

    guarded: GuardedDecision
    candidate: str
    safe: str
    candidate_from: str | None
    checks: dict[str, LogCheck]
    caveats: tuple[str, ...]
    assumptions: tuple[str, ...]
    allow_unguaranteed: bool
    range: RangeBound | None
    decided_at: str
    expires_at: str
    overlap: Overlap
    training: TrainingRecord | None
    outlook: Plan
    dates: int
    backtest: Backtest | None
    budget: Grant | None
    settings: PlainSettings
    seed: int
    provenance: Provenance

    @property
    def decision(self) -> Decision:
        """The test of the reward."""
        return self.guarded.main

    @property
    def advantage(self) -> Advantage:
        """What is forecast of candidate − safe: its point, bounds, p-value and level."""
        return self.decision.advantage

    @property
    def reason(self) -> Reason:
        """Why: that of the test, or what keeps the gate shut although the tests would open it."""
        if self.guarded.verdict is not Verdict.DEPLOY:
            return self.decision.reason
        if self.range is not None and not self.range.agrees:
            return Reason.RANGE_DISAGREES
        if self.caveats and not self.allow_unguaranteed:
            return Reason.NOT_GUARANTEED
        return Reason.BETTER

    @property
    def verdict(self) -> Verdict:
        opens = self.guarded.verdict is Verdict.DEPLOY and self.reason is Reason.BETTER
        return Verdict.DEPLOY if opens else Verdict.KEEP

    @property
    def status(self) -> Status:
        if self.guarded.verdict is not Verdict.DEPLOY:
            return self.guarded.status
        return Status.PASS if self.deploys else Status.INCONCLUSIVE

    @property
    def deploys(self) -> bool:
        return self.verdict is Verdict.DEPLOY

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """The tests of the trend that fail, each with what it is the trend of."""
        return tuple(
            f"{finding.name} ({name})" for name, check in self.checks.items() for finding in _failed(check)
        )

    @property
    def sentence(self) -> str:
        """The reason in words."""
        kept = self.guarded.verdict is Verdict.DEPLOY and not self.deploys
        return self.reason.sentence if kept else self.guarded.worded(Clock.of(vars(self.provenance)).span)

    @property
    def headline(self) -> str:
        """The verdict, marked if it is not guaranteed and allowed all the same, and the reason."""
        mark = " (not guaranteed, as allowed)" if self.deploys and self.caveats else ""
        return f"{self.verdict.name}{mark}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the decision record, and what `tidegate gate --json` prints."""
        return sealed("gate", self.content)

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """The values of the record without its kind and its seal, computed once."""
        decided = {k: v for k, v in self.decision.to_dict().items() if k != "versions"}
        rest = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "guarded"}
        return {
            **decided,
            **plain(rest),
            "status": self.status.value,
            "verdict": self.verdict.name,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "headline": self.headline,
            "guaranteed": not self.caveats,
            "candidate": {"policy": self.candidate, **decided["candidate"]},
            "safe": {"policy": self.safe, **decided["safe"]},
            "guardrails": guardrail_values(self.guarded),
            "goodness_of_fit": {"passed": not self.failed_tests, "failed": list(self.failed_tests)},
            "settings": {**plain(self.settings), "forecast": decided["settings"]},
        }


def gate(
    log: Log,
    *,
    candidate: PolicyLike,
    safe: PolicyLike = "behavior",
    settings: Settings = None,
    columns: ColumnNames = None,
    training: Training = None,
    candidate_from: Origin = None,
    guardrails: Sequence[Guardrail | str] = (),
    multiplicity: Multiplicity | str = Multiplicity.HOLM,
    reward_range: tuple[float, float] | None = None,
    allow_unguaranteed: bool = False,
    valid_for: str | datetime.timedelta = WEEK,
    budget: Budget | Grant | Granting | str | Path | None = None,
    dates: int = 0,
    seed: int = 0,
    now: datetime.datetime | None = None,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> GateRecord:
    """Will the candidate beat the safe policy over the next `lookahead` episodes of this log's world?

    If the candidate was found by `improve`, the record beside it (or the one named by `training`) says
    which episodes its search has seen: these are not tested. For any other candidate, `candidate_from` says
    what it was made with: `this-log`, `elsewhere`, or `before:TIME`; only what it cannot have seen is
    tested. With `dates`, the record also holds a
    backtest of the test episodes at that many past dates. With `guardrails`, their outcomes are read and
    tested too, and must not be forecast to worsen by more than their margins.

    With a caveat, a verdict is not guaranteed: then it is KEEP, unless `allow_unguaranteed`. `reward_range`
    is the smallest and the largest return that an episode can ever have: a bound that needs no large sample
    must then agree. The decision is good for `valid_for` from `now`. The seed is for estimated propensities;
    the verdict depends on no seed.

    With a `budget`, the test has the level that its ledger grants, and is entered in the ledger before
    this returns, so that many gates can share one α. A `Grant` from a record is for a replay, and a function
    that grants a level to a question is for whoever keeps a ledger elsewhere.
    """
    wanted, budget = asked(gate, log, settings, columns, named), budget_of(budget)
    if budget is not None:
        require_p_value(wanted.settings)
    asked_for = Conditions(  # which coerces or refuses each of them
        guardrails,  # type: ignore[arg-type]
        multiplicity,  # type: ignore[arg-type]
        reward_range,
        allow_unguaranteed,
        valid_for,  # type: ignore[arg-type]
        now,
        dates,
    )
    wanted = dataclasses.replace(wanted, log=with_outcomes(wanted.log, asked_for.guardrails))
    trial = prepare(wanted, candidate, safe, training, candidate_from, seed, stage)
    if budget is None:
        trial = trial.with_room()  # so that the one without it is freed
        return decide(trial, asked_for, stage)
    identity = question(trial, asked_for)
    if isinstance(budget, Grant):
        return decide(trial, asked_for, stage, dataclasses.replace(budget, question=identity))
    if callable(budget):
        return decide(trial, asked_for, stage, budget(identity, last_episode(trial)))
    with using_ledger(budget.path, stage):
        ledger = open_ledger(budget.path, trial.settings.alpha, budget.plan)
        turn = next_test(ledger, identity)
        record = decide(trial, asked_for, stage, granted(ledger, turn))
        if not turn.repeated:
            entry = turn.entry(
                data_hash=record.decision.data_hash,
                p_value=record.decision.p_value,
                verdict=record.verdict,
                last_episode=last_episode(trial),
                record_hash=record.to_dict()[SEAL],
            )
            save_ledger(entered(ledger, entry), budget.path)
        return record


def decide(trial: Trial, asked_for: Conditions, stage: Stage, grant: Grant | None = None) -> GateRecord:
    """The tests, and the checks of their episodes."""
    trial = allowed(trial, grant)
    forecasting, given = trial.settings.forecast(), trial.held_out.log.num_episodes
    # Split once: the tests, the findings and the backtest look at the same episodes.
    trial = trial.with_room()
    seen, held_out = trial.seen, trial.held_out
    training = None if seen is None else seen.log
    stage("testing the candidate")
    guarded = guarded_test(
        *trial.policies,
        held_out,
        forecasting,
        asked_for.guardrails,
        training=seen,
        multiplicity=asked_for.multiplicity,
        level=None if grant is None else grant.level,
        seed=trial.seed,
    )
    stage("checking the test episodes")
    if trial.opened.large is not None:
        give_back()
    leak = candidate_leak(trial)
    found = guarded.tested
    checks = check_tested(
        held_out.log, forecasting, trial.policies, found.comparison, found.axis, names_of(trial.opened)
    )
    checks = {role: sampled_support(trial.opened, role, one) for role, one in checks.items()}
    if leak is not None:
        checks["candidate"] = checks["candidate"].including(leak)
    bound = _range_bound(trial, guarded, asked_for, forecasting)
    past = None
    if asked_for.dates:
        past = backtest(
            *trial.policies,
            held_out.log,
            forecasting,
            training=training,
            dates=asked_for.dates,
            progress=counted(stage, "asking the gate at past dates"),
        )
    origin, moment = provenance(trial.opened), asked_for.decided_at
    return GateRecord(
        guarded=guarded,
        candidate=trial.names[0],
        safe=trial.names[1],
        candidate_from=trial.candidate_from,
        checks=checks,
        caveats=(
            *origin_caveats(origin, trial.overlap, trial.names[0]),
            *((leak.sentence,) if leak is not None and leak.level is Level.WARNING else ()),
            *_misfits(checks, forecasting.test.voided_by),
        ),
        assumptions=(
            *origin_assumptions(trial.overlap, trial.names[0]),
            *assumptions(origin, trial.settings, held_out.log.num_episodes, bound),
        ),
        allow_unguaranteed=asked_for.allow_unguaranteed,
        range=bound,
        decided_at=written(moment),
        expires_at=written(moment + asked_for.valid_for),
        overlap=trial.overlap,
        training=trial.training,
        outlook=outlook(forecasting, given, found.axis, found.comparison, names=names_of(trial.opened)),
        dates=asked_for.dates,
        backtest=past,
        budget=grant,
        settings=trial.settings,
        seed=trial.seed,
        provenance=origin,
    )


def sampled_support(opened: OpenLog, role: str, check: LogCheck) -> LogCheck:
    """Of a log that is not held, a sample tells which actions it shows."""
    place = ROLES.index(role) if role in ROLES else len(ROLES)
    if place >= len(opened.stepwise):
        return check
    return with_support(check, opened.stepwise[place], opened.steps.log, names_of(opened))


def _range_bound(
    trial: Trial, guarded: GuardedDecision, asked_for: Conditions, forecasting: ForecastSettings
) -> RangeBound | None:
    """Over all test episodes."""
    if asked_for.reward_range is None:
        return None
    held_out = trial.held_out
    return range_bound(
        *trial.policies,
        held_out.log,
        asked_for.reward_range,
        guarded.main_level,
        discount=forecasting.discount,
        since=(held_out.span or held_out.log.span)[0] - 1,
        names=names_of(trial.opened),
    )


def _failed(check: LogCheck) -> tuple[Finding, ...]:
    return tuple(one for one in check.warnings if one.name in TESTS)


def _misfits(checks: dict[str, LogCheck], voided_by: tuple[str, ...]) -> Iterator[str]:
    for role, check in checks.items():
        failed = [one for one in _failed(check) if one.name in voided_by]
        for start, found in (
            ("The log fails the goodness-of-fit tests", [f for f in failed if f.value is not None]),
            ("Goodness of fit could not be tested", [f for f in failed if f.value is None]),
        ):
            if found:
                yield f"{start} for {WHOSE[role]}: {' '.join(dict.fromkeys(one.sentence for one in found))}"
