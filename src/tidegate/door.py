"""The one place where raw arrays and frames are checked; every message names the row and the remedy."""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays import Values
from .errors import LogError

Where: TypeAlias = Callable[[tuple[int, ...]], str]
Place: TypeAlias = Callable[[int], str]

MAX_ACTION = 2**31 - 1
ROWS_SHOWN = 3


class Propensity(enum.Enum):
    """What the behaviour column holds. Densities say that the actions are continuous."""

    PROBABILITY = "probabilities in (0, 1]"
    LOG_PROBABILITY = "log-probabilities, finite and at most 0"
    LOG_DENSITY = "finite log-densities of continuous actions"
    DENSITY = "positive densities of continuous actions"

    @property
    def continuous(self) -> bool:
        return self in (Propensity.LOG_DENSITY, Propensity.DENSITY)


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
    rewards = _two_dimensional("rewards", _numbers("rewards", rewards))
    shape = rewards.shape
    if shape[0] == 0 or shape[1] == 0:
        raise _empty()
    filled = _filled(mask, shape)
    numbers = _episode_numbers(episode_numbers, shape[0])

    def where(index: tuple[int, ...]) -> str:
        return f"episode {numbers[index[0]]:g}, step {index[1]}"

    def same_shape(name: str, values: Any) -> Values:
        array = _two_dimensional(name, _numbers(name, values))
        if array.shape[:2] != shape:
            raise LogError(
                f"{name} has shape {array.shape[:2]}",
                expected=f"{shape} (episodes, steps), as in rewards",
                remedy="Pad every episode to the longest one and pass a mask.",
            )
        return array

    def one_number(name: str, values: Any) -> Values:
        array = same_shape(name, values)
        if array.ndim > 2:
            raise LogError(f"{name} has shape {array.shape}", expected="one number per step")
        return array

    return _fields(
        numbers=numbers,
        mask=filled,
        rewards=rewards,
        actions=same_shape("actions", actions),
        behavior=same_shape("behavior", behavior),
        states=None if states is None else same_shape("states", states),
        recorded={name: same_shape(f"recorded['{name}']", v) for name, v in recorded.items()},
        outcomes={name: one_number(f"outcomes['{name}']", v) for name, v in outcomes.items()},
        propensity=propensity,
        num_actions=num_actions,
        where=where,
    )


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
    place: Place = row_place,
) -> dict[str, Any]:
    """One row per step, sorted by episode and step -> the fields of an `EpisodeLog`.

    `place` says where the user finds a row of this frame, which may have been read from a file.
    """
    numbers = _numeric_column(frame, episode).astype(np.float64)
    if numbers.size == 0:
        raise _empty()
    check_finite(numbers, np.ones(numbers.size, bool), f"column '{episode}'", lambda i: place(i[0]))
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    lengths = np.diff(np.append(starts, numbers.size))
    check_episode_order(numbers, starts, episode, place)
    steps = _steps(frame, step, starts, lengths, numbers, place)
    rows = np.repeat(np.arange(starts.size), lengths)

    def padded(values: Values) -> Values:
        grid = np.zeros((starts.size, int(lengths.max()), *values.shape[1:]), values.dtype)
        grid[rows, steps] = values
        return grid

    def column(name: str | Sequence[str]) -> Values:
        if isinstance(name, str):
            return padded(_numeric_column(frame, name))
        return padded(np.stack([_numeric_column(frame, one) for one in name], axis=-1))

    if action_set is not None and isinstance(action, str):
        action_grid = padded(_action_codes(_column(frame, action), action, action_set, place))
        num_actions = len(action_set)
    else:
        action_grid = column(action)

    return _fields(
        numbers=numbers[starts],
        mask=padded(np.ones(numbers.size, bool)),
        rewards=column(reward),
        actions=action_grid,
        behavior=column(behavior),
        states=column(states) if states else None,
        recorded={name: column(source) for name, source in recorded.items()},
        outcomes={name: column(source) for name, source in outcomes.items()},
        propensity=propensity,
        num_actions=num_actions,
        where=lambda index: place(int(starts[index[0]]) + index[1]),
    )


