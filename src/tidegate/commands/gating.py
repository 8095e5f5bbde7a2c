"""DEPLOY or KEEP, as a record that can be defended and replayed."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from ..checks.backtest import Backtest, backtest
from ..checks.findings import Finding, Level
from ..checks.fitness import LogCheck, check_log
from ..checks.goodness import TESTS
from ..comparison import Verdict
from ..gates.guardrails import GuardedDecision, Guardrail, guarded_test
from ..gates.ledger import Budget, Grant, entered, granted, next_test, open_ledger, save_ledger
from ..gates.multiplicity import Multiplicity
from ..record import SEAL, Decision, plain, sealed
from ..safety import with_training
from .guarding import guardrail_values, with_outcomes
from .leaks import candidate_leak
from .opening import Log, Stage, silent
from .provenance import Provenance, provenance
from .questions import allowed, last_episode, question, require_p_value
from .settings import PlainSettings
from .training import Overlap, TrainingRecord
from .trials import Origin, Training, Trial, origin_caveats, prepare


@dataclasses.dataclass(frozen=True, eq=False)
class GateRecord:
    """A verdict with all that it rests on.

    `guarded` holds the test of the reward (`decision`) and those of the guardrails, if there are any.
    `checks` are the findings about the test episodes for each policy. `caveats` are sentences that
    belong beside the verdict: with any of them, it is not guaranteed. `backtest` is None if no past
    dates were asked for, `budget` if the test used all of α.
    """

    guarded: GuardedDecision
    candidate: str
    safe: str
    candidate_from: str | None
    checks: dict[str, LogCheck]
    caveats: tuple[str, ...]
    overlap: Overlap
    training: TrainingRecord | None
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
    def verdict(self) -> Verdict:
        return self.guarded.verdict

    @property
    def deploys(self) -> bool:
        return self.verdict is Verdict.DEPLOY

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """The tests of the trend model that fail, each with its policy."""
        return tuple(
            f"{finding.name} ({name})" for name, check in self.checks.items() for finding in _failed(check)
        )

    @property
    def headline(self) -> str:
        """The verdict, marked if it is not guaranteed, and the reason."""
        mark = ""
        if self.provenance.estimated:
            mark = f" ({self.provenance.propensities})"
        elif self.caveats and self.deploys:
            mark = " (not guaranteed)"
        return f"{self.verdict.name}{mark}: {self.guarded.sentence}"

    def __str__(self) -> str:
        return "\n".join([f"{self.headline} {self.decision.bounds}", *(f"Beware: {c}" for c in self.caveats)])

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
            "verdict": self.verdict.name,
            "sentence": self.guarded.sentence,
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
    candidate: str,
    safe: str = "behavior",
    settings: PlainSettings | None = None,
    training: Training = None,
    candidate_from: Origin = None,
    guardrails: Sequence[Guardrail] = (),
    multiplicity: Multiplicity = Multiplicity.HOLM,
    budget: Budget | Grant | None = None,
    dates: int = 0,
    seed: int = 0,
    stage: Stage = silent,
) -> GateRecord:
    """Will the candidate beat the safe policy over the next `lookahead` episodes of this log's world?

    If the candidate was found by `improve`, the record beside it (or the one named by `training`) says
    which episodes its search has seen: these are not tested. For any other candidate, `candidate_from` says
    what it was made with: `this-log`, `elsewhere`, or `before:TIME`; only what it cannot have seen is
    tested. With `dates`, the record also holds a
    backtest of the test episodes at that many past dates. With `guardrails`, their outcomes are read and
    tested too, and must not be forecast to worsen by more than their margins.

    With a `budget`, the test has the level that its ledger grants, and is entered in the ledger before
    this returns, so that many gates can share one α. A `Grant` from a record is for a replay.
    """
    if budget is not None:
        require_p_value(settings)
    wanted = with_outcomes(log, guardrails)
    trial = prepare(wanted, candidate, safe, settings, training, candidate_from, seed, stage)
    if budget is None:
        return decide(trial, dates, stage, guardrails, multiplicity)
    asked = question(trial, guardrails, multiplicity)
    if isinstance(budget, Grant):
        grant = dataclasses.replace(budget, question=asked)
        return decide(trial, dates, stage, guardrails, multiplicity, grant)
    ledger = open_ledger(budget.path, trial.settings.alpha, budget.plan)
    turn = next_test(ledger, asked)
    record = decide(trial, dates, stage, guardrails, multiplicity, granted(ledger, turn))
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


def decide(
    trial: Trial,
    dates: int,
    stage: Stage,
    guardrails: Sequence[Guardrail] = (),
    multiplicity: Multiplicity = Multiplicity.HOLM,
    grant: Grant | None = None,
) -> GateRecord:
    """The tests, and the checks of their episodes."""
    trial = allowed(trial, grant)
    forecasting, seed, held_out = trial.settings.forecast(), trial.seed, trial.held_out
    # Split once: the tests, the findings and the backtest look at the same episodes.
    seen, held_out = with_training(forecasting, trial.seen, held_out, seed)
    training = None if seen is None else seen.log
    stage("testing the candidate")
    guarded = guarded_test(
        *trial.policies,
        held_out,
        forecasting,
        guardrails,
        training=seen,
        multiplicity=multiplicity,
        level=None if grant is None else grant.level,
        seed=seed,
    )
    stage("checking the test episodes")
    checks = {
        role: check_log(held_out.log, forecasting, policy, training=training, span=held_out.span, seed=seed)
        for role, policy in zip(("candidate", "safe"), trial.policies, strict=True)
    }
    leak = candidate_leak(trial)
    if leak is not None:
        checks["candidate"] = checks["candidate"].including(leak)
    past = None
    if dates:
        stage("using the gate at past dates")
        past = backtest(*trial.policies, held_out.log, forecasting, training=training, dates=dates, seed=seed)
    origin = provenance(trial.opened)
    return GateRecord(
        guarded=guarded,
        candidate=trial.names[0],
        safe=trial.names[1],
        candidate_from=trial.candidate_from,
        checks=checks,
        caveats=(
            *origin_caveats(origin, trial.overlap, trial.names[0]),
            *((leak.sentence,) if leak is not None and leak.level is Level.WARNING else ()),
            *_misfits(checks),
        ),
        overlap=trial.overlap,
        training=trial.training,
        dates=dates,
        backtest=past,
        budget=grant,
        settings=trial.settings,
        seed=seed,
        provenance=origin,
    )


def _failed(check: LogCheck) -> tuple[Finding, ...]:
    return tuple(one for one in check.warnings if one.name in TESTS)


def _misfits(checks: dict[str, LogCheck]) -> Iterator[str]:
    for role, check in checks.items():
        failed = _failed(check)
        whose = "candidate" if role == "candidate" else "safe policy"
        for start, found in (
            ("The log fails the goodness-of-fit tests", [f for f in failed if f.value is not None]),
            ("Goodness of fit could not be tested", [f for f in failed if f.value is None]),
        ):
            if found:
                yield f"{start} for the {whose}: {' '.join(one.sentence for one in found)}"
