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
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes

from ..backtesting import PolicyBacktest
from ..bootstrap import Side
from ..goodness import TESTS
from ..performance import Forecast
from ..verdicts import Reason, Verdict
from .figures import CANDIDATE, SAFE, draw_backtest, draw_comparison, draw_evaluation, draw_figure
from .page import inline_svg

Plain = Mapping[str, Any]
Rows = Sequence[tuple[str, Any]]
WIDE, NARROW = (9.0, 4.2), (3.6, 4.2)  # inches; a narrow picture has its legend in one column
UNITS = {"episode": "episodes", "hour": "hours", "day": "days", "number": "units of time"}
AXES = {
    "episode": "episode",
    "hour": "hours since the first episode",
    "day": "days since the first episode",
    "number": "time",
}
ROLES = {"candidate": "candidate", "safe": "safe policy"}
FITNESS = (
    "Is the log fit for the {role}?",
    "Overlap, sample size and time. A warning says that a forecast from this log may mislead.",
)
GOODNESS = (
    "Does the trend fit? ({role})",
    "The bounds assume a smooth trend in the span of the basis, independent episodes and no jumps. "
    "A p-value below 0.01 is a warning: such a departure would be rare if the assumption held.",
)


class Record(Protocol):
    """What a workflow returns."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class Picture:
    """One picture for a wide window and one for a phone."""

    wide: Markup
    narrow: Markup
    caption: str | Markup


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
            backtest_pictures=_backtest_pictures(data),
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


def number(value: float | None) -> str | Markup:
    """A number as a reader wants it, with the record's own digits behind it."""
    if value is None:
        return "not known"
    return _data(value, f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}")


def percent(value: float | None) -> str | Markup:
    """A share as a percentage."""
    return "not known" if value is None else _data(value, f"{100 * value:.3g}\u00a0%")


def _data(value: float, text: str) -> Markup:
    return Markup('<data value="{}">{}</data>').format(json.dumps(value), text)


def plain(value: Any) -> str | Markup:
    """Any value of the record in a table of names and values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list | tuple):
        return Markup(", ").join(plain(one) for one in value) or "–"
    return "–" if value is None or value == "" else str(value)


def sentence(text: str) -> str:
    """A sentence from words that were made to follow others."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _say(words: str, **values: Any) -> Markup:
    """Words with numbers and names in them; names are escaped."""
    return Markup(words).format(**values)


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
        figures=(
            Figure("candidate", candidate["lower"], "the candidate is expected to earn at least"),
            Figure("safe", safe["upper"], "the safe policy is expected to earn at most"),
        ),
        guardrails=data.get("guardrails"),
        rests_on=_gate_basis(data),
        picture=_comparison(data),
        forecasts=(
            (f"candidate ({candidate['policy']})", candidate),
            (f"safe policy ({safe['policy']})", safe),
        ),
        tables=[
            *_tables(checks["candidate"]["findings"], "candidate"),
            *_tables(checks["safe"]["findings"], "safe policy", folded=True),
        ],
    )


def _plain_reason(data: Plain) -> Markup:
    """The reason without the words of statistics."""
    says = {Reason.BETTER.name: "shows that", Reason.NOT_BETTER.name: "does not show that"}
    if not data["guaranteed"]:
        says[Reason.BETTER.name] = "shows, by its numbers alone, that"
    return _say(
        "The log {says} the candidate will do better than the safe policy over the next {n} {units}"
        "{guardrails}.",
        says=says.get(data["reason"], "cannot say whether"),
        n=number(data["settings"]["lookahead"]),
        units=_units(data),
        guardrails=_plain_guardrails(data),
    )


def _plain_guardrails(data: Plain) -> str:
    """How the sentence on the reward goes on if other outcomes are watched."""
    if not data.get("guardrails"):
        return ""
    broken = [one["outcome"] for one in data["guardrails"]["outcomes"] if not one["holds"]]
    if not broken:
        return ", and that every guardrail holds" if data["verdict"] == "DEPLOY" else ""
    joints = {Reason.BETTER.name: "but not that", Reason.NOT_BETTER.name: "nor that"}
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
            f"The log fails goodness-of-fit tests {whom} ({_names(failed)}): the bounds may be too "
            "narrow, or in the wrong place.",
        )
    if unknown:
        lines.append(f"Could not be determined {whom}: {_names(unknown)}.")
    return lines


def _names(findings: Sequence[Plain]) -> str:
    return ", ".join(_words(one["name"]) for one in findings)


