"""Each version of a gate numbers its windows from the start: the same number may be decided once in each."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

UNIQUE = "one_evaluation_per_window"


def upgrade() -> None:
    """Let the version be a part of what is unique; and a column goes that nothing has ever used."""
    op.execute("ALTER TABLE gates DROP COLUMN watch_lease")
    if op.get_bind().dialect.name == "sqlite":
        _on_sqlite()
    else:
        op.drop_constraint(UNIQUE, "evaluations", type_="unique")
        op.create_unique_constraint(UNIQUE, "evaluations", ["gate", "version", "window"])


def _on_sqlite() -> None:
    """SQLite replaces the table by a new one, to which no other table may refer meanwhile."""
    op.execute("CREATE TABLE kept AS SELECT * FROM approvals")
    op.drop_table("approvals")
    with op.batch_alter_table("evaluations") as table:
        table.drop_constraint(UNIQUE, type_="unique")
        table.create_unique_constraint(UNIQUE, ["gate", "version", "window"])
    op.create_table(
        "approvals",
        sa.Column("evaluation", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=64), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["evaluation"], ["evaluations.id"]),
        sa.PrimaryKeyConstraint("evaluation"),
    )
    op.execute("INSERT INTO approvals SELECT * FROM kept")
    op.drop_table("kept")
