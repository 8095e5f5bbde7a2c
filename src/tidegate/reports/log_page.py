"""The record of a command as one self-contained page: for a manager at the top, then for a statistician.

Everything is drawn and written from the record's `to_dict`, so that a stored record gives the same page.
Each number is in a <data> element whose value is the JSON's own; only its text is rounded. The words
are in the templates, one for each kind of record.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jinja2

from ..checks.goodness import TESTS
from ..reasons import Reason, Status, Verdict
from .calendar import Clock
from .changes import what_would_change
from .log_pictures import (
    backtest_pictures,
    comparison_picture,
    evaluation_picture,
    scale_picture,
    watch_pictures,
)
from .log_words import Plain, names, sentence, words
from .numbers import lift
from .page import templates
from .summary import unit_words, window_words

Rows = Sequence[tuple[str, Any]]
ROLES = {"candidate": "candidate", "safe": "safe policy", "difference": "difference"}
FITNESS = (
    "Is the log fit for the {role}?",
    "Overlap, sample size and time. A warning says that a forecast from this log may mislead.",
)
GOODNESS = (
    "Does the trend fit? ({role})",
    "The bounds assume {trend}, independent episodes and no jumps. A p-value below 0.01 is a warning: "
    "such a departure would be rare if the assumption held.",
)
# What the log says about the reward, and how a broken guardrail is joined to it.
SAYS = {
    Reason.BETTER.name: ("shows that", "but not that"),
    Reason.NOT_BETTER.name: ("does not show that", "nor that"),
    Reason.SCALES_DISAGREE.name: ("does not show that", "nor that"),
    Reason.BUDGET_SPENT.name: ("was not asked whether", "nor whether"),
    Reason.NOT_GUARANTEED.name: ("shows by its numbers, but does not guarantee, that", "but not that"),
    Reason.RANGE_DISAGREES.name: ("is too short to be sure, with rewards in this range, that", "nor that"),
}
IN_WORDS = ("forecast", "trend", "rule", "doubly_robust")  # settings shown elsewhere on the page


class Record(Protocol):
    """What a command returns."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class Table:
    """Findings under a title; a folded one is opened by a click."""

    title: str
    explanation: str
    rows: Sequence[Plain]
    folded: bool = False


def log_page(record: Record | Plain) -> str:
    """The page of a record, or of the plain values that a stored record holds."""
    data = record if isinstance(record, Mapping) else record.to_dict()
    gates = "verdict" in data
    template = _templates().get_template("gate.html" if gates else f"{data['kind']}.html")
    return template.render(
        **(_gate_words(data) if gates else {}),
        data=data,
        clock=Clock.of(data["provenance"]),
        unit=unit_words(data),
        window=window_words(data, data.get("safe" if gates else "forecast")),
        alerts=[*map(sentence, _caveats(data)), *_warnings(data)],
        tables=[table for role in _checked(data) for table in _tables(data, *role)],
        settings=_settings(data),
        origins=_origins(data),
        record=json.dumps(data, indent=1, ensure_ascii=False),
    )


@functools.cache
def _templates() -> jinja2.Environment:
    found = templates()
    pictures = (backtest_pictures, comparison_picture, evaluation_picture, scale_picture, watch_pictures)
    found.globals.update({draw.__name__: draw for draw in pictures})
    return found


def _gate_words(data: Plain) -> dict[str, Any]:
    """The verdict and the reason without the words of statistics."""
    advantage = data["advantage"]
    says, joint = SAYS.get(data["reason"], ("cannot say whether", "nor whether"))
    if data["verdict"] == Verdict.DEPLOY.name and not data["guaranteed"]:
        says = "shows, by its numbers alone, that"
    if data["status"] == Status.FAIL.name.lower() and data["reason"] == Reason.NOT_BETTER.name:
        says = "contradicts the claim that"
    rails = data["guardrails"]["outcomes"] if data.get("guardrails") else []
    broken = [one["outcome"] for one in rails if not one["holds"]]
    joined = f", {joint} every guardrail holds ({', '.join(broken)})" if broken else ""
    if rails and not broken and data["verdict"] == Verdict.DEPLOY.name:
        joined = ", and that every guardrail holds"
    return {
        "verdict": Verdict[data["verdict"]].value,
        "says": says,
        "joined": joined,
        "passes": advantage["lower"] is not None and advantage["lower"] > -advantage["margin"],
        "lift": lift(advantage["point"], data["safe"]),
        "changes": what_would_change(data),
    }