def _gate_basis(data: Plain) -> Markup:
    candidate = data["candidate"]
    return _say(
        "The gate opens only if the first number is above the second. {forecast} It rests on "
        "{episodes} test episodes of {source}, worth {worth} episodes collected with the candidate "
        "itself. The allowed probability of a wrong deployment is {alpha}. {overlap}",
        forecast=_horizon(data, candidate),
        episodes=number(candidate["num_episodes"]),
        source=data["provenance"]["source"],
        worth=number(candidate["effective_sample_size"]),
        alpha=percent(candidate["alpha"]),
        overlap=data["overlap"]["sentence"],
    )


def _horizon(data: Plain, forecast: Plain) -> Markup:
    first, last = forecast["forecast_episodes"] or (None, None)
    return _say(
        "Both are bounds on the mean return of an episode over the next {lookahead} {units} "
        "({first} to {last} on the time axis)."
        if "candidate" in data
        else "The forecast is of the mean return of an episode over the next {lookahead} {units} "
        "({first} to {last} on the time axis).",
        lookahead=number(data["settings"]["lookahead"]),
        units=_units(data),
        first=number(first),
        last=number(last),
    )


def _units(data: Plain) -> str:
    return UNITS[data["provenance"]["time_unit"]]


def _axis_label(data: Plain) -> str:
    return AXES[data["provenance"]["time_unit"]]


def _tables(findings: Sequence[Plain], role: str, *, folded: bool = False) -> list[Table]:
    """The findings about the log, then those about the trend."""
    fitness = [one for one in findings if one["name"] not in TESTS]
    goodness = [one for one in findings if one["name"] in TESTS]
    return [
        Table(title.format(role=role), explanation, rows, folded)
        for (title, explanation), rows in ((FITNESS, fitness), (GOODNESS, goodness))
        if rows
    ]


def _evaluate_view(data: Plain) -> View:
    forecast, stationary = data["forecast"], data["stationary"]
    return View(
        headline=_say(
            "The policy is expected to earn {point}, between {lower} and {upper}.",
            **{name: number(forecast[name]) for name in ("point", "lower", "upper")},
        ),
        lead=_say(
            "{forecast} If nothing changed over time, it would be {point}, between {lower} and {upper}.",
            forecast=_horizon(data, forecast),
            **{name: number(stationary[name]) for name in ("point", "lower", "upper")},
        ),
        alerts=[*map(sentence, data["caveats"]), *_warnings(data["findings"])],
        rests_on=_say(
            "It rests on {episodes} episodes of {source}, worth {worth} episodes collected with the "
            "policy itself. The probability left outside the interval is {alpha}.",
            episodes=number(forecast["num_episodes"]),
            source=data["provenance"]["source"],
            worth=number(forecast["effective_sample_size"]),
            alpha=percent(forecast["alpha"]),
        ),
        picture=_picture(
            "Estimated returns, trend and forecast",
            "Dots: what the policy would have earned in single episodes, by importance sampling. "
            "Circles: means of consecutive episodes with their standard errors. Boxes at the right: "
            "the forecast with its interval, and what an estimate says that takes the world to "
            "stand still.",
            lambda axis, columns: draw_evaluation(
                axis,
                _forecast(forecast),
                _forecast(stationary),
                past=forecast["past"],
                time_label=_axis_label(data),
                legend_columns=columns,
            ),
        ),
        forecasts=((data["policy"], forecast), ("if nothing changed", stationary)),
        tables=_tables(data["findings"], "policy"),
    )


def _warnings(findings: Sequence[Plain]) -> list[str]:
    return _alerts([one for one in findings if one["level"] == "WARNING"], "for the policy")


def _check_view(data: Plain) -> View:
    findings = data["check"]["findings"]
    headlines = {
        "OK": "Nothing speaks against this log.",
        "NOTE": "The log can be used; look at the notes.",
        "WARNING": "Something is wrong, or not known.",
    }
    forecast = data["forecast"]
    return View(
        badge=data["level"],
        headline=headlines[data["level"]],
        lead=_say(
            "{episodes} episodes with {steps} steps were checked for the policy “{policy}”.",
            episodes=number(data["check"]["num_episodes"]),
            steps=number(data["check"]["num_steps"]),
            policy=data["policy"],
        ),
        alerts=_warnings(findings),
        picture=_picture(
            "Returns and their trend",
            "Dots: returns of single episodes. Circles: means of consecutive episodes with their "
            "standard errors. Line: the fitted trend, and its forecast at the right.",
            lambda axis, columns: draw_evaluation(
                axis,
                _forecast(forecast),
                None,
                past=forecast["past"],
                time_label=_axis_label(data),
                legend_columns=columns,
            ),
        ),
        tables=_tables(findings, "policy"),
    )


