"""How a page shows numbers, names and times: each number with the record's own digits behind it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from .numbers import figure

Plain = Mapping[str, Any]
UNITS = {"episode": "episodes", "hour": "hours", "day": "days", "number": "units of time"}
AXES = {
    "episode": "episode",
    "hour": "hours since the first episode",
    "day": "days since the first episode",
    "number": "time",
}


def number(value: float | None) -> str | Markup:
    """A number rounded for reading, with the record's own digits behind it."""
    if value is None:
        return "not known"
    return _data(value, figure(value))


def percent(value: float | None) -> str | Markup:
    """A share as a percentage."""
    return "not known" if value is None else _data(value, f"{100 * value:.3g}\u00a0%")


def _data(value: float, text: str) -> Markup:
    return Markup('<data value="{}">{}</data>').format(json.dumps(value), text)


def shown(value: Any) -> str | Markup:
    """Any value of the record in a table of names and values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list | tuple):
        return Markup(", ").join(shown(one) for one in value) or "–"
    return "–" if value is None or value == "" else str(value)


def sentence(text: str) -> str:
    """A fragment as a sentence of its own."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def words(name: str) -> str:
    """A field's name as words."""
    return name.replace("num_", "number of ").replace("_", " ")


def names(findings: Sequence[Plain]) -> str:
    """The findings by name."""
    return ", ".join(words(one["name"]) for one in findings)


def units(data: Plain) -> str:
    """What the lookahead counts."""
    return UNITS[data["provenance"]["time_unit"]]


def axis_label(data: Plain) -> str:
    """What the time axis shows."""
    return AXES[data["provenance"]["time_unit"]]
