"""The one place where raw arrays and frames are checked; every message names the row and the remedy.

Whatever a log is built from becomes `Steps`: NumPy arrays with one row per step. They are checked row by
row, and only then laid out as (episodes, steps).
"""

import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .arrays import Flags, Floats, Integers, Ragged, Values
from .errors import LogError

Place: TypeAlias = Callable[[int], str]

MAX_ACTION = 2**31 - 1
ROWS_SHOWN = 3
MAX_PADDING = 8  # times the steps of a log, if it has more than a few cells
FEW_CELLS = 2**20


class Propensity(enum.Enum):
    """What the behaviour column holds. Densities imply continuous actions."""

    PROBABILITY = "probabilities in (0, 1]"
    LOG_PROBABILITY = "log-probabilities, finite and at most 0"
    LOG_DENSITY = "finite log-densities of continuous actions"
    DENSITY = "positive densities of continuous actions"

    @property
    def continuous(self) -> bool:
        return self in (Propensity.LOG_DENSITY, Propensity.DENSITY)


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """What was logged at each step: one row per step, sorted by episode and step, not yet checked.

    `behavior` is None if the probabilities of the logged actions are unknown.
    """

    rewards: Values
    behavior: Values | None
    actions: Values
    states: Values | None
    recorded: Mapping[str, Values]
    outcomes: Mapping[str, Values]

    @property
    def step_bytes(self) -> int:
        """What one step takes in a log."""
        given = (self.actions, self.states, *self.recorded.values(), *self.outcomes.values())
        return 8 * (3 + sum(math.prod(one.shape[1:]) for one in given if one is not None))


def row_place(row: int) -> str:
    """A row of a frame, counted from 0 as the frame counts it."""
    return f"row {row}"


def check_arrays(
    actions: Any,
    rewards: Any,
    behavior: Any,
    propensity: Propensity,
    episode_numbers: Any,
    mask: Any,
    states: Any,
    recorded: Mapping[str, Any],
    num_actions: int | None,
    outcomes: Mapping[str, Any],
) -> dict[str, Any]:
    """Arrays of shape (episodes, steps) -> the fields of an `EpisodeLog`."""
    shape = _two_dimensional("rewards", rewards).shape[:2]
    if 0 in shape:
        raise _empty()
    filled = _filled(mask, shape)
    numbers = _episode_numbers(episode_numbers, shape[0])

    def place(row: int) -> str:
        episode, step = np.argwhere(filled)[row]
        return f"episode {numbers[episode]:g}, step {step}"

    def rows(name: str, values: Any, *, wide: bool = False) -> Values:
        array = _two_dimensional(name, values)
        if array.shape[:2] != shape:
            raise LogError(
                f"{name} has shape {array.shape[:2]}",
                expected=f"{shape} (episodes, steps), as in rewards",
                remedy="Pad every episode to the longest one and pass a mask.",
            )
        if array.ndim > 2 and not wide:
            raise LogError(f"{name} has shape {array.shape}", expected="one number per step")
        return array[filled]

    steps = Steps(
        rewards=rows("rewards", rewards),
        behavior=rows("behavior", behavior),
        actions=rows("actions", actions, wide=True),
        states=None if states is None else rows("states", states, wide=True),
        recorded={name: rows(f"recorded['{name}']", one) for name, one in recorded.items()},
        outcomes={name: rows(f"outcomes['{name}']", one) for name, one in outcomes.items()},
    )
    return _fields(steps, numbers, filled, propensity, num_actions, place)


def check_frame(
    frame: Any,
    episode: str,
    step: str | None,
    action: str | Sequence[str],
    behavior: str,
    reward: str,
    states: str | Sequence[str],
    recorded: Mapping[str, str],
    propensity: Propensity,
    num_actions: int | None,
    action_set: Sequence[Any] | None,
    outcomes: Mapping[str, str],
) -> dict[str, Any]:
    """One row per step, sorted by episode and step -> the fields of an `EpisodeLog`."""

    def column(name: str | Sequence[str]) -> Values:
        if not isinstance(name, str):
            return np.stack([column(one) for one in name], axis=-1)
        return _numbers(f"column '{name}'", _column(frame, name))

    episodes = column(episode)
    if episodes.size == 0:
        raise _empty()
    if action_set is not None and isinstance(action, str):
        actions = action_codes(_column(frame, action), action, action_set, row_place)
        num_actions = len(action_set)
    else:
        actions = column(action)
    steps = Steps(
        rewards=column(reward),
        behavior=column(behavior),
        actions=actions,
        states=column(states) if states else None,
        recorded={name: column(source) for name, source in recorded.items()},
        outcomes={name: column(source) for name, source in outcomes.items()},
    )
    counts = None if step is None or step not in frame.columns else column(step)
    return check_rows(steps, episodes, counts, (episode, str(step)), propensity, num_actions, row_place)