def _backtest_view(data: Plain) -> View:
    past = data["backtest"]
    return View(
        headline=_say(
            "Had the gate been used at {dates} past dates of this log",
            dates=number(past["deployments"]["total"]),
        ),
        lead=past["sentence"],
        alerts=[sentence(one) for one in data["caveats"]],
    )


def _plan_view(data: Plain) -> View:
    plan = data["plan"]
    lacking = data["lacking_actions"]
    return View(
        headline="How many more episodes?",
        lead=plan["sentence"],
        alerts=[sentence(one) for one in data["caveats"]],
        rests_on=_say("Actions that lack data: {names}.", names=plain(lacking)) if lacking else "",
    )


_VIEWS: dict[str, Callable[[Plain], View]] = {
    "gate": _gate_view,
    "improve": _gate_view,
    "evaluate": _evaluate_view,
    "check": _check_view,
    "backtest": _backtest_view,
    "plan": _plan_view,
}


def _comparison(data: Plain) -> Picture:
    candidate, safe = data["candidate"], data["safe"]
    return _picture(
        "Estimated returns, trends and forecasts of both policies",
        "Dots: what the candidate (orange) and the safe policy (blue) would have earned in single test "
        "episodes, by importance sampling. Circles: means of consecutive episodes with their "
        "standard errors. Lines: fitted trends. Boxes at the right: forecasts with their intervals, "
        "drawn wide enough to be seen. The gate opens only if the orange box lies wholly above the "
        "blue one.",
        lambda axis, columns: draw_comparison(
            axis,
            _forecast(candidate),
            _forecast(safe),
            candidate_past=candidate["past"],
            safe_past=safe["past"],
            time_label=_axis_label(data),
            legend_columns=columns,
        ),
    )


def _picture(title: str, caption: str, draw: Callable[[Axes, int], Axes]) -> Picture:
    wide = draw_figure(*WIDE, lambda axis: draw(axis, 2))
    narrow = draw_figure(*NARROW, lambda axis: draw(axis, 1))
    return Picture(inline_svg(wide, title), inline_svg(narrow, f"{title}, narrow"), caption)


def _forecast(values: Plain) -> Forecast:
    """The forecast back from plain values; what is null was not finite."""
    numbers = {
        name: _float(values[name])
        for name in ("point", "lower", "upper", "standard_error", "effective_sample_size")
    }
    return Forecast(
        **numbers,
        alpha=values["alpha"],
        side=Side.BOTH,
        num_episodes=values["num_episodes"],
        episode_numbers=_floats(values["points"]["episode"]),
        returns=_floats(values["points"]["estimated_return"]),
        forecast_times=_floats(values["forecast_episodes"] or [None]),
        curve_times=_floats(values["curve"]["episode"]),
        curve=_floats(values["curve"]["fitted"]),
    )


def _float(value: float | None) -> float:
    return float("nan") if value is None else value


def _floats(values: Sequence[float | None]) -> npt.NDArray[np.float64]:
    return np.array([_float(value) for value in values], np.float64)


def _backtest_pictures(data: Plain) -> list[Picture]:
    past = data.get("backtest")
    if not past or not past["dates"]:
        return []
    roles = {"candidate": ("candidate", CANDIDATE), "safe": ("safe policy", SAFE)}
    if past["candidate"] == past["safe"]:
        roles = {"safe": ("logged policy", SAFE)}
    return [_backtest_picture(data, role, *style) for role, style in roles.items()]


def _backtest_picture(data: Plain, role: str, name: str, color: str) -> Picture:
    past = data["backtest"]
    policy = PolicyBacktest(**{field: _floats(values) for field, values in past[role].items()})
    return _picture(
        f"Backtest of the {name}",
        f"The {name} at each past date: the forecast with its interval, and the mean return that was "
        "then measured. Green dots lie in the interval of what could be measured, red crosses "
        "outside. That interval is the wider one, since what came next is known only with noise. "
        "An interval that dwarfs the others is cut off at the edge.",
        lambda axis, columns: draw_backtest(
            axis,
            _floats(past["dates"]),
            policy,
            past["alpha"],
            color,
            time_label=_axis_label(data),
            legend_columns=columns,
        ),
    )


def _settings(data: Plain) -> Rows:
    rows = [(name, value) for name, value in data["settings"].items() if name != "forecast"]
    search = [(name, value) for name, value in data.get("search", {}).items() if name != "settings"]
    return [(_words(name), value) for name, value in [*rows, *search, ("seed", data["seed"])]]


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
        "Hashes": {name: value for name, value in hashes.items() if value},
        "Versions": origin["versions"],
    }
    return [
        (title, [(_words(name), value) for name, value in group.items()])
        for title, group in groups.items()
        if group
    ]


def _words(name: str) -> str:
    return name.replace("num_", "number of ").replace("_", " ")
