"""Streams in files: NumPy archives that hold what every action earns and what every policy does."""

import dataclasses
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import LogError
from ..inputs import bounded_bytes
from ..inputs import path as path_of

PARTS = ("rewards", "policies", "names", "start")
EXPECTED = f"an .npz file with the arrays {', '.join(PARTS)}"
MOST_BYTES = 200_000_000
ROUNDING = 1e-4  # probabilities may be stored in single precision


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A time-ordered data set whose every action's reward is known.

    The first of the policies collects the logs. Rows before `start` have trained them.
    """

    name: str
    rewards: Floats  # rows × actions
    policies: Floats  # policies × rows × actions
    names: tuple[str, ...]
    start: int

    def __post_init__(self) -> None:
        for holds, what, expected in _requirements(self):
            if not holds:
                raise LogError(what, where=self.name, expected=expected)

    def value(self, policy: int, date: int, lookahead: int) -> float:
        """What a policy earns per row in the rows from `date` on."""
        chosen = self.policies[policy, date:][:lookahead]
        return float((chosen * self.rewards[date:][:lookahead]).sum(axis=1).mean())


def load_stream(file: str | Path) -> Stream:
    """Read a stream, whose name is that of its file."""
    path = path_of("stream", file)
    content = _arrays(path)
    missing = [part for part in PARTS if part not in content]
    if missing:
        raise LogError(f"it has no {' and no '.join(missing)}.", where=str(path), expected=EXPECTED)
    try:
        return Stream(
            name=path.stem,
            rewards=np.asarray(content["rewards"], float),
            policies=np.asarray(content["policies"], float),
            names=tuple(map(str, np.atleast_1d(content["names"]))),
            start=int(content["start"]),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, LogError):
            raise
        raise LogError("its arrays are not numbers.", where=str(path), expected=EXPECTED) from error


def save_stream(file: str | Path, stream: Stream, season: int) -> None:
    """Write a stream in single precision; `season` is for readers."""
    np.savez_compressed(
        file,
        rewards=stream.rewards.astype(np.float32),
        policies=stream.policies.astype(np.float32),
        names=np.array(stream.names),
        start=np.int64(stream.start),
        season=np.int64(season),
    )


def _arrays(path: Path) -> Mapping[str, Any]:
    try:
        content = bounded_bytes(path, MOST_BYTES)
    except OSError as error:
        raise LogError(f"{error.strerror}.", where=str(path), expected=EXPECTED) from error
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {part: archive[part] for part in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise LogError("it is not a stream.", where=str(path), expected=EXPECTED) from error


def _requirements(stream: Stream) -> Iterator[tuple[bool, str, str]]:
    """What must hold, each relying on those before it; what is wrong otherwise; what is expected."""
    rewards, policies, names = stream.rewards, stream.policies, stream.names
    yield rewards.ndim == 2, f"rewards have {rewards.ndim} axes.", "two: rows and actions"
    yield (
        len(set(names)) == len(names) >= 2,
        f"the names are {names}.",
        "a safe policy and others, all different",
    )
    shape = (len(names), *rewards.shape)
    yield (
        policies.shape == shape,
        f"policies have the shape {policies.shape}.",
        f"{shape}, as names and rewards",
    )
    rows = len(rewards)
    yield 0 <= stream.start <= rows, f"start is {stream.start}.", f"a row from 0 to {rows}"
    yield bool(np.isfinite(rewards).all()), "rewards have gaps.", "finite numbers"
    proper = (policies >= 0).all() and (abs(policies.sum(axis=2) - 1) <= ROUNDING).all()
    yield bool(proper), "policies are no probabilities.", "numbers from 0 that sum to 1 in each row"
