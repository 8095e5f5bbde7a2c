"""What a check found: a number, its p-value where there is one, and what it means for the user."""

import dataclasses
import enum
import math
from typing import Any

import numpy as np

NOTE_BELOW = 0.05
WARNING_BELOW = 0.01


class Level(enum.IntEnum):
    """How much a finding should worry the reader."""

    OK = 0
    NOTE = 1
    WARNING = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding; `value` is None when it could not be determined, and then the level is WARNING."""

    name: str
    value: float | None
    p_value: float | None
    level: Level
    sentence: str

    def __str__(self) -> str:
        return f"{self.level.name}: {self.sentence}"

    def summary(self) -> dict[str, Any]:
        """The finding in plain JSON values."""
        return {field: summarise(value) for field, value in vars(self).items()}


def found(
    name: str,
    value: float,
    sentence: str,
    *,
    level: Level = Level.OK,
    p_value: float | None = None,
) -> Finding:
    """A finding from numbers; what is not finite counts as undetermined, never as fine."""
    if not math.isfinite(value) or (p_value is not None and not math.isfinite(p_value)):
        return undetermined(name, "it is not a finite number")
    return Finding(name, value, p_value, level, sentence)


def undetermined(name: str, why: str) -> Finding:
    """A finding that could not be made."""
    sentence = f"The {name.replace('_', ' ')} could not be determined: {why}."
    return Finding(name, None, None, Level.WARNING, sentence)


def level_of(p_value: float) -> Level:
    """One healthy log in twenty gets a note from each test, one in a hundred a warning."""
    if p_value < WARNING_BELOW:
        return Level.WARNING
    return Level.NOTE if p_value < NOTE_BELOW else Level.OK


def summarise(record: Any) -> Any:
    """A frozen record in plain JSON values; what is not finite becomes null."""
    if isinstance(record, enum.Enum):
        return record.name
    if dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        return {field.name: summarise(getattr(record, field.name)) for field in fields}
    if isinstance(record, dict):
        return {str(key): summarise(value) for key, value in record.items()}
    if isinstance(record, np.ndarray | np.generic):
        return summarise(record.tolist())
    if isinstance(record, list | tuple):
        return [summarise(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record
