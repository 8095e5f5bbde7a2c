"""Episodes of a Minari dataset as rows. Needs `pip install 'tidegate[minari]'` to load one by name."""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import LogError

PREFIX = "minari:"


def is_minari(source: Any) -> bool:
    """A dataset, or `minari:NAME`."""
    return hasattr(source, "iterate_episodes") or (
        isinstance(source, str) and source.startswith(PREFIX)
    )


def minari_frame(source: Any) -> pl.DataFrame:
    """One row per step: `episode`, `step`, `action` (or `action_0`, …), `reward`, `observation_0`, ….

    Minari keeps no propensities. Where an episode's `infos` hold arrays with one number per step,
    they become columns of their names: that is where a collector can leave `behavior_prob`.
    """
    dataset = _load(source.removeprefix(PREFIX)) if isinstance(source, str) else source
    frames = [
        _episode(number, one) for number, one in enumerate(dataset.iterate_episodes(), start=1)
    ]
    if not frames:
        raise LogError("the Minari dataset has no episodes.")
    try:
        return pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise LogError(f"the episodes of the Minari dataset differ in shape ({error}).") from error


def _load(name: str) -> Any:
    try:
        minari = importlib.import_module("minari")
    except ImportError as error:
        raise LogError(
            f"Minari is not installed, so '{name}' cannot be loaded.",
            remedy="pip install 'tidegate[minari]'",
        ) from error
    try:
        return minari.load_dataset(name)
    except Exception as error:  # whatever Minari raises for a name it does not know
        raise LogError(
            f"Minari cannot load '{name}': {error}.", remedy="Download it first: minari download."
        ) from error


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


def _flat(name: str, values: Any, count: int) -> dict[str, npt.NDArray[Any]]:
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
