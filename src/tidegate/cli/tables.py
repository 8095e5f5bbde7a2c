"""Records as readable tables on standard output.

Names come from the user's data, so every piece of text passes through `_text`: it is neither read as markup
nor obeyed by the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..checks.findings import Finding, Level, Told, told_once
from ..checks.fitness import LogCheck
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
from ..commands.watching import WatchRecord
from ..forecast import Forecast
from ..gates.guardrails import GuardedDecision
from ..reasons import Status
from ..record import Advantage, past_bins, plain
from ..reports.calendar import Clock
from ..reports.model_words import family_words, shown_families
from ..reports.numbers import count, figure, signed
from ..reports.summary import BEWARE, summary
from .printing import printable
from .speaking import spoken

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
    return Text(printable(spoken(text)), style)


def _origin(console: Console, origin: Provenance) -> None:
    found = Clock.of(vars(origin)).period
    period = f" ({found})" if found else ""
    _say(
        console,
        f"{origin.source}: {count(origin.num_episodes, 'episode')}{period}, "
        f"{count(origin.num_steps, 'step')}; "
        f"{origin.time}; {origin.propensities}.",
    )
    for note in origin.notes:
        _say(console, note)
    if origin.calibration is not None:
        for line in origin.calibration["text"].splitlines():
            _say(console, line)


def _clock(record: Any) -> Clock:
    return Clock.of(vars(record.provenance))


def _close(console: Console, record: Any, *styles: str) -> None:
    """The record's summary: caveats in red, other lines in these styles as long as there are any."""
    left = list(styles)
    for line in summary(record.to_dict()):
        if line.startswith(BEWARE):
            _say(console, line, "bold red")
        else:
            _say(console, line, left.pop(0) if left else "")


def _trust(console: Console, record: TrialRecord) -> None:
    for assumption in record.assumptions:
        _say(console, assumption)


def _findings(console: Console, findings: Iterable[Finding], title: str) -> None:
    table = _table(title, ("", "finding"), ("value",), ("what it means",))
    for one in told_once({"": findings}):
        table.add_row(_text(one.level.name, _STYLES[one.level]), *map(_text, _told(one)))
    console.print(table)


def _told(one: Told) -> tuple[str, str, str]:
    """A name, a value and a sentence; values of several findings are left to the record."""
    names = ", ".join(one.names).replace("_", " ")
    return names, figure(one.value) if len(one.names) == 1 else "", one.sentence


def _warnings(console: Console, checks: Mapping[str, LogCheck]) -> None:
    """The warnings about the test episodes, each with what it is about."""
    told = told_once({role: check.warnings for role, check in checks.items()})
    if not told:
        return
    table = _table("Warnings about the test episodes", ("for the", "finding"), ("value",), ("what it means",))
    for one in told:
        name, value, sentence = _told(one)
        value = value if len(one.about) == 1 else ""
        table.add_row(_text(", ".join(one.about), _STYLES[one.level]), *map(_text, (name, value, sentence)))
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
        numbers = (one.point, one.lower, one.upper, one.num_episodes)
        table.add_row(_text(name), *map(figure, numbers), f"{one.effective_sample_size:,.0f}")
    console.print(table)


def _models(console: Console, advantage: Advantage, clock: Clock) -> None:
    """What every family of trend models says about candidate − safe."""
    title = "Forecast advantage of the candidate, by the models of its trend"
    table = _table(title, ("model",), ("weight", "advantage", "standard\nerror", "p-value"))
    for one in shown_families(plain(advantage)):
        cells = [figure(one[name], 3) for name in ("point", "standard_error", "p_value")]
        table.add_row(family_words(one, clock.span), f"{one['weight']:.0%}", *cells)
    console.print(table)


def _window(one: Forecast, clock: Clock) -> str:
    times = one.forecast_times
    span = clock.window(times[0], times[-1]) if times.size else f"the next {clock.units}"
    return f"Mean return of an episode over {span}, α = {one.alpha:g}"


