"""A column as numbers, or an error that shows the cells which are none."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ..arrays import Values
from ..errors import LogError
from .columns import did_you_mean
from .places import Places

_TEXT = (pl.String, pl.Categorical, pl.Enum)


def require_columns(frame: pl.DataFrame, names: Sequence[str], remedy: str = "") -> None:
    """Every named column is there, once."""
    for name in names:
        if name not in frame.columns:
            raise LogError(
                f"there is no column '{name}'.{did_you_mean(name, frame.columns)}",
                expected=f"one of {_listed(frame.columns)}",
                remedy=remedy or "Map the columns by flags, a TOML file or Columns(…).",
            )
        if f"{name}_duplicated_0" in frame.columns:
            raise LogError(f"there are two columns '{name}'.", remedy="Rename one of them.")


def numbers(frame: pl.DataFrame, name: str, places: Places) -> Values:
    """The column as 64-bit integers or floats; text that spells a number counts as one."""
    column = frame[name]
    if is_text(column):
        column = _from_text(column.cast(pl.String), name, places)
    elif column.dtype == pl.Boolean:
        column = column.cast(pl.Int64)
    elif not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise LogError(
            f"column '{name}' holds {column.dtype}.",
            expected="numbers",
            remedy="Convert it before it is read.",
        )
    require_filled(column, name, places)
    exact = column.dtype.is_integer() and column.dtype not in (pl.UInt64, pl.Int128)
    return np.asarray(column.cast(pl.Int64 if exact else pl.Float64).to_numpy())


def floats(frame: pl.DataFrame, name: str, places: Places) -> npt.NDArray[np.float64]:
    """The column as 64-bit floats, so that every format gives the same bits."""
    return numbers(frame, name, places).astype(np.float64, copy=False)


def is_text(column: pl.Series) -> bool:
    """Whether the column holds text, by whatever name the frame calls it."""
    return column.dtype in _TEXT


def require_filled(column: pl.Series, name: str, places: Places) -> None:
    """No cell of the column is missing."""
    if column.null_count():
        rows = np.flatnonzero(column.is_null().to_numpy())
        raise LogError(
            f"column '{name}' has {rows.size} missing values.",
            where=places.several(rows),
            expected="a value in every row",
            remedy="Drop or repair these episodes; a missing step cannot be guessed.",
        )


def not_numbers(column: pl.Series) -> Values:
    """Which cells of a text column do not spell a number."""
    parsed = column.str.strip_chars().cast(pl.Float64, strict=False)
    return np.flatnonzero((parsed.is_null() & column.is_not_null()).to_numpy())


def _from_text(column: pl.Series, name: str, places: Places) -> pl.Series:
    rows = not_numbers(column)
    if rows.size:
        raise LogError(
            f"column '{name}' holds {_short(column[int(rows[0])])}, which is not a number.",
            where=places.several(rows),
            expected="numbers",
            remedy="Repair these rows, or map another column.",
        )
    return column.str.strip_chars().cast(pl.Float64, strict=False)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
