"""The options that commands share, each defined once, and the decorator that spreads them out."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from ..commands.choices import BasisKind, PolicyClass, Preset
from ..errors import SettingsError
from ..gates.budget_rules import BudgetRule
from ..gates.multiplicity import Multiplicity

if TYPE_CHECKING:
    from ..commands.opening import LogFile
    from ..commands.settings import PlainSettings, SearchChoices
    from ..gates.ledger import Budget
    from ..gates.signatures import PrivateKey

SPECS = "behavior, column:NAME, ratio:NAME, policy:PATH or python:MODULE:FUNCTION"
F = TypeVar("F", bound=Callable[..., Any])

Text = str | None


def _panel(name: str | None) -> Callable[..., Any]:
    """A maker of options that the help shows together under this name."""

    def option(flag: str, help: str, metavar: str | None = None) -> Any:
        return typer.Option(f"--{flag}", help=help, metavar=metavar, rich_help_panel=name)

    return option


_column, _forecast = _panel("Columns of the log"), _panel("Forecast")
_guarding, _budget, _output = _panel("Guardrails"), _panel("Error budget"), _panel("Output")
_verdict, _limits = _panel("Verdict"), _panel("Limits")
_search, _watching = _panel(None), _panel("Watch")
LOG = "Parquet, CSV or JSON lines (.gz too), a glob, or - for stdin."


@dataclasses.dataclass(frozen=True)
class LogFlags:
    """The log and its columns; the name '' means that there is no such column."""

    log: Annotated[str, typer.Argument(metavar="LOG", help=LOG)]
    columns: Annotated[
        Path | None,
        _column(
            "columns",
            "TOML file with the names of the columns, or one of banditdb, open-bandit and vw-dsjson.",
            "FILE.toml",
        ),
    ] = None
    episode: Annotated[Text, _column("episode", "Number of the episode; '' if each row is one.", "NAME")] = (
        None
    )
    step: Annotated[Text, _column("step", "Step within the episode; one-step logs need none.", "NAME")] = None
    action: Annotated[Text, _column("action", "Action; several, as in a,b, if continuous.", "NAME")] = None
    behavior_prob: Annotated[
        Text,
        _column("behavior-prob", "Probability with which the logged action was drawn.", "NAME"),
    ] = None
    reward: Annotated[Text, _column("reward", "Reward of the step.", "NAME")] = None
    features: Annotated[Text, _column("features", "Features of the state, as in age,load.", "NAME")] = None
    state: Annotated[Text, _column("state", "One column of integer states instead.", "NAME")] = None
    time: Annotated[Text, _column("time", "Time of the step, if not the episode's number.", "NAME")] = None
    time_unit: Annotated[
        Text,
        _column(
            "time-unit",
            "What the time axis and the lookahead count: episode, hour, day or number.",
        ),
    ] = None
    confirm_order: Annotated[
        bool, _column("confirm-order", "Episode numbers grow with time, although the rows are not in order.")
    ] = False
    actions: Annotated[
        Text, _column("actions", "All actions by name, in the order of a policy's outputs.")
    ] = None
    num_actions: Annotated[int | None, _column("num-actions", "Number of actions.")] = None
    log_probs: Annotated[bool, _column("log-probs", "Probability columns hold logarithms.")] = False
    densities: Annotated[
        bool,
        _column(
            "densities",
            "Those columns hold densities of continuous actions (with --log-probs: log-densities).",
        ),
    ] = False
    format: Annotated[
        Text, _column("format", "parquet, csv, jsonl, dsjson or arrow, if the name does not tell.")
    ] = None
    estimate_propensities: Annotated[
        bool,
        _column(
            "estimate-propensities",
            "Estimate the missing probabilities; verdicts are then not guaranteed.",
        ),
    ] = False
    memory_limit: Annotated[
        Text,
        _limits(
            "memory-limit",
            "What the log may take in memory, as in 4GB; default $TIDEGATE_MEMORY_LIMIT, else half of "
            "what is free.",
            "SIZE",
        ),
    ] = None
    stream: Annotated[
        bool | None,
        _limits(
            "stream/--no-stream",
            "Read the log a part at a time, or hold it; by default, more than 500,000 rows are not held.",
        ),
    ] = None
    scratch: Annotated[
        Path | None,
        _limits("scratch", "Where rows of scattered episodes are brought together; default $TMPDIR.", "DIR"),
    ] = None
    engine: Annotated[
        str,
        _limits(
            "engine",
            "Who reads the parts of a log: threads, or ray for a cluster, which takes short logs too.",
        ),
    ] = "threads"
    workers: Annotated[
        int | None,
        _limits(
            "workers", "How many parts are read at the same time, of short logs too; default all cores.", "N"
        ),
    ] = None

    def file(self) -> "LogFile":
        """The log that these flags name."""
        from ..commands.opening import LogFile
        from ..inputs import member
        from ..logs import Columns, Format, load_columns, override_columns

        base = Columns() if self.columns is None else load_columns(self.columns)
        names = (
            "episode", "step", "action", "behavior_prob", "reward", "features", "state", "time",
            "time_unit", "actions", "num_actions",
        )  # fmt: skip
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        if self.action is not None and "," in self.action:
            given["action"] = [one.strip() for one in self.action.split(",")]
        kinds = {
            (True, False): "log_probability", (False, True): "density", (True, True): "log_density",
        }  # fmt: skip
        given["propensity"] = kinds.get((self.log_probs, self.densities))
        given["confirmed_order"] = self.confirm_order or None
        columns = override_columns(base, given)
        kind = None if self.format is None else member("the format", Format, self.format)
        return LogFile(
            self.log,
            columns,
            kind,
            self.estimate_propensities,
            memory_limit=self.memory_limit,
            stream=self.stream,
            scratch=self.scratch,
            engine=self.engine,
            workers=self.workers,
        )


@dataclasses.dataclass(frozen=True)
class ForecastFlags:
    """How to forecast."""

    lookahead: Annotated[
        Text,
        _forecast(
            "lookahead",
            "How far ahead to forecast: a number of time units, or 12h, 7d, 2w; default a tenth of the log.",
            "LENGTH",
        ),
    ] = None
    preset: Annotated[
        Preset, _forecast("preset", "Tidegate's own method, or the paper's with a basis to choose.")
    ] = Preset.MULTISCALE
    basis: Annotated[
        BasisKind | None, _forecast("basis", "Preset paper: shape of the trend, by default cosine.")
    ] = None
    order: Annotated[int | None, _forecast("order", "Preset paper: order of the trend, by default 3.")] = None
    period: Annotated[float | None, _forecast("period", "Preset paper: period of a Fourier trend.")] = None
    alpha: Annotated[float, _forecast("alpha", "Allowed probability of a wrong deployment.")] = 0.05
    allow_large_alpha: Annotated[bool, _forecast("allow-large-alpha", "Allow an alpha above 0.2.")] = False
    draws: Annotated[int, _forecast("draws", "Draws of the bootstrap.")] = 500
    discount: Annotated[float, _forecast("discount", "Discount per step.")] = 1.0
    seed: Annotated[int, _forecast("seed", "Same seed, same answer.")] = 0

    def settings(self) -> "PlainSettings":
        """The settings that these flags name."""
        from ..commands.settings import PlainSettings
        from ..inputs import seed_of

        seed_of(self.seed)
        names = [field.name for field in dataclasses.fields(PlainSettings)]
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return PlainSettings(**{**given, "lookahead": length(self.lookahead)})


@dataclasses.dataclass(frozen=True)
class SearchFlags:
    """How to search."""

    policy_class: Annotated[PolicyClass, _search("policy-class", "Class of policies to search in.")] = (
        PolicyClass.AUTO
    )
    hidden: Annotated[int, _search("hidden", "Width of an MLP's hidden layer.")] = 16
    steps: Annotated[int, _search("steps", "Gradient steps.")] = 300
    learning_rate: Annotated[float, _search("learning-rate", "Step size.")] = 0.02
    entropy: Annotated[
        float, _search("entropy", "Bonus for randomness, in standard deviations of a return.")
    ] = 0.1
    train_fraction: Annotated[float, _search("train-fraction", "Share of the episodes to search on.")] = 0.5
    search_memory: Annotated[
        str,
        _search(
            "search-memory",
            "Memory of the search: no more episodes of a large log are searched than fit.",
            "SIZE",
        ),
    ] = "2GiB"
    min_probability: Annotated[
        float,
        _search("min-probability", "Least probability of every action, in test and production, as in 0.02."),
    ] = 0.0

    def choices(self) -> "SearchChoices":
        """The choices that these flags name."""
        from ..commands.settings import SearchChoices

        return SearchChoices(**vars(self))


@dataclasses.dataclass(frozen=True)
class GuardrailFlags:
    """What must not become worse."""

    guardrail: Annotated[
        list[str] | None,
        _guarding(
            "guardrail",
            "An outcome column that must not rise by more than the margin, per episode; with "
            ":higher, must not fall. May be given several times.",
            "NAME:MARGIN[:higher]",
        ),
    ] = None
    multiplicity: Annotated[
        Multiplicity, _guarding("multiplicity", "How the reward and the guardrails share α.")
    ] = Multiplicity.HOLM

    def choices(self) -> dict[str, Any]:
        """The guardrails that these flags name, and how α is shared."""
        from ..gates.guardrails import parse_guardrail

        rails = tuple(parse_guardrail(one) for one in self.guardrail or ())
        return {"guardrails": rails, "multiplicity": self.multiplicity}


@dataclasses.dataclass(frozen=True)
class WatchFlags:
    """What a watch looks at."""

    guardrail: Annotated[
        list[str] | None,
        _guarding(
            "guardrail",
            "An outcome column that must not rise by more than the margin, per episode; with "
            ":higher, must not fall. May be given several times.",
            "NAME:MARGIN[:higher]",
        ),
    ] = None
    margin: Annotated[
        float, _watching("margin", "How much worse per episode the new policy may be than the safe one.")
    ] = 0.0
    since: Annotated[
        Text,
        _watching(
            "since", "The release: the first time or episode that counts, as the log writes it.", "TIME"
        ),
    ] = None

    def choices(self) -> dict[str, Any]:
        """What these flags name."""
        return {"guardrails": tuple(self.guardrail or ()), "margin": self.margin, "since": self.since}


@dataclasses.dataclass(frozen=True)
class VerdictFlags:
    """What a verdict may rest on, and how long it is good for."""

    reward_range: Annotated[
        Text,
        _verdict(
            "reward-range",
            "Smallest and largest return an episode can ever have; a finite-sample bound must agree.",
            "LOW,HIGH",
        ),
    ] = None
    allow_unguaranteed: Annotated[
        bool, _verdict("allow-unguaranteed", "DEPLOY even with a caveat; the record says so.")
    ] = False
    valid_for: Annotated[
        str, _verdict("valid-for", "How long the decision is good for: 12h, 7d, 2w.", "TIME")
    ] = "7d"

    def choices(self) -> dict[str, Any]:
        """The conditions that these flags name."""
        return dict(vars(self))


@dataclasses.dataclass(frozen=True)
class BudgetFlags:
    """The error budget that a gate draws on."""

    budget: Annotated[
        Path | None,
        _budget(
            "budget",
            "Share α among many gates: the ledger to keep, started by the first gate.",
            "FILE.json",
        ),
    ] = None
    budget_rule: Annotated[
        BudgetRule | None, _budget("budget-rule", "How α is shared out; default harmonic.")
    ] = None
    budget_tests: Annotated[int | None, _budget("budget-tests", "For how many gates; default 52.", "N")] = (
        None
    )

    def ledger(self) -> "Budget | None":
        """The budget that these flags name."""
        from ..gates.ledger import Budget, BudgetPlan

        given = {"rule": self.budget_rule, "tests": self.budget_tests}
        chosen: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
        if self.budget is None and chosen:
            raise SettingsError(
                f"--budget-{next(iter(chosen))} was given without --budget.",
                remedy="Name the ledger, as in --budget budget.json.",
            )
        return None if self.budget is None else Budget(self.budget, BudgetPlan(**chosen))


@dataclasses.dataclass(frozen=True)
class SigningFlags:
    """Who answers for the record."""

    sign_key: Annotated[
        Path | None,
        _output("sign-key", "Sign the record with this private key, as from `keygen`.", "FILE.pem"),
    ] = None

    def key(self) -> "PrivateKey | None":
        """The key that this flag names."""
        from ..gates.signatures import read_private_key

        return None if self.sign_key is None else read_private_key(self.sign_key)


@dataclasses.dataclass(frozen=True)
class OutputFlags:
    """Where the answer goes."""

    as_json: Annotated[bool, _output("json", "Print the record as JSON.")] = False
    report: Annotated[Path | None, _output("report", "Write one self-contained HTML page.", "OUT.html")] = (
        None
    )


def length(text: Text) -> "int | str | None":
    """A number in the shell is a text until somebody counts with it; a length of time stays one."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def spread(function: F) -> F:
    """Let a command take records of flags: each of their fields becomes an option of its own."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        by_name = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += _options(groups[name]) if name in groups else [by_name]

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})  # type: ignore[operator]
        return function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run  # type: ignore[return-value]


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    missing = dataclasses.MISSING
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is missing else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
