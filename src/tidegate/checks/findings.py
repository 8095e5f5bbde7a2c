"""What a check found: a number, its p-value where there is one, and what it means for the user."""

import dataclasses
import enum
import math
from collections.abc import Callable

NOTE_BELOW = 0.05
WARNING_BELOW = 0.01


def _episode(number: float) -> str:
    return f"episode {number:,.6g}"


def _episodes(amount: float) -> str:
    return f"{math.ceil(amount):,} episode{'s' * (amount != 1)}"


@dataclasses.dataclass(frozen=True)
class Names:
    """What a log calls times, the episodes at them, spans of time and actions: by default, by number."""

    at: Callable[[float], str] = _episode
    episode: Callable[[float], str] = _episode
    span: Callable[[float], str] = _episodes
    labels: tuple[str, ...] = ()

    def action(self, code: int) -> str:
        """The action of this number by its name."""
        return self.labels[code] if code < len(self.labels) else str(code)


NUMBERED = Names()


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
