"""What a check found: a number, its p-value where there is one, and what it means for the user."""

import dataclasses
import enum
import math

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


def found(
    name: str,
    value: float,
    sentence: str,
    *,
    level: Level = Level.OK,
    p_value: float | None = None,
) -> Finding:
    """A finding from numbers; a value that is not finite counts as undetermined, never as OK."""
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
