"""Which episodes a search has seen, so that no later test uses them.

The split is a rule: `split_log` on the first `num_episodes` of the log, with this fraction. So
it can be repeated on the same log, and on one that has grown since.
"""

import dataclasses
import enum
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Integers
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, training_count, training_flags
from ..errors import PolicyError, SettingsError
from ..logs import LoadedLog, SpecKind, parse_spec
from ..logs.fitting import FittedPolicy
from ..policies import Policy
from ..record import SEAL, plain, read_record, record_hash, restored
from ..serving.features import inputs_of
from .opening import OpenLog

SUFFIX = ".decision.json"


@dataclasses.dataclass(frozen=True)
class TrainingRecord:
    """What a candidate's search has seen, and what the candidate expects of a log.

    `features` are the inputs by name, "country=DE" for a category. `episodes_hash` is that of the actions
    and lengths of the training episodes: it identifies them whatever else is mapped or estimated.
    """

    data_hash: str
    num_episodes: int
    num_training: int
    train_fraction: float
    episodes_hash: str
    policy_hash: str
    features: tuple[str, ...]
    labels: tuple[str, ...]


class Overlap(enum.Enum):
    """How a log relates to the episodes that the candidate was made with."""

    UNTRAINED = (
        "It is assumed that the candidate was made without this log: say where it came from with "
        "`candidate_from`."
    )
    ELSEWHERE = "The candidate was made without this log, according to its owner."
    EARLIER = (
        "According to its owner, the candidate was made with nothing later than the time named: only later "
        "episodes are tested."
    )
    THIS_LOG = (
        "The candidate was made with this log, so no episode is left to test it. Let `improve` search: it "
        "sets test episodes aside; or collect new episodes, and name the time before which the candidate "
        "was made (`candidate_from='before:TIME'`)."
    )
    HELD_OUT = "The candidate was found with this log: only episodes that its search has not seen are tested."
    UNKNOWN = (
        "The candidate was found with another log, or this one was changed since. If they share "
        "episodes, the verdict is not valid."
    )


@plain.register
def _(overlap: Overlap) -> Any:
    return {"name": overlap.name, "sentence": overlap.value}


@dataclasses.dataclass(frozen=True, eq=False)
class TestPart:
    """The episodes that may be tested, why these, and those that the search has seen."""

    held_out: HeldOutEpisodes
    overlap: Overlap
    training: TrainingEpisodes | None = None


def training_path(policy: str | Path) -> Path:
    """Where the record of a saved policy lies: beside it."""
    return Path(policy).with_suffix(SUFFIX)


def read_training(path: str | Path) -> TrainingRecord:
    """The training part of a record that `improve` wrote."""
    content = read_record(path)
    if record_hash(content) != content[SEAL]:
        raise SettingsError(
            f"{path} was changed after it was written.", expected="the record as `improve` wrote it"
        )
    try:
        return restored(TrainingRecord, content["training"])
    except (KeyError, TypeError) as error:
        raise SettingsError(
            f"{path} does not say what was trained on.", expected="a record of `improve`"
        ) from error


def training_of(spec: str) -> TrainingRecord | None:
    """The record beside a saved policy; None if there is none."""
    parsed = parse_spec(spec)
    if parsed.kind is not SpecKind.POLICY or not training_path(parsed.name).is_file():
        return None
    return read_training(training_path(parsed.name))


def require_same_parts(training: TrainingRecord, policy: Policy, loaded: LoadedLog) -> None:
    """The record belongs to this policy, and what the policy knows by position is what it was made for."""
    if training.policy_hash != policy.digest():
        raise PolicyError(
            "the training record belongs to a policy other than the candidate.",
            remedy="Keep a saved policy and its decision record together.",
        )
    if isinstance(policy, FittedPolicy):  # it was fitted to this log by name
        return
    found = {
        "features": input_names(loaded),
        "actions": tuple(str(label) for label in loaded.labels),
    }
    wanted = {"features": training.features, "actions": training.labels}
    for name in wanted:
        if found[name] != wanted[name]:
            raise PolicyError(
                f"the candidate was made for the {name} {list(wanted[name])}, and the log is read "
                f"with {list(found[name])}.",
                remedy=f"Map the same {name}, in the same order.",
            )


def input_names(loaded: LoadedLog) -> tuple[str, ...]:
    """The names of the log's features; a category has its own, as in "country=DE"."""
    return tuple(map(str, inputs_of(loaded.features)))


def test_part(opened: OpenLog, training: TrainingRecord | None) -> TestPart:
    """The part of the log that the search has not seen."""
    log = opened.log
    if training is None:
        return TestPart(HeldOutEpisodes(log, log.span), Overlap.UNTRAINED)
    rows = _seen_rows(opened, training)
    if rows is None:
        return TestPart(HeldOutEpisodes(log, log.span), Overlap.UNKNOWN)
    unseen = np.setdiff1d(np.arange(log.capacity), rows)
    return TestPart(
        HeldOutEpisodes(log.take(unseen), log.span),
        Overlap.HELD_OUT,
        TrainingEpisodes(log.take(rows), log.span),
    )


def _seen_rows(opened: OpenLog, training: TrainingRecord) -> Integers | None:
    if opened.num_episodes < training.num_episodes:
        return None
    rows = training_rows(training.num_episodes, training.train_fraction)
    return rows if episodes_hash(opened.gathered(rows).log) == training.episodes_hash else None


def training_rows(num_episodes: int, train_fraction: float) -> Integers:
    """The rows that `split_log` sends to training."""
    return np.flatnonzero(training_flags(num_episodes, training_count(num_episodes, train_fraction)))


def episodes_hash(log: EpisodeLog) -> str:
    """SHA-256 of the episodes' lengths and actions."""
    mask = np.asarray(log.mask)
    sha = hashlib.sha256(b"tidegate-episodes-1")
    sha.update(np.ascontiguousarray(log.lengths, np.int64).tobytes())
    sha.update(np.ascontiguousarray(np.asarray(log.actions)[mask], np.float64).tobytes())
    return sha.hexdigest()
