"""The record of a workflow as one self-contained page: for a manager at the top, then for a statistician.

Everything is drawn and written from the record's `to_dict`, so that a stored record gives the same page.
Each number stands in a <data> element whose value is the JSON's own; only its text is rounded.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jinja2
from markupsafe import Markup

from ..comparison import Reason, Verdict
from ..goodness import TESTS
from .log_pictures import (
    Picture,
    backtest_pictures,
    comparison_picture,
    evaluation_picture,
    scale_picture,
)
from .log_words import Plain, names, number, percent, plain, say, sentence, units, words

Rows = Sequence[tuple[str, Any]]
ROLES = {"candidate": "candidate", "safe": "safe policy"}
FITNESS = (
    "Is the log fit for the {role}?",
    "Overlap, sample size and time. A warning says that a forecast from this log may mislead.",
)
GOODNESS = (
    "Does the trend fit? ({role})",
    "The bounds assume {trend}, independent episodes and no jumps. A p-value below 0.01 is a warning: "
    "such a departure would be rare if the assumption held.",
)
SCALES = (
    "A line through the last episodes forecasts the advantage, at every time scale: the scale with the "
    "smallest error leads, it and the shorter ones that are nearly as good must pass the test, and no "
    "shorter one may point the other way."
)


class Record(Protocol):
    """What a workflow returns."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number to be seen first; `style` gives its colour."""

    style: str
    value: float | None
    meaning: str | Markup


@dataclasses.dataclass(frozen=True)
class Table:
    """Findings under a title; a folded one is opened by a click."""

    title: str
    explanation: str
    rows: Sequence[Plain]
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class ScaleTable:
    """What each time scale says of the advantage; each row has the role of its scale."""

    explanation: str
    picture: Picture
    units: str
    rows: Sequence[Plain]


@dataclasses.dataclass(frozen=True)
class View:
    """What the template fills in; what a kind of record does not have stays empty."""

    headline: str | Markup
    lead: str | Markup
    badge: str = ""
    doubt: str = ""
    detail: str = ""
    rests_on: str | Markup = ""
    alerts: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    guardrails: Plain | None = None
    scales: ScaleTable | None = None
    picture: Picture | None = None
    forecasts: Rows = ()
    tables: Sequence[Table] = ()
    origins: Sequence[tuple[str, Rows]] = ()


def log_page(record: Record | Plain) -> str:
    """The page of a record, or of the plain values that a stored record holds."""
    data = record if isinstance(record, Mapping) else record.to_dict()
    return (
        _templates()
        .get_template("log.html")
        .render(
            data=data,
            view=_VIEWS[data["kind"]](data),
            backtest=data.get("backtest"),
            backtest_pictures=backtest_pictures(data),
            settings=_settings(data),
            origins=_origins(data),
            record=json.dumps(data, indent=1, ensure_ascii=False),
        )
    )


@functools.cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(number=number, percent=percent, plain=plain, sentence=sentence)
    return templates


def _gate_view(data: Plain) -> View:
    candidate, safe, checks = data["candidate"], data["safe"], data["checks"]
    deploys = data["verdict"] == Verdict.DEPLOY.name
    return View(
        badge=data["verdict"],
        headline=sentence(Verdict[data["verdict"]].value),
        doubt="not guaranteed" if deploys and not data["guaranteed"] else "",
        lead=_plain_reason(data),
        detail=sentence(data["sentence"]),
        alerts=_gate_alerts(data),
        figures=_gate_figures(data),
        guardrails=data.get("guardrails"),
        scales=_scale_table(data),
        rests_on=_gate_basis(data),
        picture=comparison_picture(data),
        forecasts=(
            (f"candidate ({candidate['policy']})", candidate),
            (f"safe policy ({safe['policy']})", safe),
        ),
        tables=[
            *_tables(data, checks["candidate"]["findings"], "candidate"),
            *_tables(data, checks["safe"]["findings"], "safe policy", folded=True),
        ],
    )


def _gate_figures(data: Plain) -> tuple[Figure, ...]:
    """The bound of the advantage; then its p-value, or without one the bounds that make it."""
    advantage = data["advantage"]
    least = "the candidate's expected advantage over the safe policy is at least this"
    if advantage["p_value"] is None:
        bounds = (
            Figure("candidate", data["candidate"]["lower"], "the candidate's lower bound"),
            Figure("safe", data["safe"]["upper"], "the safe policy's upper bound"),
        )
        return (Figure("", advantage["lower"], least), *bounds)
    rare = "p-value: how often chance alone would show such an advantage. The gate asks for {level} or less"
    return (
        Figure("candidate", advantage["lower"], least),
        Figure("", advantage["p_value"], say(rare, level=number(advantage["level"]))),
    )


