"""The mapping of columns: every key of columns.toml, from the record that it becomes."""

import ast
import dataclasses
import enum
import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tidegate.door import Propensity
from tidegate.logs.columns import Columns, TimeUnit

from .words import code, page, table

INTRODUCTION = """
This file says what each column of your log is. The keys are at the top of a TOML file or under `[columns]`;
name the file with `--columns columns.toml`, or in Python `columns="columns.toml"`. A flag such as `--reward
profit`, or a keyword such as `reward="profit"`, overrides it. [Your own log](logs.md) has an example, and
says what is checked.
"""
TYPES = {
    "str": "a column", "str | None": "a column, or `\"\"`", "tuple[str, ...]": "a list of columns",
    "str | tuple[str, ...]": "a column, or a list of columns",
    "tuple[Any, ...]": "a list of names or whole numbers",
    "int | None": "a whole number", "bool": "true or false", "TimeUnit": "[a unit](#time_unit)",
    "Propensity": "[a kind](#propensity)",
}  # fmt: skip


def columns_page() -> str:
    """The page of the mapping."""
    described = dict(told(Columns))
    rows = [
        (f"`{one.name}`", TYPES[_annotation(one)], _default(one.default), described[one.name])
        for one in dataclasses.fields(Columns)
    ]
    units = [(f"`{one.value}`", dict(told(TimeUnit))[one.name]) for one in TimeUnit]
    kinds = [(f"`{one.name.lower()}`", one.value) for one in Propensity]
    return page(
        "The columns of a log: columns.toml",
        INTRODUCTION,
        table(["key", "value", "default", "meaning"], rows),
        "## time_unit",
        table(["value", "the time axis counts"], units),
        "## propensity",
        table(["value", "the column holds"], kinds),
    )


def told(kind: type) -> Iterator[tuple[str, str]]:
    """What a class says of each of its fields or members: the text below it."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, text in pairwise(body.body):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            target = (
                field.target if isinstance(field, ast.AnnAssign) else getattr(field, "targets", [None])[0]
            )
            if isinstance(target, ast.Name):
                yield target.id, " ".join(str(text.value.value).split())


def _annotation(field: "dataclasses.Field[Any]") -> str:
    kind = field.type
    return (
        kind.__name__
        if isinstance(kind, type) and not hasattr(kind, "__args__")
        else str(kind).replace("typing.", "")
    )


def _default(value: Any) -> str:
    return code(value.name.lower() if isinstance(value, enum.Enum) else value)
