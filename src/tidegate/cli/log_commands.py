"""The commands for a user's own log: each wraps one function of `tidegate.commands`.

Nothing here imports a numerical library until a command runs, so that help is fast.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import TidegateError
from .compiled import keep_programs
from .flags import (
    SPECS,
    BudgetFlags,
    ForecastFlags,
    GuardrailFlags,
    LogFlags,
    OutputFlags,
    SearchFlags,
    SigningFlags,
    VerdictFlags,
    WatchFlags,
    length,
    spread,
)
from .printing import decision_stands, printable, tell

if TYPE_CHECKING:
    from ..gates.signatures import PrivateKey

REPORT_DATES = 20
Content = dict[str, Any]  # a record in plain values, as it is stored

Candidate = Annotated[str, typer.Option("--candidate", help=f"The new policy: {SPECS}.")]
Safe = Annotated[str, typer.Option("--safe", help="The policy you trust, given in the same way.")]
Training = Annotated[
    Path | None,
    typer.Option(
        "--training",
        help="Record of `improve` for a candidate that it found; default the one beside the policy.",
    ),
]
CandidateFrom = Annotated[
    str | None,
    typer.Option(
        "--candidate-from",
        help="What the candidate was made with: this-log, elsewhere, or before:TIME (as the log writes "
        "times); only later episodes are tested.",
        metavar="ORIGIN",
    ),
]
Dates = Annotated[
    int | None,
    typer.Option("--backtest", min=0, help="Also backtest at this many past dates; 20 in a report."),
]


def add_commands(app: typer.Typer) -> None:
    """Give the application the commands for logs."""
    for command in COMMANDS:
        app.command()(spread(command))


@contextlib.contextmanager
def _working(limit: str | None = None) -> Iterator[Callable[[str], None]]:
    """Show on the terminal what is being done; the parsers' own error output is suppressed."""
    from rich.console import Console
    from rich.text import Text

    from ..logs import without_panic_text
    from ..logs.memory import memory_limit
    from .memory_watch import memory_watched

    with (
        os.fdopen(os.dup(2), "w") as terminal,
        Console(file=terminal).status("starting") as status,
        memory_watched(memory_limit(limit), lambda text: print(text, end="", file=terminal, flush=True)),
        without_panic_text(),
    ):
        yield lambda stage: status.update(Text(printable(stage)))


def _run(name: str, log: LogFlags, forecast: ForecastFlags, **choices: Any) -> Any:
    """The record that the function of this name gives; its stages are shown while it works."""
    from .. import commands

    keep_programs()
    function, common = getattr(commands, name), {"settings": forecast.settings()}
    with _working(log.memory_limit) as stage:
        return function(log.file(), **common, **choices, seed=forecast.seed, stage=stage)


def _finish(record: Any, output: OutputFlags) -> None:
    if output.report is not None:
        _report(record, output.report)
    _print(record, output.as_json)


def _finish_decided(record: Any, content: Content, decision: str, output: OutputFlags, *lines: str) -> None:
    """Show a decision that is on record as `content`; what cannot be shown does not change it."""
    if output.report is not None:
        with decision_stands(decision, "its report could not be written"):
            _report(record, output.report)
    with decision_stands(decision, "it could not be shown"):
        _print(record, output.as_json, content)
        for line in lines:
            tell(line)


def _report(record: Any, path: Path) -> None:
    record.to_html(path)
    tell(f"Report: {path}")


def _print(record: Any, as_json: bool, content: Content | None = None) -> None:
    if as_json:
        typer.echo(json.dumps(content or record.to_dict(), indent=1, allow_nan=False))
    else:
        from .tables import show

        show(record)


@contextlib.contextmanager
def _error_on_record(path: Path | None, as_json: bool, record_of: str = "error_record") -> Iterator[None]:
    """Where nothing can be decided, the record says so: that of an earlier decision must not stand there."""
    try:
        yield
    except Exception as error:
        from ..commands import conditions
        from ..record import write_record

        content = getattr(conditions, record_of)(str(error))
        with contextlib.suppress(TidegateError, OSError):  # what went wrong first is what must be told
            if path is not None:
                write_record(content, path)
        if as_json:
            typer.echo(json.dumps(content, indent=1))
        raise


