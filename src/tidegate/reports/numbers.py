"""How numbers are said, on a page, in a terminal and in a sentence: plain text from plain values."""

import math
from collections.abc import Mapping
from typing import Any


def figure(value: float | None, digits: int = 4) -> str:
    """A number rounded for reading, as in 40,000 or 0.4213: no exponent, unless it is tiny or huge."""
    if value is None or not math.isfinite(value):
        return "not known"
    if value == round(value) and abs(value) < 1e15:
        return f"{value + 0.0:,.0f}"
    whole = min(1000.0, 10.0**digits - 0.5)  # from here on, these digits would need an exponent
    return f"{value:,.0f}" if whole <= abs(value) < 1e15 else f"{value:.{digits}g}"


def signed(value: float | None, digits: int = 4) -> str:
    """The same with its sign, for a change."""
    said = figure(value, digits)
    return f"+{said}" if value is not None and math.isfinite(value) and value >= 0 else said


def count(number: float, name: str) -> str:
    """A number of things, as in 1 episode or 40,000 episodes."""
    said = figure(number)
    return f"{said} {name}" if said == "1" else f"{said} {name}s"


def lift(advantage: float | None, safe: Mapping[str, Any]) -> str | None:
    """The advantage in per cent of the safe policy's forecast, as in "+3.1 % over the safe policy's 0.42".

    None if that forecast may be zero, by its own interval: a share of nothing means nothing. A forecast
    below zero, as of costs, counts by its size.
    """
    point, lower, upper = (safe[name] for name in ("point", "lower", "upper"))
    known = [one for one in (advantage, point, lower, upper) if one is not None and math.isfinite(one)]
    if advantage is None or len(known) < 4 or lower <= 0 <= upper or point == 0:
        return None
    share = f"{signed(100 * advantage / abs(point), 2)} %"
    size = "over" if point > 0 else "of the size of"
    return f"{share} {size} the safe policy's {figure(point)}"
