"""Replay a decision record on its log: the same verdict, the same bounds, bit for bit?

A record that is confirmed says what its log says. Its own hash does not prove who wrote it: anybody can
compute it. A signature does (`gates.signatures`), if the reader has the public key from elsewhere.
"""

import dataclasses
import enum
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import SettingsError, TidegateError
from ..gates.ledger import read_ledger
from ..gates.signatures import read_public_key, signature_holds
from ..policies import Policy
from ..reasons import Status
from ..record import FORMAT, SEAL, SIGNATURE, read_record, record_hash
from ..reports.summary import summary
from .conditions import Conditions, written
from .gating import GateRecord, gate
from .grants import against_ledger, against_rule
from .improvement import Improvement, improve
from .opening import LogFile, OpenLog, Stage, open_log, silent
from .provenance import all_versions
from .recorded import Recorded, completed, recorded, refuse_python, with_objects

ROUNDING = 1e-9
SHOWN = 5


class Outcome(enum.Enum):
    """The result of the replay. The first two confirm the record."""

    IDENTICAL = "the log gives the same verdict and the same numbers, bit for bit."
    ROUNDING = "other versions give the same verdict; the numbers differ by rounding only."
    EDITED = "the record was changed after it was written: its own hash does not match."
    UNSIGNED = "the record is not signed."
    OTHER_SIGNATURE = "the signature is not one that this public key's owner made for this record."
    NOT_GRANTED = "the error budget's own rule does not grant the level in the record."
    NOT_IN_LEDGER = "the ledger does not hold this decision."
    OTHER_LOG = "this is another log, or the log was changed: its data hash does not match."
    OTHER_POLICY = "a policy is not the one that was tested: its hash does not match."
    DIFFERENT = "the log gives other numbers than those in the record."


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value in the record that the replay does not give."""

    where: str
    recorded: Any
    replayed: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Verification:
    """Whether a record can be trusted, with what differs.

    `versions` names those that have changed. `notes` say what the answer does not rest on.
    """

    outcome: Outcome
    recorded_verdict: str
    replayed_verdict: str | None = None
    differences: tuple[Difference, ...] = ()
    versions: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def confirmed(self) -> bool:
        return self.outcome in (Outcome.IDENTICAL, Outcome.ROUNDING)

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer first, then its details."""
        return tuple(summary(self.to_dict()))

    def __str__(self) -> str:
        return "\n".join(self.lines)

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
            "notes": list(self.notes),
        }


def verify(
    record: str | Path | dict[str, Any],
    source: Any,
    *,
    ledger: str | Path | None = None,
    public_key: str | Path | None = None,
    allow_python: bool = False,
    candidate: Policy | None = None,
    safe: Policy | None = None,
    stage: Stage = silent,
) -> Verification:
    """Read the log as the record says, decide again, and compare every number.

    Identical bits are promised for the same versions on the same kind of machine; others are named.

    A record is confirmed if it says what the log says; whoever wrote it. With a `public_key` (a PEM file),
    it must also be signed with the private one. With a `ledger`, the error budget must hold this very
    decision; without one, only the budget's rule is checked. A record that names a Python function as a
    policy is refused, unless `allow_python` says that the function may run. Policies that were given as
    objects of Python are given again, as `candidate` and `safe`.
    """
    content = record if isinstance(record, dict) else read_record(record)
    try:
        found = _unproven(content, public_key)
        if found is not None:
            return found
        content = completed(content)
        asked = with_objects(recorded(content), candidate, safe)
        return _verified(content, asked, source, ledger, public_key, allow_python, stage)
    except TidegateError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SettingsError(
            f"the record is incomplete: {error!r}.", expected="all that `gate` wrote"
        ) from error
    except (MemoryError, RecursionError) as error:
        raise SettingsError(f"the record asks for too much: {error!r}.") from error


def _unproven(content: dict[str, Any], public_key: str | Path | None) -> Verification | None:
    """What is wrong with the hash or the signature; nothing else in the record is used before."""
    verdict = str(content.get("verdict"))
    if record_hash(content) != content.get(SEAL):
        return Verification(Outcome.EDITED, verdict)
    if public_key is not None:
        key = read_public_key(public_key)
        if SIGNATURE not in content:
            return Verification(Outcome.UNSIGNED, verdict)
        if not signature_holds(content, key):
            return Verification(Outcome.OTHER_SIGNATURE, verdict)
    if content.get("status") == Status.ERROR.value:
        raise SettingsError("the record holds no decision: nothing could be decided when it was written.")
    if content.get("kind") in ("gate", "improve") and content.get("format") == FORMAT:
        return None
    raise SettingsError(
        f"the record is of kind '{content.get('kind')}', format {content.get('format')}.",
        expected=f"a gate or improve record of format {FORMAT}",
        remedy="Replay a record of another format with the version of Tidegate that wrote it"
        f"{_written_by(content)}.",
    )


