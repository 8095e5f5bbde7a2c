"""JSON schemas of the values that `tidegate.record.plain` makes from records, from their types."""

import dataclasses
import datetime
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from tidegate.commands.provenance import Provenance
from tidegate.commands.training import Overlap
from tidegate.forecast import Forecast
from tidegate.logs import Calibration, Columns
from tidegate.reasons import Status

from .words import sentences

Schema = dict[str, Any]
NUMBER: Schema = {"type": ["number", "null"]}  # a number that is not finite is null
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NULL: Schema = {"type": "null"}
HASH: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
PLAIN = {
    int: {"type": "integer"},
    float: NUMBER,
    str: TEXT,
    bool: {"type": "boolean"},
    types.NoneType: NULL,
    Any: {},
}

KINDS: dict[type, Schema] = {np.float64: NUMBER, np.int64: {"type": "integer"}, np.bool_: {"type": "boolean"}}


class Types:
    """Schemas by type; what they refer to is gathered in `definitions`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._special: dict[Any, Callable[[], Schema]] = {
            Forecast: self._forecast,
            Overlap: self._overlap,
            Status: lambda: {"enum": [one.value for one in Status], **_described(Status)},
        }
        self._fields: dict[tuple[type, str], Callable[[], Schema]] = {
            (Provenance, "columns"): self._columns,
            (Provenance, "calibration"): self._calibration,
        }

    def of(self, hint: Any) -> Schema:
        """The schema of a type."""
        if hint in self._special:
            return self.named(hint.__name__, self._special[hint])
        if hint in PLAIN:
            return PLAIN[hint]
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self.named(hint.__name__, lambda: members(hint))
        if dataclasses.is_dataclass(hint):
            return self.named(getattr(hint, "__name__", ""), lambda: self.record(hint))
        return self._composed(hint)

    def _composed(self, hint: Any) -> Schema:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (types.UnionType, typing.Union):
            stored = [one for one in parts if one is not datetime.timedelta]  # a record holds the number
            return any_of(*map(self.of, stored))
        if origin is np.ndarray:
            return {"type": "array", "items": KINDS[get_args(parts[1])[0]]}
        if origin is tuple and parts[-1] is not Ellipsis:
            each = [self.of(one) for one in parts]
            return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}
        if origin in (tuple, list):
            return {"type": "array", "items": self.of(parts[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        raise TypeError(f"there is no schema for {hint}")

    def definition(self, hint: Any) -> Schema:
        """The definition that the schema of a type refers to."""
        return self.definitions[str(self.of(hint)["$ref"]).rsplit("/", 1)[1]]

    def named(self, name: str, make: Callable[[], Schema]) -> Schema:
        """A reference to a definition, which is made at the first use."""
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def record(self, cls: Any, **more: Schema) -> Schema:
        """A record: the properties that it names in `derived`, its fields, and what is added."""
        return closed(self.fields(cls) | more, cls.__doc__ or "")

    def fields(self, cls: Any) -> dict[str, Schema]:
        """The schemas of what `plain` writes of a record."""
        hints = get_type_hints(cls)
        derived = {
            name: get_type_hints(getattr(cls, name).fget)["return"] for name in getattr(cls, "derived", ())
        }
        stored = {
            one.name: hints[one.name] for one in dataclasses.fields(cls) if one.metadata.get("plain", True)
        }
        return {name: self._field(cls, name, hint) for name, hint in (derived | stored).items()}

    def _field(self, cls: Any, name: str, hint: Any) -> Schema:
        return self._fields[cls, name]() if (cls, name) in self._fields else self.of(hint)

    def _forecast(self) -> Schema:
        bin_ = {
            "from": NUMBER,
            "to": NUMBER,
            "episodes": self.of(int),
            "mean": NUMBER,
            "standard_error": NUMBER,
        }
        values = {"type": "array", "items": NUMBER}
        scalars = ("point", "lower", "upper", "standard_error", "alpha", "effective_sample_size")
        return closed(
            {
                **dict.fromkeys(scalars, NUMBER),
                "num_episodes": self.of(int),
                "forecast_episodes": any_of(self.of(tuple[float, float]), NULL),
                "past": {"type": "array", "items": closed(bin_)},
                "points": closed({"episode": values, "estimated_return": values}),
                "curve": closed({"episode": values, "fitted": values}),
            },
            "A forecast: its numbers, the past in a few bins, and enough points for a picture.",
        )

    def _overlap(self) -> Schema:
        pairs = [closed({"name": {"const": one.name}, "sentence": {"const": one.value}}) for one in Overlap]
        return {**_described(Overlap), "oneOf": pairs}

    def _columns(self) -> Schema:
        return self.named(
            "Columns",
            lambda: closed(
                {name: _empty_for_null(one) for name, one in self.fields(Columns).items()},
                "The columns of the log; a part without a column is an empty text.",
            ),
        )

    def _calibration(self) -> Schema:
        made = self.named("Calibration", lambda: self.record(Calibration, error=NUMBER, text=TEXT))
        return any_of(made, NULL)


def _empty_for_null(schema: Schema) -> Schema:
    """The same, with an empty text where there was nothing."""
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        rest = [one for one in kinds if one != "null"]
        return any_of({"type": rest if len(rest) > 1 else rest[0]}, {"const": ""})
    return schema


def members(kind: type[enum.Enum]) -> Schema:
    """The names of an enumeration, with what each of them says, if it says anything."""
    told = [getattr(one, "sentence", None) for one in kind]
    if not all(isinstance(one, str) for one in told):
        return {**_described(kind), "enum": [one.name for one in kind]}
    named = zip(kind, told, strict=True)
    return {**_described(kind), "oneOf": [{"const": one.name, "description": text} for one, text in named]}


def _described(kind: type) -> Schema:
    return {"description": sentences(kind.__doc__ or "")}


def closed(properties: Mapping[str, Schema], description: str = "", optional: tuple[str, ...] = ()) -> Schema:
    """An object with exactly these properties."""
    told = {"description": sentences(description)} if description else {}
    required = [name for name in properties if name not in optional]
    shape = {"type": "object", "properties": dict(properties), "required": required}
    return {**told, **shape, "additionalProperties": False}


def any_of(*choices: Schema) -> Schema:
    """One of some schemas, each said once; simple types are joined."""
    flat = [
        one
        for choice in choices
        for one in (choice.get("anyOf", [choice]) if set(choice) == {"anyOf"} else [choice])
    ]
    if {} in flat:
        return {}
    simple = [one for one in flat if set(one) == {"type"}]
    names = dict.fromkeys(
        name for one in simple for name in ([one["type"]] if isinstance(one["type"], str) else one["type"])
    )
    joined = [{"type": [*names] if len(names) > 1 else next(iter(names))}] if simple else []
    found = [one for one in flat if one not in simple] + joined
    return found[0] if len(found) == 1 else {"anyOf": found}
