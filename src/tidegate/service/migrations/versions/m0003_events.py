"""Events, where they go, and the versions of models that a registry has told of."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("gate", sa.String(length=64), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("events_by_gate", "events", ["gate", "sequence"], unique=False)
    op.create_table(
        "endpoints",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("gate", sa.String(length=64), nullable=True),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "deliveries",
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("endpoint", sa.String(length=80), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("lease", sa.Float(), nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("problem", sa.String(length=200), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(["event"], ["events.sequence"]),
        sa.ForeignKeyConstraint(["endpoint"], ["endpoints.name"]),
        sa.PrimaryKeyConstraint("event", "endpoint"),
    )
    op.create_index("deliveries_due", "deliveries", ["state", "due"], unique=False)
    op.create_index("deliveries_by_endpoint", "deliveries", ["endpoint", "state"], unique=False)
    op.create_table(
        "model_versions",
        sa.Column("number", SERIAL, autoincrement=True, nullable=False),
        sa.Column("gate", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=250), nullable=False),
        sa.Column("version", sa.String(length=20), nullable=False),
        sa.Column("evaluation", sa.String(length=36), nullable=True),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("promoted", sa.Boolean(), nullable=False),
        sa.Column("previous", sa.String(length=20), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("gate", "model", "version", name="one_row_per_version"),
    )
    op.create_index("model_versions_by_evaluation", "model_versions", ["evaluation"], unique=False)
