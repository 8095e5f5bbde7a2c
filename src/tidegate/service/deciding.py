"""One claimed evaluation: its episodes from the store, the library's gate, the decision into the store."""

import contextlib
import datetime
import json
import logging
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from ..commands.conditions import error_record
from ..commands.gating import GateRecord, gate
from ..commands.opening import LogFile
from ..commands.watching import warning_of
from ..errors import TidegateError
from ..gates.ledger import Grant
from ..reasons import Status
from ..record import SEAL, plain
from . import audit, batches, budgets, evaluations, registry, standing, uploads
from .database import Database, stamp
from .definitions import GateDefinition
from .evaluations import LEASE, MOST_CRASHES, Claim
from .ingest import needed_columns, policy_files
from .refusals import Conflict, NoRoom

log = logging.getLogger("tidegate.service")


def work(database: Database, worker: str) -> bool:
    """Decide the oldest evaluation that waits; False if none does."""
    with database.writing() as connection:
        claim = evaluations.claim(connection, worker)
    if claim is None:
        return False
    with _renewed(database, claim), contextlib.suppress(Conflict):
        decide(database, claim)
    return True


def decide(database: Database, claim: Claim) -> None:
    """Compute and store one decision, under a claim."""
    row = claim.evaluation
    with database.reading() as connection:
        owner = registry.of_id(connection, row.gate)
        definition = registry.definition_at(connection, row.gate, row.version)
    grants: list[Grant] = []

    def granting(question: str, last_episode: float) -> Grant:
        with database.writing() as connection:
            grants.append(budgets.grant(connection, definition.budget, claim, question, last_episode))
        return grants[-1]

    try:
        if row.crashes >= MOST_CRASHES:
            raise TidegateError(f"the computing ended {row.crashes} times without an answer.")
        with database.reading() as connection:
            contents = uploads.policy_contents(connection, definition)
            frame = stored_log(connection, row, definition, contents)
        budget = granting if definition.budget else None
        record = ask(frame, definition, contents, database.clock(), budget)
        content, summary = record.to_dict(), summarised(record)
    except (Conflict, NoRoom, DBAPIError):  # which say nothing of the episodes: it is computed again
        raise
    except TidegateError as error:
        record, content = None, error_record(str(error))
        summary = _undecided(content["sentence"])
    except Exception as error:  # the queue must not stop at what nobody foresaw
        log.exception("the evaluation %s failed", claim.id)
        record, content = None, error_record(f"an unexpected {type(error).__name__}: {error}.")
        summary = _undecided(content["sentence"])
    with database.writing() as connection:
        given = grants[-1] if grants and record is not None else None
        store(connection, database.now(), owner.name, definition, claim, record, content, summary, given)


def ask(
    frame: pl.DataFrame,
    definition: GateDefinition,
    contents: Mapping[str, bytes],
    now: datetime.datetime,
    budget: Callable[[str, float], Grant] | None,
) -> GateRecord:
    """The library's answer: `tidegate.gate` on these episodes."""
    log_file = LogFile(frame, definition.columns, estimate_propensities=definition.estimate_propensities)
    with in_folder_of(contents):
        return gate(
            log_file,
            candidate=definition.candidate,
            safe=definition.safe,
            settings=definition.settings,
            candidate_from=definition.candidate_from or None,
            guardrails=definition.guardrails,
            multiplicity=definition.multiplicity,
            reward_range=definition.reward_range,
            allow_unguaranteed=definition.allow_unguaranteed,
            valid_for=definition.valid_for,
            budget=budget,
            seed=definition.seed,
            now=now,
        )


def stored_log(
    connection: Connection, row: Row[Any], definition: GateDefinition, contents: dict[str, bytes]
) -> pl.DataFrame:
    """The episodes of an evaluation."""
    names = needed_columns(definition, policy_files(contents))
    return batches.load(connection, row.gate, row.from_batch, row.through_batch, names)


