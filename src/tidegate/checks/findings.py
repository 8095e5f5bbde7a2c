"""What a check found: a number, its p-value where there is one, and what it means for the user."""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping

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
    """One finding; `value` is None when it is not known, and then the level is WARNING and it says why."""

    name: str
    value: float | None
    p_value: float | None
    level: Level
    sentence: str

    def __str__(self) -> str:
        unknown = f"{self.name.replace('_', ' ')} not known. " if self.value is None else ""
        return f"{self.level.name}: {unknown}{self.sentence}"


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
    """A finding that could not be made; all that one cause prevents say the same."""
    return Finding(name, None, None, Level.WARNING, f"{why[:1].upper()}{why[1:]}.")


@dataclasses.dataclass(frozen=True)
class Told:
    """What findings of one cause say, once: their names, what they are about, and the first one's value."""

    level: Level
    names: tuple[str, ...]
    about: tuple[str, ...]
    value: float | None
    sentence: str


def told_once(findings: Mapping[str, Iterable[Finding]]) -> list[Told]:
    """The findings about each of some things, the worst first; those that say the same are told together."""
    groups: dict[tuple[Level, str], list[tuple[str, Finding]]] = {}
    for about, some in findings.items():
        for one in some:
            groups.setdefault((one.level, one.sentence), []).append((about, one))
    told = [
        Told(
            level,
            tuple(dict.fromkeys(one.name for _, one in group)),
            tuple(dict.fromkeys(about for about, _ in group)),
            group[0][1].value,
            sentence,
        )
        for (level, sentence), group in groups.items()
    ]
    return sorted(told, key=lambda one: -one.level)


def level_of(p_value: float) -> Level:
    """One healthy log in twenty gets a note from each test, one in a hundred a warning."""
    if p_value < WARNING_BELOW:
        return Level.WARNING
    return Level.NOTE if p_value < NOTE_BELOW else Level.OK
