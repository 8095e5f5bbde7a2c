"""The tables. `migrations` makes them; nothing else does.

Times are texts in UTC, to the millisecond. What happened before what is told by numbers, never by a time.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
Serial = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only for INTEGER

gates = Table(
    "gates",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    Column("batches", Integer, nullable=False, default=0),
    Column("episodes", BigInteger, nullable=False, default=0),
    Column("steps", BigInteger, nullable=False, default=0),
    Column("barrier", BigInteger, nullable=False, default=0),  # evaluations up to this one count no more
    Column("in_force", String(36)),  # the evaluation whose candidate was released and stays
    Column("released_after", Integer),  # the last batch before the release
    Column("watched", Integer),  # the last batch that the watch of the release has seen
    Column("watch_state", Text),  # what the watch carries from one batch to the next, as JSON
)

definitions = Table(
    "definitions",
    metadata,
    Column("gate", ForeignKey("gates.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("content", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("by", String(64), nullable=False),
)

policy_files = Table(
    "policy_files",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("at", String(32), nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("gate", ForeignKey("gates.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("episodes", Integer, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("total", BigInteger, nullable=False),  # episodes of the gate, with this batch
    Column("at", String(32), nullable=False),
    Column("content", LargeBinary, nullable=False),
)

episode_keys = Table(
    "episode_keys",
    metadata,
    Column("gate", BigInteger, primary_key=True, autoincrement=False),
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    Column("batch", Integer, nullable=False),
    sqlite_with_rowid=False,
)

answers = Table(
    "answers",
    metadata,
    Column("place", String(200), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("sequence", Serial, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    Column("gate", ForeignKey("gates.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("window", BigInteger),  # its number in the version, if a window asked; None if somebody did
    Column("from_batch", Integer, nullable=False),
    Column("through_batch", Integer, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("by", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("worker", String(100)),
    Column("claim", Integer, nullable=False, default=0),
    Column("lease", Float, nullable=False, default=0.0),
    Column("crashes", Integer, nullable=False, default=0),
    Column("decision", BigInteger, unique=True),  # the audit entry of the decision: their order
    Column("decided_at", String(32)),
    Column("expires_at", String(32)),
    Column("record_sha256", String(64)),
    Column("log_sha256", String(64)),
    Column("summary", Text),
    Column("record", LargeBinary),
    UniqueConstraint("gate", "version", "window", name="one_evaluation_per_window"),
    Index("evaluations_by_gate", "gate", "sequence"),
    Index("evaluations_by_decision", "gate", "decision"),
    Index("evaluations_waiting", "status", "sequence"),
)

light = [one for one in evaluations.c if one.name != "record"]  # which may be large

approvals = Table(
    "approvals",
    metadata,
    Column("evaluation", ForeignKey("evaluations.id"), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("comment", Text, nullable=False),
    Column("by", String(64), nullable=False),
    Column("at", String(32), nullable=False),
)

budgets = Table(
    "budgets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("alpha", Float, nullable=False),
    Column("rule", String(32), nullable=False),
    Column("tests", Integer, nullable=False),
)

grants = Table(
    "grants",
    metadata,
    Column("budget", ForeignKey("budgets.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("evaluation", String(36), nullable=False, unique=True),
    Column("question", String(64), nullable=False),
    Column("level", Float, nullable=False),
    Column("last_episode", Float, nullable=False),
    Column("data_hash", String(64)),  # this and the rest follow with the decision
    Column("p_value", Float),
    Column("verdict", String(16)),
    Column("record_hash", String(64)),
    UniqueConstraint("budget", "question", name="one_grant_per_question"),
)

audit = Table(
    "audit",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", String(32), nullable=False),
    Column("kind", String(40), nullable=False),
    Column("gate", String(64)),
    Column("by", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("sha256", String(64), nullable=False),
    Index("audit_by_gate", "gate", "sequence"),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("scopes", String(100), nullable=False),
    Column("at", String(32), nullable=False),
    Column("expires_at", String(32)),
    Column("revoked_at", String(32)),
)

sessions = Table(
    "sessions",
    metadata,
    Column("sha256", String(64), primary_key=True),  # of the secret in the browser's cookie
    Column("token", ForeignKey("tokens.id"), nullable=False),
    Column("at", String(32), nullable=False),
    Column("expires_at", String(32), nullable=False),
)
