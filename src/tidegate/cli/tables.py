"""Records as readable tables on standard output.

Names come from the user's data, so every piece of text passes through `_text`: it is neither read as markup
nor obeyed by the terminal.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..checks.findings import Finding, Level
from ..commands.backtests import BacktestRecord
from ..commands.checking import CheckRecord
from ..commands.description import PolicyDescription
from ..commands.evaluation import Evaluation
from ..commands.gating import GateRecord
from ..commands.guarding import outcome_values
from ..commands.improvement import Improvement
from ..commands.plans import PlanRecord
from ..commands.provenance import Provenance
from ..commands.training import Overlap
from ..commands.trials import TrialRecord
from ..commands.verification import Verification
from ..comparison import Status
from ..forecast import Forecast
from ..gates.guardrails import GuardedDecision
from ..record import Advantage, past_bins
from .printing import printable

_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.WARNING: "bold red"}
SHOWN_BINS = 10
OVERLAPPING = "The intervals may overlap: the gate tests the difference, on the same episodes."


def show(record: Any) -> None:
    """Print whatever a command returned."""
    console = Console(soft_wrap=False, highlight=False)
    _SHOWN[type(record)](console, record)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(_text(text, style))


def _text(text: object, style: str = "") -> Text:
    return Text(printable(text), style)


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    whole = abs(value) < 1e9 and value == round(value)
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def _origin(console: Console, origin: Provenance) -> None:
    _say(
        console,
        f"{origin.source}: {origin.num_episodes:,} episodes, {origin.num_steps:,} steps; "
        f"{origin.time}; {origin.propensities}.",
    )
    for note in origin.notes:
        _say(console, note)
    if origin.calibration is not None:
        for line in origin.calibration["text"].splitlines():
            _say(console, line)


def _trust(console: Console, record: TrialRecord) -> None:
    for assumption in record.assumptions:
        _say(console, assumption)
    _caveats(console, record.caveats)


def _caveats(console: Console, caveats: Iterable[str]) -> None:
    for caveat in caveats:
        _say(console, f"BEWARE: {caveat}", "bold red")


def _findings(console: Console, findings: Iterable[Finding], title: str) -> None:
    table = _table(title, ("", "finding"), ("value",), ("what it means",))
    for one in sorted(findings, key=lambda finding: -finding.level):
        style = _STYLES[one.level]
        cells = (one.name.replace("_", " "), _number(one.value), one.sentence)
        table.add_row(_text(one.level.name, style), *map(_text, cells))
    console.print(table)


def _table(
    title: str,
    before: Sequence[str],
    numbers: Sequence[str],
    after: Sequence[str] = (),
    caption: str | None = None,
) -> Table:
    """Words on the left, numbers right-aligned in the middle, words again."""
    below = None if caption is None else _text(caption, "table.caption")
    table = Table(title=_text(title, "table.title"), caption=below)
    for names, options in ((before, {}), (numbers, {"justify": "right", "no_wrap": True}), (after, {})):
        for name in names:
            table.add_column(name, **options)  # type: ignore[arg-type]
    return table


def _forecasts(console: Console, rows: dict[str, Forecast], title: str, caption: str | None = None) -> None:
    names = ("forecast", "lower", "upper", "episodes", "worth\non-policy")
    table = _table(title, ("",), names, caption=caption)
    for name, one in rows.items():
        numbers = (one.point, one.lower, one.upper, one.num_episodes, one.effective_sample_size)
        table.add_row(_text(name), *(f"{number:.4g}" for number in numbers[:3]),
                      f"{one.num_episodes:,}", f"{one.effective_sample_size:,.0f}")  # fmt: skip
    console.print(table)


def _scales(console: Console, advantage: Advantage, unit: str) -> None:
    """What every time scale says about candidate − safe; a number that is not finite is shown as unknown."""
    title = "Forecast advantage of the candidate at every time scale"
    names = ("test\nepisodes", "advantage", "standard\nerror", "incl.\nbias", "p-value")
    numbers = (f"last …\n{_units(unit)}", *names)
    table = _table(title, (), numbers, ("the gate\nasks",), caption=_all(advantage))
    for one in advantage.scales:
        style = {"leads": "bold", "must pass": ""}.get(one.role, "dim")
        cells = [_digits(n) for n in (one.point, one.standard_error, one.bias, one.p_value)]
        table.add_row(f"{one.span:.4g}", f"{one.episodes:,}", *cells, one.role, style=style)
    console.print(table)


def _digits(number: float | None) -> str:
    return "unknown" if number is None or not math.isfinite(number) else f"{number:.3g}"


def _all(advantage: Advantage) -> str:
    """What the scales say together."""
    if advantage.p_value is None or not math.isfinite(advantage.p_value):
        return "Together they give no p-value."
    asked = f"p = {advantage.p_value:.2g}, which must be at most {advantage.level:.3g}"
    if not math.isfinite(advantage.lower):
        return f"Together: {asked}."
    return f"Together: at least {advantage.lower:.4g}; {asked}."


def _units(unit: str) -> str:
    return "units of time" if unit == "number" else f"{unit}s"


def _window(one: Forecast, unit: str) -> str:
    times = one.forecast_times
    name = "times" if unit == "number" else f"{unit}s"
    span = f"{name} {times[0]:.10g} to {times[-1]:.10g}" if times.size else f"the next {name}"
    return f"Mean return of an episode over {span}, α = {one.alpha:g}"


def _past(console: Console, forecast: Forecast) -> None:
    table = _table("Estimated past performance", (), ("from", "to", "episodes", "mean return", "±"))
    for one in past_bins(forecast, SHOWN_BINS):
        error = one["standard_error"]
        table.add_row(
            f"{one['from']:.10g}", f"{one['to']:.10g}", f"{one['episodes']:,}", _number(one["mean"]),
            "" if error is None else f"{error:.2g}",
        )  # fmt: skip
    console.print(table)


def guardrail_table(guarded: GuardedDecision) -> Table:
    """The guardrails for a terminal."""
    title = f"Guardrails, {guarded.multiplicity.value}, α = {guarded.alpha:g}"
    numbers = ("forecast\nchange", "worst\nchange", "margin", "p", "level")
    table = _table(title, ("outcome",), numbers, ("holds",))
    for one in guarded.guardrails:
        holds = _text("yes", "green") if one.passed else _text("no", "bold red")
        table.add_row(_text(one.guardrail.name), *_guardrail_cells(outcome_values(one)), holds)
    return table


def _guardrail_cells(one: Mapping[str, Any]) -> list[str]:
    margin = one["margin"] if one["lower_is_better"] else -one["margin"]
    p_value = "–" if one["p_value"] is None else f"{one['p_value']:.2g}"
    changes = [_change(value) for value in (one["change"], one["bound"], margin)]
    return [*changes, p_value, f"{one['level']:.3g}"]


def _change(value: float) -> str:
    return f"{value:+.4g}" if math.isfinite(value) else "not known"


def _check(console: Console, record: CheckRecord) -> None:
    _origin(console, record.provenance)
    _caveats(console, record.provenance.caveats)
    what = "what was observed" if record.policy == "behavior" else record.policy
    _findings(console, record.check.findings, f"Is this log fit for {what}?")
    count = len(record.check.warnings)
    some = "1 warning." if count == 1 else f"{count} warnings."
    _say(console, some if count else "This log can be used: no check found a problem.")
    if record.policy == "behavior":
        _say(console, "Name a policy (--policy) to check overlap and support for it.")


def _evaluation(console: Console, record: Evaluation) -> None:
    _origin(console, record.provenance)
    _caveats(console, record.caveats)
    _past(console, record.forecast)
    rows = {record.policy: record.forecast, "if nothing changed": record.stationary}
    _forecasts(console, rows, _window(record.forecast, record.provenance.time_unit))
    worst = [one for one in record.findings if one.level is not Level.OK]
    if worst:
        _findings(console, worst, "What to know about this log")


def _gate(console: Console, record: GateRecord) -> None:
    _origin(console, record.provenance)
    decision = record.decision
    rows = {
        f"candidate {record.candidate}": decision.candidate,
        f"safe {record.safe}": decision.safe,
    }
    advantage, unit = decision.advantage, record.provenance.time_unit
    caption = None if advantage.p_value is None else OVERLAPPING
    _forecasts(console, rows, _window(decision.safe, unit), caption)
    if len(advantage.scales) > 1:
        _scales(console, advantage, unit)
    if record.guarded.guardrails:
        console.print(guardrail_table(record.guarded))
    for role, check in record.checks.items():
        if check.warnings:
            _findings(console, check.warnings, f"Warnings about the test episodes for the {role}")
    if record.backtest is not None:
        _say(console, str(record.backtest))
    if record.overlap is Overlap.HELD_OUT:
        _say(console, record.overlap.value)
    if record.budget is not None:
        _say(console, f"Error budget: {record.budget}")
    if record.range is not None:
        _say(console, str(record.range))
    _say(console, "Assumed, because no log can show it:", "dim")
    for one in record.assumptions:
        _say(console, f"- {one}", "dim")
    _caveats(console, record.caveats)
    style = {Status.PASS: "bold green", Status.FAIL: "bold red"}.get(record.status, "bold yellow")
    _say(console, record.headline, style)
    _say(console, f"Status {record.status}, good until {record.expires_at}.")


def _improvement(console: Console, record: Improvement) -> None:
    training = record.training
    _say(
        console,
        f"{record.file.policy} found on {training.num_training:,} of "
        f"{training.num_episodes:,} episodes, tested on the others.",
    )
    _description(console, record.description)
    _gate(console, record.gate)


def _description(console: Console, does: PolicyDescription) -> None:
    """What a found policy does, for whom, and on what it rests."""

    def amounts(*values: float) -> list[str]:
        return [f"{value:.4g}" if does.continuous else f"{value:.0%}" for value in values]

    _say(console, does.sentence)
    names = ("new", "logged")
    table = _table("What the policy does", ("steps", "action"), ("share", *names, "difference"))
    for one in does.actions:
        table.add_row(_text("all"), _text(one.action), "100%", *amounts(one.new, one.logged), "")
    for group in does.groups:
        change = group.change
        numbers = amounts(change.new, change.logged, group.distance)
        table.add_row(_text(group.who), _text(change.action), f"{group.share:.0%}", *numbers)
    console.print(table)
    if does.features:
        listed = (f"{one.feature} {amounts(one.distance)[0]}" for one in does.features)
        _say(console, f"How far it moves when a feature's values are shuffled: {', '.join(listed)}.")


def _backtest(console: Console, record: BacktestRecord) -> None:
    _origin(console, record.provenance)
    past = record.backtest
    _trust(console, record)
    table = Table(title=f"The gate at {past.dates.size} past dates")
    for name in ("date", "verdict", "candidate\nforecast", "then\nestimated", "safe\nforecast",
                 "then\nestimated", "advantage"):  # fmt: skip
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for i, date in enumerate(past.dates):
        pairs = [(one.forecast[i], one.realised[i]) for one in (past.candidate, past.safe)]
        numbers = (*pairs[0], *pairs[1], past.difference[i])
        verdict = past.verdicts[i].name
        table.add_row(f"{date:g}", verdict, *(f"{number:.4g}" for number in numbers))
    console.print(table)
    _say(console, str(past))


def _plan(console: Console, record: PlanRecord) -> None:
    _origin(console, record.provenance)
    _trust(console, record)
    _say(console, record.plan.sentence)
    if record.lacking_actions:
        _say(console, f"Actions that lack data: {', '.join(record.lacking_actions)}.")


def _verification(console: Console, record: Verification) -> None:
    for line in record.lines:
        _say(console, line, "bold green" if record.confirmed else "bold red")


_SHOWN: dict[type, Any] = {
    CheckRecord: _check,
    Evaluation: _evaluation,
    GateRecord: _gate,
    Improvement: _improvement,
    BacktestRecord: _backtest,
    PlanRecord: _plan,
    Verification: _verification,
}
