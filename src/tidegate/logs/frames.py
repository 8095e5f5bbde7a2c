"""Frames of pandas and polars, and whatever speaks Arrow, as one kind of frame."""

from typing import Any

import numpy as np
import polars as pl

from ..errors import LogError
from .formats import series


def is_frame(source: Any) -> bool:
    """Whether this is a table in memory rather than the name of one."""
    kinds = pl.DataFrame | pl.LazyFrame
    return (
        isinstance(source, kinds)
        or hasattr(source, "iloc")
        or hasattr(source, "__arrow_c_stream__")
    )


def polars_frame(source: Any) -> pl.DataFrame:
    """The same rows as a polars frame, without pyarrow."""
    try:
        if isinstance(source, pl.LazyFrame):
            return source.collect()
        if isinstance(source, pl.DataFrame):
            return source
        if hasattr(source, "iloc"):
            return _from_pandas(source)
        return pl.DataFrame(source)
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        ValueError,
        TypeError,
    ) as error:
        if isinstance(error, LogError):
            raise
        raise LogError(
            f"the frame cannot be read ({error}).", expected="columns of numbers, text or times"
        ) from error


def _from_pandas(frame: Any) -> pl.DataFrame:
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LogError(
            f"the frame has two columns named {twice[0]!r}.", remedy="Rename one of them."
        )
    return pl.DataFrame([_column(name, frame.iloc[:, i]) for i, name in enumerate(names)])


def _column(name: str, column: Any) -> pl.Series:
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if str(column.dtype) == "category":
        column = column.astype(column.cat.categories.dtype)
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "biufM":
        return pl.Series(name, values)
    missing = column.isna().to_numpy()
    items = [None if gone else _item(value) for value, gone in zip(values, missing, strict=True)]
    return series(name, items)


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
