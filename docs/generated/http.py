"""The HTTP interface, from the service's own OpenAPI document."""

import inspect
from collections.abc import Iterator
from typing import Any

from tidegate.service import state
from tidegate.service.app import make_app
from tidegate.service.database import Database
from tidegate.service.refusals import Refusal

from .schemas import fields, kind
from .words import page, table

INTRODUCTION = """
This page lists what `tidegate serve` answers. The service has the same as an OpenAPI document at
`/openapi.json`. Every request except `/healthz`, `/readyz` and those that MLflow signs needs a token:
`Authorization: Bearer …`. [The live gate](../how-to/service.md#decisions-out) says which scope a request
needs, and a refusal names it too.
"""
SUCCESS = ("200", "201", "202", "204", "304")
USUAL = set(map(str, state.USUAL))


def http_page() -> str:
    """The page of the HTTP interface."""
    document = make_app(Database("sqlite://")).openapi()
    operations = [
        (method, path, one) for path, all_ in document["paths"].items() for method, one in all_.items()
    ]
    tags = dict.fromkeys(one["tags"][0] for *_, one in operations)
    parts = []
    for tag in tags:
        parts.append(f"## {tag.capitalize()}")
        parts += [operation(*one) for one in operations if one[2]["tags"][0] == tag]
    shapes = document["components"]["schemas"]
    return page(
        "The HTTP interface", INTRODUCTION, refusal_table(), *parts, "## Shapes", *map(shape, shapes.items())
    )


def refusal_table() -> str:
    """What a request may be refused with."""
    rows = [
        (
            str(int(one.status)),
            f"`{one.code}`",
            inspect.cleandoc(one.__doc__ or ""),
            _from(str(int(one.status))),
        )
        for one in sorted(Refusal.__subclasses__(), key=lambda one: one.status)
        if one.__module__ == Refusal.__module__
    ]
    headings = ["status", "code", "means", "comes from"]
    return f"## Refusals\n\nEvery refusal has one shape, [Refused](#refused).\n\n{table(headings, rows)}"


def _from(status: str) -> str:
    return "any request" if status in {*USUAL, "500"} else "where it is listed"


def operation(method: str, path: str, one: Any) -> str:
    """A request: its parameters, its body and its answers."""
    parts = [f"### {method.upper()} {path}", one["description"]]
    parameters = [
        (f"`{found['name']}`", found["in"], kind(found["schema"]), found.get("description", ""))
        for found in one.get("parameters", ())
    ]
    parts.append(table(["parameter", "in", "type", "meaning"], parameters))
    body = list(_contents(one.get("requestBody", {})))
    if body:
        parts.append(f"Body: {', or '.join(body)}.")
    answers = [
        ", ".join([f"{status} with {found}" for found in _contents(answer)] or [status])
        for status, answer in one["responses"].items()
        if status in SUCCESS
    ]
    parts.append(f"Answers: {'; '.join(answers)}.")
    other = [status for status in one["responses"] if status not in {*SUCCESS, *USUAL}]
    parts.append(f"May also refuse with {', '.join(sorted(other))}." if other else "")
    return "\n\n".join(part for part in parts if part)


def _contents(holder: Any) -> Iterator[str]:
    for media, found in holder.get("content", {}).items():
        schema = found.get("schema", {})
        plain = media == "application/json" and schema
        yield kind(schema) if plain else f"`{media}`"


def shape(named: tuple[str, Any]) -> str:
    """One of the shapes that requests and answers have."""
    name, schema = named
    values = "" if "properties" in schema else kind(schema) + "."
    text = " ".join(schema.get("description", "").split())
    return "\n\n".join(part for part in (f"### {name}", text, values, fields(schema)) if part)
