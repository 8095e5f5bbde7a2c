"""Where a candidate came from, according to its owner, and which episodes that leaves for a test."""

import dataclasses
import enum
import math

import numpy as np

from ..episodes import HeldOutEpisodes, TrainingEpisodes
from ..errors import SettingsError
from ..logs import LoadedLog
from ..logs.time_numbers import FIRST, LAST, SECONDS
from ..logs.timeline import holds_timestamps, moment
from ..reasons import MIN_EPISODES
from .training import Overlap, TestPart


class OriginKind(enum.Enum):
    """What the candidate was made with."""

    THIS_LOG = "this-log"
    ELSEWHERE = "elsewhere"
    BEFORE = "before"


@dataclasses.dataclass(frozen=True)
class CandidateOrigin:
    """What the candidate was made with: this log, none of it, or its episodes up to a time.

    `time` is written as in the log's time column, or is the number of an episode if there is none.
    """

    kind: OriginKind
    time: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.time}" if self.time else self.kind.value


def parse_origin(given: str | CandidateOrigin | None) -> CandidateOrigin | None:
    """The origin that a user names, as in before:2026-03-01."""
    if given is None or isinstance(given, CandidateOrigin):
        return given
    word, _, time = given.partition(":")
    kinds = {kind.value: kind for kind in OriginKind}
    if word in kinds and bool(time.strip()) == (word == OriginKind.BEFORE.value):
        return CandidateOrigin(kinds[word], time.strip())
    raise SettingsError(
        f"'{given}' does not say where the candidate came from.",
        expected="this-log, elsewhere or before:TIME, as in before:2026-03-01",
    )


def origin_part(loaded: LoadedLog, origin: CandidateOrigin) -> TestPart:
    """The episodes that a candidate of this origin cannot have seen."""
    log = loaded.log
    if origin.kind is OriginKind.ELSEWHERE:
        return TestPart(HeldOutEpisodes(log, log.span), Overlap.ELSEWHERE)
    if origin.kind is OriginKind.THIS_LOG:
        nothing = log.take(np.arange(0))
        return TestPart(HeldOutEpisodes(nothing, log.span), Overlap.THIS_LOG)
    later = loaded.began > time_of_log(loaded, origin.time, f"'before:{origin.time}'", "before:")
    earlier = log.take(np.flatnonzero(~later))
    return TestPart(
        HeldOutEpisodes(log.take(np.flatnonzero(later)), log.span),
        Overlap.EARLIER,
        # Too few to try trend models on: the test then takes some of its own episodes instead.
        TrainingEpisodes(earlier, log.span) if earlier.num_episodes >= MIN_EPISODES else None,
    )


def time_of_log(loaded: LoadedLog, text: str, said: str, prefix: str = "") -> float:
    """A time that the user wrote, in the terms of `LoadedLog.began`; an error quotes all that was `said`."""
    columns = loaded.columns
    timed = columns.time is not None and holds_timestamps(loaded.table, columns)
    unix = columns.time is not None and not timed and columns.time_unit in SECONDS
    found = moment(text) if timed or unix else None
    if found is None and not timed:
        found = _number(text)
        if unix and found is not None and not FIRST <= found < LAST:
            found = None
    if found is not None:
        return found
    name = columns.time or columns.episode
    raise SettingsError(
        f"{said} is not a time of this log.",
        expected=f"a date or timestamp, as in {prefix}2026-03-01"
        if timed or unix
        else f"a number, as in column '{name}'"
        if name
        else "the number of a row",
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
