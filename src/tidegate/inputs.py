"""The one layer that coerces or refuses what people pass: strings, enums, scalars, dictionaries, paths.

Nothing is guessed. An enumeration is named in either case, and a NumPy number is the Python number of the
same value. Whatever else is not of the kind that is meant is refused: True is not 1, "0.05" is not 0.05,
10.0 is not 10, and a text is not a list of its letters.
"""

import dataclasses
import datetime
import difflib
import enum
import math
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from .errors import SettingsError

E = TypeVar("E", bound=enum.Enum)
T = TypeVar("T")

MAX_SEED = 2**63 - 1
SHOWN = 80  # characters of a refused value
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def member(name: str, kind: type[E], value: Any) -> E:
    """A member of an enumeration, or its name or value in either case, with - and _ alike."""
    if isinstance(value, kind):
        return value
    words = {_word(one.value): one for one in kind if isinstance(one.value, str)}
    named = {_word(one.name): one for one in kind}
    known = {**words, **named}
    if isinstance(value, str) and _word(value) in known:
        return known[_word(value)]
    hint = did_you_mean(_word(value), named) if isinstance(value, str) else ""
    raise SettingsError(f"{name} is {shown(value)}.{hint}", expected=f"one of {', '.join(named)}")


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """One of a few words."""
    listed = list(known)
    if isinstance(value, str) and value in listed:
        return str(value)
    hint = did_you_mean(value, listed) if isinstance(value, str) else ""
    raise SettingsError(f"{name} is {shown(value)}.{hint}", expected=f"one of {', '.join(listed)}")


