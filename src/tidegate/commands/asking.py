"""What a command is asked, as people say it: settings and columns by keyword, beside whatever holds the log.

The names of settings, columns and what is read from a file are different, so that none needs a prefix.
"""

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from ..door import Propensity
from ..episodes import EpisodeLog
from ..errors import SettingsError
from ..inputs import by_name, did_you_mean, record_of
from ..logs import Columns, Format, TimeUnit, load_columns
from ..logs.engines import EngineKind
from .choices import BasisKind, PolicyClass, Preset
from .lookaheads import in_units_of
from .opening import Log, LogFile, OpenLog, log_file
from .settings import PlainSettings, SearchChoices, Settings

T = TypeVar("T")
NOT_ASKED = ("source", "columns", "calendar")  # fields that have another way in, or that the log gives

ColumnNames = Columns | Mapping[str, Any] | str | Path | None


class Named(TypedDict, total=False):
    """What every command takes by keyword: the fields of `PlainSettings`, `Columns` and `LogFile`."""

    preset: Preset | str
    lookahead: int | str | datetime.timedelta | None
    basis: BasisKind | str | None
    order: int | None
    period: float | None
    alpha: float
    draws: int
    discount: float
    allow_large_alpha: bool

    episode: str | None
    step: str | None
    action: str | list[str] | tuple[str, ...]
    behavior_prob: str | None
    reward: str
    features: str | list[str] | tuple[str, ...]
    outcomes: str | list[str] | tuple[str, ...]
    state: str | None
    time: str | None
    time_unit: TimeUnit | str
    propensity: Propensity | str
    actions: str | list[Any] | tuple[Any, ...]
    num_actions: int | None
    confirmed_order: bool

    format: Format | str | None
    estimate_propensities: bool
    memory_limit: int | str | None
    stream: bool | None
    scratch: str | Path | None
    engine: EngineKind | str
    workers: int | None


class NamedSearch(Named, total=False):
    """What `improve` takes by keyword besides: the fields of `SearchChoices`."""

    policy_class: PolicyClass | str
    hidden: int
    steps: int
    learning_rate: float
    entropy: float
    train_fraction: float
    search_memory: int | str
    min_probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """The log to read, and how to forecast."""

    log: Log
    settings: PlainSettings


def asked(
    command: Callable[..., Any],
    log: Log,
    settings: Settings,
    columns: ColumnNames,
    named: Mapping[str, object],
) -> Asked:
    """What was said to a command, brought together; a keyword goes before `settings` and `columns`."""
    _require_known(command, named)
    wanted = chosen("settings", PlainSettings, settings, named)
    file = _log(log, columns, _part(Columns, named), _part(LogFile, named))
    return Asked(in_units_of(file, wanted.lookahead), wanted)


def chosen(name: str, kind: type[T], given: Any, named: Mapping[str, object]) -> T:
    """A record of choices: as it was passed, with the fields that were given by keyword."""
    fields = _part(kind, named)
    if given is None or isinstance(given, Mapping):
        return record_of(name, kind, {**by_name(name, given), **fields})
    found = record_of(name, kind, given)
    return dataclasses.replace(found, **fields) if fields else found  # type: ignore[type-var]


def keywords(command: Callable[..., Any]) -> list[str]:
    """All names that a command takes, except the log's."""
    own = [
        one.name
        for one in inspect.signature(command).parameters.values()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    kinds = (PlainSettings, Columns, LogFile, *((SearchChoices,) if "search" in own else ()))
    return own + [name for kind in kinds for name in _names(kind)]


def _require_known(command: Callable[..., Any], named: Mapping[str, object]) -> None:
    known = keywords(command)
    for name in named:
        if name not in known:
            close = did_you_mean(name, known)
            raise SettingsError(
                f"{command.__name__} takes no '{name}'.{close}",
                expected="" if close else f"some of {', '.join(known)}",
            )


def _log(
    log: Log, columns: ColumnNames, parts: Mapping[str, Any], reading: Mapping[str, Any]
) -> LogFile | OpenLog:
    said = [*(["columns"] if columns is not None else []), *parts, *reading]
    if isinstance(log, OpenLog | EpisodeLog) and said:
        raise SettingsError(
            f"`{said[0]}` says how to read a table, and the log is {_whose(log)}.",
            remedy="Leave it out, or pass the table itself.",
        )
    if isinstance(log, OpenLog):
        return log
    file = log_file(log)
    if columns is not None:
        if file.columns != Columns():
            raise SettingsError(
                "the columns are named twice: in the `LogFile`, and in `columns`.",
                remedy="Leave one of them out.",
            )
        read = load_columns(columns) if isinstance(columns, str | Path) else columns
        return dataclasses.replace(file, columns=chosen("columns", Columns, read, parts), **reading)
    mapping = dataclasses.replace(file.columns, **parts) if parts else file.columns
    return dataclasses.replace(file, columns=mapping, **reading) if parts or reading else file


def _whose(log: OpenLog | EpisodeLog) -> str:
    return "an EpisodeLog" if isinstance(log, EpisodeLog) else "open already"


def _part(kind: type[Any], named: Mapping[str, object]) -> dict[str, Any]:
    return {name: named[name] for name in _names(kind) if name in named}


def _names(kind: type[Any]) -> list[str]:
    fields = [one.name for one in dataclasses.fields(kind)]
    return [name for name in fields if name not in NOT_ASKED]
