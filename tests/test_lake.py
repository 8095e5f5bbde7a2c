"""Tables of data lakes and stores: of the files that lie there, those that are live are the log."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.bucket import served
from tests.test_large import SETTINGS, content, log_of
from tidegate import LogError, SettingsError, commands
from tidegate.commands.opening import LogFile, open_log
from tidegate.logs import read_log

FRAME = log_of(episodes=200)
ASKED: dict[str, Any] = {"policy": "column:new_prob", **SETTINGS}
HALF = 100
NUMBERS = FRAME.drop("began")


class Elsewhere(PyArrowFileIO):
    """Writes into a folder what says of itself that it lies at a URL."""

    def new_input(self, location: str) -> Any:
        return super().new_input(location.replace(self.properties["url"], self.properties["folder"]))

    def new_output(self, location: str) -> Any:
        return super().new_output(location.replace(self.properties["url"], self.properties["folder"]))


def delta(folder: Path, url: str = "") -> None:
    """A table that was written in two halves, after something else had been there."""
    NUMBERS.with_columns(reward=-pl.col("reward")).write_delta(folder)
    NUMBERS[:HALF].write_delta(folder, mode="overwrite")
    NUMBERS[HALF:].write_delta(folder, mode="append")


def iceberg(folder: Path, url: str = "") -> None:
    """The same, in a catalogue beside it; such a table holds its own address."""
    places = {"py-io-impl": f"{__name__}.{Elsewhere.__name__}", "folder": str(folder), "url": url}
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder.parent}/catalog.db", **(places if url else {}))
    catalog.create_namespace("n")
    location = url or f"file://{folder}"
    table = catalog.create_table("n.log", schema=NUMBERS.to_arrow().schema, location=location)
    table.append(NUMBERS.with_columns(reward=-pl.col("reward")).to_arrow())
    table.overwrite(NUMBERS[:HALF].to_arrow())
    table.append(NUMBERS[HALF:].to_arrow())
    catalog.engine.dispose()


def require_the_log(source: Any) -> None:
    """Held and in parts, it is the one that all tests write."""
    expected = open_log(LogFile(NUMBERS)).data_hash
    for stream in (False, True):
        assert open_log(LogFile(source, stream=stream)).data_hash == expected


@pytest.mark.filterwarnings("ignore")  # the readers' own
@pytest.mark.parametrize("write", [delta, iceberg])
def test_only_the_live_files_of_a_table_are_its_log(write: Any, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    write(folder)
    assert len([*folder.rglob("*.parquet")]) > 2, "the table has replaced nothing"
    require_the_log(folder)


PARTS = ["log/*.parquet", "log/**/*.parquet", "log/*", "log/day=3/part-*", "log/data/*.parquet", "log/data/"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mark", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_a_part_of_a_table_is_not_read_with_the_rows_that_were_replaced(
    part: str, mark: str, store: Path, tmp_path: Path
) -> None:
    for folder, place in ((tmp_path, str(tmp_path)), (store / "parts", "s3://parts")):
        for name in (mark, "data/a.parquet"):
            (folder / "log" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "log" / name).write_text("{}")
        for stream in (False, True):
            with pytest.raises(LogError, match=rf"a part of the table {place}/log, .*Name the table itself"):
                open_log(LogFile(f"{place}/{part}", stream=stream))


@pytest.mark.filterwarnings("ignore")
def test_a_table_whose_files_hold_deleted_rows_is_refused(tmp_path: Path) -> None:
    delta(tmp_path / "log")
    features = deltalake.DeltaTable(tmp_path / "log").alter
    features.add_feature(deltalake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(LogError, match=r"log of Delta has deletion vectors.*Write the rows"):
        read_log(tmp_path / "log")


@pytest.mark.parametrize(
    ("mark", "package", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "deltalake", "Delta"),
        ("metadata/v1.metadata.json", "pyiceberg.table", "Iceberg"),
    ],
)
def test_a_table_without_its_reader_is_not_taken_for_a_folder(
    mark: str, package: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAME.write_parquet(tmp_path / "part.parquet")
    (tmp_path / mark).parent.mkdir()
    (tmp_path / mark).write_text("{}")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SettingsError, match=rf"table of {kind}, whose reader is not installed.*tidegate\[lake\]"
    ):
        read_log(tmp_path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of buckets, which are found as the real ones are; polars asks only once where they lie."""
    folder = tmp_path_factory.mktemp("store")
    with served(folder) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield folder


def test_a_log_in_a_store_gives_the_record_of_its_copy_on_disk(store: Path) -> None:
    bucket = store / "bucket"
    shuffled = NUMBERS.sample(fraction=1.0, shuffle=True, seed=0)
    (bucket / "log").mkdir(parents=True)
    for number, part in enumerate((shuffled[:HALF], shuffled[HALF:])):
        part.write_parquet(bucket / "log" / f"part{number}.parquet")
    expected = content(commands.evaluate(NUMBERS, **ASKED))
    for source in ("s3://bucket/log/", "s3://bucket/log/*.parquet"):
        assert content(commands.evaluate(source, **ASKED, stream=True)) == expected
    assert content(commands.evaluate("s3://bucket/log/", **ASKED, stream=False)) == expected
    for missing in ("s3://bucket/other/*.parquet", "s3://elsewhere/log.parquet", "s3://elsewhere/log/"):
        with pytest.raises(LogError, match=rf"^{missing[:12]}.*Check the address, and the credentials"):
            commands.evaluate(missing, **ASKED)


@pytest.mark.filterwarnings("ignore")  # the readers' own
@pytest.mark.parametrize("write", [delta, iceberg])
def test_only_the_live_files_of_a_table_in_a_store_are_its_log(
    write: Any, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, table = store / write.__name__, f"s3://{write.__name__}/log"
    bucket.mkdir()
    write(bucket / "log", table)
    assert len([*bucket.rglob("*.parquet")]) > 2, "the table has replaced nothing"
    for url in (table, f"{table}/"):
        require_the_log(url)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(SettingsError, match=rf"{table} is a table of \w+, whose reader is not installed"):
        read_log(table)


def test_a_folder_at_a_url_of_this_machine_is_that_folder(tmp_path: Path) -> None:
    """So that what is no log in it is left out, and a table is one."""
    delta(tmp_path / "log")
    require_the_log(f"file://{tmp_path}/log")
