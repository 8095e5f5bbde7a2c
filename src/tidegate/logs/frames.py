"""Tables in memory as polars frames: those of pandas, polars and Arrow, columns by name, Minari datasets."""

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from ..arrays import Values
from ..errors import LogError, foreign_code
from .formats import PARSER_ERRORS, series

MINARI = "minari:"
PLAIN = "biufM"  # kinds of NumPy arrays that polars takes as they are


def frame_in_memory(source: Any) -> pl.DataFrame | None:
    """The same rows as a polars frame; None if this is the name of a table rather than a table."""
    try:
        if isinstance(source, pl.LazyFrame):
            return source.collect()
        if hasattr(source, "iloc"):
            return _from_pandas(source)
        if isinstance(source, pl.DataFrame) or hasattr(source, "__arrow_c_stream__"):
            return pl.DataFrame(source)
        return _from_columns(source) if isinstance(source, Mapping) else None
    except LogError:
        raise
    except (*PARSER_ERRORS, ValueError, TypeError) as error:
        raise LogError(
            f"the frame cannot be read ({error}).", expected="columns of numbers, text or times"
        ) from error


def _from_pandas(frame: Any) -> pl.DataFrame:
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LogError(f"the frame has two columns named {twice[0]!r}.", remedy="Rename one of them.")
    return pl.DataFrame([_column(name, frame.iloc[:, i]) for i, name in enumerate(names)])


def _from_columns(columns: Mapping[Any, Any]) -> pl.DataFrame:
    """Lists, arrays or series, all of one length."""
    return pl.DataFrame([_named(str(name), values) for name, values in columns.items()])


def _named(name: str, values: Any) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias(name)
    if hasattr(values, "iloc"):
        return _column(name, values)
    array = None if isinstance(values, list | tuple) else np.asarray(values)
    if array is not None and array.ndim != 1:
        raise LogError(f"column '{name}' has the shape {array.shape}.", expected="one value for each row")
    if array is not None and array.dtype.kind in PLAIN:
        return pl.Series(name, array)
    return series(name, _items(values if array is None else array))


def _column(name: str, column: Any) -> pl.Series:
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if str(column.dtype) == "category":
        column = column.astype(column.cat.categories.dtype)
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in PLAIN:
        return pl.Series(name, values)
    gone = column.isna().to_numpy()
    return series(name, [None if gone[i] else item for i, item in enumerate(_items(values))])


def _items(values: Iterable[Any]) -> list[Any]:
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def minari_frame(source: Any) -> pl.DataFrame | None:
    """One row per step: `episode`, `step`, `action` (or `action_0`, …), `reward`, `observation_0`, ….

    Minari keeps no propensities. Where an episode's `infos` hold arrays with one number per step,
    they become columns of their names: that is where a collector can leave `behavior_prob`.
    None if the source is neither a dataset nor `minari:NAME`.
    """
    if isinstance(source, str) and source.startswith(MINARI):
        source = _load_minari(source.removeprefix(MINARI))
    if not hasattr(source, "iterate_episodes"):
        return None
    with foreign_code(lambda error: LogError(f"cannot read the Minari dataset: {error!r}.")):
        frames = [_episode(number, one) for number, one in enumerate(source.iterate_episodes(), 1)]
    if not frames:
        raise LogError("the Minari dataset has no episodes.")
    try:
        return pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise LogError(f"the episodes of the Minari dataset differ in shape ({error}).") from error


def _load_minari(name: str) -> Any:
    with foreign_code(
        lambda error: LogError(
            f"Minari cannot be imported, so '{name}' cannot be loaded: {error!r}.",
            remedy="pip install 'tidegate[minari]'",
        )
    ):
        minari = importlib.import_module("minari")
    with foreign_code(  # it imports the environment that the dataset names
        lambda error: LogError(
            f"Minari cannot load '{name}': {error!r}.", remedy="Download it first: minari download."
        )
    ):
        return minari.load_dataset(name)


def _episode(number: int, episode: Any) -> pl.DataFrame:
    rewards = np.asarray(episode.rewards, np.float64)
    count = rewards.size
    columns: dict[str, Any] = {
        "episode": np.full(count, number),
        "step": np.arange(count),
        "reward": rewards,
        **_flat("action", episode.actions, count),
        **_flat("observation", episode.observations, count),
    }
    for name, values in (getattr(episode, "infos", None) or {}).items():
        if np.ndim(values) == 1 and len(values) in (count, count + 1) and name not in columns:
            # One more than steps: the first is what `reset` said, before any action.
            columns[name] = np.asarray(values)[-count:]
    return pl.DataFrame(columns)


def _flat(name: str, values: Any, count: int) -> dict[str, Values]:
    """An array of any shape as columns; a single action keeps the bare name."""
    if isinstance(values, dict | tuple):
        raise LogError(
            f"the {name}s of the Minari dataset are of kind {type(values).__name__}.",
            expected="arrays (Box or Discrete spaces)",
            remedy="Flatten the space before the episodes are collected.",
        )
    array = np.asarray(values)[:count].reshape(count, -1)
    if array.shape[1] == 1 and name == "action":
        return {name: array[:, 0]}
    return {f"{name}_{i}": array[:, i] for i in range(array.shape[1])}