def _past(console: Console, forecast: Forecast, clock: Clock) -> None:
    table = _table("Estimated past performance", (), ("from", "to", "episodes", "mean return", "±"))
    for one in past_bins(forecast, SHOWN_BINS):
        error = one["standard_error"]
        table.add_row(
            clock.cell(one["from"]), clock.cell(one["to"]), f"{one['episodes']:,}", figure(one["mean"]),
            "" if error is None else figure(error, 2),
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
    changes = [signed(value) for value in (one["change"], one["bound"], margin)]
    return [*changes, p_value, f"{one['level']:.3g}"]


def _check(console: Console, record: CheckRecord) -> None:
    _origin(console, record.provenance)
    what = "what was observed" if record.policy == "behavior" else record.policy
    _findings(console, record.check.findings, f"Is this log fit for {what}?")
    _close(console, record)


def _evaluation(console: Console, record: Evaluation) -> None:
    _origin(console, record.provenance)
    clock = _clock(record)
    _past(console, record.forecast, clock)
    rows = {record.policy: record.forecast, "if nothing changed": record.stationary}
    _forecasts(console, rows, _window(record.forecast, clock))
    worst = [one for one in record.findings if one.level is not Level.OK]
    if worst:
        _findings(console, worst, "What to know about this log")
    if record.overlap is Overlap.HELD_OUT:
        _say(console, record.overlap.value)
    _close(console, record, "bold")


def _gate(console: Console, record: GateRecord) -> None:
    _origin(console, record.provenance)
    decision, clock = record.decision, _clock(record)
    rows = {
        f"candidate {record.candidate}": decision.candidate,
        f"safe {record.safe}": decision.safe,
    }
    advantage = decision.advantage
    caption = None if advantage.p_value is None else OVERLAPPING
    _forecasts(console, rows, _window(decision.safe, clock), caption)
    if len(advantage.models) > 1:
        _models(console, advantage, clock)
    if record.guarded.guardrails:
        console.print(guardrail_table(record.guarded))
    _warnings(console, record.checks)
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
    style = {Status.PASS: "bold green", Status.FAIL: "bold red"}.get(record.status, "bold yellow")
    _close(console, record, style, "bold")


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
    past, clock = record.backtest, _clock(record)
    _trust(console, record)
    table = Table(title=f"The gate at {count(past.dates.size, 'past date')}")
    for name in ("date", "verdict", "candidate\nforecast", "then\nestimated", "safe\nforecast",
                 "then\nestimated", "advantage"):  # fmt: skip
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for i, date in enumerate(past.dates):
        pairs = [(one.forecast[i], one.realised[i]) for one in (past.candidate, past.safe)]
        numbers = (*pairs[0], *pairs[1], past.difference[i])
        table.add_row(clock.cell(date), past.verdicts[i].name, *map(figure, numbers))
    console.print(table)
    _close(console, record)


def _plan(console: Console, record: PlanRecord) -> None:
    _origin(console, record.provenance)
    _trust(console, record)
    _close(console, record)


def _watch(console: Console, record: WatchRecord) -> None:
    _origin(console, record.provenance)
    seen = record.signal
    title = (
        f"Mean advantage since the release, {count(seen.num_episodes, 'episode')}, α = {record.watch.alpha:g}"
    )
    numbers = ("advantage", "at least", "at most", "margin", "level")
    table = _table(title, ("",), numbers, ("harm",), caption="More is better in every row.")
    for one in seen.sequences:
        cells = [signed(value) for value in (one.mean, one.lower, one.upper)]
        harm = _text("shown", "bold red") if one.harmful else _text("not shown")
        table.add_row(_text(one.name), *cells, figure(one.margin), f"{one.level:.3g}", harm)
    console.print(table)
    style = {Status.PASS: "bold green", Status.INCONCLUSIVE: "bold yellow"}.get(record.status, "bold red")
    _close(console, record, style)


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
    WatchRecord: _watch,
}
