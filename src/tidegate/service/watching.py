"""The watch of what was released: do the episodes since the release show harm?

`watch` runs in the worker when a released gate has batches that the watch has not seen. It takes them one by
one, in the order in which they were stored, so that what it finds does not depend on how many of them come to
one look. It computes outside of any transaction. What it found is stored if the gate is still as it was; if
not, the next look finds it again.

Both policies are those of the definition. Of episodes that the candidate logged, its ratio is 1; of those
that the safe policy logged and that come late, it is not, and they count as what they are.
"""

import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import Any

import polars as pl
from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from ..commands.opening import LogFile, open_log
from ..errors import TidegateError
from ..gates.watch import watch_episodes
from ..gates.watch_records import Signal, Watch, WatchState, restored_state
from ..reasons import Status
from ..record import plain
from . import batches, registry, schema, standing, uploads
from .database import Database
from .deciding import in_folder_of
from .definitions import GateDefinition
from .ingest import needed_columns, policy_files

log = logging.getLogger("tidegate.service")
WATCH = "watch"  # who rolls back and warns, where nobody did
UNREADABLE = "UNREADABLE"  # why a batch was left out, beside the reasons that the library gives
MOST_BATCHES = 20  # in one look, so that evaluations need not wait for long


@dataclasses.dataclass(frozen=True)
class Memory:
    """What one look leaves to the next, in plain values; `warned` are reasons that were told already.

    It is of one version of the gate: another one may watch other outcomes, at another level, and starts again
    with the first batch after the release.
    """

    version: int
    state: Any = None
    signal: Any = None
    warned: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Look:
    """What is known through a batch, what to warn of, and the evidence if harm was shown there."""

    batch: int
    memory: Memory
    warnings: tuple[dict[str, Any], ...] = ()
    harm: dict[str, Any] | None = None
    sentence: str = ""


def pending(connection: Connection) -> list[str]:
    """The gates in force that have batches which the watch has not seen."""
    table = schema.gates
    seen = select(table.c.name).where(table.c.in_force.is_not(None), table.c.watched < table.c.batches)
    return [row.name for row in connection.execute(seen)]


def watch(database: Database, name: str) -> bool:
    """Look at batches that came since the last look; whether the release was rolled back."""
    with database.reading() as connection:
        gate = registry.current(connection, name)
        if gate.row.in_force is None:
            return False
        contents = uploads.policy_contents(connection, gate.definition)
    found = look(database, gate, contents)
    with database.writing() as connection:
        now = registry.current(connection, name, lock=True)
        if _mark(now) != _mark(gate):  # rolled back, redefined, or looked at by somebody else
            return False
        return _keep(connection, now, found, database.now())


def look(database: Database, gate: registry.Gate, contents: dict[str, bytes]) -> Look:
    """The next batches, one after the other, until there are no more or harm is shown."""
    before, row = _memory(gate), gate.row
    anew = before.version != gate.version
    memory = Memory(gate.version, warned=before.warned) if anew else before
    first = (row.released_after if anew else row.watched) + 1
    found = Look(first - 1, memory)
    for number in range(first, min(row.batches, first + MOST_BATCHES - 1) + 1):
        found = _after(dataclasses.replace(found, batch=number), database, gate, contents)
        if found.harm is not None:
            break
    return found


def watch_of(definition: GateDefinition) -> Watch:
    """What a gate watches: the reward, and the outcomes of its guardrails, at its level."""
    return Watch(alpha=definition.alpha, guardrails=definition.guardrails, discount=definition.discount)


def _after(found: Look, database: Database, gate: registry.Gate, contents: dict[str, bytes]) -> Look:
    """What is known after one batch more."""
    names = needed_columns(gate.definition, policy_files(contents))
    try:
        with database.reading() as connection:
            frame = batches.load(connection, gate.id, found.batch, found.batch, names)
        state, signal = _step(gate.definition, contents, found.memory.state, frame)
    except DBAPIError:  # of another kind than a batch that cannot be read
        raise
    except TidegateError as error:
        return _unreadable(found, gate, str(error))
    except Exception as error:  # the watch must not stop at what nobody foresaw
        log.exception("the batch %s of '%s' could not be watched", found.batch, gate.name)
        return _unreadable(found, gate, f"an unexpected {type(error).__name__}: {error}.")
    memory = dataclasses.replace(found.memory, state=state.to_dict(), signal=_told(signal))
    found = dataclasses.replace(found, memory=memory)
    if signal.harm is not None:
        evidence = {**plain(signal.harm), "batch": found.batch, "sequences": plain(signal.sequences)}
        return dataclasses.replace(found, harm=evidence, sentence=signal.harm.sentence)
    if signal.status is Status.ERROR:
        return _warned(found, gate, signal.reason.name, signal.reason.sentence)
    return found


def _step(
    definition: GateDefinition, contents: Mapping[str, bytes], before: Any, frame: pl.DataFrame
) -> tuple[WatchState, Signal]:
    """The library's watch, on the episodes of one batch."""
    watched = watch_of(definition)
    state = watched.begin() if before is None else restored_state(before)
    with in_folder_of(contents):
        opened = open_log(LogFile(frame, definition.columns))
        candidate, opened = opened.policy(definition.candidate)
        safe, opened = opened.policy(definition.safe)
    return watch_episodes(watched, state, candidate, safe, opened.log)


def _told(signal: Signal) -> dict[str, Any]:
    sequences = plain(signal.sequences)
    return {"reason": signal.reason.name, "episodes": signal.num_episodes, "sequences": sequences}


def _unreadable(found: Look, gate: registry.Gate, problem: str) -> Look:
    sentence = f"the watch could not read batch {found.batch}, and went on without it: {problem}"
    return _warned(found, gate, UNREADABLE, sentence)


def _warned(found: Look, gate: registry.Gate, reason: str, sentence: str) -> Look:
    """A warning more, if this reason was not told since the release."""
    memory = found.memory
    if reason in memory.warned:
        return found
    warning = {
        "evaluation": gate.row.in_force,
        "reason": reason,
        "sentence": sentence,
        "batch": found.batch,
        "watch": memory.signal,
    }
    memory = dataclasses.replace(memory, warned=(*memory.warned, reason))
    return dataclasses.replace(found, memory=memory, warnings=(*found.warnings, warning))


def _memory(gate: registry.Gate) -> Memory:
    """What the last look left; nothing at first."""
    if gate.row.watch_state is None:
        return Memory(gate.version)
    values = json.loads(gate.row.watch_state)
    return Memory(**{**values, "warned": tuple(values["warned"])})


def _mark(gate: registry.Gate) -> tuple[Any, ...]:
    """What must not have changed while a look was computed."""
    row = gate.row
    return gate.version, row.in_force, row.released_after, row.watched


def _keep(connection: Connection, gate: registry.Gate, found: Look, at: str) -> bool:
    """All that follows from a look, in one transaction: warnings, the state, or the rollback."""
    for told in found.warnings:
        standing.warn(connection, gate.row, at, WATCH, told)
    if found.harm is not None:
        standing.roll_back(connection, gate.row, gate.definition, at, WATCH, found.sentence, found.harm)
        return True
    kept = json.dumps(dataclasses.asdict(found.memory), allow_nan=False)
    values = {"watched": found.batch, "watch_state": kept}
    connection.execute(update(schema.gates).where(schema.gates.c.id == gate.id).values(values))
    return False
