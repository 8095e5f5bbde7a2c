"""Pieces of Markdown that the pages share."""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

NOTICE = "<!-- Made from the code by `make reference`; changes here are lost. -->\n"


def page(title: str, *parts: str) -> str:
    """A page with a heading; empty parts are left out."""
    return (
        "\n\n".join([f"# {title}", NOTICE.strip(), *(part.strip() for part in parts if part.strip())]) + "\n"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing if there are no rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(headings), "|" + "---|" * len(headings), *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(one.split()).replace("|", "\\|") for one in cells) + " |"


def code(value: Any) -> str:
    """A value as it is written in a file or a shell; nothing for what is not there."""
    if value is None or value in ((), [], ""):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | tuple):
        return ", ".join(map(code, value))
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def first_sentence(text: str) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", paragraph)[0]


def sentences(text: str) -> str:
    """A docstring in one line."""
    return " ".join(text.split())
