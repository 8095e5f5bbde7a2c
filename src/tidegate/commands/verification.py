"""Replay a decision record on its log: the same verdict, the same bounds, to the bit?"""

import dataclasses
import enum
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..gates.ledger import Grant
from ..record import FORMAT, SEAL, read_record, record_hash, restored
from .gating import GateRecord, gate
from .guarding import guardrails_from
from .improvement import Improvement, improve
from .opening import LogFile, OpenLog, Stage, open_log, silent
from .provenance import all_versions, columns_from
from .settings import PlainSettings, SearchChoices
from .training import TrainingRecord

ROUNDING = 1e-9
SHOWN = 5


class Outcome(enum.Enum):
    """The result of the replay. The first two confirm the record."""

    IDENTICAL = "the log gives the same verdict and the same numbers, bit for bit."
    ROUNDING = "other versions give the same verdict; the numbers differ by rounding only."
    EDITED = "the record was changed after it was written: its own hash does not match."
    OTHER_LOG = "this is another log, or the log was changed: its data hash does not match."
    OTHER_POLICY = "a policy is not the one that was tested: its hash does not match."
    DIFFERENT = "the log gives different numbers from those in the record."


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value in the record that the replay does not give."""

    where: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}, replayed {self.replayed}"


@dataclasses.dataclass(frozen=True, eq=False)
class Verification:
    """Whether a record can be trusted, with what differs; `versions` names those that have changed."""

    outcome: Outcome
    recorded_verdict: str
    replayed_verdict: str | None
    differences: tuple[Difference, ...]
    versions: tuple[Difference, ...]

    @property
    def confirmed(self) -> bool:
        return self.outcome in (Outcome.IDENTICAL, Outcome.ROUNDING)

    def __str__(self) -> str:
        title = "CONFIRMED" if self.confirmed else "NOT CONFIRMED"
        lines = [f"{title} ({self.recorded_verdict}): {self.outcome.value}"]
        lines += [f"Different version, {one}." for one in self.versions]
        lines += [str(one) for one in self.differences[:SHOWN]]
        rest = len(self.differences) - SHOWN
        return "\n".join([*lines, f"and {rest} more differences"] if rest > 0 else lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate verify --json` prints."""
        return {
            "kind": "verify",
            "confirmed": self.confirmed,
            "outcome": self.outcome.name,
            "sentence": self.outcome.value,
            "recorded_verdict": self.recorded_verdict,
            "replayed_verdict": self.replayed_verdict,
            "differences": [dataclasses.asdict(one) for one in self.differences[:SHOWN]],
            "num_differences": len(self.differences),
            "versions": [dataclasses.asdict(one) for one in self.versions],
        }


def verify(record: str | Path | dict[str, Any], source: Any, *, stage: Stage = silent) -> Verification:
    """Read the log as the record says, decide again, and compare every number.

    Identical bits are promised for the same versions on the same kind of machine; others are named.
    """
    content = record if isinstance(record, dict) else read_record(record)
    verdict = str(content.get("verdict"))
    if record_hash(content) != content.get(SEAL):
        return Verification(Outcome.EDITED, verdict, None, (), ())
    if content.get("kind") not in ("gate", "improve") or content.get("format") != FORMAT:
        raise SettingsError(
            f"the record is of kind '{content.get('kind')}', format {content.get('format')}.",
            expected=f"a gate or improve record of format {FORMAT}",
            remedy="Replay a record of another format with the version of Tidegate that wrote it"
            f"{_written_by(content)}.",
        )
    try:
        return _verified(content, verdict, source, stage)
    except (KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"the record is incomplete: {error!r}.", expected="all that `tidegate gate` wrote"
        ) from error


def _written_by(content: dict[str, Any]) -> str:
    origin = content.get("provenance")
    versions = origin.get("versions") if isinstance(origin, dict) else None
    return f" ({versions['tidegate']})" if isinstance(versions, dict) and "tidegate" in versions else ""


def _verified(content: dict[str, Any], verdict: str, source: Any, stage: Stage) -> Verification:
    origin = content["provenance"]
    versions = tuple(_differences("", origin["versions"], all_versions()))
    columns = columns_from(origin["columns"])
    file = LogFile(source, columns, origin["read_as"], origin["estimated"])
    opened = open_log(file, seed=content["seed"], stage=stage)
    if opened.data_hash != origin["data_hash"]:
        found = Difference("data_hash", origin["data_hash"], opened.data_hash)
        return Verification(Outcome.OTHER_LOG, verdict, None, (found,), versions)
    replayed = _replay(content, opened, stage).to_dict()
    differences = tuple(_differences("", _comparable(content), _comparable(replayed)))
    outcome = _outcome(content, replayed, differences, versions)
    return Verification(outcome, verdict, replayed["verdict"], differences, versions)


def _replay(content: dict[str, Any], opened: OpenLog, stage: Stage) -> GateRecord | Improvement:
    settings = restored(PlainSettings, content["settings"])
    safe, seed, dates = content["safe"]["policy"], content["seed"], content["dates"]
    guardrails, multiplicity = guardrails_from(content.get("guardrails"))
    if content["kind"] == "improve":
        search = restored(SearchChoices, content["search"])
        return improve(
            opened,
            safe=safe,
            settings=settings,
            search=search,
            guardrails=guardrails,
            multiplicity=multiplicity,
            dates=dates,
            seed=seed,
            stage=stage,
        )
    known, budget = content["training"], content["budget"]
    return gate(
        opened,
        candidate=content["candidate"]["policy"],
        safe=safe,
        settings=settings,
        training=None if known is None else restored(TrainingRecord, known),
        candidate_from=content["candidate_from"],
        guardrails=guardrails,
        multiplicity=multiplicity,
        budget=None if budget is None else restored(Grant, budget),
        dates=dates,
        seed=seed,
        stage=stage,
    )


def _comparable(content: dict[str, Any]) -> dict[str, Any]:
    """All but the names of files and versions, which may change without changing a number."""
    origin = {k: v for k, v in content["provenance"].items() if k not in ("source", "versions")}
    return {**{k: v for k, v in content.items() if k != SEAL}, "provenance": origin}


def _outcome(
    content: dict[str, Any],
    replayed: dict[str, Any],
    differences: tuple[Difference, ...],
    versions: tuple[Difference, ...],
) -> Outcome:
    if not differences:
        return Outcome.IDENTICAL
    places = {one.where for one in differences}
    # What a search finds, and what is estimated, are results of the replay, not inputs to it.
    given = content["kind"] == "gate" and not content["provenance"]["estimated"]
    hashes = {"candidate.policy_hash", "safe.policy_hash", "test_data_hash"}
    if given and places & hashes:
        return Outcome.OTHER_POLICY
    if versions and content["verdict"] == replayed["verdict"] and all(map(_rounds, differences)):
        return Outcome.ROUNDING
    return Outcome.DIFFERENT


def _rounds(difference: Difference) -> bool:
    pair = difference.recorded, difference.replayed
    numbers = all(isinstance(one, float) for one in pair)
    return numbers and math.isclose(*pair, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _differences(where: str, recorded: Any, replayed: Any) -> Iterator[Difference]:
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in sorted({*recorded, *replayed}):
            place = f"{where}.{name}" if where else name
            yield from _differences(place, recorded.get(name), replayed.get(name))
    elif isinstance(recorded, list) and isinstance(replayed, list):
        for index, pair in enumerate(itertools.zip_longest(recorded, replayed)):
            yield from _differences(f"{where}[{index}]", *pair)
    elif recorded != replayed or type(recorded) is not type(replayed):
        yield Difference(where, recorded, replayed)
