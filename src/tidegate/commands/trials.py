"""What is to be decided: two policies, and the episodes of a log on which they may be compared."""

import dataclasses
from pathlib import Path

from ..arrays import Ragged
from ..episodes import HeldOutEpisodes, TrainingEpisodes
from ..errors import SettingsError
from ..inputs import path, seed_of
from ..logs import SpecKind, parse_spec
from ..policies import Policy
from ..safety import with_room
from .asking import Asked
from .opening import OpenLog, PolicyLike, Stage, is_object, open_log, policy_name
from .origins import CandidateOrigin, origin_part, parse_origin
from .provenance import Provenance, provenance
from .room import require_room
from .settings import PlainSettings
from .showing import Shown
from .training import (
    Overlap,
    TestPart,
    TrainingRecord,
    read_training,
    require_same_parts,
    test_part,
    training_of,
)

Training = str | Path | TrainingRecord | None
Origin = str | CandidateOrigin | None


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """Names and policies are those of the candidate and of the safe policy, in this order.

    `seen` are the episodes that the candidate was made with, or may have been, where they are in this log;
    `candidate_from` is what its owner says about that.
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
    candidate_from: str | None = None

    def with_room(self) -> "Trial":
        """The same with spare rows behind the episodes; where all are tested, they are held once."""
        seen, held_out = with_room(self.settings.forecast(), self.seen, self.held_out)
        opened, held = self.opened, self.held_out.log
        if held is opened.log and not isinstance(held.layout, Ragged):
            rows = held_out.log.take(slice(held.capacity))
            opened = dataclasses.replace(opened, loaded=dataclasses.replace(opened.loaded, log=rows))
        return dataclasses.replace(self, opened=opened, held_out=held_out, seen=seen)


def prepare(
    asked: Asked,
    candidate: PolicyLike,
    safe: PolicyLike,
    training: Training,
    candidate_from: Origin,
    seed: int,
    stage: Stage,
) -> Trial:
    """Open the log, resolve both policies, and leave out the episodes that the candidate was made with."""
    seed, origin = seed_of(seed), parse_origin(candidate_from)
    names = policy_name(candidate), policy_name(safe)
    saved = not is_object(candidate) and parse_spec(names[0]).kind is SpecKind.POLICY
    opened = open_log(asked.log, seed=seed, stage=stage)
    known = _known_training(names[0] if saved else None, training)
    candidate_policy, opened = opened.policy(candidate)
    if known is not None and saved:
        require_same_parts(known, candidate_policy, opened.loaded)
    safe_policy, opened = opened.policy(safe)
    chosen = asked.settings.over(opened.span, opened.loaded.time)
    require_room(opened, chosen, candidate_policy, safe_policy)
    (candidate_policy, safe_policy), opened = opened.reduced(
        (candidate, safe), (candidate_policy, safe_policy), chosen.forecast(), stage
    )
    part = _test_part(opened, known, origin)
    return Trial(
        opened=opened,
        names=names,
        policies=(candidate_policy, safe_policy),
        held_out=part.held_out,
        seen=part.training,
        overlap=part.overlap,
        training=known,
        settings=chosen,
        seed=seed,
        candidate_from=None if origin is None else str(origin),
    )


def _test_part(opened: OpenLog, known: TrainingRecord | None, origin: CandidateOrigin | None) -> TestPart:
    part = test_part(opened, known)
    if origin is None:
        return part
    if part.overlap is Overlap.HELD_OUT:
        raise SettingsError(
            f"the candidate is said to come from '{origin}', and its training record names the episodes of "
            "this log that its search has seen.",
            remedy="Leave out `candidate_from`: only the other episodes are tested.",
        )
    return origin_part(opened.loaded, origin)


@dataclasses.dataclass(frozen=True, eq=False)
class TrialRecord(Shown):
    """What every record says about its trial."""

    candidate: str
    safe: str
    candidate_from: str | None
    overlap: Overlap
    settings: PlainSettings
    seed: int
    provenance: Provenance

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know first."""
        return origin_caveats(self.provenance, self.overlap, self.candidate)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken on trust about where the candidate came from."""
        return origin_assumptions(self.overlap, self.candidate)

    @property
    def told(self) -> dict[str, list[str]]:
        """The sentences of the record, as JSON values."""
        return {"caveats": list(self.caveats), "assumptions": list(self.assumptions)}


def about(trial: Trial) -> tuple[str, str, str | None, Overlap, PlainSettings, int, Provenance]:
    """The fields of a `TrialRecord`."""
    origin = provenance(trial.opened)
    return (*trial.names, trial.candidate_from, trial.overlap, trial.settings, trial.seed, origin)


def origin_caveats(origin: Provenance, overlap: Overlap, candidate: str) -> tuple[str, ...]:
    """The caveats that follow from the log's order, and from where propensities and candidate came from."""
    caveats = [*([origin.propensities] if origin.estimated else []), *origin.caveats]
    if overlap in (Overlap.UNKNOWN, Overlap.THIS_LOG):
        caveats.append(overlap.value)
    if overlap is Overlap.UNTRAINED and _saved(candidate):
        caveats.append(
            f"There is no decision record beside {candidate}. If it was found with this log, the verdict is "
            "not valid: name the record of its training, or say where it came from with `candidate_from`."
        )
    return tuple(caveats)


def origin_assumptions(overlap: Overlap, candidate: str) -> tuple[str, ...]:
    """What the verdict takes on trust about the candidate's origin; unlike a caveat, it blocks nothing."""
    asked = candidate != SpecKind.BEHAVIOR.value and not _saved(candidate)
    if overlap is Overlap.UNTRAINED and asked:
        return ("The candidate was made without this log (say where it came from with `candidate_from`).",)
    return (overlap.value,) if overlap in (Overlap.ELSEWHERE, Overlap.EARLIER) else ()


def _saved(candidate: str) -> bool:
    return candidate.startswith(f"{SpecKind.POLICY.value}:")


def _known_training(saved: str | None, given: Training) -> TrainingRecord | None:
    """What the candidate's search has seen: as given, else as the record beside a saved candidate says."""
    if given is None:
        return None if saved is None else training_of(saved)
    return given if isinstance(given, TrainingRecord) else read_training(path("training", given))
