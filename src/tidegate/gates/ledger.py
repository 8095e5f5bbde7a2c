"""One error budget over many gates, as a file: what each test was allowed, and what it said.

    with using_ledger("budget.json"):  # other gates wait
        ledger = open_ledger("budget.json", 0.05, BudgetPlan())
        turn = next_test(ledger, question_hash(...))
        ...  # the safety test of `episodes_for(granted(ledger, turn), held_out)` at `turn.level`
        save_ledger(entered(ledger, turn.entry(...)), "budget.json")  # before anybody sees the verdict

`tidegate.commands.gate(..., budget=Budget("budget.json"))` does all of it.

The file is sealed with its own hash, as decision records are. It cannot show that it was deleted, or
that a gate was run without it.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from ..arrays import in_double
from ..errors import SettingsError
from ..inputs import member, record_of, whole
from ..inputs import path as file_path
from ..loop import Spending
from ..reasons import Verdict
from ..record import SEAL, plain, read_record, record_hash, restored, sealed, write_record
from .budget_rules import BudgetRule
from .locking import locked
from .spending import (
    EvenSpending,
    HarmonicSpending,
    OBrienFlemingSpending,
    Part,
    PocockSpending,
    SidakLevel,
    fresh,
)

FORMAT = 2  # of the ledger, which outlives the format of single records
KIND = "budget"
EXHAUSTED = (
    "the error budget has nothing for this test: it is spent, or its rule grants nothing this early. Start a "
    "new ledger, which allows another α of wrong deployments, or take another rule next time."
)


_SPENDING: dict[BudgetRule, Callable[[float, int], Spending]] = {
    BudgetRule.HARMONIC: HarmonicSpending,
    BudgetRule.EVEN: EvenSpending,
    BudgetRule.OBRIEN_FLEMING: OBrienFlemingSpending,
    BudgetRule.POCOCK: PocockSpending,
    BudgetRule.SIDAK: SidakLevel,
}


@dataclasses.dataclass(frozen=True)
class BudgetPlan:
    """The rule and the number of tests that it is made for (52: every week for a year)."""

    rule: BudgetRule = BudgetRule.HARMONIC
    tests: int = 52

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", member("rule", BudgetRule, self.rule))
        object.__setattr__(self, "tests", whole("tests", self.tests, 1))

    def spending(self, alpha: float) -> Spending:
        """The rule as the library takes it."""
        return _SPENDING[self.rule](alpha, self.tests)

    @property
    def fresh_only(self) -> bool:
        """Whether an episode may be tested only once."""
        return self.rule is BudgetRule.SIDAK

    def __str__(self) -> str:
        return f"{self.rule.value} over {self.tests} tests"


@dataclasses.dataclass(frozen=True)
class Budget:
    """The file of a ledger, and the plan that it has or is started with."""

    path: str | Path
    plan: BudgetPlan = dataclasses.field(default_factory=BudgetPlan)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", file_path("the budget's file", self.path))
        object.__setattr__(self, "plan", record_of("plan", BudgetPlan, self.plan))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One test: what was tested, at which level, and the verdict.

    `question` is the hash of all that the answer depends on except the level; `last_episode` the last
    one tested; `record_hash` the seal of the decision record.
    """

    number: int
    question: str
    data_hash: str
    level: float
    p_value: float | None
    verdict: Verdict
    last_episode: float
    record_hash: str


@dataclasses.dataclass(frozen=True)
class Turn:
    """What the ledger grants to a question.

    `after` is the last episode that earlier tests have used, if there were any. A question that was
    asked before has the number and the level that it had then.
    """

    number: int
    question: str
    level: float
    after: float | None
    repeated: bool

    def entry(
        self,
        *,
        data_hash: str,
        p_value: float | None,
        verdict: Verdict,
        last_episode: float,
        record_hash: str,
    ) -> Entry:
        """The ledger's entry for this test."""
        known = p_value if p_value is not None and math.isfinite(p_value) else None
        asked = (self.number, self.question, data_hash, self.level)
        return Entry(*asked, known, verdict, last_episode, record_hash)