def _fields(
    *,
    numbers: Values,
    mask: Values,
    rewards: Values,
    actions: Values,
    behavior: Values,
    states: Values | None,
    recorded: dict[str, Values],
    outcomes: dict[str, Values],
    propensity: Propensity,
    num_actions: int | None,
    where: Where,
) -> dict[str, Any]:
    check_finite(rewards, mask, "reward", where)
    for name, values in outcomes.items():
        check_finite(values, mask, f"outcome '{name}'", where)
    check_finite(actions, mask, "action", where)
    if states is not None:
        check_finite(states, mask, "state", where)
    continuous = propensity.continuous
    if continuous:
        actions = actions.astype(np.float64)
        actions = actions[..., None] if actions.ndim == 2 else actions
    else:
        actions, num_actions = _discrete(actions, mask, num_actions, where)
    return {
        "episode_numbers": numbers.astype(np.float64),
        "mask": mask,
        "rewards": _blank(rewards.astype(np.float64), mask),
        "actions": _blank(actions, mask),
        "behavior_log_probs": check_log_probs(behavior, mask, propensity, "behavior", where),
        "states": None if states is None else _blank(_state_dtype(states), mask),
        "recorded": {
            name: check_log_probs(
                values, mask, propensity, f"policy '{name}'", where, zero_allowed=True
            )
            for name, values in recorded.items()
        },
        "outcomes": {
            name: _blank(values.astype(np.float64), mask) for name, values in outcomes.items()
        },
        "num_actions": None if continuous else num_actions,
    }


def check_log_probs(
    values: Values,
    mask: Values,
    propensity: Propensity,
    name: str,
    where: Where,
    zero_allowed: bool = False,
) -> Values:
    """A logged action had a positive probability; another policy may well give it none."""
    values = values.astype(np.float64, copy=False)
    if propensity in (Propensity.PROBABILITY, Propensity.DENSITY):
        highest, kind, end = (
            (np.inf, "density", "∞)") if propensity.continuous else (1, "probability", "1]")
        )
        check_finite(values, mask, f"{name} {kind}", where)
        too_low = values < 0 if zero_allowed else values <= 0
        _refuse(
            too_low | (values > highest),
            mask,
            values,
            f"{name} {kind}",
            where,
            expected=f"a {kind} in {'[' if zero_allowed else '('}0, {end}",
            remedy="Log the probability with which the action was drawn; for log-probabilities or "
            "densities pass propensity=Propensity.LOG_PROBABILITY or Propensity.LOG_DENSITY.",
        )
        with np.errstate(divide="ignore"):
            return np.log(np.where(mask, values, 1.0))
    allowed_infinity = zero_allowed & np.isneginf(values)
    check_finite(np.where(allowed_infinity, 0.0, values), mask, f"{name} log-probability", where)
    if propensity is Propensity.LOG_PROBABILITY:
        _refuse(
            values > 0,
            mask,
            values,
            f"{name} log-probability",
            where,
            expected="a log-probability of at most 0",
            remedy="For continuous actions pass propensity=Propensity.LOG_DENSITY.",
        )
    return _blank(values, mask)


def _discrete(
    actions: Values, mask: Values, num_actions: int | None, where: Where
) -> tuple[Values, int]:
    if actions.ndim != 2:
        raise LogError(
            f"actions have shape {actions.shape}",
            expected="one integer per step",
            remedy="For continuous actions pass propensity=Propensity.LOG_DENSITY.",
        )
    highest = int(min(np.max(actions[mask]), MAX_ACTION))
    size = highest + 1 if num_actions is None else num_actions
    _refuse(
        (actions < 0) | (actions >= size) | (actions != np.round(actions)),
        mask,
        actions,
        "action",
        where,
        expected=f"an integer from 0 to {max(size - 1, 0)}",
        remedy="Number the actions from 0, name them with action_set, or, if they are continuous, "
        "pass propensity=Propensity.LOG_DENSITY.",
    )
    return np.where(mask, actions, 0).astype(np.int64), size


def _refuse(
    bad: Values,
    mask: Values,
    values: Values,
    name: str,
    where: Where,
    *,
    expected: str,
    remedy: str,
) -> None:
    bad = bad & mask.reshape(mask.shape + (1,) * (bad.ndim - mask.ndim))
    if not bad.any():
        return
    first, *others = [tuple(int(i) for i in index) for index in np.argwhere(bad)[:ROWS_SHOWN]]
    count, more = int(bad.sum()), ""
    if others:
        shown = ", ".join(where(index) for index in others)
        more = f" (and {count - 1} more: {shown}{', …' if count > ROWS_SHOWN else ''})"
    raise LogError(
        f"{name} is {values[first]:g}{more}.", where=where(first), expected=expected, remedy=remedy
    )


def check_finite(values: Values, mask: Values, name: str, where: Where) -> None:
    """No NaN and no infinity among the values in use."""
    if not np.issubdtype(values.dtype, np.inexact):
        return
    _refuse(
        ~np.isfinite(values),
        mask,
        values,
        name,
        where,
        expected="a finite number",
        remedy="Drop or repair that episode; a missing step cannot be guessed.",
    )


def check_episode_order(
    numbers: Values, starts: Values, column: str, place: Place = row_place
) -> None:
    """Each episode is one run of rows, and their numbers grow."""
    firsts = numbers[starts]
    falls = np.flatnonzero(firsts[1:] <= firsts[:-1])
    if falls.size == 0:
        return
    row = int(starts[falls[0] + 1])
    raise LogError(
        f"episode {numbers[row]:g} comes after episode {numbers[row - 1]:g}.",
        where=f"{place(row)}, column '{column}'",
        expected="rows sorted by episode, each episode in one run of rows",
        remedy="Sort the frame by episode and step.",
    )


