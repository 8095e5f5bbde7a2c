"""A log that is not held: read in parts, and reduced to episodes, it gives what it gives when it is held."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidegate
from tidegate import commands
from tidegate.errors import TidegateError
from tidegate.logs import large

SETTINGS: dict[str, Any] = {"lookahead": 40, "confirmed_order": True}
EPISODES = 900


def log_of(episodes: int = EPISODES, longest: int = 4, seed: int = 0) -> pl.DataFrame:
    """Episodes of one to `longest` steps, whose context says which of three actions is good."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, episodes)
    episode = np.repeat(np.arange(1, episodes + 1), lengths)
    rows = episode.size
    step = np.arange(rows) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    context, action = rng.normal(size=rows).round(3), rng.integers(0, 3, rows)
    good = (context > 0).astype(int)
    return pl.DataFrame(
        {
            "episode": episode,
            "step": step,
            "action": action,
            "behavior_prob": np.full(rows, 1 / 3),
            "new_prob": np.where(action == good, 0.6, 0.2),
            "old_prob": np.where(action == 2, 0.5, 0.25),
            "reward": 0.4 * (action == good) + 0.1 * rng.normal(size=rows) + 0.2 * np.sin(episode / 150),
            "complaints": rng.poisson(0.1, rows),
            "context": context,
            "began": np.array("2026-01-01", "datetime64[ms]") + (episode * 3_600_000).astype("timedelta64[ms]"),
        }
    )


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return log_of()


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks, so that episodes share them with different ones."""
    monkeypatch.setattr("tidegate.logs.measuring.BLOCK_CELLS", 256)


def content(record: Any) -> dict[str, Any]:
    """A record without the name of the log, and what depends on when it was written."""
    plain = json.loads(json.dumps(record.to_dict()))
    for name in ("record_hash", "sha256", "decided_at", "expires_at", "headline"):
        plain.pop(name, None)
    plain["provenance"].pop("source")
    return plain


def numbers(plain: Any) -> list[float]:
    """All numbers of a record, in order."""
    if isinstance(plain, dict):
        return [number for name in sorted(plain) for number in numbers(plain[name])]
    if isinstance(plain, list):
        return [number for one in plain for number in numbers(one)]
    return [float(plain)] if isinstance(plain, float | int) and not isinstance(plain, bool) else []


def cut(frame: pl.DataFrame, folder: Path, files: int, seed: int | None) -> list[str]:
    """The log in so many files, in order or shuffled."""
    rows = frame if seed is None else frame.sample(fraction=1.0, shuffle=True, seed=seed)
    size = -(-rows.height // files)
    names = [str(folder / f"part{number}.parquet") for number in range(files)]
    for number, name in enumerate(names):
        rows.slice(number * size, size).write_parquet(name)
    return names


@pytest.mark.parametrize("longest", [1, 4])
def test_a_streamed_log_gives_the_verdict_of_the_same_log_held(longest: int, no_room: None) -> None:
    frame = log_of(longest=longest)
    asked: dict[str, Any] = {
        "candidate": "column:new_prob", "safe": "column:old_prob", "guardrails": ["complaints:0.1"],
        "candidate_from": "elsewhere", **SETTINGS,
    }  # fmt: skip
    held, streamed = (commands.gate(frame, **asked, stream=stream) for stream in (False, True))
    assert streamed.status is held.status
    np.testing.assert_allclose(
        numbers(dataclasses.asdict(streamed.decision.advantage) if False else content(streamed)["advantage"]),
        numbers(content(held)["advantage"]),
        rtol=1e-7,
        atol=1e-12,
    )
    found, expected = content(streamed), content(held)
    for part in ("candidate", "safe", "guardrails", "outlook"):
        np.testing.assert_allclose(
            numbers({k: v for k, v in found[part].items() if k != "actions"}),
            numbers({k: v for k, v in expected[part].items() if k != "actions"}),
            rtol=1e-7,
            atol=1e-12,
            err_msg=part,
        )
    for role in ("candidate", "safe", "difference"):
        same = {one["name"]: one for one in expected["checks"][role]["findings"]}
        for one in found["checks"][role]["findings"]:
            if one["name"] != "largest_ratio":
                assert one["level"] == same[one["name"]]["level"], one
        assert {one["name"] for one in found["checks"][role]["findings"]} == set(same)


@pytest.mark.parametrize(
    ("files", "seed", "workers"), [(1, None, 1), (7, None, 2), (40, None, 8), (1, 1, 2), (7, 2, 8)]
)
def test_how_a_log_is_cut_and_read_changes_no_bit(
    frame: pl.DataFrame, tmp_path: Path, files: int, seed: int | None, workers: int, no_room: None
) -> None:
    asked: dict[str, Any] = {"candidate": "column:new_prob", "guardrails": ["complaints:0.1"], **SETTINGS}
    whole = content(commands.gate(frame, **asked, stream=True, workers=1))
    again = content(commands.gate(cut(frame, tmp_path, files, seed), **asked, stream=True, workers=workers))
    assert again["test_data_hash"] == whole["test_data_hash"]
    assert again == whole