def _content(record: Any, key: "PrivateKey | None") -> Content:
    """The record as it is stored."""
    from ..gates.signatures import signed

    return record.to_dict() if key is None else signed(record.to_dict(), key)


def _policies(candidate: str, safe: str, training: Path | None, origin: str | None) -> dict[str, Any]:
    return {"candidate": candidate, "safe": safe, "training": training, "candidate_from": origin}


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
) -> None:
    """What a policy would have earned, and its forecast, with a stationary estimate for comparison.

    Exit code 0; 2 for bad usage or an unfit log.
    """
    _finish(_run("evaluate", log, forecast, policy=policy), output)


def gate(
    log: LogFlags,
    forecast: ForecastFlags,
    verdict: VerdictFlags,
    watched: GuardrailFlags,
    spends: BudgetFlags,
    signs: SigningFlags,
    output: OutputFlags,
    candidate: Candidate,
    safe: Safe = "behavior",
    training: Training = None,
    candidate_from: CandidateFrom = None,
    dates: Dates = None,
    record: Annotated[Path, typer.Option("--record", help="Where to write the decision record.")] = Path(
        "decision.json"
    ),
) -> None:
    """DEPLOY or KEEP: will the candidate beat the safe policy, and break no guardrail?

    Exit code 0 for DEPLOY, 1 for KEEP, 2 for bad usage or an unfit log. A verdict that is not guaranteed is
    KEEP. The decision record can be replayed by `tidegate verify`; with exit code 2 it says why nothing was
    decided.
    """
    from ..record import write_record

    policies = _policies(candidate, safe, training, candidate_from)
    budget, key = spends.ledger(), signs.key()
    outcomes = {**watched.choices(), **verdict.choices()}
    past = _dates(dates, output)
    with _error_on_record(record, output.as_json):
        decided = _run("gate", log, forecast, **policies, **outcomes, budget=budget, dates=past)
    content = _content(decided, key)
    write_record(content, record)
    _finish_decided(decided, content, decided.headline, output, f"Decision record: {record}")
    if budget is not None:
        with decision_stands(decided.headline, "its budget could not be shown"):
            _tell_budget(budget.path)
    raise typer.Exit(0 if decided.deploys else 1)


def _tell_budget(path: str | Path) -> None:
    from ..gates.ledger import read_ledger

    tell(f"Error budget {path}: {read_ledger(path)}")


def improve(
    log: LogFlags,
    forecast: ForecastFlags,
    search: SearchFlags,
    verdict: VerdictFlags,
    watched: GuardrailFlags,
    signs: SigningFlags,
    output: OutputFlags,
    out: Annotated[Path, typer.Option("--out", help="Where to write the policy, as JSON.")],
    safe: Safe = "behavior",
    dates: Dates = None,
) -> None:
    """Search for a candidate on a part of the log, test it on the rest, save it with its decision record.

    The record goes beside the policy (POLICY.decision.json) and tells `gate` which episodes not to
    test on. Exit code 0 whatever the verdict; 2 for bad usage or an unfit log.
    """
    from .. import commands

    choices = {
        **watched.choices(),
        **verdict.choices(),
        "search": search.choices(),
        "dates": _dates(dates, output),
    }
    key = signs.key()
    found = _run("improve", log, forecast, safe=safe, **choices)
    record = commands.save_improvement(found, out, key)
    lines = f"Policy: {out}", f"Decision record: {record}"
    _finish_decided(found, _content(found, key), found.gate.headline, output, *lines)


