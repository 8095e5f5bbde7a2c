"""The one layer that coerces or refuses what people pass: strings, enums, scalars, dictionaries, paths.

Nothing is guessed. An enumeration is named in either case, and a NumPy number is the Python number of the
same value. Whatever else is not of the kind that is meant is refused: True is not 1, "0.05" is not 0.05,
10.0 is not 10, and a text is not a list of its letters. JAX is not imported here: what serves a policy in
production asks the same questions without it.
"""

import dataclasses
import datetime
import difflib
import enum
import hashlib
import itertools
import json
import math
import numbers
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .errors import PolicyError, SettingsError

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
    return value if isinstance(value, np.ndarray) or is_jax(value) else check(value)


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


def bounded_bytes(path: str | Path, most: int) -> bytes:
    """The content of a regular file of at most this size: a device or a pipe need never end."""
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise SettingsError(f"{path} is not a regular file.")
    with path.open("rb") as file:  # what the system says about the size need not be true
        content = file.read(most + 1)
    if len(content) > most:
        raise SettingsError(f"{path} is larger than {most / 2**20:,.3g} MiB.")
    return content


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


def parameter(name: str, values: Any, axes: int, *, impossible: bool = False) -> Any:
    """A policy's numbers. JAX values are kept; all others are held as 64-bit NumPy, which nothing rounds.

    With `impossible`, −∞ is allowed: the logit of an action that is never taken.
    """
    array = values if is_jax(values) else _listed(name, values)
    if array.dtype not in (np.float32, np.float64):
        raise PolicyError(f"{name} is of type {array.dtype}.", expected="numbers of type float32 or float64")
    if array.ndim != axes or 0 in array.shape:
        what = "a table of numbers" if axes == 2 else "a list of numbers"
        raise PolicyError(f"{name} has the shape {tuple(array.shape)}.", expected=f"{what}, not empty")
    if not (is_jax(array) and isinstance(array, sys.modules["jax"].core.Tracer)):
        _require_numbers(name, np.asarray(array), impossible)
    return array if is_jax(array) else array.astype(np.float64)


def network_layers(given: Any) -> tuple[tuple[Any, Any], ...]:
    """The (weights, bias) pairs of a network, each of which takes what the one before it gives."""
    if not isinstance(given, list | tuple) or not given:
        raise PolicyError(f"layers is {shown(given)}.", expected="one (weights, bias) pair at least")
    found = tuple(
        _layer(f"layer {place}", one, last=place == len(given)) for place, one in enumerate(given, 1)
    )
    for place, ((_, bias), (weights, _)) in enumerate(itertools.pairwise(found), 1):
        if bias.shape[0] != weights.shape[0]:
            raise PolicyError(
                f"layer {place} has {bias.shape[0]} outputs, and layer {place + 1} takes {weights.shape[0]}.",
                expected="as many",
            )
    return found


def require_fit(name: str, size: int, other: str, other_size: int) -> None:
    """Two parameters have as many columns."""
    if size != other_size:
        raise PolicyError(f"{name} has {size} columns, and {other} {other_size}.", expected="as many")


def check_min_probability(value: Any, actions: int) -> float:
    """The least probability that each of so many actions is to keep."""
    found = _real(value)
    if 0 <= found < 1 / actions:
        return found
    raise SettingsError(
        f"min_probability is {shown(value)}.",
        expected=f"a number from 0 up and below 1/{actions} = {1 / actions:.4g}, for {actions} actions",
    )


def content_hash(content: Mapping[str, Any], *left_out: str) -> str:
    """SHA-256 of JSON values, with numbers written so that every bit counts; some names are left out."""
    rest = {name: value for name, value in content.items() if name not in left_out}
    written = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(written.encode()).hexdigest()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant, or nothing."""
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in close)}?" if close else ""


def shown(value: Any) -> str:
    """A value as an error shows it, cut if it is long."""
    if isinstance(value, np.ndarray) or is_jax(value):
        return f"an array of {value.dtype}, of shape {tuple(value.shape)}"
    found = " ".join(repr(value.item() if isinstance(value, np.number | np.bool_) else value).split())
    return found if len(found) <= SHOWN else f"{found[:SHOWN]}…"


def is_jax(value: Any) -> bool:
    """Whether this is an array of JAX, traced or not."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _listed(name: str, values: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise PolicyError(f"{name} is ragged.", expected="rows of one length") from error
    # A list may be written with whole numbers; an array of whole numbers is something else than logits.
    whole = array.dtype == np.int64 and not isinstance(values, np.ndarray)
    return array.astype(np.float64) if whole else array


def _require_numbers(name: str, array: npt.NDArray[Any], impossible: bool) -> None:
    never = np.isneginf(array) if impossible else np.zeros(array.shape, bool)
    bad = ~(np.isfinite(array) | never)
    if bad.any():
        also = ", or −∞ for an action that is never taken" if impossible else ""
        raise PolicyError(f"{name} holds {array[bad][0]}.", expected=f"finite numbers{also}")
    if array.ndim == 1 and never.all():
        raise PolicyError(f"{name} makes every action impossible.", expected="one finite number at least")


def _layer(name: str, layer: Any, *, last: bool) -> tuple[Any, Any]:
    if not isinstance(layer, list | tuple) or len(layer) != 2:
        raise PolicyError(f"{name} is {shown(layer)}.", expected="a pair of weights and bias")
    weights = parameter(f"the weights of {name}", layer[0], 2)
    bias = parameter(f"the bias of {name}", layer[1], 1, impossible=last)
    require_fit(f"the weight matrix of {name}", weights.shape[1], "its bias", bias.shape[0])
    return weights, bias


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
