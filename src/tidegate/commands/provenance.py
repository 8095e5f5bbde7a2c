"""Where the numbers come from: the log, how it was read, and what computed them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import polars as pl

from ..checks.findings import Names
from ..logs import Columns, Propensities, TimeMeaning, override_columns
from ..record import plain, versions
from ..reports.calendar import Clock
from .opening import OpenLog


@dataclasses.dataclass(frozen=True)
class Provenance:
    """The log as it was read, in plain values.

    `time` says what the time axis counts, from `time_origin` if that is a moment; the last episode began at
    `time_last`, and `moments` date some of them where timestamps are ranked (`reports.calendar` reads all of
    these). `read_as` names the format if the user did. With `caveats`, no verdict is guaranteed.
    """

    source: str
    data_hash: str
    num_episodes: int
    num_steps: int
    columns: dict[str, Any]
    read_as: str | None
    time: str
    time_unit: str
    time_origin: str | None
    time_last: str | None
    moments: tuple[tuple[float, str], ...]
    labels: tuple[str, ...]
    propensities: str
    estimated: bool
    calibration: dict[str, Any] | None
    notes: tuple[str, ...]
    caveats: tuple[str, ...]
    versions: dict[str, str]


def provenance(opened: OpenLog) -> Provenance:
    """The provenance of an open log."""
    loaded = opened.loaded
    calibration = loaded.calibration
    return Provenance(
        source=loaded.source,
        data_hash=opened.data_hash,
        num_episodes=loaded.log.num_episodes,
        num_steps=loaded.log.num_logged_steps,
        columns=plain_columns(loaded.columns),
        read_as=opened.read_as,
        time=str(loaded.time),
        time_unit=loaded.time.unit.value,
        time_origin=loaded.time.origin,
        time_last=loaded.time.last,
        moments=loaded.time.moments,
        labels=tuple(str(label) for label in loaded.labels),
        propensities=loaded.propensities.value,
        estimated=loaded.propensities is Propensities.ESTIMATED,
        calibration=None
        if calibration is None
        else {**plain(calibration), "error": calibration.error, "text": str(calibration)},
        notes=loaded.notes,
        caveats=loaded.caveats,
        versions=all_versions(),
    )


def clock(time: TimeMeaning, columns: Columns) -> Clock:
    """The clock of a log, as that of its records."""
    return Clock.of(
        {
            "columns": plain_columns(columns),
            "time_unit": time.unit.value,
            "time_origin": time.origin,
            "time_last": time.last,
            "moments": time.moments,
        }
    )


def names_of(opened: OpenLog) -> Names:
    """What a log calls its times and its actions, for sentences about it."""
    loaded = opened.loaded
    when = clock(loaded.time, loaded.columns)
    return Names(when.at, when.episode, when.span, tuple(str(label) for label in loaded.labels))


def all_versions() -> dict[str, str]:
    """The software that computed this, and the device it ran on."""
    return {**versions(), "polars": pl.__version__, "device": jax.default_backend()}


def plain_columns(columns: Columns) -> dict[str, Any]:
    """The mapping in plain values; a part without a column is an empty string, as in a TOML file."""
    fields: dict[str, Any] = plain(columns)
    return {name: "" if value is None else value for name, value in fields.items()}


def columns_from(plain: Mapping[str, Any]) -> Columns:
    """The mapping that `plain_columns` wrote down."""
    given = {name: value for name, value in plain.items() if (name, value) != ("num_actions", "")}
    return override_columns(Columns(), given)
