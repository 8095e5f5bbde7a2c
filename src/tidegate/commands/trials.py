"""What is to be decided: two policies, and the episodes of a log on which they may be compared."""

import dataclasses
from pathlib import Path

from ..episodes import HeldOutEpisodes, TrainingEpisodes
from ..inputs import path, record_of, seed_of
from ..logs import SpecKind, parse_spec
from ..policies import Policy
from .opening import Log, OpenLog, Stage, open_log
from .provenance import Provenance, provenance
from .room import require_room
from .settings import PlainSettings, Settings
from .training import (
    Overlap,
    TrainingRecord,
    read_training,
    require_same_parts,
    test_part,
    training_of,
)

Training = str | Path | TrainingRecord | None


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """Names and policies are those of the candidate and of the safe policy, in this order.

    `seen` are the episodes that the candidate's search has seen, where they are in this log.
    """

    opened: OpenLog
    names: tuple[str, str]
    policies: tuple[Policy, Policy]
    held_out: HeldOutEpisodes
    seen: TrainingEpisodes | None
    overlap: Overlap
    training: TrainingRecord | None
    settings: PlainSettings
    seed: int


def prepare(
    log: Log,
    candidate: str,
    safe: str,
    settings: Settings,
    training: Training,
    seed: int,
    stage: Stage,
) -> Trial:
    """Open the log, resolve both policies, and leave out the episodes that a search has seen."""
    wanted, seed = record_of("settings", PlainSettings, settings), seed_of(seed)
    opened = open_log(log, seed=seed, stage=stage)
    known = _known_training(candidate, training)
    candidate_policy, opened = opened.policy(candidate)
    if known is not None and parse_spec(candidate).kind is SpecKind.POLICY:
        require_same_parts(known, candidate_policy.digest(), opened.loaded)
    safe_policy, opened = opened.policy(safe)
    chosen = wanted.over(opened.log.span)
    require_room(opened, chosen, candidate_policy, safe_policy)
    part = test_part(opened.log, known)
    return Trial(
        opened=opened,
        names=(candidate, safe),
        policies=(candidate_policy, safe_policy),
        held_out=part.held_out,
        seen=part.training,
        overlap=part.overlap,
        training=known,
        settings=chosen,
        seed=seed,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class TrialRecord:
    """What every record says about its trial."""

    candidate: str
    safe: str
    overlap: Overlap
    settings: PlainSettings
    seed: int
    provenance: Provenance

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know first."""
        return origin_caveats(self.provenance, self.overlap, self.candidate)


def about(trial: Trial) -> tuple[str, str, Overlap, PlainSettings, int, Provenance]:
    """The fields of a `TrialRecord`."""
    origin = provenance(trial.opened)
    return (*trial.names, trial.overlap, trial.settings, trial.seed, origin)


def origin_caveats(origin: Provenance, overlap: Overlap, candidate: str) -> tuple[str, ...]:
    """The caveats that follow from where the propensities and the candidate came from."""
    caveats = [origin.propensities] if origin.estimated else []
    if overlap is Overlap.UNKNOWN:
        caveats.append(overlap.value)
    saved = candidate.startswith(f"{SpecKind.POLICY.value}:")
    if overlap is Overlap.UNTRAINED and saved:
        caveats.append(
            f"There is no decision record beside {candidate}. If it was found with this log, the "
            "verdict is not valid: name the record of its training."
        )
    return tuple(caveats)


def _known_training(candidate: str, given: Training) -> TrainingRecord | None:
    """What the candidate's search has seen: as given, else as the record beside the candidate says."""
    if given is None:
        return training_of(candidate)
    return given if isinstance(given, TrainingRecord) else read_training(path("training", given))
