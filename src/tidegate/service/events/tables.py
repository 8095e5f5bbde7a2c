"""The tables of events. A delivery is one event on its way to one endpoint."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from ..schema import Serial, metadata

PENDING, DELIVERED, DEAD = "pending", "delivered", "dead"
ACTIVE, GONE, REMOVED = "active", "gone", "removed"

events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),  # that of the audit entry
    Column("id", String(40), nullable=False, unique=True),
    Column("type", String(40), nullable=False),
    Column("gate", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("body", Text, nullable=False),  # the bytes that are signed and sent, each time the same
    Index("events_by_gate", "gate", "sequence"),
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("types", Text, nullable=False),  # names with spaces between; none: all
    Column("gate", String(64)),  # only this one's; None: all
    Column("settings", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", String(32), nullable=False),
    Column("by", String(64), nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("event", ForeignKey("events.sequence"), primary_key=True),
    Column("endpoint", ForeignKey("endpoints.name"), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due", Float, nullable=False),
    Column("lease", Float, nullable=False),
    Column("claim", Integer, nullable=False),
    Column("status", Integer),  # what the endpoint answered last
    Column("problem", String(200), nullable=False),
    Column("at", String(32)),  # the last attempt
    Index("deliveries_due", "state", "due"),
    Index("deliveries_by_endpoint", "endpoint", "state"),
)

model_versions = Table(
    "model_versions",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("gate", String(64), nullable=False),
    Column("model", String(250), nullable=False),
    Column("version", String(20), nullable=False),
    Column("evaluation", String(36)),
    Column("at", String(32), nullable=False),
    Column("promoted", Boolean, nullable=False),  # the alias was moved here, and may be taken off again
    Column("previous", String(20)),  # which version had it before
    UniqueConstraint("gate", "model", "version", name="one_row_per_version"),
    Index("model_versions_by_evaluation", "evaluation"),
)
