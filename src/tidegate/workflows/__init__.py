"""From a user's log to a record that can be printed, stored and replayed; one function per command.

from tidegate.logs import Columns
from tidegate.workflows import LogFile, PlainSettings, gate

record = gate(
    LogFile("visits.parquet", Columns(reward="profit")),
    candidate="column:new_prob",
    settings=PlainSettings(lookahead=500),
)
print(record)
record.to_dict()  # plain JSON values: what `tidegate gate --json` prints

Every record has `to_dict`. What is not a finite number is null there. Arrays that only a picture needs
are thinned to at most 1,000 points.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "choices": ("BasisKind", "BudgetRule", "PolicyClass", "Preset"),
    "settings": ("PlainSettings", "SearchChoices"),
    "opening": ("LogFile", "OpenLog", "open_log"),
    "provenance": ("Provenance",),
    "checking": ("CheckRecord", "check"),
    "evaluation": ("Evaluation", "evaluate"),
    "budgets": ("Budget", "BudgetPlan", "Grant", "Ledger", "read_ledger"),
    "gating": ("GateRecord", "gate"),
    "training": ("TrainingRecord", "read_training"),
    "improvement": ("Improvement", "improve", "save_improvement"),
    "backtests": ("BacktestRecord", "backtest"),
    "plans": ("PlanRecord", "plan"),
    "verification": ("Outcome", "Verification", "verify"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from .backtests import BacktestRecord as BacktestRecord
    from .backtests import backtest as backtest
    from .budgets import Budget as Budget
    from .budgets import BudgetPlan as BudgetPlan
    from .budgets import Grant as Grant
    from .budgets import Ledger as Ledger
    from .budgets import read_ledger as read_ledger
    from .checking import CheckRecord as CheckRecord
    from .checking import check as check
    from .choices import BasisKind as BasisKind
    from .choices import BudgetRule as BudgetRule
    from .choices import PolicyClass as PolicyClass
    from .choices import Preset as Preset
    from .evaluation import Evaluation as Evaluation
    from .evaluation import evaluate as evaluate
    from .gating import GateRecord as GateRecord
    from .gating import gate as gate
    from .improvement import Improvement as Improvement
    from .improvement import improve as improve
    from .improvement import save_improvement as save_improvement
    from .opening import LogFile as LogFile
    from .opening import OpenLog as OpenLog
    from .opening import open_log as open_log
    from .plans import PlanRecord as PlanRecord
    from .plans import plan as plan
    from .provenance import Provenance as Provenance
    from .settings import PlainSettings as PlainSettings
    from .settings import SearchChoices as SearchChoices
    from .training import TrainingRecord as TrainingRecord
    from .training import read_training as read_training
    from .verification import Outcome as Outcome
    from .verification import Verification as Verification
    from .verification import verify as verify


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidegate.workflows' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
