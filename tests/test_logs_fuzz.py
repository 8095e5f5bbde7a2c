"""Mutated logs of every format end in a clear error or in a sound log, never in another exception."""

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tidegate import LogError, SettingsError, TidegateError
from tidegate.commands.opening import LogFile, OpenLog, open_log
from tidegate.logs import Columns, LoadedLog, TimeUnit, read_log, resolve_policy

Rng = np.random.Generator
FORMATS = ("csv", "jsonl", "parquet", "csv.gz", "polars", "pandas")
PER_FORMAT = 400
MAPPINGS = (
    Columns(),
    Columns(features=("x", "y")),
    Columns(time="time", time_unit=TimeUnit.HOUR),
    Columns(time="time"),
    Columns(state="s"),
    Columns(episode=None, step=None),
    Columns(behavior_prob=None),
    Columns(num_actions=2),
)
CELLS: tuple[Any, ...] = (
    None, "", " ", "abc", "NaN", "inf", "-inf", "1e999", "１２", "0x10", "1,5", "\x00", "é\u202e",
    -1, 0, 1, 2**31, 2**63, 10**40, -(10**25), 0.5, 1e300, -1e300, 1e-320, float("nan"),
    float("inf"), True, [1, 2], {"a": 1}, "2024-02-30", "2024-05-05T01:02:03Z", "9" * 400,
)  # fmt: skip


def log_rows(rng: Rng) -> dict[str, list[Any]]:
    lengths = rng.integers(1, 5, rng.integers(2, 9))
    count = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    return {
        "episode": np.repeat(np.arange(lengths.size) + 1, lengths).tolist(),
        "step": (np.arange(count) - np.repeat(starts, lengths)).tolist(),
        "action": rng.integers(0, 3, count).tolist(),
        "behavior_prob": rng.uniform(0.05, 1, count).tolist(),
        "reward": rng.normal(size=count).tolist(),
        "x": rng.normal(size=count).tolist(),
        "y": rng.integers(0, 9, count).tolist(),
        "s": rng.integers(0, 4, count).tolist(),
        "new_prob": rng.uniform(0, 1, count).tolist(),
        "time": [f"2024-05-{1 + i // 24:02d} {i % 24:02d}:00:00" for i in range(count)],
    }


def _pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def _cells(rows: dict[str, list[Any]], rng: Rng) -> None:
    column = rows[_pick(rng, list(rows))]
    for _ in range(int(rng.integers(1, 4))):
        column[int(rng.integers(len(column)))] = _pick(rng, CELLS)


def _column(rows: dict[str, list[Any]], rng: Rng) -> None:
    name = _pick(rng, list(rows))
    rows[name] = [_pick(rng, CELLS)] * len(rows[name])


def _numbers(rows: dict[str, list[Any]], rng: Rng) -> None:
    name = _pick(rng, list(rows))
    scale = _pick(rng, [1e-300, 1e-3, 1.0, 1e6, 1e18, 1e307])
    rows[name] = (scale * rng.normal(size=len(rows[name]))).tolist()


def _rename(rows: dict[str, list[Any]], rng: Rng) -> None:
    name = _pick(rng, list(rows))
    rows[_pick(rng, ["Reward", "вознаграждение", "", "a,b", 'q"uote', "new\nline", "step "])] = rows.pop(name)


def _drop(rows: dict[str, list[Any]], rng: Rng) -> None:
    rows.pop(_pick(rng, list(rows)))


def _reorder(rows: dict[str, list[Any]], rng: Rng) -> None:
    order = rng.permutation(len(rows["step"]))
    for name, values in rows.items():
        rows[name] = [values[i] for i in order]


def _repeat(rows: dict[str, list[Any]], rng: Rng) -> None:
    row = int(rng.integers(len(rows["step"])))
    for values in rows.values():
        values.insert(row, values[row])


def _lose(rows: dict[str, list[Any]], rng: Rng) -> None:
    count = int(rng.integers(1, len(rows["step"]) + 1))
    for values in rows.values():
        del values[:count]


MUTATIONS: tuple[Callable[[dict[str, list[Any]], Rng], None], ...] = (
    _cells, _cells, _cells, _column, _numbers, _rename, _drop, _reorder, _repeat, _lose,
)  # fmt: skip


def damaged(content: bytes, rng: Rng) -> bytes:
    """Cut, or overwrite some bytes, or neither."""
    kind = rng.integers(5)
    if kind == 0:
        return content[: int(rng.integers(len(content) + 1))]
    if kind == 1 and content:
        changed = bytearray(content)
        for _ in range(int(rng.integers(1, 6))):
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
        return bytes(changed)
    return content


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def as_csv(rows: dict[str, list[Any]]) -> bytes:
    lines = [
        ",".join(rows),
        *(",".join(map(_text, row)) for row in zip(*rows.values(), strict=True)),
    ]
    return "\n".join(lines).encode()


