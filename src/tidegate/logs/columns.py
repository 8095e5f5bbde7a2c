"""Which column of a user's table plays which part, as a record or a small TOML file."""

import dataclasses
import difflib
import enum
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..door import Propensity
from ..errors import SettingsError

E = TypeVar("E", bound=enum.Enum)


class TimeUnit(enum.Enum):
    """What one unit of the time axis is. The lookahead counts the same units."""

    EPISODE = "episode"
    """Rank order: episodes are numbered 1, 2, 3, … by the time of their first step."""
    HOUR = "hour"
    """Hours since the first episode; the column holds timestamps, or Unix seconds."""
    DAY = "day"
    """Days since the first episode; the column holds timestamps, or Unix seconds."""
    NUMBER = "number"
    """The column's own numbers as they stand, such as a day of the experiment."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """The parts that a table's columns play; one row per step.

    `episode=None` makes every row an episode of its own, `step=None` says that there is no step
    column, `behavior_prob=None` that the probabilities of the logged actions are unknown. `features`
    are real-valued columns of the state, `state` is one column of integer states. `action` may be a
    tuple of columns for continuous actions. `actions` lists the labels of the actions in the order
    of a policy's outputs; without it, text labels are sorted, and integers stand for themselves.
    `propensity` says what `behavior_prob` and the probability columns of policies hold. `outcomes` are
    columns of further measurements of each step, which guardrails watch. `confirmed_order` says that
    the episode numbers grow with time, although the rows come in another order.
    """

    episode: str | None = "episode"
    step: str | None = "step"
    action: str | tuple[str, ...] = "action"
    behavior_prob: str | None = "behavior_prob"
    reward: str = "reward"
    features: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    state: str | None = None
    time: str | None = None
    time_unit: TimeUnit = TimeUnit.EPISODE
    propensity: Propensity = Propensity.PROBABILITY
    actions: tuple[Any, ...] = ()
    num_actions: int | None = None
    confirmed_order: bool = False

    def __post_init__(self) -> None:
        parts = (self.episode, self.step, self.behavior_prob, self.reward, *self.action_columns)
        named = [part for part in parts if part is not None]
        if len(set(named)) < len(named):
            raise SettingsError(
                f"one column plays two parts: {named}.",
                expected="different columns for episode, step, action, behavior_prob and reward",
            )
        if len(set(self.outcomes)) < len(self.outcomes):
            raise SettingsError(f"outcomes lists a name twice: {list(self.outcomes)}.")
        if self.features and self.state:
            raise SettingsError(
                "both features and a state column are named.",
                expected="either feature columns or one column of integer states",
            )
        if self.time_unit is not TimeUnit.EPISODE and not self.time:
            raise SettingsError(
                f"the time unit is '{self.time_unit.value}', and no time column is named.",
                remedy="Name the column that holds the time of each step.",
            )
        if not isinstance(self.action, str) and not self.propensity.continuous:
            raise SettingsError(
                f"the action has {len(self.action)} columns, and the propensities are "
                f"{self.propensity.value}.",
                remedy="Several action columns are for continuous actions: set the propensity to "
                "'log_density' or 'density'.",
            )

    @property
    def parts(self) -> dict[str, str]:
        """The part that each column plays."""
        single = ("episode", "step", "behavior_prob", "reward", "state", "time")
        named = {getattr(self, part): part for part in single}
        lists = {"action": self.action_columns, "features": self.features, "outcomes": self.outcomes}
        listed = {name: part for part, names in lists.items() for name in names}
        return {name: part for name, part in {**listed, **named}.items() if name is not None}

    @property
    def action_columns(self) -> tuple[str, ...]:
        """The action's columns: one, or several for continuous actions."""
        return (self.action,) if isinstance(self.action, str) else self.action


_OPTIONAL = {"episode", "step", "behavior_prob", "state", "time"}
_LISTS = {"features", "outcomes", "actions"}
_ENUMS: dict[str, type[enum.Enum]] = {"time_unit": TimeUnit, "propensity": Propensity}


def load_columns(path: str | Path) -> Columns:
    """Read a mapping from a TOML file: the fields of `Columns`, at the top or under `[columns]`.

    An empty string means that there is no such column; enumerations are given by name, as in
    `time_unit = "hour"` or `propensity = "log_probability"`.
    """
    try:
        content = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}.", expected='as in reward = "profit"') from error
    table = content.get("columns", content)
    if not isinstance(table, dict):
        raise SettingsError(f"'columns' in {path} is {table!r}.", expected="a table of column names")
    return override_columns(Columns(), table)


def override_columns(columns: Columns, given: Mapping[str, Any]) -> Columns:
    """The mapping with some parts replaced by plain values, as from flags; None means not given."""
    names = [field.name for field in dataclasses.fields(Columns)]
    for name in given:
        if name not in names:
            raise SettingsError(
                f"there is no part '{name}' that a column could play.{did_you_mean(name, names)}",
                expected=f"some of {', '.join(names)}",
            )
    values = {name: _column_value(name, value) for name, value in given.items() if value is not None}
    return dataclasses.replace(columns, **values)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest what may have been meant, or nothing."""
    by_lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in close)}?" if close else ""


def _column_value(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return member(name, _ENUMS[name], value)
    if name == "num_actions":
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SettingsError(f"num_actions is {value!r}.", expected="a whole number from 1 up")
        return value
    if name == "confirmed_order":
        if not isinstance(value, bool):
            raise SettingsError(f"confirmed_order is {value!r}.", expected="true or false")
        return value
    if name in _LISTS or (name == "action" and isinstance(value, list | tuple)):
        return _list(name, value)
    if not isinstance(value, str) or (value == "" and name not in _OPTIONAL):
        shown = "empty" if value == "" else repr(value)
        raise SettingsError(f"{name} is {shown}.", expected="the name of a column")
    return value or None


def member(name: str, kind: type[E], value: Any) -> E:
    """A member of an enumeration, or its name in either case."""
    if isinstance(value, kind):
        return value
    members = {member.name.lower(): member for member in kind}
    key = str(value).lower().replace("-", "_")
    if key not in members:
        raise SettingsError(f"{name} is {value!r}.", expected=f"one of {', '.join(members)}")
    return members[key]


def _list(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [one.strip() for one in value.split(",") if one.strip()]
    wanted = str | int if name == "actions" else str
    if not isinstance(value, list | tuple) or not all(isinstance(one, wanted) for one in value):
        raise SettingsError(f"{name} is {value!r}.", expected="a list of names")
    if len(set(value)) < len(value):
        raise SettingsError(f"{name} lists a name twice: {list(value)}.")
    return tuple(value)