def check_rows(
    steps: Steps,
    episodes: Values,
    counts: Values | None,
    names: tuple[str, str],
    propensity: Propensity,
    num_actions: int | None,
    place: Place,
    *,
    ragged: bool = False,
) -> dict[str, Any]:
    """Steps of these episodes, counted within each -> the fields of an `EpisodeLog`.

    `names` are the columns of the episodes and of the counts; `place` says where the user finds a row.
    With `ragged`, episodes of very unequal length are not padded to the longest.
    """
    numbers = episodes.astype(np.float64, copy=False)
    check_finite(numbers, f"column '{names[0]}'", place)
    starts = episode_starts(numbers)
    check_episode_order(numbers[starts], names[0], lambda one: place(int(starts[one])))
    check_counts(counts, starts, numbers, names[1], place)
    lengths = np.diff(np.append(starts, numbers.size))
    if ragged and unpadded(lengths):
        layout, mask = Ragged.of(lengths, int(lengths.max())), np.ones(numbers.size, bool)
        return {**_fields(steps, numbers[starts], mask, propensity, num_actions, place), "layout": layout}
    mask = np.arange(lengths.max()) < lengths[:, None]
    return _fields(steps, numbers[starts], mask, propensity, num_actions, place)


def unpadded(lengths: Integers) -> bool:
    """Whether episodes of these lengths are too unequal to be padded to the longest."""
    return bool(lengths.size * lengths.max() > max(MAX_PADDING * lengths.sum(), FEW_CELLS))


def _fields(
    steps: Steps,
    numbers: Floats,
    mask: Flags,
    propensity: Propensity,
    num_actions: int | None,
    place: Place,
) -> dict[str, Any]:
    check_finite(steps.rewards, "reward", place)
    for name, values in steps.outcomes.items():
        check_finite(values, f"outcome '{name}'", place)
    check_finite(steps.actions, "action", place)
    states = steps.states
    if states is not None:
        check_finite(states, "state", place)
        states = states.astype(np.int64 if states.dtype.kind in "iu" else np.float64, copy=False)
    actions = steps.actions
    if propensity.continuous:
        actions = (actions[:, None] if actions.ndim == 1 else actions).astype(np.float64)
        num_actions = None
    else:
        actions, num_actions = _discrete(actions, num_actions, place)
    if steps.behavior is None:
        # NaN until ratios are given, so that nothing is computed from it by mistake.
        behavior = np.full(actions.shape[0], np.nan)
    else:
        behavior = check_log_probs(steps.behavior, propensity, "behavior", place)
    recorded = {
        name: check_log_probs(values, propensity, f"policy '{name}'", place, zero_allowed=True)
        for name, values in steps.recorded.items()
    }
    return {
        "episode_numbers": numbers,
        "mask": mask,
        "rewards": to_grid(steps.rewards.astype(np.float64, copy=False), mask),
        "actions": to_grid(actions, mask),
        "behavior_log_probs": to_grid(behavior, mask),
        "states": None if states is None else to_grid(states, mask),
        "recorded": {name: to_grid(values, mask) for name, values in recorded.items()},
        "outcomes": {
            name: to_grid(values.astype(np.float64, copy=False), mask)
            for name, values in steps.outcomes.items()
        },
        "num_actions": num_actions,
    }


def to_grid(values: Values, mask: Flags) -> Values:
    """Values per row as (episodes, steps), zero at the unused steps."""
    if values.shape[0] == mask.size:  # no step is unused
        return values.reshape(*mask.shape, *values.shape[1:])
    grid = np.zeros((*mask.shape, *values.shape[1:]), values.dtype)
    grid[mask] = values
    return grid