def _steps(
    frame: Any,
    step: str | None,
    starts: Values,
    lengths: Values,
    numbers: Values,
    place: Place,
) -> npt.NDArray[np.int64]:
    """Step 0, 1, 2, … of each episode, from a column that must count up by one."""
    if step is None or step not in frame.columns:
        check_single_steps(starts, lengths, numbers, place)
        return np.zeros(numbers.size, np.int64)
    values = _numeric_column(frame, step).astype(np.float64)
    check_finite(values, np.ones(values.size, bool), f"column '{step}'", lambda i: place(i[0]))
    check_steps(values, starts, numbers, step, place)
    steps: npt.NDArray[np.int64] = np.arange(values.size) - np.repeat(starts, lengths)
    return steps


def check_single_steps(starts: Values, lengths: Values, numbers: Values, place: Place) -> None:
    """Without a step column, an episode is one row."""
    several = np.flatnonzero(lengths > 1)
    if several.size:
        raise LogError(
            f"episode {numbers[starts[several[0]]]:g} has {lengths[several[0]]} rows, "
            "and there is no step column to order them.",
            where=place(int(starts[several[0]])),
            expected="a step column, or one row per episode",
            remedy="Name the column with step=…, or remove the duplicated rows.",
        )


def check_steps(values: Values, starts: Values, numbers: Values, step: str, place: Place) -> None:
    """The steps of each episode count up by one."""
    with np.errstate(over="ignore"):
        gaps = np.diff(values)
    inside = np.ones(values.size, bool)
    inside[starts] = False
    wrong = np.flatnonzero(inside[1:] & (gaps != 1)) + 1
    if wrong.size:
        row = int(wrong[0])
        kind = "is duplicated" if gaps[row - 1] == 0 else f"follows step {values[row - 1]:g}"
        raise LogError(
            f"step {values[row]:g} of episode {numbers[row]:g} {kind}.",
            where=f"{place(row)}, column '{step}'",
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


def _numeric_column(frame: Any, name: str) -> Values:
    return _numbers(f"column '{name}'", _column(frame, name))


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


def _action_codes(
    labels: Values, column: str, action_set: Sequence[Any], place: Place
) -> npt.NDArray[np.int64]:
    codes = {label: code for code, label in enumerate(action_set)}
    for row, label in enumerate(labels):
        if label not in codes:
            raise LogError(
                f"action {label!r} is not in the action set.",
                where=f"{place(row)}, column '{column}'",
                expected=f"one of {list(action_set)}",
            )
    return np.array([codes[label] for label in labels], np.int64)


def _two_dimensional(name: str, array: Values) -> Values:
    if array.ndim == 0:
        raise LogError(f"{name} is a single number.", expected="an array (episodes, steps)")
    return array[:, None] if array.ndim == 1 else array


def _filled(mask: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    if mask is None:
        return np.ones(shape[:2], bool)
    filled = _two_dimensional("mask", np.asarray(mask)).astype(bool)
    if filled.shape != shape[:2]:
        raise LogError(f"mask has shape {filled.shape}", expected=f"{shape[:2]}, as in rewards")
    holes = ~filled[:, :-1] & filled[:, 1:]
    if holes.any() or not filled[:, 0].all():
        bad = holes.any(axis=1) | ~filled[:, 0]
        raise LogError(
            "the episode is ragged: a step follows a masked one, or it has no step.",
            where=f"row {int(np.flatnonzero(bad)[0])} of the mask",
            expected="each episode to start at step 0 and to end once",
            remedy="Move the steps of each episode to the front.",
        )
    return filled


def _episode_numbers(numbers: Any, count: int) -> npt.NDArray[np.float64]:
    if numbers is None:
        return np.arange(1, count + 1, dtype=np.float64)
    array = _numbers("episode_numbers", numbers).astype(np.float64)
    if array.shape != (count,):
        raise LogError(f"episode_numbers has shape {array.shape}", expected=f"({count},)")
    check_finite(array, np.ones(count, bool), "episode number", lambda i: f"row {i[0]}")
    check_episode_order(array, np.arange(count), "episode_numbers")
    return array


def _state_dtype(states: Values) -> Values:
    return states.astype(np.int64 if np.issubdtype(states.dtype, np.integer) else np.float64)


def _blank(values: Values, mask: Values) -> Values:
    """Zero the unused steps, so that no stray NaN there can reach a sum."""
    return np.where(mask.reshape(mask.shape + (1,) * (values.ndim - 2)), values, 0)


def _empty() -> LogError:
    return LogError(
        "the log has no episodes.",
        expected="at least one episode with one step",
        remedy="Check the query or the file that produced it.",
    )
