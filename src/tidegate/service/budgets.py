"""Error budgets in the database: the rules are those of `gates.ledger`, the entries are rows.

A level is granted before the test, in a transaction of its own, to one evaluation and one question. Whatever
happens then, the row is there: an evaluation that is taken up again finds its grant, and a question that was
asked before has the level that it had. What was found follows with the decision, in its transaction.
"""

import math
from typing import Any

from sqlalchemy import Connection, insert, select, update

from ..gates.budget_rules import BudgetRule
from ..gates.ledger import BudgetPlan, Entry, Grant, Ledger, granted, next_test
from ..reasons import Verdict
from ..record import Decision
from . import schema
from .evaluations import Claim, hold
from .refusals import Conflict


def ledger(connection: Connection, name: str, *, lock: bool = False) -> Ledger:
    """The ledger of this name; a test whose answer is not known yet counts as KEEP."""
    asked = select(schema.budgets).where(schema.budgets.c.name == name)
    row = connection.execute(asked.with_for_update() if lock else asked).one()
    table = schema.grants
    found = connection.execute(select(table).where(table.c.budget == name).order_by(table.c.number))
    entries = tuple(
        Entry(
            one.number,
            one.question,
            one.data_hash or "",
            one.level,
            one.p_value,
            Verdict[one.verdict or "KEEP"],
            one.last_episode,
            one.record_hash or "",
        )
        for one in found
    )
    return Ledger(row.alpha, BudgetPlan(BudgetRule(row.rule), row.tests), entries)


def grant(connection: Connection, name: str, claim: Claim, question: str, last_episode: float) -> Grant:
    """What the budget allows to this evaluation, which must be claimed; entered at once."""
    if not hold(connection, claim):
        raise Conflict("another worker has this evaluation.")
    known = ledger(connection, name, lock=True)
    turn = next_test(known, question)
    if not turn.repeated:
        row = {
            "budget": name,
            "number": turn.number,
            "evaluation": claim.id,
            "question": question,
            "level": turn.level,
            "last_episode": last_episode,
        }
        connection.execute(insert(schema.grants).values(row))
    return granted(known, turn)


def settle(
    connection: Connection, name: str, found: Grant, decision: Decision, verdict: Verdict, seal: str
) -> None:
    """What the test of a grant has found; the first answer to a question stays."""
    table, p_value = schema.grants, decision.p_value
    mine = (table.c.budget == name, table.c.number == found.number, table.c.record_hash.is_(None))
    values: dict[str, Any] = {
        "data_hash": decision.data_hash,
        "p_value": p_value if p_value is not None and math.isfinite(p_value) else None,
        "verdict": verdict.name,
        "record_hash": seal,
    }
    connection.execute(update(table).where(*mine).values(values))


def told(found: Grant | None, name: str) -> dict[str, Any] | None:
    """The budget's part of an answer."""
    if found is None:
        return None
    return {"name": name, "number": found.number, "level": found.level, "alpha": found.alpha}