def backtest(
    log: LogFlags,
    forecast: ForecastFlags,
    output: OutputFlags,
    candidate: Candidate = "behavior",
    safe: Safe = "behavior",
    training: Training = None,
    candidate_from: CandidateFrom = None,
    dates: Annotated[int, typer.Option("--dates", min=1, help="Number of past dates.")] = 20,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", help="How far apart, as in 20 or 7d; default the lookahead.", metavar="LENGTH"
        ),
    ] = None,
) -> None:
    """Ask the gate at past dates: would its intervals have held, and its deployments been right?

    Exit code 0; 2 for bad usage or an unfit log.
    """
    policies = _policies(candidate, safe, training, candidate_from)
    _finish(_run("backtest", log, forecast, **policies, dates=dates, every=length(every)), output)


def plan(
    log: LogFlags,
    forecast: ForecastFlags,
    output: OutputFlags,
    candidate: Candidate,
    safe: Safe = "behavior",
    training: Training = None,
    candidate_from: CandidateFrom = None,
) -> None:
    """About how many more episodes until this candidate could pass, and which actions lack data?

    Exit code 0; 2 for bad usage or an unfit log.
    """
    policies = _policies(candidate, safe, training, candidate_from)
    _finish(_run("plan", log, forecast, **policies), output)


def watch(
    log: LogFlags,
    forecast: ForecastFlags,
    watched: WatchFlags,
    output: OutputFlags,
    safe: Annotated[str, typer.Option("--safe", help=f"The policy to fall back on: {SPECS}.")],
    candidate: Annotated[
        str, typer.Option("--candidate", help="The new policy, by default what logged the episodes.")
    ] = "behavior",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where to write the record, if anywhere.", metavar="FILE.json"),
    ] = None,
) -> None:
    """After a DEPLOY: is the new policy shown to be worse than the safe one? On a log of the new policy.

    Exit code 0: keep running, 1: roll back, 2: bad usage or a log that cannot tell. Ask as
    often as you like: the probability of ever rolling back a harmless policy is at most alpha. With a
    lookahead, the gate also forecasts, and warns.
    """
    from ..record import write_record

    with _error_on_record(out, output.as_json, "watch_error_record"):
        seen = _run("watch", log, forecast, candidate=candidate, safe=safe, **watched.choices())
    content = seen.to_dict()
    lines = []
    if out is not None:
        write_record(content, out)
        lines = [f"Record: {out}"]
    _finish_decided(seen, content, seen.headline, output, *lines)
    raise typer.Exit(seen.exit_code)


def verify(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="A decision record of `gate` or `improve`.")
    ],
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log behind the decision.")],
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger of the error budget: it must hold this decision.", metavar="FILE.json"),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(help="The record must be signed with the private key of this one.", metavar="FILE.pem"),
    ] = None,
    allow_python: Annotated[
        bool,
        typer.Option("--allow-python", help="Run the Python function that the record names as a policy."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Replay a decision: the same log must give the same verdict and the same numbers.

    Exit code 0 if the record is confirmed; 2 if it is not, and for bad usage. Without --public-key, this
    shows that the record fits the log, not who wrote it.
    """
    from .. import commands

    keep_programs()
    with _working() as stage:
        answer = commands.verify(
            record, log, ledger=ledger, public_key=public_key, allow_python=allow_python, stage=stage
        )
    with decision_stands(answer.lines[0], "it could not be shown"):
        _print(answer, as_json)
    raise typer.Exit(0 if answer.confirmed else 2)


def keygen(
    prefix: Annotated[
        Path, typer.Argument(metavar="PREFIX", help="Writes PREFIX.private.pem and PREFIX.public.pem.")
    ],
) -> None:
    """Make a pair of keys: `gate --sign-key` signs with one, `verify --public-key` checks with the other.

    Exit code 0; 2 if a file exists or cannot be written. Keep the private key to yourself: whoever has
    it can sign.
    """
    from ..gates.signatures import make_keys

    private, public = make_keys(prefix)
    tell(f"Private key: {private}")
    tell(f"Public key: {public}")


COMMANDS = (check, evaluate, gate, improve, backtest, plan, watch, verify, keygen)