def check_log_probs(
    values: Values, propensity: Propensity, name: str, place: Place, *, zero_allowed: bool = False
) -> Floats:
    """Log-probabilities of the logged actions; `zero_allowed` is for policies other than the behaviour."""
    values = values.astype(np.float64, copy=False)
    if propensity in (Propensity.PROBABILITY, Propensity.DENSITY):
        highest, kind, end = (np.inf, "density", "∞)") if propensity.continuous else (1, "probability", "1]")
        check_finite(values, f"{name} {kind}", place)
        lowest = values.min(initial=np.inf)
        if lowest < 0 or (lowest == 0 and not zero_allowed) or values.max(initial=-np.inf) > highest:
            too_low = values < 0 if zero_allowed else values <= 0
            refuse(
                too_low | (values > highest),
                values,
                f"{name} {kind}",
                place,
                expected=f"a {kind} in {'[' if zero_allowed else '('}0, {end}",
                remedy="Log the probability with which the action was drawn; for log-probabilities or "
                "densities pass propensity=Propensity.LOG_PROBABILITY or Propensity.LOG_DENSITY.",
            )
        with np.errstate(divide="ignore"):
            return np.log(values)
    allowed_infinity = zero_allowed & np.isneginf(values)
    check_finite(np.where(allowed_infinity, 0.0, values), f"{name} log-probability", place)
    if propensity is Propensity.LOG_PROBABILITY:
        refuse(
            values > 0,
            values,
            f"{name} log-probability",
            place,
            expected="a log-probability of at most 0",
            remedy="For continuous actions, say so with `propensity='log_density'`.",
        )
    return values


def _discrete(actions: Values, num_actions: int | None, place: Place) -> tuple[Integers, int]:
    if actions.ndim != 1:
        raise LogError(
            f"actions have shape {actions.shape[1:]} at each step.",
            expected="one integer per step",
            remedy="For continuous actions, say so with `propensity='log_density'`.",
        )
    highest = int(min(np.max(actions), MAX_ACTION))
    size = highest + 1 if num_actions is None else num_actions
    whole = actions.dtype.kind in "iu"
    if whole and actions.min() >= 0 and actions.max() < size:
        return actions.astype(np.int64, copy=False), size
    refuse(
        (actions < 0) | (actions >= size) | (actions != np.round(actions)),
        actions,
        "action",
        place,
        expected=f"an integer from 0 to {max(size - 1, 0)}",
        remedy="Number the actions from 0, or list their names; if they are continuous, say so with "
        "`propensity='log_density'`.",
    )
    return actions.astype(np.int64, copy=False), size


