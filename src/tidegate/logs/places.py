"""Where the user finds a row: its file and number, whatever was sorted or dropped since."""

import bisect
import dataclasses
from typing import Any

import numpy as np

from ..arrays import Integers
from ..door import ROWS_SHOWN


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Names for the rows of a table.

    Integers of a file are counted from 1, its header not counted; rows of a frame from 0, as it does.
    `rows[i]` is the place of row i among all rows as they were read, part after part.
    """

    parts: tuple[str, ...]
    firsts: tuple[int, ...]
    rows: Integers
    base: int = 1

    def __call__(self, row: int) -> str:
        original = int(self.rows[row])
        part = bisect.bisect_right(self.firsts, original) - 1
        number = original - self.firsts[part] + self.base
        return f"{self.parts[part]}, row {number}" if self.parts[part] else f"row {number}"

    def take(self, order: Any) -> "Places":
        """The places of these rows of the table."""
        return dataclasses.replace(self, rows=self.rows[order])

    def several(self, rows: Any) -> str:
        """The first few of some rows, and how many more there are."""
        rows = np.asarray(rows)
        shown = "; ".join(self(int(row)) for row in rows[:ROWS_SHOWN])
        more = f" (and {rows.size - ROWS_SHOWN} more)" if rows.size > ROWS_SHOWN else ""
        return shown + more


def one_part(name: str, count: int, base: int = 1) -> Places:
    """The places of a table that was read from one file or frame."""
    return Places((name,), (0,), np.arange(count), base)


def joined(places: list[Places]) -> Places:
    """The places of several tables, one under the other."""
    names = tuple(name for one in places for name in one.parts)
    firsts, rows, total = [], [], 0
    for one in places:
        firsts += [first + total for first in one.firsts]
        rows.append(one.rows + total)
        total += int(one.rows.max(initial=-1)) + 1
    return Places(names, tuple(firsts), np.concatenate(rows), places[0].base)
