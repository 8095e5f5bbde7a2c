"""Episodes as they are kept: one batch per accepted request, and the key of every episode."""

import dataclasses
from collections.abc import Iterator

import polars as pl
from sqlalchemy import ARRAY, BigInteger, Connection, func, insert, literal, select

from ..errors import LogError
from ..logs.sources import stacked
from . import schema
from .ingest import unpacked

AT_ONCE = 100  # batches that are fetched together


@dataclasses.dataclass(frozen=True)
class Batch:
    """A request's rows: how many, their hash, and the gate's episodes with them."""

    gate: int
    number: int
    sha256: str
    episodes: int
    steps: int
    total: int
    at: str


def store(connection: Connection, batch: Batch, content: bytes, keys: list[int]) -> None:
    """Keep a batch and the keys of its episodes; the database refuses a key that is there already."""
    connection.execute(insert(schema.batches).values(**dataclasses.asdict(batch), content=content))
    if not keys:
        return
    table = schema.episode_keys
    if connection.dialect.name == "postgresql":  # in one word, where each is a trip
        many = func.unnest(literal(keys, ARRAY(BigInteger)))
        rows = select(literal(batch.gate, BigInteger), many, literal(batch.number))
        connection.execute(insert(table).from_select([table.c.gate, table.c.key, table.c.batch], rows))
    else:
        each = [{"gate": batch.gate, "key": key, "batch": batch.number} for key in keys]
        connection.execute(insert(table), each)


def load(connection: Connection, gate: int, first: int, last: int, columns: list[str]) -> pl.DataFrame:
    """These columns of the batches from the first to the last, one below the other."""
    frames = [
        _with_columns(unpacked(content), columns) for content in _contents(connection, gate, first, last)
    ]
    if not frames:
        raise LogError("the gate has no episodes yet.", expected="at least one", remedy="Send some.")
    return stacked(frames, [f"batch {number}" for number in range(first, last + 1)])


def first_of_history(connection: Connection, gate: int, last: int, history: int | None) -> int:
    """The first batch of those that hold the newest so many episodes."""
    if history is None:
        return 1
    table = schema.batches
    total = connection.execute(
        select(table.c.total).where(table.c.gate == gate, table.c.number == last)
    ).scalar()
    asked = select(table.c.number).where(table.c.gate == gate, table.c.total > (total or 0) - history)
    return int(connection.execute(asked.order_by(table.c.number).limit(1)).scalar() or 1)


def _contents(connection: Connection, gate: int, first: int, last: int) -> Iterator[bytes]:
    table = schema.batches
    for start in range(first, last + 1, AT_ONCE):
        these = table.c.number.between(start, min(last, start + AT_ONCE - 1))
        asked = select(table.c.content).where(table.c.gate == gate, these).order_by(table.c.number)
        for row in connection.execute(asked):
            yield bytes(row.content)


def _with_columns(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Only these columns, empty where a batch has none of the name."""
    kept = [name for name in columns if name in frame.columns]
    return frame.select(kept)
