"""Guardrails in the commands: which columns they need, and their part of a record."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SettingsError
from ..gates.guardrails import GuardedDecision, Guardrail, GuardrailDecision
from ..gates.multiplicity import Multiplicity
from ..record import plain, restored, typed
from .opening import Log, OpenLog, log_file


def with_outcomes(log: Log, guardrails: Sequence[Guardrail]) -> Log:
    """The log, to be read with the columns that the guardrails watch. An open log stays as it is."""
    if isinstance(log, OpenLog) or not guardrails:
        return log
    file = log_file(log)
    names = dict.fromkeys((*file.columns.outcomes, *(one.name for one in guardrails)))
    columns = dataclasses.replace(file.columns, outcomes=tuple(names))
    return dataclasses.replace(file, columns=columns)


def guardrail_values(guarded: GuardedDecision) -> dict[str, Any] | None:
    """All tests of the outcomes in plain JSON values; None if there is no guardrail."""
    if not guarded.guardrails:
        return None
    values: dict[str, Any] = plain(
        {
            "multiplicity": guarded.multiplicity,
            "sentence": guarded.multiplicity.sentence,
            "num_tests": 1 + len(guarded.guardrails),
            "alpha": guarded.alpha,
            "reward": {
                "improves": guarded.improves,
                "p_value": guarded.main.p_value,
                "level": guarded.main_level,
            },
            "outcomes": [outcome_values(one) for one in guarded.guardrails],
        }
    )
    return values


def outcome_values(one: GuardrailDecision) -> dict[str, Any]:
    """Numbers in the outcome's own direction; `bound` is the worst change that is not ruled out.

    `candidate` and `safe` are forecast separately, so `change` need not be exactly their difference.
    """
    rail, decision = one.guardrail, one.decision
    return {
        "outcome": rail.name,
        "margin": rail.margin,
        "lower_is_better": rail.lower_is_better,
        "holds": one.passed,
        "reason": decision.reason.name,
        "sentence": one.sentence,
        "candidate": rail.sign * decision.candidate.point,
        "safe": rail.sign * decision.safe.point,
        "change": one.change,
        "bound": one.bound,
        "p_value": decision.p_value,
        "level": one.level,
        "constant": one.constant,
        "test_data_hash": decision.data_hash,
    }


def guardrails_from(
    plain: Mapping[str, Any] | None,
) -> tuple[tuple[Guardrail, ...], Multiplicity]:
    """The guardrails in a record, and how they shared α: what a replay needs."""
    if plain is None:
        return (), Multiplicity.HOLM
    try:
        rails = [restored(Guardrail, {**one, "name": one["outcome"]}) for one in plain["outcomes"]]
        return tuple(rails), typed(Multiplicity, plain["multiplicity"], "multiplicity")
    except (KeyError, TypeError) as error:
        raise SettingsError(
            f"the record's guardrails are incomplete: {error!r}.",
            expected="all that `gate` wrote",
        ) from error
