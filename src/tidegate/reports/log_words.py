"""How a page shows numbers, names and times: each number with the record's own digits behind it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from .numbers import figure, signed

Plain = Mapping[str, Any]


def number(value: float | None) -> str | Markup:
    """A number rounded for reading, with the record's own digits behind it."""
    return "not known" if value is None else _data(value, figure(value))


def change(value: float | None) -> str | Markup:
    """The same with its sign."""
    return "not known" if value is None else _data(value, signed(value))


def moment(text: str) -> str:
    """A moment of a record, as in 2026-03-04 13:05 UTC."""
    return f"{text[:10]} {text[11:16]} UTC"


def percent(value: float | None) -> str | Markup:
    """A share as a percentage."""
    return "not known" if value is None else _data(value, f"{figure(100 * value, 3)}\u00a0%")


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