def store(
    connection: Connection,
    at: str,
    name: str,
    definition: GateDefinition,
    claim: Claim,
    record: GateRecord | None,
    content: dict[str, Any],
    summary: dict[str, Any],
    grant: Grant | None,
) -> None:
    """Everything that a decision changes, in one transaction; nothing if the claim is lost."""
    row = claim.evaluation
    owner = registry.current(connection, name, lock=True)
    if not evaluations.hold(connection, claim):
        return
    if record is not None and grant is not None:
        budgets.settle(connection, definition.budget, grant, record.decision, record.verdict, content[SEAL])
    log_sha256 = None if record is None else record.provenance.data_hash
    told = {
        "evaluation": row.id,
        "version": row.version,
        "window": row.window,
        "dry_run": row.dry_run,
        "batches": [row.from_batch, row.through_batch],
        "status": content["status"],
        "verdict": content["verdict"],
        "record_sha256": content[SEAL],
        "log_sha256": log_sha256,
        "budget": budgets.told(grant, definition.budget),
    }
    entry = audit.append(connection, at, "evaluation.decided", name, row.by, told)
    values = {
        "status": content["status"],
        "decision": entry.sequence,
        "decided_at": _stamped(content["decided_at"]),
        "expires_at": _stamped(content["expires_at"]),
        "record_sha256": content[SEAL],
        "log_sha256": log_sha256,
        "summary": json.dumps({**summary, "budget": told["budget"]}),
        "record": zlib.compress(json.dumps(content, allow_nan=False).encode()),
    }
    evaluations.decide(connection, claim, values)
    counts = not row.dry_run and content["status"] == Status.PASS.value and row.version == owner.version
    if counts and not definition.needs_approval(row.window):
        standing.settle(connection, owner.row, definition, row, at, row.by)
    if record is not None:
        _warn(connection, owner.row, row, record, at)


def _warn(connection: Connection, gate: Row[Any], evaluation: Row[Any], record: GateRecord, at: str) -> None:
    """A window that forecasts no advantage of what is released warns; it takes nothing back."""
    asked_since = evaluation.sequence > gate.barrier and evaluation.version == gate.version
    if gate.in_force is None or evaluation.window is None or not asked_since:
        return
    warning = warning_of(record)
    if warning.warns:
        told = {
            "evaluation": evaluation.id,
            "window": evaluation.window,
            "reason": "FORECAST",
            "sentence": warning.sentence,
            "forecast": plain(warning),
        }
        standing.warn(connection, gate, at, evaluation.by, told)


def _stamped(moment: str) -> str:
    return stamp(datetime.datetime.fromisoformat(moment))


def summarised(record: GateRecord) -> dict[str, Any]:
    """What an answer shows of a record."""
    advantage = record.advantage
    return {
        "verdict": record.verdict.name,
        "reason": record.reason.name,
        "sentence": record.sentence,
        "advantage": {"forecast": advantage.point, "lower": advantage.lower},
        "p_value": record.decision.p_value,
        "alpha": record.guarded.alpha,
        "rules": list(_rules(record)),
    }


def _undecided(sentence: str) -> dict[str, Any]:
    rules = [_rule("reward", Status.ERROR, sentence)]
    return {"verdict": None, "reason": "UNFIT", "sentence": sentence, "rules": rules}


def _rules(record: GateRecord) -> Iterator[dict[str, Any]]:
    guarded = record.guarded
    harmful = record.decision.status is Status.FAIL
    missed = Status.FAIL if harmful else Status.INCONCLUSIVE
    yield _rule("reward", Status.PASS if guarded.improves else missed, record.decision.sentence)
    for one in guarded.guardrails:
        shown = one.decision.status is Status.FAIL or guarded.improves
        missed = Status.FAIL if shown else Status.INCONCLUSIVE
        yield _rule(one.guardrail.name, Status.PASS if one.passed else missed, one.sentence)
    if record.range is not None:
        agrees = record.range.agrees
        sentence = "the finite-sample bound agrees." if agrees else record.reason.RANGE_DISAGREES.sentence
        yield _rule("reward_range", Status.PASS if agrees else Status.INCONCLUSIVE, sentence)
    for caveat in record.caveats:
        allowed = record.allow_unguaranteed
        yield _rule("guarantee", Status.PASS if allowed else Status.INCONCLUSIVE, caveat)


def _rule(name: str, status: Status, reason: str) -> dict[str, Any]:
    return {"name": name, "status": status.value, "reason": reason}


@contextlib.contextmanager
def in_folder_of(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Policy files lie in the current folder, under the names that specs call them."""
    if not contents:
        yield
        return
    with uploads.as_files(dict(contents)) as folder, contextlib.chdir(folder):
        yield


@contextlib.contextmanager
def _renewed(database: Database, claim: Claim) -> Iterator[None]:
    """The claim is kept up while this block computes."""
    done = threading.Event()

    def keep() -> None:
        while not done.wait(LEASE / 4):
            try:
                with database.writing() as connection:
                    evaluations.renew(connection, claim)
            except Exception:  # a database that is away for a moment; the next turn tries again
                log.warning("the claim of %s could not be renewed", claim.id, exc_info=True)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
