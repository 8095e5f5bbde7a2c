"""Episodes in: rows are checked, then stored with all that follows from them in one transaction."""

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError

from . import audit, batches, evaluations, registry, schema, uploads
from .answers import Answer, Asked
from .database import Database
from .ingest import Rows, format_of, policy_files, read_rows
from .refusals import Conflict

CREATED = 201
TRIES = 5  # at a gate that changes while rows are checked


def accept(database: Database, name: str, body: bytes, medium: str, asked: Asked, by: str) -> Answer:
    """Check the rows of a request and store them; when this returns, they are on the disk.

    They are checked before the transaction, so that only the writing makes others wait.
    """
    for _ in range(TRIES):
        with database.reading() as connection:
            gate = registry.current(connection, name)
            earlier = asked.earlier(connection)
            if earlier is not None:
                return earlier
            contents = uploads.policy_contents(connection, gate.definition)
        rows = read_rows(body, format_of(medium), gate.definition, policy_files(contents))
        try:
            with database.writing() as connection:
                answer = _stored(connection, database.now(), gate, rows, asked, by)
        except IntegrityError as error:
            _refuse_doubles(database, gate, rows, error)
            continue
        if answer is not None:  # else the gate has a new definition since it was read
            return answer
    raise Conflict(
        f"the gate '{name}' was written to by others all the time, and nothing was stored.",
        remedy="Send it again.",
    )


def _stored(
    connection: Connection, at: str, seen: registry.Gate, rows: Rows, asked: Asked, by: str
) -> Answer | None:
    gate = registry.current(connection, seen.name, lock=True)
    earlier = asked.earlier(connection)
    if earlier is not None:
        return earlier
    if gate.version != seen.version:
        return None
    total = gate.row.episodes + rows.episodes
    batch = batches.Batch(gate.id, gate.row.batches + 1, rows.sha256, rows.episodes, rows.steps, total, at)
    batches.store(connection, batch, rows.content, rows.keys.tolist())
    counts = {"batches": batch.number, "episodes": batch.total, "steps": gate.row.steps + rows.steps}
    connection.execute(update(schema.gates).where(schema.gates.c.id == gate.id).values(counts))
    evaluations.enqueue_window(connection, gate, batch.number, gate.row.episodes, batch.total, at)
    told = {"batch": batch.number, "sha256": rows.sha256, "episodes": rows.episodes, "steps": rows.steps}
    audit.append(connection, at, "episodes.ingested", gate.name, by, told)
    return asked.keep(
        connection, Answer(CREATED, {"data": {"gate": gate.name, **told, "total": batch.total}})
    )


def _refuse_doubles(database: Database, gate: registry.Gate, rows: Rows, error: IntegrityError) -> None:
    """Which episodes are there already. If none is, somebody else was at the same row: try again."""
    table = schema.episode_keys
    keys, found = rows.keys.tolist(), 0
    with database.reading() as connection:
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            asked = select(table.c.key).where(table.c.gate == gate.id, table.c.key.in_(some))
            found += len(connection.execute(asked).all())
    if found:
        raise Conflict(
            f"{found:,} of the {rows.episodes:,} episodes are stored already, and nothing was stored now.",
            expected="episodes that are new to this gate",
            remedy="Repeat a request with its Idempotency-Key, and give new episodes new numbers.",
        ) from error
