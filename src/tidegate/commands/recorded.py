"""What a record asks of a replay, taken apart and bounded before any of it is used.

A record is a file that anybody can write. It names policies, which may be Python code, and numbers that
may be of any size.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..checks.backtest import MAX_DATES
from ..errors import SettingsError
from ..gates.ledger import Grant
from ..inputs import instance, member, none_or
from ..logs import Columns, Format, SpecKind, parse_spec
from ..policies import Policy
from ..record import restored, typed
from .conditions import Conditions
from .guarding import guardrails_from
from .opening import OBJECT, PolicyLike
from .provenance import columns_from
from .settings import PlainSettings, SearchChoices
from .training import TrainingRecord

MAX_ACTIONS = 1_000_000
MAX_GUARDRAILS = 1_000
UNSAID = {"search_memory": "2GiB"}  # what older records of a search do not say, because it was fixed


@dataclasses.dataclass(frozen=True, eq=False)
class Recorded:
    """How the log was read and what was asked; `search` is None in the record of a gate."""

    columns: Columns
    read_as: Format | None
    estimated: bool
    data_hash: str
    versions: Mapping[str, Any]
    candidate: PolicyLike
    safe: PolicyLike
    settings: PlainSettings
    search: SearchChoices | None
    training: TrainingRecord | None
    candidate_from: str | None
    budget: Grant | None
    conditions: Conditions
    seed: int

    @property
    def given_policies(self) -> tuple[PolicyLike, ...]:
        """The policies that a replay looks up; what `improve` found, it finds again."""
        return (self.safe,) if self.search is not None else (self.candidate, self.safe)


def completed(content: dict[str, Any]) -> dict[str, Any]:
    """A record with what it does not say because, when it was written, there was no choice."""
    if content["kind"] != "improve":
        return content
    return {**content, "search": {**UNSAID, **_named(content["search"], "search")}}


def recorded(content: Mapping[str, Any]) -> Recorded:
    """The parts of a gate's or an improvement's record."""
    origin, known, budget = content["provenance"], content["training"], content["budget"]
    columns = columns_from(_named(origin["columns"], "columns"))
    _at_most("num_actions", columns.num_actions or 0, MAX_ACTIONS)
    guardrails, multiplicity = guardrails_from(content.get("guardrails"))
    _at_most("the number of guardrails", len(guardrails), MAX_GUARDRAILS)
    dates = typed(int, content["dates"], "dates")
    _at_most("dates", dates, MAX_DATES)
    searched, bound = content["kind"] == "improve", content["range"]
    times = [typed(str, content[name], name) for name in ("decided_at", "expires_at")]
    decided, expires = map(datetime.datetime.fromisoformat, times)
    return Recorded(
        columns=columns,
        read_as=none_or(partial(member, "read_as", Format), origin["read_as"]),
        estimated=typed(bool, origin["estimated"], "estimated"),
        data_hash=typed(str, origin["data_hash"], "data_hash"),
        versions=_named(origin["versions"], "versions"),
        candidate=typed(str, content["candidate"]["policy"], "candidate.policy"),
        safe=typed(str, content["safe"]["policy"], "safe.policy"),
        settings=restored(PlainSettings, content["settings"]),
        search=restored(SearchChoices, content["search"]) if searched else None,
        training=None if known is None else restored(TrainingRecord, known),
        candidate_from=typed(str | None, content["candidate_from"], "candidate_from"),
        budget=None if budget is None else restored(Grant, budget),
        conditions=Conditions(
            guardrails,
            multiplicity,
            None if bound is None else (bound["low"], bound["high"]),
            typed(bool, content["allow_unguaranteed"], "allow_unguaranteed"),
            expires - decided,
            decided,
            dates,
        ),
        seed=typed(int, content["seed"], "seed"),
    )


def with_objects(asked: Recorded, candidate: Policy | None, safe: Policy | None) -> Recorded:
    """The policies that were objects of Python, which no record can hold, as the reader has them."""
    found = {"candidate": candidate, "safe": safe}
    given = {role: policy for role, policy in found.items() if policy is not None}
    for role in given:
        instance(role, Policy, given[role], "the policy object that was tested")
    asked = dataclasses.replace(asked, **given)  # type: ignore[arg-type]
    for one in asked.given_policies:
        if isinstance(one, str) and one.endswith(OBJECT):
            raise SettingsError(
                f"the record is about a policy object, {one.removesuffix(OBJECT)}, and holds only its hash.",
                remedy="Verify it in Python, with the object: verify(record, log, candidate=policy).",
            )
    return asked


def refuse_python(asked: Recorded) -> None:
    """A record may not make code run unless the reader allows it."""
    for spec in asked.given_policies:
        if isinstance(spec, str) and parse_spec(spec).kind is SpecKind.PYTHON:
            raise SettingsError(
                f"the record names Python code, {spec}, and nothing was run or confirmed.",
                remedy="If you trust that module, allow it (`allow_python=True`).",
            )


def _named(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise SettingsError(f"{name} in the record is of type {kind}.", expected="names and values")
    return value


def _at_most(name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise SettingsError(f"{name} in the record is {value}.", expected=f"a number from 0 to {most:,}")
