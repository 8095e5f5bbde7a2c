"""Where two records differ: to the bit, or beyond what another processor's rounding explains."""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any


def differences(stored: Any, given: Any, tolerance: float | None = None, where: str = "") -> Iterator[str]:
    """Every place in which the two differ; with a tolerance, numbers may differ by that share."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in dict.fromkeys([*stored, *given]):
            if name not in stored or name not in given:
                yield f"{where}.{name}: only {'stored' if name in stored else 'given'}"
            else:
                yield from differences(stored[name], given[name], tolerance, f"{where}.{name}")
    elif isinstance(stored, list) and isinstance(given, list):
        for index, pair in enumerate(itertools.zip_longest(stored, given)):
            yield from differences(*pair, tolerance, f"{where}[{index}]")
    elif not _same(stored, given, tolerance):
        yield f"{where}: stored {stored!r}, given {given!r}"


def _same(stored: Any, given: Any, tolerance: float | None) -> bool:
    if stored == given and type(stored) is type(given):
        return True
    if tolerance is None:
        return False
    if _is_hash(stored) and _is_hash(given):
        return True
    numbers = [_number(one) for one in (stored, given)]
    return None not in numbers and math.isclose(*numbers, rel_tol=tolerance, abs_tol=tolerance)  # type: ignore[arg-type]


def _is_hash(value: Any) -> bool:
    """Of numbers whose last bits may be others."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
