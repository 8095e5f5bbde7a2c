"""Logs that other programs write, read as they are: held, a part at a time, and by name of their columns."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.test_texts import gathered, packed, require_twins
from tidegate import LogError, SettingsError, commands
from tidegate.logs import Columns, load_columns, read_log, texts
from tidegate.logs.columns import PRESETS
from tidegate.logs.formats import Format
from tidegate.logs.memory import memory_limit
from tidegate.logs.surveying import survey

LIMIT = memory_limit("1GB")
EVENTS = 600


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "BLOCK", 20_000)


def event(number: int, **changes: Any) -> dict[str, Any]:
    """A decision among three actions, with its reward if there was one."""
    rng = np.random.default_rng(number)
    order = rng.permutation(3) + 1
    reward = float(rng.integers(0, 2)) if number % 3 else 0.0
    moment = datetime.datetime(2026, 1, 1) + datetime.timedelta(minutes=10 * number)
    name = f"event{number}"
    return {
        "_label_cost": -reward if reward else 0,
        "_label_probability": [0.6, 0.3, 0.1][number % 3],
        "_label_Action": int(order[0]),
        "_labelIndex": int(order[0]) - 1,
        **({"o": [{"v": reward, "EventId": name, "ActionTaken": False}]} if number % 3 else {}),
        "Timestamp": f"{moment:%Y-%m-%dT%H:%M:%S}.1234567Z",
        "Version": "1",
        "EventId": name,
        "a": [int(one) for one in order],
        "c": {
            "_synthetic": False,
            "User": {"age": 20 + number % 50, "plan": ["free", "paid"][number % 2]},
            "Page": [{"hour": number % 24}],
            "_multi": [{"_tag": tag, "i": {"id": tag}} for tag in "abc"],
        },
        "p": [0.6, 0.3, 0.1],
        "VWState": {"m": "N/A"},
        "new_prob": 0.3,
        **changes,
    }


DANGLING = {"RewardValue": 1.0, "EnqueuedTimeUtc": "2026-01-01T00:00:00Z", "EventId": "lost"}


def lines(path: Path, events: list[Any]) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in events))
    return path


def exported() -> list[Any]:
    """Events, some never shown, and rewards that found none."""
    events: list[Any] = [event(i, **({"_skipLearn": True} if i % 10 == 4 else {})) for i in range(EVENTS)]
    return [*events[:5], DANGLING, *events[5:], {**DANGLING, "RewardValue": None, "ActionTaken": True}]


@pytest.mark.parametrize("name", ["log.json", "log.jsonl", "log.dsjson"])
def test_events_of_dsjson(name: str, tmp_path: Path) -> None:
    path = lines(tmp_path / name, exported())
    for one in (path, packed(path)):
        pieces = require_twins(one)
        assert pieces.all[0].format is Format.DSJSON
        assert pieces.all[0].text is not None
        assert pieces.all[0].text.begins.size > 5
    shown = [event(i) for i in range(EVENTS) if i % 10 != 4]
    loaded = read_log(path, load_columns("vw-dsjson"))
    np.testing.assert_array_equal(loaded.log.rewards[:, 0], [0.0 - one["_label_cost"] for one in shown])
    np.testing.assert_array_equal(loaded.log.actions[:, 0], [one["_labelIndex"] for one in shown])
    np.testing.assert_allclose(
        np.exp(loaded.log.behavior_log_probs[:, 0]), [one["_label_probability"] for one in shown], rtol=1e-6
    )
    frame = loaded.table.frame
    assert frame["User.age"].to_list() == [one["c"]["User"]["age"] for one in shown]
    assert frame["Page.hour"].to_list() == [one["c"]["Page"][0]["hour"] for one in shown]
    assert not [one for one in frame.columns if "_multi" in one]
    assert loaded.table.places(4) == f"{name}, row 7"


def test_the_gate_reads_dsjson_held_and_streamed(tmp_path: Path) -> None:
    path = lines(tmp_path / "log.dsjson", exported())
    asked: dict[str, Any] = {
        "columns": "vw-dsjson", "features": "User.age,User.plan", "time_unit": "hour",
        "candidate": "column:new_prob", "lookahead": 10,
    }  # fmt: skip
    held, streamed = (commands.gate(path, **asked, stream=stream) for stream in (False, True))
    assert held.provenance.num_episodes == EVENTS * 9 // 10
    assert streamed.provenance.num_episodes == held.provenance.num_episodes
    np.testing.assert_allclose(streamed.advantage.point, held.advantage.point, rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"_label_probability": 0}, r"log.dsjson, row 51: behavior probability is 0"),
        ({"_label_probability": None}, r"'_label_probability' has 1 missing value.*|log.dsjson, row 51"),
        ({"_label_cost": None}, r"log.dsjson, row 51: column 'reward' has 1 missing value"),
        ({"_label_Action": 0}, r"log.dsjson, row 51: action is -1"),
        ({"_outcomes": [{"_a": [0], "_p": [1.0]}]}, r"log.dsjson has events of several decisions"),
        ('{"_label_cost": 1, ', r"log.dsjson, row 51: the line is not JSON"),
    ],
)
def test_a_wrong_event_is_named_by_its_line(changed: Any, sentence: str, tmp_path: Path) -> None:
    events: list[Any] = [event(i) for i in range(100)]
    events[50] = changed if isinstance(changed, str) else event(50, **changed)
    path = lines(tmp_path / "log.dsjson", events)
    for stream in (False, True):
        with pytest.raises(LogError, match=sentence):
            commands.gate(path, columns="vw-dsjson", candidate="column:new_prob", stream=stream)


def test_events_that_polars_cannot_parse(tmp_path: Path) -> None:
    """Whatever one event has in its context, the others keep their labels."""
    events: list[Any] = [event(i) for i in range(100)]
    events[70]["c"] = {"User": [1, 2]}
    events[71]["c"] = float("nan")
    require_twins(lines(tmp_path / "log.dsjson", events))


def open_bandit(rows: int = 400) -> pl.DataFrame:
    """As the Open Bandit Dataset writes its campaigns, with an index that has no name."""
    rng = np.random.default_rng(0)
    start = datetime.datetime(2019, 11, 24, tzinfo=datetime.UTC)
    moments = [start + datetime.timedelta(seconds=101.25 * i) for i in range(rows)]
    return pl.DataFrame(
        {
            "": np.arange(rows),
            "timestamp": [f"{one:%Y-%m-%d %H:%M:%S.%f}+00:00" for one in moments],
            "item_id": rng.integers(0, 34, rows),
            "position": rng.integers(1, 4, rows),
            "click": rng.integers(0, 2, rows),
            "propensity_score": np.full(rows, 1 / 34),
            "user_feature_0": rng.choice(["cef3390ed299c09874189c387777674a", "03a5648a76832f83"], rows),
            "user-item_affinity_0": rng.uniform(size=rows),
            "new_prob": rng.uniform(0.01, 0.05, rows),
        }
    )


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_the_open_bandit_dataset(kind: str, tmp_path: Path) -> None:
    frame, path = open_bandit(), tmp_path / f"men.{kind.removesuffix('.gz')}"
    frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    path = packed(path) if kind == "csv.gz" else path
    require_twins(path)
    log = read_log(path, load_columns("open-bandit")).log
    np.testing.assert_array_equal(log.rewards[:, 0], frame["click"])
    np.testing.assert_array_equal(log.actions[:, 0], frame["item_id"])
    asked: dict[str, Any] = {"columns": "open-bandit", "candidate": "column:new_prob", "lookahead": 20}
    held, streamed = (commands.gate(path, **asked, stream=stream) for stream in (False, True))
    np.testing.assert_allclose(streamed.advantage.point, held.advantage.point, rtol=1e-6)
    assert streamed.provenance.num_episodes == frame.height


def test_what_banditdb_exports(tmp_path: Path) -> None:
    """One Parquet file for each checkpoint of a campaign, whose rows come in the order of a hash."""
    rng, rows = np.random.default_rng(0), 400
    frame = pl.DataFrame(
        {
            "interaction_id": [f"{one:032x}" for one in rng.permutation(rows)],
            "arm_id": rng.choice(["10", "15", "later"], rows),
            "reward": rng.uniform(size=rows).round(2),
            "predicted_at": 1_770_000_000 + 60 * np.arange(rows),
            "rewarded_at": 1_770_000_300 + 60 * np.arange(rows),
            "propensity": np.full(rows, 1 / 3),
            "feature_0": rng.normal(size=rows),
            "new_prob": rng.uniform(0.2, 0.5, rows),
        }
    )
    for start in (0, 200):
        shard = frame[start : start + 200].sample(fraction=1, shuffle=True, seed=start)
        shard.write_parquet(tmp_path / f"prices_{start}.parquet")
    columns = {"columns": "banditdb", "actions": ["10", "15", "later"], "time_unit": "hour"}
    asked: dict[str, Any] = {**columns, "candidate": "column:new_prob", "lookahead": "1h"}
    held, streamed = (commands.gate(tmp_path, **asked, stream=stream) for stream in (False, True))
    assert streamed.provenance.num_episodes == held.provenance.num_episodes == rows
    assert streamed.advantage.lower == held.advantage.lower
    known = Columns(**{**PRESETS["banditdb"], "actions": ("10", "15", "later")})
    np.testing.assert_array_equal(read_log(tmp_path, known).log.rewards[:, 0], frame["reward"])
    without = frame.with_columns(propensity=pl.lit(None, pl.Float64))
    with pytest.raises(LogError, match="column 'propensity' has 400 missing values"):
        read_log(without, known)


@pytest.mark.parametrize("name", ["log.arrow", "log.feather", "log.ipc", "log"])
def test_arrow_files(name: str, tmp_path: Path) -> None:
    frame = open_bandit()
    frame.write_ipc(tmp_path / name)
    pieces = require_twins(tmp_path / name)
    assert gathered(pieces, 100, 300, 64).frame.equals(frame[100:300])


def test_names_of_known_columns() -> None:
    assert load_columns("open-bandit") == Columns(
        episode=None,
        step=None,
        action="item_id",
        behavior_prob="propensity_score",
        reward="click",
        time="timestamp",
    )
    with pytest.raises(
        SettingsError, match=r"Did you mean 'vw-dsjson'.*one of banditdb, open-bandit, vw-dsjson"
    ):
        load_columns("vw-dsjon")


# Folders and URLs.


def in_folders(folder: Path) -> pl.DataFrame:
    """A log in partitions, three days of it."""
    frame = open_bandit()
    for day in range(3):
        part = folder / f"day={day}"
        part.mkdir(parents=True)
        frame[day * 100 : (day + 1) * 100].write_parquet(part / f"x{day}.parquet")
    return frame[:300]


@pytest.mark.parametrize("name", ["{}", "file://{}/", "file://{}/**/*.parquet", "file://{}/day=0/*.parquet"])
def test_folders_and_urls_are_read_held_and_streamed(name: str, tmp_path: Path) -> None:
    frame = in_folders(tmp_path / "log")
    if "day=0" in name:
        frame = frame[:100]
    source = name.format(tmp_path / "log")
    table = gathered(survey(source, None, LIMIT))
    assert table.frame.select(frame.columns).equals(frame)
    assert table.frame["day"].to_list() == [i // 100 for i in range(frame.height)]
    assert table.places(7).endswith("x0.parquet, row 8")
    held = read_log(source, load_columns("open-bandit"))
    assert held.table.frame.equals(table.frame)
    asked: dict[str, Any] = {"columns": "open-bandit", "candidate": "column:new_prob", "lookahead": 20}
    streamed, whole = (commands.gate(source, **asked, stream=stream) for stream in (True, None))
    np.testing.assert_allclose(streamed.advantage.point, whole.advantage.point, rtol=1e-6)


def test_urls_of_other_files(tmp_path: Path) -> None:
    frame = open_bandit()
    frame.write_csv(tmp_path / "a.csv")
    frame.write_ipc(tmp_path / "a.arrow")
    for name in ("a.csv", "a.arrow"):
        assert gathered(survey(f"file://{tmp_path}/{name}", None, LIMIT)).frame.equals(frame)
    with pytest.raises(LogError, match=r"cannot be read where it is stored.*Copy it"):
        read_log("s3://bucket/log.csv")
    with pytest.raises(LogError, match=r"none-\*.parquet cannot be read as Parquet"):
        read_log(f"file://{tmp_path}/none-*.parquet")
