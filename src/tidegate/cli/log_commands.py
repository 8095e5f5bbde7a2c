"""The commands for a user's own log: each wraps one function of `tidegate.commands`.

Nothing here imports a numerical library until a command runs, so that help is fast.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .flags import (
    SPECS,
    BudgetFlags,
    ForecastFlags,
    GuardrailFlags,
    LogFlags,
    OutputFlags,
    SearchFlags,
    spread,
)

REPORT_DATES = 20

Candidate = Annotated[str, typer.Option("--candidate", help=f"The new policy: {SPECS}.")]
Safe = Annotated[str, typer.Option("--safe", help="The policy you trust, given in the same way.")]
Training = Annotated[
    Path | None,
    typer.Option(
        "--training",
        help="Record of `improve` for a candidate that it found; default the one beside the policy.",
    ),
]
Dates = Annotated[
    int | None,
    typer.Option("--backtest", min=0, help="Also backtest at this many past dates; 20 in a report."),
]


def add_commands(app: typer.Typer) -> None:
    """Give the application the commands for logs."""
    for command in (check, evaluate, gate, improve, backtest, plan, verify):
        app.command()(spread(command))


@contextlib.contextmanager
def _working(limit: str | None = None) -> Iterator[Callable[[str], None]]:
    """Show on the terminal what is being done; the parsers' own error output is suppressed."""
    from rich.console import Console

    from ..logs import without_panic_text
    from ..logs.memory import memory_limit
    from .memory_watch import memory_watched

    with (
        os.fdopen(os.dup(2), "w") as terminal,
        Console(file=terminal).status("starting") as status,
        memory_watched(memory_limit(limit), lambda text: print(text, end="", file=terminal, flush=True)),
        without_panic_text(),
    ):
        yield lambda stage: status.update(stage)


def _run(name: str, log: LogFlags, forecast: ForecastFlags, **choices: Any) -> Any:
    """The record that the function of this name gives; its stages are shown while it works."""
    from .. import commands

    function, common = getattr(commands, name), {"settings": forecast.settings()}
    with _working(log.memory_limit) as stage:
        return function(log.file(), **common, **choices, seed=forecast.seed, stage=stage)


def _finish(record: Any, output: OutputFlags) -> None:
    if output.report is not None:
        from ..reports.log_page import log_page

        output.report.write_text(log_page(record), encoding="utf-8")
        typer.echo(f"Report: {output.report}", err=True)
    _print(record, output.as_json)


def _print(record: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record.to_dict(), indent=1, allow_nan=False))
    else:
        from .tables import show

        show(record)


def _dates(given: int | None, output: OutputFlags) -> int:
    if given is not None:
        return given
    return 0 if output.report is None else REPORT_DATES


def check(
    log: LogFlags,
    forecast: ForecastFlags,
    output: OutputFlags,
    policy: Annotated[str | None, typer.Option("--policy", help=f"For which policy? {SPECS}.")] = None,
) -> None:
    """Is this log fit? Errors by row; then overlap, sample size, support, drift, goodness of fit.

    Exit code 0 if the log can be used, whatever was found; 2 for bad usage or an unfit log.
    """
    _finish(_run("check", log, forecast, policy=policy), output)


def evaluate(
    log: LogFlags,
    forecast: ForecastFlags,
    output: OutputFlags,
    policy: Annotated[str, typer.Option("--policy", help=f"The policy: {SPECS}.")],
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Read Parquet in bounded memory; by default above 200 MB.",
        ),
    ] = None,
) -> None:
    """What a policy would have earned, and its forecast, with a stationary estimate for comparison.

    Exit code 0; 2 for bad usage or an unfit log.
    """
    _finish(_run("evaluate", log, forecast, policy=policy, stream=stream), output)


def gate(
    log: LogFlags,
    forecast: ForecastFlags,
    watched: GuardrailFlags,
    spends: BudgetFlags,
    output: OutputFlags,
    candidate: Candidate,
    safe: Safe = "behavior",
    training: Training = None,
    dates: Dates = None,
    record: Annotated[Path, typer.Option("--record", help="Where the decision record goes.")] = Path(
        "decision.json"
    ),
) -> None:
    """DEPLOY or KEEP: will the candidate beat the safe policy, and break no guardrail?

    Exit code 0 for DEPLOY, 1 for KEEP, 2 for bad usage or an unfit log. The decision record can be
    replayed by `tidegate verify`.
    """
    from ..gates.ledger import read_ledger
    from ..record import write_record

    policies = {"candidate": candidate, "safe": safe, "training": training}
    budget, outcomes = spends.ledger(), watched.choices()
    past = _dates(dates, output)
    decided = _run("gate", log, forecast, **policies, **outcomes, budget=budget, dates=past)
    write_record(decided.to_dict(), record)
    _finish(decided, output)
    typer.echo(f"Decision record: {record}", err=True)
    if budget is not None:
        ledger = read_ledger(budget.path)
        typer.echo(f"Error budget {budget.path}: {ledger}", err=True)
    raise typer.Exit(0 if decided.deploys else 1)


def improve(
    log: LogFlags,
    forecast: ForecastFlags,
    search: SearchFlags,
    watched: GuardrailFlags,
    output: OutputFlags,
    out: Annotated[Path, typer.Option("--out", help="Where the policy goes, as JSON.")],
    safe: Safe = "behavior",
    dates: Dates = None,
) -> None:
    """Search for a candidate on a part of the log, test it on the rest, save it with its decision record.

    The record goes beside the policy (POLICY.decision.json) and tells `gate` which episodes not to
    test on. Exit code 0 whatever the verdict; 2 for bad usage or an unfit log.
    """
    from .. import commands

    choices = {**watched.choices(), "search": search.choices(), "dates": _dates(dates, output)}
    found = _run("improve", log, forecast, safe=safe, **choices)
    record = commands.save_improvement(found, out)
    _finish(found, output)
    typer.echo(f"Policy: {out}\nDecision record: {record}", err=True)


def backtest(
    log: LogFlags,
    forecast: ForecastFlags,
    output: OutputFlags,
    candidate: Candidate = "behavior",
    safe: Safe = "behavior",
    training: Training = None,
    dates: Annotated[int, typer.Option("--dates", min=1, help="How many past dates.")] = 20,
    every: Annotated[
        int | None, typer.Option("--every", min=1, help="How far apart; default the lookahead.")
    ] = None,
) -> None:
    """Use the gate at past dates: would its intervals have held, its deployments have been right?

    Exit code 0; 2 for bad usage or an unfit log.
    """
    policies = {"candidate": candidate, "safe": safe, "training": training}
    _finish(_run("backtest", log, forecast, **policies, dates=dates, every=every), output)


def plan(
    log: LogFlags,
    forecast: ForecastFlags,
    candidate: Candidate,
    safe: Safe = "behavior",
    training: Training = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """About how many more episodes until this candidate could pass, and which actions lack data?

    Exit code 0; 2 for bad usage or an unfit log.
    """
    policies = {"candidate": candidate, "safe": safe, "training": training}
    _print(_run("plan", log, forecast, **policies), as_json)


def verify(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="A decision record of `gate` or `improve`.")
    ],
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log behind the decision.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Replay a decision: the same log must give the same verdict and the same numbers.

    Exit code 0 if the record is confirmed; 2 if it is not, and for bad usage.
    """
    from .. import commands

    with _working() as stage:
        answer = commands.verify(record, log, stage=stage)
    _print(answer, as_json)
    raise typer.Exit(0 if answer.confirmed else 2)