def whole(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """A whole number from `low` to `high`."""
    known = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if known and (low is None or value >= low) and (high is None or value <= high):
        return int(value)
    raise _refused(name, value, "a whole number" + _range(low, high, None, None))


def number(
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """A number from `low` to `high`, or between `above` and `below` without these ends."""
    found = _real(value)
    if (
        not math.isnan(found)
        and (infinite or math.isfinite(found))
        and (low is None or found >= low)
        and (high is None or found <= high)
        and (above is None or found > above)
        and (below is None or found < below)
    ):
        return found
    kind = "a number" if infinite else "a finite number"
    raise _refused(name, value, kind + _range(low, high, above, below))


def duration(value: Any) -> datetime.timedelta | None:
    """A length of time, as in 90m, 12h, 7d or 2w, or as a timedelta; None for anything else."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*([smhdw])\s*", value) if isinstance(value, str) else None
    if found is not None:
        return datetime.timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    return value if isinstance(value, datetime.timedelta) else None


def array_or(check: Callable[[Any], T], value: Any) -> T | Any:
    """An array as it is, because a traced one has no numbers yet; anything else is checked."""
    return value if isinstance(value, jax.Array | np.ndarray) else check(value)


def none_or(check: Callable[[Any], T], value: Any) -> T | None:
    """None as it is; anything else is checked."""
    return None if value is None else check(value)


def seed_of(value: Any) -> int:
    """A seed, which every generator takes."""
    return whole("seed", value, 0, MAX_SEED)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise SettingsError(f"{name} is {shown(value)}.", expected="True or False")


def text(name: str, value: Any, expected: str = "a text") -> str:
    """A text that is not empty."""
    if isinstance(value, str) and value:
        return str(value)
    what = "empty" if isinstance(value, str) else shown(value)
    raise SettingsError(f"{name} is {what}.", expected=expected)


def names(name: str, value: Any, *, whole_numbers: bool = False) -> tuple[Any, ...]:
    """Different names: a list of them, or one text, in which commas separate them."""
    if isinstance(value, str):
        value = [one.strip() for one in value.split(",") if one.strip()]
    wanted = str | int | np.integer if whole_numbers else str
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, wanted) and not isinstance(one, bool) and one != "" for one in value
    ):
        raise SettingsError(f"{name} is {shown(value)}.", expected="a list of names")
    found = tuple(str(one) if isinstance(one, str) else int(one) for one in value)
    if len(set(found)) < len(found):
        raise SettingsError(f"{name} lists a name twice: {shown(list(found))}.")
    return found


def by_name(name: str, value: Any) -> dict[str, Any]:
    """A dictionary whose keys are names; None is an empty one."""
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) and key for key in value):
        return dict(value)
    raise SettingsError(f"{name} is {shown(value)}.", expected="a dictionary with names as its keys")


def path(name: str, value: Any) -> Path:
    """The path of a file, as text or as a `Path`."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(found, str) or not found or "\0" in found:
        raise SettingsError(f"{name} is {shown(value)}.", expected="the path of a file")
    return Path(found)


def instance(name: str, kind: type[Any], value: T, expected: str = "") -> T:
    """An object of this class."""
    if isinstance(value, kind):
        return value
    raise SettingsError(f"{name} is {shown(value)}.", expected=expected or f"{kind.__name__}(…)")


def several(name: str, kind: type[T], value: Any) -> tuple[T, ...]:
    """A list of objects of this class."""
    expected = f"a list of {kind.__name__}(…)"
    if isinstance(value, list | tuple):
        return tuple(instance(name, kind, one, expected) for one in value)
    raise SettingsError(f"{name} is {shown(value)}.", expected=expected)


def record_of(name: str, kind: type[T], value: Any) -> T:
    """A record of this class, or a dictionary of its fields; None is the record of all defaults."""
    if isinstance(value, kind):
        return value
    given = by_name(name, value) if value is None or isinstance(value, Mapping) else None
    if given is None:
        raise SettingsError(
            f"{name} is {shown(value)}.", expected=f"{kind.__name__}(…), or a dictionary of its fields"
        )
    require_fields(name, kind, given)
    missing = [
        one.name
        for one in dataclasses.fields(kind)  # type: ignore[arg-type]
        if one.default is one.default_factory is dataclasses.MISSING and one.name not in given
    ]
    if missing:
        raise SettingsError(f"{name} does not say what the {missing[0]} is.", expected=f"{kind.__name__}(…)")
    return kind(**given)


def require_fields(name: str, kind: type[Any], given: Iterable[str]) -> None:
    """Every name is that of a field of this class."""
    known = [one.name for one in dataclasses.fields(kind)]
    for one in given:
        if one not in known:
            raise SettingsError(
                f"{name} has no '{one}'.{did_you_mean(one, known)}",
                expected=f"some of {', '.join(known)}",
            )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant, or nothing."""
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in close)}?" if close else ""


def shown(value: Any) -> str:
    """A value as an error shows it, cut if it is long."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of {value.dtype}, of shape {tuple(value.shape)}"
    found = " ".join(repr(value.item() if isinstance(value, np.number | np.bool_) else value).split())
    return found if len(found) <= SHOWN else f"{found[:SHOWN]}…"


def _word(value: str) -> str:
    return value.lower().replace("-", "_").replace(" ", "_")


def _real(value: Any) -> float:
    """The value of a number; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _range(low: float | None, high: float | None, above: float | None, below: float | None) -> str:
    if low is not None and high is not None:
        return f" from {_plain(low)} to {_plain(high)}"
    ends = {"from {} up": low, "above {}": above, "up to {}": high, "below {}": below}
    said = [words.format(_plain(end)) for words, end in ends.items() if end is not None]
    return f" {' and '.join(said)}" if said else ""


def _plain(end: float) -> str:
    return f"{end:,}" if isinstance(end, int) else f"{end:g}"


def _refused(name: str, value: Any, expected: str) -> SettingsError:
    remedy = ""
    if isinstance(value, str):
        remedy = "Pass a number, not a text."
    elif isinstance(value, bool | np.bool_):
        remedy = "Pass a number: True and False do not count as 1 and 0."
    elif isinstance(value, float | np.floating) and float(value).is_integer():
        remedy = f"Write {int(value)}, without a decimal point." if "whole" in expected else ""
    return SettingsError(f"{name} is {shown(value)}.", expected=expected, remedy=remedy)