def _written_by(content: dict[str, Any]) -> str:
    origin = content.get("provenance")
    versions = origin.get("versions") if isinstance(origin, dict) else None
    return f" ({versions['tidegate']})" if isinstance(versions, dict) and "tidegate" in versions else ""


def _verified(
    content: dict[str, Any],
    asked: Recorded,
    source: Any,
    ledger: str | Path | None,
    public_key: str | Path | None,
    allow_python: bool,
    stage: Stage,
) -> Verification:
    if not allow_python:
        refuse_python(asked)
    verdict = str(content["verdict"])
    refused = _not_granted(content, asked, ledger)
    if refused is not None:
        outcome, wrong = refused
        return Verification(outcome, verdict, None, wrong)
    notes = tuple(_notes(content, public_key is not None, ledger is not None))
    versions = tuple(_differences("", asked.versions, all_versions()))
    file = LogFile(source, asked.columns, asked.read_as, asked.estimated)
    opened = open_log(file, seed=asked.seed, stage=stage)
    if opened.data_hash != asked.data_hash:
        other = Difference("data_hash", asked.data_hash, opened.data_hash)
        return Verification(Outcome.OTHER_LOG, verdict, None, (other,), versions, notes)
    replayed = _replay(asked, opened, stage).to_dict()
    differences = tuple(_differences("", _comparable(content), _comparable(replayed)))
    outcome = _outcome(content, replayed, differences, versions)
    return Verification(outcome, verdict, replayed["verdict"], differences, versions, notes)


def _notes(content: dict[str, Any], key_given: bool, ledger_given: bool) -> Iterator[str]:
    """What this answer says about the author of the record, its error budget, and its age."""
    if key_given:
        yield "The signature is that of the public key's owner."
    elif SIGNATURE in content:
        yield "The signature was not checked: name the public key (`public_key`)."
    else:
        yield "Who wrote the record is not known: its hash reveals accidents, not forgery."
    if ledger_given:
        yield "The ledger holds this decision."
    elif content["budget"] is not None:
        yield "The grant was not looked up: name the ledger of the error budget (`ledger`)."
    if content["expires_at"] < written(Conditions().decided_at):
        yield f"The decision was good until {content['expires_at']}: gate again before you act on it."


def _not_granted(
    content: dict[str, Any], asked: Recorded, path: str | Path | None
) -> tuple[Outcome, tuple[Difference, ...]] | None:
    """Which part of the error budget does not know of this test."""
    grant = asked.budget
    wrong = [] if grant is None else against_rule(grant, asked.settings.alpha)
    if wrong:
        return Outcome.NOT_GRANTED, tuple(itertools.starmap(Difference, wrong))
    wrong = [] if path is None else against_ledger(content, grant, read_ledger(path))
    return (Outcome.NOT_IN_LEDGER, tuple(itertools.starmap(Difference, wrong))) if wrong else None


def _replay(asked: Recorded, opened: OpenLog, stage: Stage) -> GateRecord | Improvement:
    asked_for: dict[str, Any] = vars(asked.conditions)
    if asked.search is not None:
        return improve(
            opened,
            safe=asked.safe,
            settings=asked.settings,
            search=asked.search,
            **asked_for,
            seed=asked.seed,
            stage=stage,
        )
    return gate(
        opened,
        candidate=asked.candidate,
        safe=asked.safe,
        settings=asked.settings,
        training=asked.training,
        candidate_from=asked.candidate_from,
        budget=asked.budget,
        **asked_for,
        seed=asked.seed,
        stage=stage,
    )


def _comparable(content: dict[str, Any]) -> dict[str, Any]:
    """All but the names of files and versions, which may change without changing a number."""
    origin = {k: v for k, v in content["provenance"].items() if k not in ("source", "versions")}
    rest = {k: v for k, v in content.items() if k not in (SEAL, SIGNATURE)}
    return {**rest, "provenance": origin}


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
