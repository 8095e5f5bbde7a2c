"""What identifies an episode, so that none is stored twice: a 64-bit number."""

import hashlib

import numpy as np
import polars as pl

from ..arrays import Integers
from ..logs import LoadedLog
from ..logs.table import is_text


def episode_keys(loaded: LoadedLog) -> Integers:
    """A key per episode; none if the rows have no episode column, and no name by which to know them again.

    A number is its own key, by its 64 bits; of a name, the key is a hash.
    """
    column = loaded.columns.episode
    if column is None:
        return np.empty(0, np.int64)
    ids = loaded.table.frame[column]
    if loaded.columns.time is None or not is_text(ids):
        numbers = loaded.table.floats(column) if loaded.columns.time is None else _numbers(ids)
        return np.unique((numbers + 0.0).view(np.int64))  # −0 is 0
    return np.unique(np.array([_hashed(one) for one in ids.cast(pl.String).unique()], np.int64))


def _numbers(ids: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if ids.dtype.is_temporal():
        ids = ids.cast(pl.Int64)
    return np.asarray(ids.cast(pl.Float64).to_numpy())


def _hashed(name: str) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
