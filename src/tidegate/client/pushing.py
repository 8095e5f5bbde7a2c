"""A whole file to a gate, in requests of whole episodes that can be repeated.

The key of a request follows from its rows and from where they begin in the file: the same command again sends
the same requests, and those that got through before change nothing.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..logs.sources import read_table
from .calls import Client, encoded


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What is stored now, of which file, where."""

    log: str
    gate: str
    requests: int
    episodes: int
    steps: int

    def __str__(self) -> str:
        return (
            f"{self.log}: {self.episodes:,} episodes, {self.steps:,} steps are stored at '{self.gate}', "
            f"in {self.requests:,} requests."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def push(log: str | Path, gate: str, url: str, token: str, rows: int = 5_000) -> Pushed:
    """Send a log's episodes; when this returns, all of them are stored, each once."""
    client = Client(url, token)
    column = client.gate(gate)["definition"]["episode"]
    table = read_table(log)
    name = table.name
    requests = episodes = steps = 0
    for offset, part in parts(table.frame, column, rows):
        body, _ = encoded(part)
        key = f"push-{offset}-{hashlib.sha256(body).hexdigest()[:40]}"
        answer = client.send(gate, body, key)
        requests, episodes, steps = requests + 1, episodes + answer["episodes"], steps + answer["steps"]
    return Pushed(name, gate, requests, episodes, steps)


def parts(frame: pl.DataFrame, episode: str, rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Pieces of about so many rows, cut where an episode ends, and where each begins."""
    if episode not in frame.columns:  # each row is one, or the service will say what is missing
        starts = np.arange(frame.height)
    else:
        frame = _together(frame, episode)
        starts = np.flatnonzero(frame[episode].ne_missing(frame[episode].shift(1)).to_numpy())
        starts = np.union1d([0], starts)
    begin = 0
    while begin < frame.height:
        later = starts[starts >= begin + rows]
        end = int(later[0]) if later.size else frame.height
        yield begin, frame[begin:end]
        begin = end


def _together(frame: pl.DataFrame, episode: str) -> pl.DataFrame:
    """The rows of an episode one after the other, the episodes in the order in which they begin."""
    place = pl.col(_PLACE).min().over(episode)
    return frame.with_row_index(_PLACE).sort(place, maintain_order=True).drop(_PLACE)


_PLACE = "__place__"