@dataclasses.dataclass(frozen=True)
class Grant:
    """What a gate was allowed: the budget's part of a decision record, and all that a replay needs.

    `after` is the last episode that may no longer be tested; None if all may be.
    """

    number: int
    level: float
    question: str
    alpha: float
    rule: BudgetRule
    tests: int
    after: float | None

    def __str__(self) -> str:
        if not self.level > 0:
            return f"nothing is left of α = {self.alpha:g} for test {self.number} ({self._plan})."
        return f"this is test {self.number}, at level {self.level:.3g} of α = {self.alpha:g} ({self._plan})."

    @property
    def _plan(self) -> BudgetPlan:
        return BudgetPlan(self.rule, self.tests)


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The budget and every test that drew on it, in order."""

    alpha: float
    plan: BudgetPlan
    entries: tuple[Entry, ...] = ()

    @property
    def spent(self) -> float:
        """The sum of the levels so far."""
        return math.fsum(entry.level for entry in self.entries)

    def __str__(self) -> str:
        level, count = next_level(self), len(self.entries)
        ahead = f"test {count + 1} has level {level:.3g}." if level > 0 else EXHAUSTED
        tests = "1 test" if count == 1 else f"{count} tests"
        return f"{self.spent:.3g} of α = {self.alpha:g} spent in {tests} ({self.plan}); {ahead}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the file."""
        return sealed(KIND, plain(self), FORMAT)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The ledger in a file, if the file is intact."""
        if record_hash(dict(plain)) != plain[SEAL]:
            raise SettingsError("it was changed after it was written: its hash does not match.")
        if (plain["kind"], plain["format"]) != (KIND, FORMAT):
            raise SettingsError(f"it is of kind '{plain['kind']}', format {plain['format']}.")
        ledger = restored(cls, plain)
        for number, entry in enumerate(ledger.entries, 1):
            if entry.number != number or not math.isclose(entry.level, _level(ledger, number)):
                raise SettingsError(f"entry {number} has the wrong number or level for its turn.")
        return ledger


Granting = Callable[[str, float], Grant]  # from a question and the last episode that it is about


def using_ledger(
    path: str | Path, waiting: Callable[[str], object] = lambda _: None
) -> AbstractContextManager[None]:
    """From the grant to the entry: nobody else uses this ledger in here, so no turn is given twice."""
    return locked(_real(path), waiting)


def budget_of(given: Any) -> Budget | Grant | Granting | None:
    """A budget as people name it: `Budget`, a dictionary of its parts, or the path of its ledger.

    A grant, and a function that keeps a ledger elsewhere, stay as they are.
    """
    if given is None or isinstance(given, Grant) or callable(given):
        return given  # type: ignore[no-any-return]
    if isinstance(given, Budget | Mapping):
        return record_of("budget", Budget, given)
    return Budget(given)


def open_ledger(path: str | Path, alpha: float, plan: BudgetPlan) -> Ledger:
    """The ledger at this path, which must have this budget; a missing one is started."""
    plan = record_of("plan", BudgetPlan, plan)
    alpha = plan.spending(alpha).alpha  # raises its errors before a file is made
    with using_ledger(path):
        if not Path(path).exists():
            save_ledger(Ledger(alpha, plan), path)
        ledger = read_ledger(path)
    if (ledger.alpha, ledger.plan) != (alpha, plan):
        raise SettingsError(
            f"{path} is a budget of α = {ledger.alpha:g}, {ledger.plan}; "
            f"this gate asks for α = {alpha:g}, {plan}.",
            expected="the same budget at every gate",
            remedy="Use the same flags as the first time, or start another ledger.",
        )
    return ledger


def read_ledger(path: str | Path) -> Ledger:
    """The ledger at this path."""
    real = _real(path)
    try:
        return Ledger.from_plain(read_record(real))
    except SettingsError as error:
        what = error.what
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it is incomplete: {error!r}."
    raise SettingsError(
        what,
        where=str(path),
        expected="a ledger as a gate with a `budget` wrote it",
        remedy="Restore it from a copy; without it, nobody knows how much was spent.",
    )


def save_ledger(ledger: Ledger, path: str | Path) -> None:
    """Write the ledger whole or not at all, and never over entries made by another gate meanwhile."""
    real = _real(path)
    with locked(real):
        if real.exists():
            _require_growth(read_ledger(real), ledger, real)
        write_record(ledger.to_dict(), real)


def next_level(ledger: Ledger) -> float:
    """What the next new question may use; 0 if nothing is left."""
    return _level(ledger, len(ledger.entries) + 1)


def question_hash(
    test_data_hash: str, policy_hashes: Mapping[str, str], settings: Mapping[str, Any], seed: int
) -> str:
    """The identity of a question: all that its answer depends on, except the granted level.

    `test_data_hash` is that of the episodes that may be tested, with the policies' recorded
    probabilities; `settings` hold whatever else affects the answer. The seed is included, so that
    nobody can repeat the question until the draws happen to be favourable.
    """
    hashes = {"test_data_hash": test_data_hash, "policy_hashes": dict(policy_hashes)}
    return record_hash({**hashes, "settings": dict(settings), "seed": seed})


def next_test(ledger: Ledger, question: str) -> Turn:
    """The turn of a question: the next one, or the one it had if it was asked before."""
    known = [entry for entry in ledger.entries if entry.question == question]
    number = known[0].number if known else len(ledger.entries) + 1
    used = [entry.last_episode for entry in ledger.entries[: number - 1]]
    level = known[0].level if known else _level(ledger, number)
    return Turn(number, question, level, max(used, default=None), bool(known))


def granted(ledger: Ledger, turn: Turn) -> Grant:
    """The turn as a decision record holds it."""
    plan = ledger.plan
    after = turn.after if plan.fresh_only else None
    return Grant(turn.number, turn.level, turn.question, ledger.alpha, plan.rule, plan.tests, after)


def episodes_for(grant: Grant, episodes: Part) -> Part:
    """The episodes that this test may use: all of them, unless the plan allows fresh ones only."""
    return episodes if grant.after is None else fresh(episodes, grant.after)


def entered(ledger: Ledger, entry: Entry) -> Ledger:
    """The ledger with one more test; a question that was answered before spends nothing more."""
    if any(known.question == entry.question for known in ledger.entries):
        return ledger
    turn = next_test(ledger, entry.question)
    if (entry.number, entry.level) != (turn.number, turn.level):
        raise SettingsError(
            f"the entry is number {entry.number} at level {entry.level:g}.",
            expected=f"number {turn.number} at level {turn.level:g}",
            remedy="Ask the ledger for a turn immediately before the test.",
        )
    return dataclasses.replace(ledger, entries=(*ledger.entries, entry))


@in_double
def _level(ledger: Ledger, number: int) -> float:
    return float(ledger.plan.spending(ledger.alpha).level(number))


def _require_growth(on_disk: Ledger, ledger: Ledger, path: Path) -> None:
    longer = ledger.entries[: len(on_disk.entries)] == on_disk.entries
    if not longer or (on_disk.alpha, on_disk.plan) != (ledger.alpha, ledger.plan):
        raise SettingsError(
            f"{path} has changed since it was opened: another gate has made an entry.",
            remedy="Ask again; this test was not counted, and its verdict must not be used.",
        )


def _real(path: str | Path) -> Path:
    """The file itself, whatever links lead to it: all gates must agree on where the lock is."""
    real = Path(os.path.realpath(path))
    if real.exists() and real.stat().st_nlink > 1:
        raise SettingsError(
            f"{path} is one of {real.stat().st_nlink} hard links to the same ledger.",
            expected="a single file: writing to one name would leave the others behind",
            remedy="Keep one of the names, and remove the others; a symbolic link may stand in for them.",
        )
    return real
