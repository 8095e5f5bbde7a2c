"""CSV and JSON lines that are read a block at a time give what they give when they are read whole."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidegate import LogError
from tidegate.logs import Columns, read_log, texts
from tidegate.logs.engines import Threads
from tidegate.logs.formats import SAMPLE
from tidegate.logs.index import index_of
from tidegate.logs.memory import memory_limit
from tidegate.logs.pieces import Pieces, batches
from tidegate.logs.rows import open_rows
from tidegate.logs.sources import read_table
from tidegate.logs.surveying import survey
from tidegate.logs.table import Table

LIMIT = memory_limit("1GB")
FRAME = pl.DataFrame(
    {
        "episode": np.repeat(np.arange(1, 401), 3),
        "step": np.tile(np.arange(3), 400),
        "action": np.arange(1200) % 2,
        "behavior_prob": np.random.default_rng(0).uniform(0.1, 1, 1200),
        "reward": np.random.default_rng(1).normal(size=1200),
        "who": [f'x{i}, "the" {i}th\nof {i % 7}' if i % 5 else None for i in range(1200)],
    }
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "BLOCK", 1000)


def gathered(pieces: Pieces, start: int = 0, stop: int | None = None, rows: int = 100) -> Table:
    """All rows between two positions as one table."""
    found = [*batches(pieces, pieces.schema.names(), start, stop or pieces.span, rows)]
    frame = pl.concat([pl.DataFrame(schema=pieces.schema), *(one.frame for one in found)])
    places = pieces.places(pl.Series([row for one in found for row in one.places.rows], dtype=pl.Int64))
    return Table(frame, places, pieces.name)


def require_twins(source: Any) -> Pieces:
    """The same values, types, and places."""
    held = read_table(source)
    pieces = survey(source, None, LIMIT)
    streamed = gathered(pieces)
    assert streamed.name == held.name
    assert streamed.frame.schema == held.frame.schema
    assert streamed.frame.equals(held.frame, null_equal=True)
    assert pieces.rows == held.frame.height
    assert [streamed.places(i) for i in range(pieces.rows)] == [held.places(i) for i in range(pieces.rows)]
    return pieces


def packed(path: Path) -> Path:
    """The same file, packed in two members."""
    content, found = path.read_bytes(), path.with_name(path.name + ".gz")
    half = len(content) // 2
    found.write_bytes(gzip.compress(content[:half]) + gzip.compress(content[half:]))
    return found


@pytest.mark.parametrize(
    "kind", ["a.csv", "a.tsv", "semicolons.csv", "a.jsonl", "mark.csv", "mark.jsonl", "bare"]
)
def test_blocks_make_up_the_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if "csv" in kind or "tsv" in kind:
        FRAME.write_csv(path, separator={"a.tsv": "\t", "semicolons.csv": ";"}.get(kind, ","))
    else:
        FRAME.write_ndjson(path)
    if "mark" in kind:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    for one in (path, packed(path)):
        pieces = require_twins(one)
        piece = pieces.all[0]
        assert piece.text is not None
        assert piece.text.begins.size > 50
        assert piece.seekable == (one is path)
        for start, stop in ((0, 1), (37, 38), (1199, 1200), (5, 900), (0, 1200)):
            for rows in (1, 64, 10**6):
                part = gathered(pieces, start, stop, rows)
                assert part.frame.equals(FRAME[start:stop].cast(part.frame.schema), null_equal=True)


CSV = {
    "blank lines": "a,b\n\n1,2\n\n\n3,4\n,\n5,6\n\n",
    "no end": "a,b\n1,2\n3,4",
    "windows": "a,b\r\n1,2\r\n\r\n3,4\r\n",
    "only a header": "a,b\n",
    "bare header": "a,b",
    "short rows": "a,b\n1\n2,3\n",
    "one column": "a\n1\n\n2\n",
    "two of a name": "a,a\n1,2\n",
    "late fraction": "a,b\n" + "1,2\n" * (SAMPLE + 50) + "1.5,2\n",
    "late text": "a,b\n" + "1,2\n" * (SAMPLE + 50) + "x,+3\n7,2\n",
    "late spelling": "a,b\n" + "1,2\n" * (SAMPLE + 50) + "1,+2\n",
    "late values": "a,b\n" + "1,\n" * (SAMPLE + 50) + f"1,{2**60}\n" + f"2,{2**60 + 1}\n",
    "truth": "a,b\ntrue,1\nfalse,2\n",
    "late truth": "a,b\n" + "1,true\n" * (SAMPLE + 50) + "1,2\n",
    "wide": f"a,b\n{10**25},1\n2,1\n",
    "late wide": "a,b\n" + "1,2\n" * (SAMPLE + 50) + f"{10**25},1\n",
    "too wide": "a,b\n" + "1,2\n" * (SAMPLE + 50) + f"{10**50},1\n",
    "spaces": "a,b\n 1,2\n3, 4\n",
    "quoted": 'a,b\n"1","x\n\n,y"\n"2","""z"""\n',
    "infinite": "a,b\ninf,NaN\n1,2\n",
}  # fmt: skip


@pytest.mark.parametrize("name", CSV)
def test_every_row_of_a_csv_file_has_the_same_say(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV[name].encode())
    require_twins(path)
    require_twins(packed(path))


def lines(*rows: Any, times: int = 1) -> str:
    return "".join(
        (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows for _ in range(times)
    )


JSON = {
    "blank lines": "\n" + lines({"a": 1}, " ", {"a": 2}, "") + "\n",
    "no end": lines({"a": 1}, {"a": 2}).rstrip(),
    "missing": lines({"a": 1}, {"b": 2.5}, times=200),
    "late fraction": lines({"a": 1}, {"a": 0.5}, times=200),
    "late text": lines({"a": 1, "b": "x"}, {"a": "y", "b": None}, times=200),
    "late number": lines({"a": "x"}, {"a": 3.0}, {"a": 4}, times=200),
    "never": lines({"a": 1, "b": None}, times=200),
    "truth": lines({"a": True}, {"a": False}, times=200),
    "truth and numbers": lines({"a": True}, {"a": 2}, times=200),
    "nan": lines({"a": 1}, '{"a": NaN}', {"a": 2}, times=200),
    "wide": lines({"a": 1}, {"a": 10**25}, times=200),
    "too wide": lines({"a": 1}, {"a": 10**400}, times=200),
    "nested": lines({"a": {"x": 1}, "b": [1]}, {"a": {"y": "t"}, "b": []}, times=200),
    "other nesting": lines({"a": {"x": 1}}, {"a": [1]}, {"a": 3}, times=200),
    "other order": lines({"a": 1, "b": 2}, {"c": 3, "b": 1, "a": 1}, times=200),
    "escapes": lines({"a": 'é"\n\\u'}, {"a": "\ud83d\ude00"}, times=200),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_every_line_of_json_has_the_same_say(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(JSON[name])
    require_twins(path)
    require_twins(packed(path))


BAD = {
    "nothing.csv": b"",
    "spaces.csv": b" \n \n",
    "mark.csv": b"\xef\xbb\xbf",
    "fields.csv": b"a,b\n" + b"1,2\n" * 900 + b"1,2,3\n" + b"1,2\n" * 900,
    "latin.csv": b"a,b\n" + b"1,2\n" * 900 + b"1,\xe9\n",
    "latin.jsonl": b'{"a": "x"}\n' * 900 + b'{"a": "\xe9"}\n',
    "garbage.jsonl": b'{"a": 1}\n' * 900 + b"\ngarbage\n" + b'{"a": 1}\n' * 900,
    "list.jsonl": b'{"a": 1}\n' * 900 + b"[1]\n",
    "nothing.jsonl": b"\n\n\n",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_broken_file_gives_the_same_sentence(name: str, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BAD[name])
    path = packed(path) if zipped else path
    with pytest.raises(LogError) as held:
        read_table(path)
    with pytest.raises(LogError) as streamed:
        survey(path, None, LIMIT)
    assert str(streamed.value) == str(held.value)
    assert path.name in str(held.value)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_damaged_gzip_file_gives_the_same_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    content = FRAME.write_csv().encode() if "csv" in name else FRAME.write_ndjson().encode()
    path.write_bytes(gzip.compress(content)[:-500])
    with pytest.raises(LogError) as held:
        read_table(path)
    with pytest.raises(LogError) as streamed:
        survey(path, None, LIMIT)
    assert str(streamed.value) == str(held.value)


def test_a_quote_that_is_never_closed_is_no_row_of_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "LONGEST", 5000)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 900 + '1,5" disk\n' + "1,2\n" * 9000)
    with pytest.raises(LogError, match=r"a row of a.csv goes on.*balanced quotes"):
        survey(path, None, LIMIT)


def mixed(folder: Path) -> Sequence[Path]:
    """One log in five files of five kinds, one of them with text where others have numbers."""
    folder.mkdir()
    cuts = [FRAME[i : i + 240] for i in range(0, 1200, 240)]
    cuts[0].write_csv(folder / "0.csv")
    packed(folder / "0.csv")
    (folder / "0.csv").unlink()
    cuts[1].write_ndjson(folder / "1.jsonl")
    cuts[2].write_parquet(folder / "2.parquet")
    cuts[3].write_csv(folder / "3.csv")
    cuts[4].with_columns(pl.col("reward").cast(pl.String)).write_ipc(folder / "4.arrow")
    return sorted(folder.iterdir())


def test_files_of_several_kinds_are_one_log(tmp_path: Path) -> None:
    files = mixed(tmp_path / "log")
    pieces = require_twins(files)
    assert pieces.schema["reward"] == pl.String
    expected = read_log(files).log
    with open_rows(files, Columns(), limit=LIMIT) as rows:
        index, _ = index_of(rows, Columns(), Threads(1))
        np.testing.assert_array_equal(index.times, expected.episode_numbers)
        found = pl.concat([table.frame for table in rows.tables(["reward"], chunk_rows=100)])
    np.testing.assert_array_equal(found["reward"].cast(float), FRAME["reward"])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz"])
def test_scattered_rows_of_text_are_brought_together(kind: str, tmp_path: Path) -> None:
    shuffled = FRAME.sample(fraction=1, shuffle=True, seed=1)
    path = tmp_path / f"a.{kind.removesuffix('.gz')}"
    shuffled.write_csv(path) if "csv" in kind else shuffled.write_ndjson(path)
    path = packed(path) if kind.endswith("gz") else path
    with open_rows(path, Columns(), limit=LIMIT, scratch=tmp_path) as rows:
        assert rows.exchanged is not None
        found = pl.concat([table.frame for table in rows.tables(FRAME.columns)])
    assert found.sort("episode", "step").equals(FRAME, null_equal=True)


def test_folders_name_columns_of_any_format(tmp_path: Path) -> None:
    for day, kind in enumerate(["csv", "jsonl", "parquet", "arrow"]):
        folder = tmp_path / f"day={day}" / "place=a%20b"
        folder.mkdir(parents=True)
        part = FRAME[day * 300 : (day + 1) * 300]
        write: dict[str, Callable[[Path], Any]] = {
            "csv": part.write_csv,
            "jsonl": part.write_ndjson,
            "parquet": part.write_parquet,
            "arrow": part.write_ipc,
        }
        write[kind](folder / f"x.{kind}")
    table = gathered(survey(tmp_path, None, LIMIT))
    assert table.frame["day"].to_list() == [i // 300 for i in range(1200)]
    assert table.frame["place"].unique().to_list() == ["a b"]
    assert table.frame.select(FRAME.columns).equals(FRAME, null_equal=True)
    assert table.places(301) == "day=1/place=a%20b/x.jsonl, row 2"


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    FRAME.write_csv(path)
    pieces = survey(path, None, LIMIT)
    path.write_text(path.read_text().replace("\n", "\n\n", 50))
    with pytest.raises(LogError, match=r"a.csv"):
        gathered(pieces)
