"""Was the level of a recorded test granted? By the budget's rule, and by its ledger."""

import math
from collections.abc import Mapping
from typing import Any

from ..arrays import in_double
from ..gates.ledger import BudgetPlan, Grant, Ledger, granted, next_test
from ..record import SEAL

Mismatch = tuple[str, Any, Any]  # where, as recorded, as it must be


@in_double
def against_rule(grant: Grant, alpha: float) -> list[Mismatch]:
    """What the plan in the record itself would not have granted."""
    plan = BudgetPlan(grant.rule, grant.tests)
    level = float(plan.spending(alpha).level(grant.number))
    wrong: list[Mismatch] = []
    if grant.alpha != alpha:
        wrong.append(("budget.alpha", grant.alpha, alpha))
    if not math.isclose(grant.level, level, rel_tol=1e-9):
        wrong.append(("budget.level", grant.level, level))
    if grant.after is not None and not (plan.fresh_only and grant.number > 1):
        wrong.append(("budget.after", grant.after, None))
    return wrong


def against_ledger(content: Mapping[str, Any], grant: Grant | None, ledger: Ledger) -> list[Mismatch]:
    """What the ledger says otherwise about this test."""
    if grant is None:
        return [("budget", None, "a test of the ledger")]
    turn = next_test(ledger, grant.question)
    if not turn.repeated:
        return [("budget.question", grant.question, "a question of the ledger")]
    entry, wanted = ledger.entries[turn.number - 1], granted(ledger, turn)
    pairs: dict[str, tuple[Any, Any]] = {
        f"budget.{name}": (getattr(grant, name), getattr(wanted, name))
        for name in ("number", "level", "alpha", "rule", "tests", "after")
    }
    pairs["verdict"] = content["verdict"], entry.verdict.name
    pairs[SEAL] = content[SEAL], entry.record_hash
    return [(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
