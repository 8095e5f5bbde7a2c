"""Fields of a JSON schema as rows of a table."""

from collections.abc import Mapping
from typing import Any

from .words import code, table

Schema = Mapping[str, Any]


def fields(schema: Schema, with_default: bool = False) -> str:
    """A table of an object's fields, or of the keys of a file if their defaults are wanted."""
    required = set(schema.get("required", ()))
    shown = schema.get("properties", {}).items()
    if with_default:
        rows = [
            (f"`{name}`", _settable(one), _default(one, name in required), one.get("description", ""))
            for name, one in shown
        ]
        return table(["key", "type", "default", "meaning"], rows)
    found = [(f"`{name}`", kind(one), one.get("description", "")) for name, one in shown]
    width = 3 if any(row[-1] for row in found) else 2
    return table(["field", "type", "meaning"][:width], [row[:width] for row in found])


def _settable(schema: Schema) -> str:
    """What can be written into a file, where there is no null."""
    return kind(schema).removesuffix(" or null")


def _default(schema: Schema, required: bool) -> str:
    return "required" if required else code(schema.get("default"))


def kind(schema: Schema) -> str:
    """The type of a value in words; shapes link to their place on the page."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return code(schema["const"]) or '`""`'
    if "enum" in schema:
        return " or ".join(map(code, schema["enum"]))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(map(kind, schema[choice])))
    if isinstance(schema.get("type"), list):
        return " or ".join(_plain(one, schema) for one in schema["type"])
    return _plain(schema.get("type", "any"), schema)


def _plain(name: str, schema: Schema) -> str:
    if name == "array":
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}: {', '.join(map(kind, schema['prefixItems']))}"
        return f"list of {kind(schema.get('items', {}))}"
    words = {
        "integer": "whole number", "string": "text", "boolean": "true or false", "any": "any value",
    }  # fmt: skip
    if name == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"by name: {kind(schema['additionalProperties'])}"
    return words.get(name, name) + _bounds(schema)


def _bounds(schema: Schema) -> str:
    words = {
        "exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "to",
    }  # fmt: skip
    told = [f"{word} {schema[name]:,}" for name, word in words.items() if name in schema]
    return f" {' '.join(told)}" if told else ""
