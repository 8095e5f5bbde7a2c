"""The columns of a table as the parts of a log: the arrays that the door checks."""

import numpy as np

from ..arrays import Values
from ..door import Steps, action_codes
from ..errors import LogError, SettingsError
from ..serving.features import Feature
from .columns import Columns
from .encoding import encoded
from .table import Table, is_text, spelled_numbers


def missing_propensities(what: str) -> LogError:
    """The paragraph a user reads when the probabilities of the logged actions are unknown."""
    return LogError(
        what,
        expected="the probability with which each logged action was drawn",
        remedy="Without it nothing can be said about another policy. Name the column "
        "(`behavior_prob`); or say that there is none (`behavior_prob=None`) and give each policy as a "
        "column of importance ratios (ratio:NAME); or have the probabilities estimated "
        "(`estimate_propensities=True`), and then no verdict is guaranteed.",
    )


def require_parts(table: Table, columns: Columns) -> None:
    """Every mapped column exists. Only the default step column may be missing."""
    if columns.episode is not None:
        remedy = "Map the episode column; if every row is an episode of its own, leave it empty."
        table.require([columns.episode], remedy)
    names = table.frame.columns
    if columns.behavior_prob is not None and columns.behavior_prob not in names:
        close = [name for name in names if "prob" in name.lower() or "prop" in name.lower()]
        hint = f" Did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
        raise missing_propensities(f"there is no column '{columns.behavior_prob}' of propensities.{hint}")
    step = None if columns.step == Columns.step else columns.step
    rest = (columns.behavior_prob, step, columns.state, columns.time)
    wanted = (*columns.action_columns, columns.reward, *columns.features, *rest)
    table.require([name for name in wanted if name is not None])
    table.require(columns.outcomes, "A guardrail watches a column of the log, by its name.")


def read_steps(
    table: Table, columns: Columns, labels: tuple[str, ...], features: tuple[Feature, ...]
) -> Steps:
    """The parts as arrays; `labels` are the names of the actions, if they have names."""
    behavior, action = columns.behavior_prob, columns.action_columns[0]
    rewards = table.floats(columns.reward)
    propensities = None if behavior is None else table.floats(behavior)
    if labels:
        text = table.frame[action].cast(str)
        table.require_filled(text)
        actions = action_codes(text.to_numpy(), action, labels, table.places)
    elif isinstance(columns.action, str):
        actions = table.numbers(action)
    else:
        actions = np.stack([table.numbers(name) for name in columns.action], axis=-1)
    states = _states(table, columns, features)
    outcomes = {name: table.floats(name) for name in columns.outcomes}
    return Steps(rewards, propensities, actions, states, {}, outcomes)


def _states(table: Table, columns: Columns, features: tuple[Feature, ...]) -> Values | None:
    if features:
        return encoded(table, features)
    return None if columns.state is None else table.numbers(columns.state)


def action_labels(table: Table, columns: Columns) -> tuple[str, ...]:
    """The actions' names in the order of their codes; () if the actions are numbers."""
    if columns.propensity.continuous:
        return ()
    labels = tuple(str(label) for label in columns.actions) or _names(table, columns)
    if labels and columns.num_actions not in (None, len(labels)):
        raise SettingsError(
            f"num_actions is {columns.num_actions}, and the actions are {list(labels)[:20]}.",
            remedy="List all labels in `actions`.",
        )
    return labels


def _names(table: Table, columns: Columns) -> tuple[str, ...]:
    column = table.frame[columns.action_columns[0]]
    table.require_filled(column)
    if not is_text(column):
        return ()
    names = spelled_numbers(column)[1]
    if 0 < names.size < len(column):
        raise LogError(
            f"column '{column.name}' mixes numbers with names such as {column[int(names[0])]!r}.",
            where=table.places.several(names),
            expected="either numbers or names",
            remedy="If these are all names, list them in `actions`.",
        )
    return tuple(sorted(column.cast(str).unique().to_list())) if names.size else ()