def as_jsonl(rows: dict[str, list[Any]]) -> bytes:
    records = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    return "\n".join(json.dumps(record) for record in records).encode()


def as_polars(rows: dict[str, list[Any]]) -> pl.DataFrame:
    columns = []
    for name, values in rows.items():
        try:
            columns.append(pl.Series(name, values, strict=False))
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            columns.append(pl.Series(name, [_text(value) for value in values]))
    return pl.DataFrame(columns)


def as_parquet(rows: dict[str, list[Any]]) -> bytes:
    frame, buffer = as_polars(rows), io.BytesIO()
    objects = [name for name, kind in frame.schema.items() if kind == pl.Object]
    frame = frame.with_columns(pl.Series(name, [_text(v) for v in rows[name]]) for name in objects)
    frame.write_parquet(buffer)
    return buffer.getvalue()


def mutated(kind: str, rng: Rng, folder: Path) -> Any:
    rows = log_rows(rng)
    for _ in range(int(rng.integers(1, 3))):
        if rows and len(next(iter(rows.values()))) and "step" in rows:
            _pick(rng, MUTATIONS)(rows, rng)
    if kind == "polars":
        return as_polars(rows)
    if kind == "pandas":
        kind_of_column = object if rng.random() < 0.3 else None
        return pd.DataFrame({n: pd.Series(v, dtype=kind_of_column) for n, v in rows.items()})
    base = kind.split(".")[0]
    writers = {"csv": as_csv, "jsonl": as_jsonl, "parquet": as_parquet}
    content = damaged(writers[base](rows), rng)
    if kind.endswith(".gz"):
        content = damaged(gzip.compress(content), rng)
    path = folder / f"log.{kind}"
    path.write_bytes(content)
    return path


def assert_sound(loaded: LoadedLog) -> None:
    log, mask = loaded.log, np.asarray(loaded.log.mask)
    assert mask[:, 0].all()
    assert mask.sum() == loaded.table.frame.height
    assert np.isfinite(np.asarray(log.rewards)).all()
    assert (np.diff(np.asarray(log.episode_numbers)) >= 0).all()
    probs = np.exp(np.asarray(log.behavior_log_probs))[mask]
    if loaded.columns.behavior_prob is None:
        assert np.isnan(probs).all()
    else:
        assert ((probs > 0) & (probs <= 1)).all()
    assert log.num_actions is not None
    actions = np.asarray(log.actions)[mask]
    assert ((actions >= 0) & (actions < log.num_actions)).all()
    assert log.digest()


def outcome(read: Callable[[], Any]) -> str:
    """What became of it; an exception that is not ours fails the test."""
    try:
        result = read()
    except (LogError, SettingsError) as error:
        text = str(error)
        assert text.strip()
        assert "Traceback" not in text
        assert len(text) < 2000, text
        return "refused"
    if isinstance(result, LoadedLog):
        assert_sound(result)
    return "read"


@pytest.mark.parametrize("kind", FORMATS)
def test_mutated_logs_are_refused_or_sound(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(FORMATS.index(kind))
    outcomes: Counter[str] = Counter()
    for _ in range(PER_FORMAT):
        source, columns = mutated(kind, rng, tmp_path), _pick(rng, MAPPINGS)
        outcomes[outcome(lambda s=source, c=columns: read_log(s, c))] += 1  # type: ignore[misc]
    assert min(outcomes["refused"], outcomes["read"]) > PER_FORMAT // 10, outcomes


def _streamed(path: Path, specs: list[str], columns: Columns) -> OpenLog:
    opened = open_log(LogFile(path, columns, stream=True))
    for spec in specs:
        _, opened = opened.policy(spec)
    return opened


def test_mutated_logs_by_stream_and_by_spec(tmp_path: Path) -> None:
    rng = np.random.default_rng(99)
    outcomes: Counter[str] = Counter()
    specs = ["ratio:new_prob", "behavior"]
    for _ in range(PER_FORMAT):
        path, columns = mutated("parquet", rng, tmp_path), _pick(rng, MAPPINGS)
        outcomes[outcome(lambda p=path, c=columns: _streamed(p, specs, c))] += 1  # type: ignore[misc]
        try:
            loaded = read_log(path, columns)
        except TidegateError:
            continue
        for spec in ("column:new_prob", *specs):
            outcomes[outcome(lambda s=spec, log=loaded: resolve_policy(s, log))] += 1  # type: ignore[misc]
    assert min(outcomes.values()) > 10, outcomes


def test_there_are_at_least_500() -> None:
    assert PER_FORMAT * (len(FORMATS) + 1) >= 500
