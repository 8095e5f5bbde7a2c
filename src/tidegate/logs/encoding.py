"""Feature columns as numbers: those of numbers as they are, those of text as one indicator per category."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from ..arrays import Floats
from ..errors import LogError
from ..serving.features import MAX_CATEGORIES, Feature
from .table import Table, is_text, spelled_numbers


def features_of(table: Table, names: Iterable[str]) -> tuple[Feature, ...]:
    """The columns of these names, with the categories of those that hold text."""
    return tuple(Feature(name, _categories(table, name)) for name in names)


def encoded(table: Table, features: Iterable[Feature]) -> Floats:
    """One row per row of the table, one column per input of the features."""
    return np.concatenate([_inputs(table, one) for one in features], axis=1)


def _categories(table: Table, name: str) -> tuple[str, ...]:
    """In alphabetical order; () for numbers, and text that spells a number counts as one."""
    column = table.frame[name]
    if not is_text(column) or spelled_numbers(column)[1].size < len(column) - column.null_count():
        return ()
    table.require_filled(column)
    found = sorted(column.cast(pl.String).unique().to_list())
    if len(found) > MAX_CATEGORIES:
        raise LogError(
            f"column '{name}' holds {len(found):,} different texts, such as {found[0]!r}.",
            expected=f"numbers, or at most {MAX_CATEGORIES} categories",
            remedy="Join rare ones into one category, or leave the column out of the features.",
        )
    return tuple(found)


def _inputs(table: Table, feature: Feature) -> Floats:
    if not feature.categories:
        return table.floats(feature.name)[:, None]
    texts = table.frame[feature.name].cast(pl.String)
    table.require_filled(texts)
    return np.stack([(texts == one).to_numpy() for one in feature.categories], axis=1).astype(np.float64)


def require_known(table: Table, feature: Feature) -> None:
    """Every row of the column has one of the feature's categories."""
    texts = table.frame[feature.name].cast(pl.String)
    rows = np.flatnonzero(~texts.is_in(feature.categories).to_numpy())
    if rows.size:
        raise LogError(
            f"column '{feature.name}' holds {texts[int(rows[0])]!r}, which the policy has not seen.",
            where=table.places.several(rows),
            expected=feature.expected,
            remedy="Leave these episodes out, or let `improve` search on a log that has them.",
        )
