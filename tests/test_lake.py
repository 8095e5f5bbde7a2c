"""Tables of data lakes and stores: of the files that lie there, those that are live are the log."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.test_large import SETTINGS, content, log_of
from tidegate import LogError, SettingsError, commands
from tidegate.logs import read_log

FRAME = log_of(episodes=200)
ASKED: dict[str, Any] = {"candidate": "column:new_prob", **SETTINGS}
HALF = 100
NUMBERS = FRAME.drop("began")


def delta(folder: Path) -> None:
    """A table that was written in two halves, after something else had been there."""
    pytest.importorskip("deltalake", reason="needs pip install 'tidegate[lake]'")
    NUMBERS.with_columns(reward=-pl.col("reward")).write_delta(folder)
    NUMBERS[:HALF].write_delta(folder, mode="overwrite")
    NUMBERS[HALF:].write_delta(folder, mode="append")


def iceberg(folder: Path) -> None:
    """The same, in a catalogue beside it."""
    pytest.importorskip("pyiceberg", reason="needs pip install 'tidegate[lake]'")
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="needs pip install 'pyiceberg[sql-sqlite]'")
    place = folder.parent
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.log", schema=NUMBERS.to_arrow().schema, location=f"file://{folder}")
    table.append(NUMBERS.with_columns(reward=-pl.col("reward")).to_arrow())
    table.overwrite(NUMBERS[:HALF].to_arrow())
    table.append(NUMBERS[HALF:].to_arrow())
    catalog.engine.dispose()


@pytest.mark.filterwarnings("ignore")  # the readers' own
@pytest.mark.parametrize("write", [delta, iceberg])
def test_only_the_live_files_of_a_table_are_its_log(write: Any, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    write(folder)
    assert len([*folder.rglob("*.parquet")]) > 2, "the table has replaced nothing"
    assert read_log(folder).log.digest() == read_log(NUMBERS).log.digest()
    expected = content(commands.gate(NUMBERS, **ASKED))
    assert content(commands.gate(folder, **ASKED, stream=True)) == expected


@pytest.mark.filterwarnings("ignore")
def test_a_table_whose_files_hold_deleted_rows_is_refused(tmp_path: Path) -> None:
    delta(tmp_path / "log")
    lake = pytest.importorskip("deltalake")
    features = lake.DeltaTable(tmp_path / "log").alter
    features.add_feature(lake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
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


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store on this machine that speaks S3, and its client; polars finds it as it finds the real one."""
    server_of = pytest.importorskip(
        "moto.server", reason="needs pip install 'moto[server]'"
    ).ThreadedMotoServer
    server = server_of(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_REGION": "us-east-1",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield pytest.importorskip("boto3").client(
        "s3", endpoint_url=given["AWS_ENDPOINT_URL"], region_name="us-east-1"
    )
    server.stop()


@pytest.mark.filterwarnings("ignore")  # the store's own
def test_a_log_in_a_store_gives_the_record_of_its_copy_on_disk(store: Any, tmp_path: Path) -> None:
    store.create_bucket(Bucket="bucket")
    shuffled = FRAME.sample(fraction=1.0, shuffle=True, seed=0)
    for number, part in enumerate((shuffled[:HALF], shuffled[HALF:])):
        part.write_parquet(tmp_path / f"part{number}.parquet")
        store.upload_file(str(tmp_path / f"part{number}.parquet"), "bucket", f"log/part{number}.parquet")
    expected = content(commands.gate(FRAME, **ASKED))
    for source in ("s3://bucket/log/", "s3://bucket/log/*.parquet"):
        assert content(commands.gate(source, **ASKED, stream=True)) == expected
    assert content(commands.gate("s3://bucket/log/", **ASKED, stream=False)) == expected
    for missing in ("s3://bucket/other/*.parquet", "s3://elsewhere/log.parquet"):
        with pytest.raises(LogError, match=rf"^{missing[:12]}.*Check the address, and the credentials"):
            commands.gate(missing, **ASKED)
