"""The columns of a table as the parts of a log: what the door is shown."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Values
from ..errors import LogError, SettingsError
from .cells import floats, is_text, not_numbers, numbers, require_columns, require_filled
from .columns import Columns
from .loaded import missing_propensities
from .places import Places


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """A frame of numbers, and the keyword arguments of `check_frame` that name its columns."""

    frame: pl.DataFrame
    names: dict[str, Any]


def require_parts(frame: pl.DataFrame, columns: Columns) -> None:
    """Every mapped column is there. Only the default step column may be missing."""
    if columns.episode is not None:
        remedy = "Map the episode column; if every row is an episode of its own, leave it empty."
        require_columns(frame, [columns.episode], remedy)
    if columns.behavior_prob is not None and columns.behavior_prob not in frame.columns:
        close = [name for name in frame.columns if "prob" in name.lower() or "prop" in name.lower()]
        hint = f" Did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
        raise missing_propensities(
            f"there is no column '{columns.behavior_prob}' of propensities.{hint}"
        )
    step = None if columns.step == Columns.step else columns.step
    rest = (columns.behavior_prob, step, columns.state, columns.time)
    wanted = (*action_columns(columns), columns.reward, *columns.features, *rest)
    require_columns(frame, [name for name in wanted if name is not None])
    require_columns(
        frame, columns.outcomes, "A guardrail watches a column of the log, by its name."
    )


def action_columns(columns: Columns) -> tuple[str, ...]:
    """The action's columns: one, or several for continuous actions."""
    return (columns.action,) if isinstance(columns.action, str) else columns.action


def prepare_parts(
    frame: pl.DataFrame,
    columns: Columns,
    places: Places,
    episodes: Values,
    labels: tuple[Any, ...],
) -> Parts:
    """Numbers under the users' names; features and outcomes get a prefix, as they may play another part."""
    episode = columns.episode or "episode"
    behavior = columns.behavior_prob or "no propensity"
    step = columns.step if columns.step in frame.columns else None
    features = {f"feature {name}": name for name in columns.features}
    data: dict[str, Any] = {
        episode: episodes,
        columns.reward: floats(frame, columns.reward, places),
        behavior: np.ones(frame.height),
    }
    if columns.behavior_prob is not None:
        data[behavior] = floats(frame, columns.behavior_prob, places)
    if step is not None:
        data[step] = numbers(frame, step, places)
    for name in action_columns(columns):
        data[name] = frame[name].cast(pl.String) if labels else numbers(frame, name, places)
    outcomes = {name: f"outcome {name}" for name in columns.outcomes}
    data |= {key: floats(frame, name, places) for key, name in features.items()}
    data |= {key: floats(frame, name, places) for name, key in outcomes.items()}
    if columns.state:
        data["state of the step"] = numbers(frame, columns.state, places)
    names = {
        "episode": episode,
        "step": step,
        "action": columns.action if isinstance(columns.action, str) else list(columns.action),
        "behavior": behavior,
        "reward": columns.reward,
        "states": "state of the step" if columns.state else list(features),
        "outcomes": outcomes,
        "action_set": labels or None,
        "num_actions": columns.num_actions,
    }
    return Parts(pl.DataFrame(data), names)


def action_labels(frame: pl.DataFrame, columns: Columns, places: Places) -> tuple[str, ...]:
    """The actions' names in the order of their codes; () if the actions are numbers."""
    if columns.propensity.continuous or not isinstance(columns.action, str):
        return ()
    column = frame[columns.action]
    require_filled(column, columns.action, places)
    labels = tuple(str(label) for label in columns.actions) or _names(column, places)
    if labels and columns.num_actions not in (None, len(labels)):
        raise SettingsError(
            f"num_actions is {columns.num_actions}, and the actions are {list(labels)[:20]}.",
            remedy="List all labels in `actions`.",
        )
    return labels


def _names(column: pl.Series, places: Places) -> tuple[str, ...]:
    if not is_text(column):
        return ()
    text = column.cast(pl.String)
    unlike_numbers = not_numbers(text)
    if unlike_numbers.size == 0:
        return ()
    if unlike_numbers.size < len(text):
        raise LogError(
            f"column '{column.name}' mixes numbers with names such as "
            f"{text[int(unlike_numbers[0])]!r}.",
            where=places.several(unlike_numbers),
            expected="either numbers or names",
            remedy="If these are all names, list them in `actions`.",
        )
    return tuple(sorted(text.unique().to_list()))
