"""Rows as the user gave them: their columns as numbers, and where the user finds a row."""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Floats, Integers, Values
from ..door import ROWS_SHOWN
from ..errors import LogError
from ..inputs import did_you_mean

POSITION = "__position"  # of a row among all rows of a log, or of one of its files


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Where the user finds a row, whatever was sorted or dropped since: its file and number.

    The rows of a file are counted from 1, without its header; those of a frame from 0, as frames do.
    `rows[i]` is the position of row i among all rows as they were read, file after file.
    """

    files: tuple[str, ...]
    firsts: tuple[int, ...]
    rows: Integers
    base: int = 1

    def __call__(self, row: int) -> str:
        position = int(self.rows[row])
        file = bisect.bisect_right(self.firsts, position) - 1
        number = position - self.firsts[file] + self.base
        return f"{self.files[file]}, row {number}" if self.files[file] else f"row {number}"

    def several(self, rows: Values) -> str:
        """The first few of some rows, and how many more there are."""
        shown = "; ".join(self(int(row)) for row in rows[:ROWS_SHOWN])
        more = f" (and {rows.size - ROWS_SHOWN} more)" if rows.size > ROWS_SHOWN else ""
        return shown + more


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A frame and the places of its rows. Every error about a cell says where the cell is."""

    frame: pl.DataFrame
    places: Places
    name: str

    def take(self, rows: Any) -> "Table":
        """Some of the rows, or all of them in another order."""
        places = dataclasses.replace(self.places, rows=self.places.rows[rows])
        return dataclasses.replace(self, frame=self.frame[rows], places=places)

    def require(self, names: Sequence[str], remedy: str = "") -> None:
        """Every named column exists, once."""
        known = self.frame.columns
        for name in names:
            if name not in known:
                listed = ", ".join(map(repr, known[:20]))
                more = f" and {len(known) - 20} more" if len(known) > 20 else ""
                raise LogError(
                    f"there is no column '{name}'.{did_you_mean(name, known)}",
                    expected=f"one of {listed}{more}",
                    remedy=remedy or "Name the columns of your log, as in `reward='profit'`.",
                )
            if f"{name}_duplicated_0" in known:
                raise LogError(f"there are two columns '{name}'.", remedy="Rename one of them.")

    def numbers(self, name: str) -> Values:
        """The column as 64-bit integers or floats; text that spells a number counts as one."""
        column = self.frame[name]
        if is_text(column):
            column = self._parsed(column)
        elif column.dtype == pl.Boolean:
            column = column.cast(pl.Int64)
        elif not (column.dtype.is_numeric() or column.dtype == pl.Null):
            raise LogError(
                f"column '{name}' holds {column.dtype}.",
                expected="numbers",
                remedy="Convert it before it is read.",
            )
        self.require_filled(column)
        exact = column.dtype.is_integer() and column.dtype not in (pl.UInt64, pl.Int128)
        return np.asarray(column.cast(pl.Int64 if exact else pl.Float64).to_numpy())

    def floats(self, name: str) -> Floats:
        """The column as 64-bit floats, so that every format gives the same bits."""
        return self.numbers(name).astype(np.float64, copy=False)

    def require_filled(self, column: pl.Series) -> None:
        """No cell of the column is missing."""
        if column.null_count():
            rows = np.flatnonzero(column.is_null().to_numpy())
            raise LogError(
                f"column '{column.name}' has {rows.size} missing value{'s' * (rows.size > 1)}.",
                where=self.places.several(rows),
                expected="a value in every row",
                remedy="Drop or repair these episodes; a missing step cannot be guessed.",
            )

    def _parsed(self, column: pl.Series) -> pl.Series:
        parsed, rows = spelled_numbers(column)
        if rows.size:
            text = str(column[int(rows[0])])
            raise LogError(
                f"column '{column.name}' holds {text if len(text) <= 40 else text[:40] + '…'!r}, "
                "which is not a number.",
                where=self.places.several(rows),
                expected="numbers",
                remedy="Repair these rows, or map another column.",
            )
        return parsed


def is_text(column: pl.Series) -> bool:
    """Whether the column holds text, by whatever name polars calls it."""
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def spelled_numbers(column: pl.Series) -> tuple[pl.Series, Integers]:
    """The numbers that a text column spells, and the rows whose text is not a number."""
    text = column.cast(pl.String)
    parsed = text.str.strip_chars().cast(pl.Float64, strict=False)
    return parsed, np.flatnonzero((parsed.is_null() & text.is_not_null()).to_numpy())
