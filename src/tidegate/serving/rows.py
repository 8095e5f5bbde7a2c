"""Rows as a server has them, as the numbers that a policy takes: every error names the column.

A row is a dictionary, or its values in the order of the policy's features. Several rows are a frame (of
pandas, polars or anything with named columns), a dictionary of columns, a list of rows, or an array.
"""

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import PolicyError
from ..inputs import did_you_mean, shown
from .features import Feature
from .files import PolicyFile

Floats = npt.NDArray[np.float64]


class Inputs(NamedTuple):
    """The numbers of each row; `single` if one row was meant rather than a list of one."""

    values: Floats
    single: bool


def read_rows(file: PolicyFile, rows: Any) -> Inputs:
    """The inputs of a policy for these rows."""
    if file.features is None:
        return _unnamed(file, rows)
    if isinstance(rows, Mapping):
        return _from_mapping(file.features, rows)
    if hasattr(rows, "columns"):
        return Inputs(_from_columns(file.features, rows, rows.columns, len(rows)), False)
    if rows is None and file.features:
        raise PolicyError("no row is given.", expected=f"the columns {[one.name for one in file.features]}")
    rows = () if rows is None else rows
    if isinstance(rows, Sequence) and len(rows) and all(isinstance(row, Mapping) for row in rows):
        return Inputs(np.array([_row(file.features, row, place) for place, row in enumerate(rows)]), False)
    return _by_position(file.features, rows)


def _from_mapping(features: tuple[Feature, ...], rows: Mapping[str, Any]) -> Inputs:
    lengths = {len(rows[one.name]) for one in features if _is_column(rows.get(one.name))}
    if not features:  # it looks at nothing, but there are as many answers as rows
        lengths = {len(one) for one in rows.values() if _is_column(one)}
    if not lengths:
        return Inputs(_row(features, rows)[None], True)
    if len(lengths) > 1:
        raise PolicyError(
            f"the columns have different lengths: {sorted(lengths)}.", expected="one value per row"
        )
    return Inputs(_from_columns(features, rows, rows, lengths.pop()), False)


def _is_column(value: Any) -> bool:
    array = hasattr(value, "__len__") and hasattr(value, "__array__") and getattr(value, "ndim", 1) > 0
    return array or isinstance(value, list | tuple)


def _row(features: Iterable[Feature], row: Mapping[str, Any], place: int | None = None) -> Floats:
    found: list[float] = []
    for feature in features:
        if feature.name not in row:
            raise _missing_column(feature.name, row, _where(place))
        value = row[feature.name]
        if feature.categories:
            found.extend(_indicators(feature, value, place))
        else:
            found.append(_number(feature, value, place))
    return np.array(found)


def _from_columns(features: Iterable[Feature], rows: Any, known: Iterable[str], count: int) -> Floats:
    found = []
    for feature in features:
        if feature.name not in known:
            raise _missing_column(feature.name, known, "")
        found.append(_column(feature, rows[feature.name]))
    return np.concatenate(found, axis=1) if found else np.zeros((count, 0))


def _by_position(features: tuple[Feature, ...], rows: Any) -> Inputs:
    named = [one.name for one in features]
    if not isinstance(rows, np.ndarray | list | tuple):
        raise PolicyError(
            f"the rows are {shown(rows)}.",
            expected="a frame, dictionaries or an array",
        )
    table = rows if isinstance(rows, np.ndarray) else _listed(rows)
    single = table.ndim == 1
    table = table[None] if single else table
    if table.ndim != 2 or table.shape[1] != len(features):
        raise PolicyError(
            f"the array has the shape {np.shape(rows)}.",
            expected=f"a value for each of {named}, in this order",
        )
    return Inputs(_from_columns(features, dict(zip(named, table.T, strict=True)), named, len(table)), single)


def _listed(rows: Sequence[Any]) -> npt.NDArray[Any]:
    """Values as they are: NumPy would turn the numbers beside a text into text."""
    if len({len(row) if isinstance(row, list | tuple | np.ndarray) else None for row in rows}) > 1:
        raise PolicyError("the rows have different lengths.")
    return np.array(rows, object)


def _unnamed(file: PolicyFile, rows: Any) -> Inputs:
    """A file without names knows its inputs by position."""
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        raise PolicyError(
            "the file of the policy names no features.",
            expected="an array, in the order in which the policy was made",
            remedy="A file that `tidegate improve` writes names them.",
        )
    width = 1 if file.width is None else file.width
    features = tuple(Feature(f"feature {place}") for place in range(1, width + 1))
    return _by_position(features, () if rows is None else rows)


def _column(feature: Feature, values: Any) -> Floats:
    array = np.asarray(values)
    if array.ndim != 1:
        raise PolicyError(f"'{feature.name}' has the shape {array.shape}.", expected="one value per row")
    if feature.categories:
        rows = [_indicators(feature, one, place) for place, one in enumerate(array.tolist())]
        return np.array(rows, np.float64).reshape(len(rows), len(feature.categories))
    if array.dtype.kind not in "biuf":
        return np.array([_number(feature, one, place) for place, one in enumerate(array.tolist())])[:, None]
    found = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(found))
    if bad.size:
        raise _not_a_number(feature, found[bad[0]].item(), int(bad[0]))
    return found[:, None]


def _number(feature: Feature, value: Any, place: int | None) -> float:
    if type(value) is float or isinstance(value, numbers.Real | np.bool_):
        found = float(value)
        if -np.inf < found < np.inf:
            return found
    raise _not_a_number(feature, value, place)


def _indicators(feature: Feature, value: Any, place: int | None) -> list[float]:
    found = [0.0] * len(feature.categories)
    try:
        found[feature.categories.index(value)] = 1.0
    except ValueError:
        missing = value is None or value != value
        what = "is missing" if missing else f"is {shown(value)}, which the policy has not seen"
        raise PolicyError(
            f"'{feature.name}' {what}.", where=_where(place), expected=feature.expected
        ) from None
    return found


def _not_a_number(feature: Feature, value: Any, place: int | None) -> PolicyError:
    real = isinstance(value, numbers.Real)
    missing = value is None or (real and value != value)
    what = "is missing" if missing else f"is {shown(value)}{'' if real else ', which is not a number'}"
    return PolicyError(f"'{feature.name}' {what}.", where=_where(place), expected=feature.expected)


def _missing_column(name: str, known: Iterable[str], where: str) -> PolicyError:
    listed = [str(one) for one in known]
    return PolicyError(
        f"there is no '{name}'.{did_you_mean(name, listed)}",
        where=where,
        expected=f"the column '{name}', which the policy looks at",
        remedy=f"Given are {shown(listed)}.",
    )


def _where(place: int | None) -> str:
    return "" if place is None else f"row {place}"