def _checked(data: Plain) -> list[tuple[str, Sequence[Plain], bool]]:
    """For which policies the log was checked, what was found, and whether that is folded away."""
    if "checks" in data:
        return [
            (name, data["checks"][role]["findings"], role == "safe")
            for role, name in ROLES.items()
            if role in data["checks"]
        ]
    found = data["check"]["findings"] if "check" in data else data.get("findings")
    return [("policy", found, False)] if found else []


def _caveats(data: Plain) -> list[str]:
    """What must be known first, except findings, which `_warnings` names."""
    findings = [one for _, rows, _ in _checked(data) for one in rows]
    warned = [one["sentence"] for one in findings if one["level"] == "WARNING"]
    return [one for one in data.get("caveats", ()) if not any(part in one for part in warned)]


def _warnings(data: Plain) -> list[str]:
    """One line for each cause; the tables below give the details."""
    failed: list[str] = []
    others: dict[str, list[tuple[str, Plain]]] = {}
    for role, findings, _ in _checked(data):
        warned = [one for one in findings if one["level"] == "WARNING"]
        tests = [one for one in warned if one["value"] is not None and one["name"] in TESTS]
        if tests:
            failed.append(
                f"The log fails goodness-of-fit tests for the {role} ({names(tests)}): the bounds may be too "
                "narrow, or in the wrong place."
            )
        for one in warned:
            if one not in tests:
                others.setdefault(one["sentence"], []).append((role, one))
    return [*failed, *(_alert(cause, group) for cause, group in others.items())]


def _alert(cause: str, group: Sequence[tuple[str, Plain]]) -> str:
    """What one cause brings about, for which policies; names are given to what is not known."""
    *others, last = dict.fromkeys(f"the {role}" for role, _ in group)
    whom = f"{', '.join(others)} and {last}" if others else last
    unknown = list({one["name"]: one for _, one in group if one["value"] is None}.values())
    missing = f" Not known: {names(unknown)}." if unknown else ""
    return f"For {whom}: {cause}{missing}"


def _tables(data: Plain, role: str, findings: Sequence[Plain], folded: bool) -> list[Table]:
    """The findings about the log, then those about the trend."""
    fitness = [one for one in findings if one["name"] not in TESTS]
    goodness = [one for one in findings if one["name"] in TESTS]
    return [
        Table(
            title.format(role=role),
            explanation.format(trend=data["settings"]["trend"]),
            rows,
            folded,
        )
        for (title, explanation), rows in ((FITNESS, fitness), (GOODNESS, goodness))
        if rows
    ]


def _settings(data: Plain) -> Rows:
    rows = [
        (name, value)
        for name, value in data["settings"].items()
        if name not in IN_WORDS and value is not None
    ]
    search = [(name, value) for name, value in data.get("search", {}).items() if name != "settings"]
    return [(words(name), value) for name, value in [*rows, *search, ("seed", data["seed"])]]


def _origins(data: Plain) -> list[tuple[str, Rows]]:
    """Where the numbers come from, group by group."""
    origin = data["provenance"]
    hashes = {
        "data": origin["data_hash"],
        "test episodes": data.get("test_data_hash"),
        "record": data["record_hash"],
    }
    hashes |= {
        role: data[role]["policy_hash"]
        for role in ("candidate", "safe")
        if isinstance(data.get(role), Mapping)
    }
    log = ("source", "num_episodes", "num_steps", "propensities", "labels", "notes")
    groups = {
        "Log": {name: origin[name] for name in log},
        "Columns": origin["columns"],
        "Training": data.get("training") or {},
        "Error budget": data.get("budget") or {},
        "Hashes": {name: value for name, value in hashes.items() if value},
        "Versions": origin["versions"],
    }
    return [
        (title, [(words(name), value) for name, value in group.items()])
        for title, group in groups.items()
        if group
    ]