def _plain_reason(data: Plain) -> Markup:
    """The reason without the words of statistics."""
    says = {
        Reason.BETTER.name: "shows that",
        Reason.NOT_BETTER.name: "does not show that",
        Reason.SCALES_DISAGREE.name: "does not show that",
        Reason.BUDGET_SPENT.name: "was not asked whether",
    }
    if not data["guaranteed"]:
        says[Reason.BETTER.name] = "shows, by its numbers alone, that"
    return say(
        "The log {says} the candidate will do better than the safe policy over the next {n} {units}"
        "{guardrails}.",
        says=says.get(data["reason"], "cannot say whether"),
        n=number(data["settings"]["lookahead"]),
        units=units(data),
        guardrails=_plain_guardrails(data),
    )


def _plain_guardrails(data: Plain) -> str:
    """How the sentence on the reward goes on if other outcomes are watched."""
    if not data.get("guardrails"):
        return ""
    broken = [one["outcome"] for one in data["guardrails"]["outcomes"] if not one["holds"]]
    if not broken:
        return ", and that every guardrail holds" if data["verdict"] == "DEPLOY" else ""
    joints = {
        Reason.BETTER.name: "but not that",
        Reason.NOT_BETTER.name: "nor that",
        Reason.SCALES_DISAGREE.name: "nor that",
    }
    joint = joints.get(data["reason"], "nor whether")
    return f", {joint} every guardrail holds ({', '.join(broken)})"


def _gate_alerts(data: Plain) -> list[str]:
    """What must be known first, in a line each; the tables below say it at length."""
    warned = {
        role: [one for one in data["checks"][role]["findings"] if one["level"] == "WARNING"]
        for role in ROLES
    }
    told = [one["sentence"] for rows in warned.values() for one in rows if one["name"] in TESTS]
    caveats = [one for one in data["caveats"] if not any(part in one for part in told)]
    return [
        *map(sentence, caveats),
        *(
            line
            for role, rows in warned.items()
            for line in _alerts(rows, f"for the {ROLES[role]}")
        ),
    ]


def _alerts(warned: Sequence[Plain], whom: str) -> list[str]:
    """Failed tests by name, other warnings as they are, what is not known in one line."""
    failed = [one for one in warned if one["value"] is not None and one["name"] in TESTS]
    others = [one for one in warned if one["value"] is not None and one["name"] not in TESTS]
    unknown = [one for one in warned if one["value"] is None]
    lines = [sentence(f"{whom}: {one['sentence']}") for one in others]
    if failed:
        lines.insert(
            0,
            f"The log fails goodness-of-fit tests {whom} ({names(failed)}): the bounds may be too "
            "narrow, or in the wrong place.",
        )
    if unknown:
        lines.append(f"Could not be determined {whom}: {names(unknown)}.")
    return lines


def _gate_basis(data: Plain) -> Markup:
    candidate = data["candidate"]
    tried = (
        " Other episodes of the log tried the time scales and fitted the model of the rewards."
        if data["training_data_hash"] and data["training"] is None
        else ""
    )
    return say(
        "{rule} {forecast} It rests on {episodes} test episodes of {source}, worth {worth} episodes "
        "collected with the candidate itself.{tried} {alpha} {overlap}",
        tried=tried,
        rule=data["settings"]["rule"],
        forecast=_horizon(data, candidate),
        episodes=number(candidate["num_episodes"]),
        source=data["provenance"]["source"],
        worth=number(candidate["effective_sample_size"]),
        alpha=_allowance(data),
        overlap=data["overlap"]["sentence"],
    )


def _allowance(data: Plain) -> Markup:
    """How often the gate may be wrong: this once, or in all tests of a budget."""
    budget = data.get("budget")
    if budget is None:
        return say(
            "The allowed probability of a wrong deployment is {alpha}.",
            alpha=percent(data["settings"]["alpha"]),
        )
    share = "nothing is left" if not budget["level"] > 0 else "{level} is for this one"
    return say(
        "This is test {n} of an error budget ({rule}, planned for {tests} tests). The allowed "
        "probability of any wrong deployment, in all tests together, is {alpha}, of which "
        + share
        + ".",
        n=number(budget["number"]),
        rule=words(budget["rule"].lower()),
        tests=number(budget["tests"]),
        alpha=percent(budget["alpha"]),
        level=percent(budget["level"]),
    )


