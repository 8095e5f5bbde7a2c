"""What a policy looks at: columns by name, and the numbers that they become.

A column of numbers is one input. A column of text is as many inputs as it has categories: 1 for the one that
the row has, 0 for the others.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

MAX_CATEGORIES = 100
SHOWN = 10


class Input(NamedTuple):
    """One number that a policy takes: a column's own, or whether the column has this category."""

    name: str
    category: str | None = None

    def __str__(self) -> str:
        return self.name if self.category is None else f"{self.name}={self.category}"


@dataclasses.dataclass(frozen=True)
class Feature:
    """A column; one without categories holds numbers."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The numbers that it becomes, in their order."""
        if not self.categories:
            return (Input(self.name),)
        return tuple(Input(self.name, one) for one in self.categories)

    @property
    def expected(self) -> str:
        """What the column holds, as an error says it."""
        if not self.categories:
            return "a finite number"
        more = ", …" if len(self.categories) > SHOWN else ""
        return f"one of {', '.join(map(repr, self.categories[:SHOWN]))}{more}"


def inputs_of(features: Iterable[Feature]) -> tuple[Input, ...]:
    """All inputs of these columns, in their order."""
    return tuple(one for feature in features for one in feature.inputs)
