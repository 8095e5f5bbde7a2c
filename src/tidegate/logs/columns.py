"""Which column of a user's table plays which part, as a record or a small TOML file."""

import dataclasses
import enum
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..door import Propensity
from ..errors import SettingsError
from ..inputs import did_you_mean, flag, member, names, none_or, record_of, require_fields, text, whole
from ..inputs import path as file_path


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

    A column that may be missing is None, or an empty text, if there is none. Enumerations may be named, and
    lists written as one text with commas.
    """

    episode: str | None = "episode"
    """The number of the episode, or its name. Empty: every row is an episode of its own."""
    step: str | None = "step"
    """The step within the episode. The column may be missing if every episode has one step."""
    action: str | tuple[str, ...] = "action"
    """The action that was taken; a list of columns for continuous actions."""
    behavior_prob: str | None = "behavior_prob"
    """The probability with which the logged action was drawn. Empty: it is unknown."""
    reward: str = "reward"
    """The reward of the step."""
    features: tuple[str, ...] = ()
    """Columns of the state, of numbers or of text: what `improve` looks at."""
    outcomes: tuple[str, ...] = ()
    """Further measurements of a step, for guardrails; those that a guardrail names need no entry."""
    state: str | None = None
    """One column of integer states, in place of features."""
    time: str | None = None
    """The time of the step. Without it, the episode's number is its time."""
    time_unit: TimeUnit = TimeUnit.EPISODE
    """What one unit of the time axis is, and what the lookahead counts."""
    propensity: Propensity = Propensity.PROBABILITY
    """What `behavior_prob` and the probability columns of policies hold."""
    actions: tuple[Any, ...] = ()
    """All actions, in the order of a policy's outputs. Without it, names are sorted, and whole numbers
    stand for themselves."""
    num_actions: int | None = None
    """How many actions there are, where the log may not show all of them."""
    confirmed_order: bool = False
    """The episode numbers grow with time, although the rows come in another order."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked_part(field.name, getattr(self, field.name)))
        parts = (self.episode, self.step, self.behavior_prob, self.reward, *self.action_columns)
        named = [part for part in parts if part is not None]
        if len(set(named)) < len(named):
            raise SettingsError(
                f"one column plays two parts: {named}.",
                expected="different columns for episode, step, action, behavior_prob and reward",
            )
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
                remedy="Several action columns are for continuous actions: set `propensity='log_density'` "
                "or `propensity='density'`.",
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


_EACH_ROW = {"episode": None, "step": None}
PRESETS: dict[str, dict[str, Any]] = {
    "banditdb": {
        **_EACH_ROW, "action": "arm_id", "behavior_prob": "propensity", "time": "predicted_at",
    },
    "open-bandit": {
        **_EACH_ROW, "action": "item_id", "behavior_prob": "propensity_score", "reward": "click",
        "time": "timestamp",
    },
    "vw-dsjson": {**_EACH_ROW, "behavior_prob": "_label_probability", "time": "Timestamp"},
}  # fmt: skip


def load_columns(path: str | Path) -> Columns:
    """A mapping of `PRESETS`, or from a TOML file: the fields of `Columns`, at the top or under `[columns]`.

    An empty string means that there is no such column; enumerations are given by name, as in
    `time_unit = "hour"` or `propensity = "log_probability"`.
    """
    if str(path) in PRESETS:
        return Columns(**PRESETS[str(path)])
    try:
        content = tomllib.loads(file_path("the file of columns", path).read_bytes().decode())
    except OSError as error:
        raise SettingsError(
            f"cannot read {path}: {error.strerror or error}.{did_you_mean(str(path), [*PRESETS])}",
            expected=f"a TOML file, or one of {', '.join(PRESETS)}",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}.", expected='as in reward = "profit"') from error
    table = content.get("columns", content)
    if not isinstance(table, dict):
        raise SettingsError(f"'columns' in {path} is {table!r}.", expected="a table of column names")
    return override_columns(Columns(), table)


def override_columns(columns: Columns, given: Mapping[str, Any]) -> Columns:
    """The mapping with some parts replaced by plain values, as from flags; None means not given."""
    require_fields("the mapping of columns", Columns, given)
    return dataclasses.replace(columns, **{name: one for name, one in given.items() if one is not None})


def columns_of(given: Any) -> Columns:
    """A mapping as people pass it: `Columns`, some of its parts, its name or file, or None for defaults."""
    if isinstance(given, str | Path):
        return load_columns(given)
    return record_of("the mapping of columns", Columns, given)


def _checked_part(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return member(name, _ENUMS[name], value)
    if name == "num_actions":
        return none_or(functools.partial(whole, name, low=1), value)
    if name == "confirmed_order":
        return flag(name, value)
    if name in _LISTS or (name == "action" and isinstance(value, list | tuple)):
        return names(name, value, whole_numbers=name == "actions")
    if name in _OPTIONAL and value in (None, ""):
        return None
    return text(name, value, "the name of a column")
