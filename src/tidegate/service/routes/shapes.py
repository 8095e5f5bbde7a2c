"""The shapes of answers, for the OpenAPI document and for whoever reads it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..definitions import GateDefinition

StatusWord = Literal["pass", "fail", "inconclusive", "in_progress", "error"]
# Of a person. PostgreSQL keeps no NUL in a text.
Comment = Annotated[str, Field(max_length=2_000, pattern=r"^[^\x00]*$")]
DecidedWord = Literal["pass", "fail", "inconclusive", "error"]


class Advantage(BaseModel):
    """Candidate − safe: its forecast, and the bound below it."""

    forecast: float
    lower: float


class Rule(BaseModel):
    """One thing that a verdict rests on."""

    name: str
    status: DecidedWord
    reason: str


class Spent(BaseModel):
    """What the error budget granted."""

    name: str
    number: int
    level: float
    alpha: float


class ApprovalState(BaseModel):
    """What a person said, or that nobody has yet."""

    state: Literal["pending", "approved", "rejected"]
    by: str | None
    at: str | None
    comment: str


class Computed(BaseModel):
    """The outcome of the tests alone, as the record has it."""

    status: DecidedWord
    verdict: Literal["DEPLOY", "KEEP"] | None


class Evaluation(BaseModel):
    """An evaluation, or the newest decision."""

    id: str | None
    gate: str
    version: int
    status: StatusWord
    verdict: Literal["DEPLOY", "KEEP"] | None
    reason: str | None
    sentence: str | None
    advantage: Advantage | None
    p_value: float | None
    alpha: float | None
    rules: list[Rule]
    budget: Spent | None
    log_sha256: str | None
    record_sha256: str | None
    record_url: str | None
    url: str | None
    dry_run: bool
    window: int | None
    created_at: str | None
    decided_at: str | None
    expires_at: str | None
    approval: ApprovalState | None
    computed: Computed | None


class EvaluationAnswer(BaseModel):
    """One evaluation."""

    data: Evaluation


class EvaluationList(BaseModel):
    """Evaluations, the newest first."""

    data: list[Evaluation]


class Started(BaseModel):
    """An evaluation in the queue."""

    id: str
    status: Literal["in_progress"]
    url: str


class StartedAnswer(BaseModel):
    """Where to look for the answer."""

    data: Started


class PolicySummary(BaseModel):
    """Which policy runs now, and why."""

    gate: str
    policy: Literal["candidate", "safe"]
    spec: str
    version: int
    evaluation: str | None
    reason: str
    until: str | None


class PolicyNow(PolicySummary):
    """The same, with the policy's file if one was uploaded."""

    file: dict[str, Any] | None


class PolicyAnswer(BaseModel):
    """The policy to run now."""

    data: PolicyNow


class Sequence(BaseModel):
    """A mean advantage since the release, more being better, and what bounds it."""

    name: str
    mean: float | None
    lower: float | None
    upper: float | None
    margin: float
    level: float
    harmful: bool


class WatchNow(BaseModel):
    """What the watch of the release says after the newest batch that it has seen."""

    reason: str
    episodes: int
    sequences: list[Sequence]


class Gate(BaseModel):
    """A gate as it is now."""

    name: str
    version: int
    sha256: str
    defined_at: str
    defined_by: str
    definition: GateDefinition
    batches: int
    episodes: int
    steps: int
    policy: PolicySummary
    watch: WatchNow | None
    url: str


class GateAnswer(BaseModel):
    """One gate."""

    data: Gate


class GateList(BaseModel):
    """All gates."""

    data: list[Gate]


class Batch(BaseModel):
    """The rows of a request, stored."""

    gate: str
    batch: int
    sha256: str
    episodes: int
    steps: int
    total: int


class BatchAnswer(BaseModel):
    """What was stored."""

    data: Batch


class Uploaded(BaseModel):
    """A policy's file, and how definitions call it."""

    sha256: str
    spec: str


class UploadedAnswer(BaseModel):
    """What was uploaded."""

    data: Uploaded


class AuditEntry(BaseModel):
    """An entry of the chain."""

    sequence: int
    at: str
    kind: str
    gate: str | None
    by: str
    content: dict[str, Any]
    previous: str
    sha256: str


class AuditAnswer(BaseModel):
    """Entries in order; `next` is what to ask after."""

    data: list[AuditEntry]
    next: int


class Health(BaseModel):
    """Whether the service works."""

    status: Literal["ok"]
