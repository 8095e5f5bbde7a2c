"""Which episode a row belongs to: a whole number for each, whatever the log calls it."""

import numpy as np
import polars as pl

from ..arrays import Integers, Values
from ..door import check_finite
from ..errors import LogError
from .columns import Columns
from .table import Table, is_text

_EXACT = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)


def episode_keys(table: Table, columns: Columns) -> Integers:
    """The key of each row's episode; a row without one is refused."""
    if columns.episode is None:
        return table.places.rows + 1
    if columns.time is None:
        numbers = episode_numbers(table, columns.episode)
        check_finite(numbers, f"column '{columns.episode}'", table.places)
    else:
        table.require_filled(table.frame[columns.episode])
    key = key_expression(columns, table.frame.schema)
    return np.asarray(table.frame.select(key).to_series().to_numpy())


def key_expression(columns: Columns, schema: pl.Schema) -> pl.Expr:
    """The key of an episode in terms of its column, whatever that holds."""
    name = str(columns.episode)
    kind, column = schema[name], pl.col(name)
    if kind in _EXACT or kind == pl.Boolean:
        return column.cast(pl.Int64)
    if kind in (pl.String, pl.Categorical, pl.Enum):
        text = column.cast(pl.String)
        column = text if columns.time else text.str.strip_chars().cast(pl.Float64, strict=False)
    elif kind.is_nested() or kind == pl.Object:
        raise LogError(f"column '{name}' holds {kind}.", expected="a number or a name for each episode")
    return column.hash().reinterpret(signed=True)


def episode_numbers(table: Table, name: str) -> Values:
    """The episode numbers of a log whose episodes are ordered by them."""
    try:
        return table.numbers(name)
    except LogError as error:
        column = table.frame[name]
        if not (is_text(column) or column.dtype.is_temporal()):
            raise
        raise LogError(
            f"the episodes have names ({column.dtype}), which do not tell their order in time: {error.what}",
            where=error.where,
            expected="episode numbers that grow with time, or a time column",
            remedy="Name a time column: episodes are then ordered by it, whatever they are called.",
        ) from error