def check_finite(values: Values, name: str, place: Place) -> None:
    """No value is NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        sound = not np.issubdtype(values.dtype, np.inexact) or bool(np.isfinite(values.sum()))
    if not sound:  # or the sum is too large: it is looked for
        refuse(
            ~np.isfinite(values),
            values,
            name,
            place,
            expected="a finite number",
            remedy="Drop or repair that episode; a missing step cannot be guessed.",
        )


def refuse(bad: Flags, values: Values, name: str, place: Place, *, expected: str, remedy: str = "") -> None:
    """Raise an error that shows the first bad value and says where a few others are."""
    if not bad.any():
        return
    first, *others = np.argwhere(bad)[:ROWS_SHOWN]
    count, more = int(bad.sum()), ""
    if others:
        shown = ", ".join(place(int(index[0])) for index in others)
        more = f" (and {count - 1} more: {shown}{', …' if count > ROWS_SHOWN else ''})"
    raise LogError(
        f"{name} is {values[tuple(first)]:g}{more}.",
        where=place(int(first[0])),
        expected=expected,
        remedy=remedy,
    )


def episode_starts(episodes: Values) -> Integers:
    """The rows at which a new episode begins."""
    return np.flatnonzero(np.concatenate([[True], episodes[1:] != episodes[:-1]]))


def check_episode_order(numbers: Floats, column: str, place: Place, after: float = -np.inf) -> None:
    """Episode numbers must increase; `place` says where the user finds an episode."""
    before = np.append(after, numbers[:-1])
    falls = np.flatnonzero(numbers <= before)
    if falls.size:
        one = int(falls[0])
        raise LogError(
            f"episode {numbers[one]:g} comes after episode {before[one]:g}.",
            where=f"{place(one)}, column '{column}'",
            expected="rows sorted by episode, all rows of an episode next to each other",
            remedy="Sort the rows by episode and step, or let read_log sort them.",
        )


def check_counts(counts: Values | None, starts: Integers, numbers: Values, column: str, place: Place) -> None:
    """The steps of each episode must count up by one; without a step column, an episode is one row."""
    if counts is None:
        lengths = np.diff(np.append(starts, numbers.size))
        if lengths.max() > 1:
            row, length = int(starts[np.argmax(lengths > 1)]), lengths[np.argmax(lengths > 1)]
            raise LogError(
                f"episode {numbers[row]:g} has {length} rows, and there is no step column to order them.",
                where=place(row),
                expected="a step column, or one row per episode",
                remedy="Name the column, as in `step='click'`, or remove the duplicated rows.",
            )
        return
    counts = counts.astype(np.float64, copy=False)
    check_finite(counts, f"column '{column}'", place)
    with np.errstate(over="ignore"):
        gaps = np.diff(counts)
    gaps[starts[1:] - 1] = 1
    if np.any(gaps != 1):
        row = int(np.argmax(gaps != 1)) + 1
        kind = "is duplicated" if gaps[row - 1] == 0 else f"follows step {counts[row - 1]:g}"
        raise LogError(
            f"step {counts[row]:g} of episode {numbers[row]:g} {kind}.",
            where=f"{place(row)}, column '{column}'",
            expected="steps that count up by one within an episode",
            remedy="Sort by episode and step, and drop episodes with missing or repeated steps.",
        )


def _column(frame: Any, name: str) -> Values:
    if name not in frame.columns:
        raise LogError(
            f"there is no column '{name}'.",
            expected=f"one of {list(frame.columns)}",
            remedy="Name your column in the call, as in from_frame(frame, reward='profit').",
        )
    return np.asarray(frame[name].to_numpy())


def _numbers(name: str, values: Any) -> Values:
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise LogError(
            f"{name} is ragged or not numeric ({error}).",
            expected="numbers in one rectangular array",
            remedy="Pad every episode to the longest one and pass a mask, or use from_frame.",
        ) from error
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise LogError(
            f"{name} has type {array.dtype}.",
            expected="numbers",
            remedy="Convert it; for named actions pass action_set=[…].",
        )
    return array.astype(np.int64) if array.dtype == np.bool_ else array


def action_codes(labels: Values, column: str, action_set: Sequence[Any], place: Place) -> Integers:
    """The place of each label in the action set."""
    codes = {label: code for code, label in enumerate(action_set)}
    found = np.fromiter(map(codes.get, labels, itertools.repeat(-1)), np.int64, labels.size)
    if found.min(initial=0) < 0:
        row = int(np.argmin(found))
        raise LogError(
            f"action {labels[row]!r} is not in the action set.",
            where=f"{place(row)}, column '{column}'",
            expected=f"one of {list(action_set)}",
        )
    return found


def _two_dimensional(name: str, values: Any) -> Values:
    array = _numbers(name, values)
    if array.ndim == 0:
        raise LogError(f"{name} is a single number.", expected="an array (episodes, steps)")
    return array[:, None] if array.ndim == 1 else array


def _filled(mask: Any, shape: tuple[int, ...]) -> Flags:
    if mask is None:
        return np.ones(shape, bool)
    filled = _two_dimensional("mask", mask).astype(bool)
    if filled.shape != shape:
        raise LogError(f"mask has shape {filled.shape}", expected=f"{shape}, as in rewards")
    bad = ~filled[:, 0] | np.any(~filled[:, :-1] & filled[:, 1:], axis=1)
    if bad.any():
        raise LogError(
            "the episode is ragged: a step follows a masked one, or there is no step at all.",
            where=f"row {int(np.flatnonzero(bad)[0])} of the mask",
            expected="each episode to start at step 0 and to end once",
            remedy="Move the steps of each episode to the front.",
        )
    return filled


def _episode_numbers(numbers: Any, count: int) -> Floats:
    if numbers is None:
        return np.arange(1, count + 1, dtype=np.float64)
    array = _numbers("episode_numbers", numbers).astype(np.float64)
    if array.shape != (count,):
        raise LogError(f"episode_numbers has shape {array.shape}", expected=f"({count},)")
    check_finite(array, "episode number", row_place)
    check_episode_order(array, "episode_numbers", row_place)
    return array


def _empty() -> LogError:
    return LogError(
        "the log has no episodes.",
        expected="at least one episode with one step",
        remedy="Check the query or the file that produced it.",
    )