def _horizon(data: Plain, forecast: Plain) -> Markup:
    first, last = forecast["forecast_episodes"] or (None, None)
    what = "The forecast is of the"
    if "candidate" in data:
        what = "The advantage is the candidate's minus the safe policy's"
    return say(
        "{what} mean return of an episode over the next {lookahead} {units} ({first} to {last} on "
        "the time axis).",
        what=what,
        lookahead=number(data["settings"]["lookahead"]),
        units=units(data),
        first=number(first),
        last=number(last),
    )


def _scale_table(data: Plain) -> ScaleTable | None:
    rows = data["advantage"]["scales"]
    return ScaleTable(SCALES, scale_picture(data), units(data), rows) if len(rows) > 1 else None


def _tables(
    data: Plain, findings: Sequence[Plain], role: str, *, folded: bool = False
) -> list[Table]:
    """The findings about the log, then those about the trend."""
    trend = data["settings"]["trend"]
    fitness = [one for one in findings if one["name"] not in TESTS]
    goodness = [one for one in findings if one["name"] in TESTS]
    return [
        Table(title.format(role=role), explanation.format(trend=trend), rows, folded)
        for (title, explanation), rows in ((FITNESS, fitness), (GOODNESS, goodness))
        if rows
    ]


def _evaluate_view(data: Plain) -> View:
    forecast, stationary = data["forecast"], data["stationary"]
    return View(
        headline=say(
            "The policy is expected to earn {point}, between {lower} and {upper}.",
            **{name: number(forecast[name]) for name in ("point", "lower", "upper")},
        ),
        lead=say(
            "{forecast} If nothing changed over time, it would be {point}, between {lower} and {upper}.",
            forecast=_horizon(data, forecast),
            **{name: number(stationary[name]) for name in ("point", "lower", "upper")},
        ),
        alerts=[*map(sentence, data["caveats"]), *_warnings(data["findings"])],
        rests_on=say(
            "It rests on {episodes} episodes of {source}, worth {worth} episodes collected with the "
            "policy itself. The probability left outside the interval is {alpha}.",
            episodes=number(forecast["num_episodes"]),
            source=data["provenance"]["source"],
            worth=number(forecast["effective_sample_size"]),
            alpha=percent(forecast["alpha"]),
        ),
        picture=evaluation_picture(data, forecast, stationary),
        forecasts=((data["policy"], forecast), ("if nothing changed", stationary)),
        tables=_tables(data, data["findings"], "policy"),
    )


def _warnings(findings: Sequence[Plain]) -> list[str]:
    return _alerts([one for one in findings if one["level"] == "WARNING"], "for the policy")


def _check_view(data: Plain) -> View:
    findings = data["check"]["findings"]
    headlines = {
        "OK": "This log can be used: no check found a problem.",
        "NOTE": "The log can be used; look at the notes.",
        "WARNING": "Something is wrong, or not known.",
    }
    return View(
        badge=data["level"],
        headline=headlines[data["level"]],
        lead=say(
            "{episodes} episodes with {steps} steps were checked for the policy “{policy}”.",
            episodes=number(data["check"]["num_episodes"]),
            steps=number(data["check"]["num_steps"]),
            policy=data["policy"],
        ),
        alerts=_warnings(findings),
        picture=evaluation_picture(data, data["forecast"]),
        tables=_tables(data, findings, "policy"),
    )


def _backtest_view(data: Plain) -> View:
    past = data["backtest"]
    return View(
        headline=say(
            "Had the gate been used at {dates} past dates of this log",
            dates=number(past["deployments"]["total"]),
        ),
        lead=past["sentence"],
        alerts=[sentence(one) for one in data["caveats"]],
    )


def _plan_view(data: Plain) -> View:
    plan = data["plan"]
    lacking = data["lacking_actions"]
    asked = {
        "more_episodes": "more episodes for an even chance",
        "likely_episodes": "more episodes for odds of 4 to 1",
        "more_traffic": "times as many episodes in the same time, for an even chance",
    }
    return View(
        headline="How many more episodes?",
        lead=plan["sentence"],
        figures=[Figure("", plan[one], asked[one]) for one in asked if plan[one]],
        alerts=[sentence(one) for one in data["caveats"]],
        rests_on=say("Actions that lack data: {names}.", names=plain(lacking)) if lacking else "",
    )


_VIEWS: dict[str, Callable[[Plain], View]] = {
    "gate": _gate_view,
    "improve": _gate_view,
    "evaluate": _evaluate_view,
    "check": _check_view,
    "backtest": _backtest_view,
    "plan": _plan_view,
}


def _settings(data: Plain) -> Rows:
    told = ("forecast", "trend", "rule", "doubly_robust")  # in words, elsewhere on the page
    rows = [
        (name, value)
        for name, value in data["settings"].items()
        if name not in told and value is not None
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
