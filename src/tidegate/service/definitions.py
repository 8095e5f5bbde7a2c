"""What a gate is: one schema for `gates.toml` and for `PUT /v1/gates/{gate}`.

The keys are the command line's flags, with _ or - alike, and some of the service's own: mode, window, history
and approvers. A definition is checked by building from it what the library takes.
"""

import enum
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ..commands.choices import BasisKind, Preset
from ..commands.conditions import Conditions
from ..commands.origins import parse_origin
from ..commands.questions import require_p_value
from ..commands.settings import PlainSettings
from ..errors import SettingsError
from ..gates.budget_rules import BudgetRule
from ..gates.guardrails import Guardrail, parse_guardrail
from ..gates.ledger import BudgetPlan
from ..gates.multiplicity import Multiplicity
from ..logs import Columns, PolicySpec, SpecKind, parse_spec
from .naming import require_name

UPLOADED = re.compile(r"sha256:[0-9a-f]{64}")
MOST_NAMES, MOST_EPISODES = 1_000, 10_000_000
SPECS = "behavior, column:NAME, ratio:NAME, or policy:sha256:HASH of an uploaded file"


class Mode(enum.StrEnum):
    """What a DEPLOY means."""

    CONTINUOUS = "continuous"
    """Every window decides again which policy runs in the next one."""
    RELEASE = "release"
    """The candidate runs from a DEPLOY on, until it is rolled back."""


def _listed(value: Any) -> Any:
    return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value


Name = Annotated[str, Field(strict=True, max_length=200)]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(max_length=MOST_NAMES)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class GateDefinition(BaseModel):
    """A gate: how its episodes are read, what is compared with what, and what a verdict does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    candidate: Name = Field(description=f"The new policy: {SPECS}.")
    safe: Name = Field("behavior", description="The policy you trust, given in the same way.")
    candidate_from: Name = Field(
        "", description="this-log, elsewhere, or before:TIME; needed if the candidate is a file."
    )

    episode: Name = Field("episode", description="Column of the episode; empty if each row is one.")
    step: Name = Field("step", description="Column of the step within the episode.")
    action: Names = Field(("action",), description="Column of the action; several if continuous.")
    behavior_prob: Name = Field("behavior_prob", description="Probability with which the action was drawn.")
    reward: Name = Field("reward", description="Column of the reward.")
    features: Names = Field((), description="Features of the state.")
    state: Name = Field("", description="One column of integer states instead.")
    time: Name = Field("", description="Column of the time, if it is not the episode's number.")
    time_unit: Literal["episode", "hour", "day", "number"] = Field("episode", description="What time counts.")
    confirm_order: Flag = Field(False, description="Episode numbers grow with time, in whatever order.")
    actions: Annotated[tuple[Name | Whole, ...], BeforeValidator(_listed), Field(max_length=MOST_NAMES)] = (
        Field((), description="All actions by name.")
    )
    num_actions: Whole | None = Field(None, ge=1, le=1_000_000, description="Number of actions.")
    log_probs: Flag = Field(False, description="Probability columns hold logarithms.")
    densities: Flag = Field(False, description="They hold densities of continuous actions.")
    estimate_propensities: Flag = Field(False, description="Estimate them; verdicts are not guaranteed.")

    lookahead: Annotated[Whole, Field(ge=1, le=1_000_000)] | Name = Field(
        description="How far ahead to forecast: a number of time units, or 12h, 7d, 2w."
    )
    preset: Preset = Field(Preset.MULTISCALE, description="Tidegate's own method, or the paper's.")
    basis: BasisKind | None = Field(None, description="Preset paper: shape of the trend.")
    order: Whole | None = Field(None, ge=0, le=100, description="Preset paper: order of the trend.")
    period: Number | None = Field(None, description="Preset paper: period of a Fourier trend.")
    alpha: Number = Field(0.05, gt=0, lt=1, description="Allowed probability of a wrong deployment.")
    allow_large_alpha: Flag = Field(False, description="Allow an alpha above 0.2.")
    draws: Whole = Field(500, ge=1, le=100_000, description="Draws of the bootstrap.")
    discount: Number = Field(1.0, ge=0, le=1, description="Discount per step.")
    seed: Whole = Field(0, ge=0, le=2**53, description="For estimated propensities.")

    guardrail: Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(max_length=50)] = Field(
        (), description="NAME:MARGIN[:higher], outcomes that must not become worse."
    )
    multiplicity: Multiplicity = Field(Multiplicity.HOLM, description="How reward and guardrails share α.")
    reward_range: tuple[Number, Number] | None = Field(
        None, description="Smallest and largest return that an episode can ever have."
    )
    allow_unguaranteed: Flag = Field(False, description="DEPLOY even with a caveat.")
    valid_for: Name = Field("7d", description="How long a decision is good for: 12h, 7d, 2w.")
    budget: Name = Field("", description="The error budget that the gate shares, by name; empty: none.")
    budget_rule: BudgetRule = Field(BudgetRule.HARMONIC, description="How α is shared out.")
    budget_tests: Whole = Field(52, ge=1, le=1_000_000, description="For how many evaluations.")

    mode: Mode = Field(Mode.CONTINUOUS, description="Decide again at every window, or release and watch.")
    window: Whole | None = Field(
        None, ge=1, le=MOST_EPISODES, description="Episodes in a window; default the lookahead."
    )
    history: Whole | None = Field(
        None,
        ge=1,
        le=MOST_EPISODES,
        description="About how many of the newest episodes to look at; default all.",
    )
    approvers: Names = Field((), description="Names of tokens that may approve; empty: none is needed.")

    @model_validator(mode="before")
    @classmethod
    def _flags(cls, values: Any) -> Any:
        """A key may be written as the flag is: behavior-prob."""
        if not isinstance(values, Mapping):
            return values
        return {
            name.replace("-", "_") if isinstance(name, str) else name: one for name, one in values.items()
        }

    @property
    def episodes_per_window(self) -> int:
        """How many episodes make a window."""
        if self.window is not None:
            return self.window
        if isinstance(self.lookahead, int):
            return self.lookahead
        raise SettingsError(
            f"lookahead is '{self.lookahead}', which is no number of episodes.",
            expected="a number of episodes for the window",
            remedy="Give the definition a window.",
        )

    @functools.cached_property
    def guardrails(self) -> tuple[Guardrail, ...]:
        return tuple(map(parse_guardrail, self.guardrail))

    @functools.cached_property
    def columns(self) -> Columns:
        """The columns of the episodes, those that the guardrails watch among them."""
        kinds = {
            (False, False): "probability", (True, False): "log_probability", (False, True): "density",
            (True, True): "log_density",
        }  # fmt: skip
        names = (
            "episode", "step", "behavior_prob", "reward", "features", "state", "time", "time_unit", "actions",
            "num_actions",
        )  # fmt: skip
        return Columns(
            **{name: getattr(self, name) for name in names},
            action=self.action[0] if len(self.action) == 1 else self.action,
            propensity=kinds[self.log_probs, self.densities],  # type: ignore[arg-type]
            confirmed_order=self.confirm_order,
            outcomes=tuple(dict.fromkeys(one.name for one in self.guardrails)),
        )

    @functools.cached_property
    def settings(self) -> PlainSettings:
        """How to forecast."""
        names = (
            "preset", "lookahead", "basis", "order", "period", "alpha", "draws", "discount",
            "allow_large_alpha",
        )  # fmt: skip
        return PlainSettings(**{name: getattr(self, name) for name in names})

    def only_warns(self, window: int | None) -> bool:
        """Whether an evaluation, that of a window or of whoever asked, is about what is released already."""
        return self.mode is Mode.RELEASE and window is not None

    def needs_approval(self, window: int | None) -> bool:
        """Whether a pass waits for a person."""
        return bool(self.approvers) and not self.only_warns(window)

    @property
    def plan(self) -> BudgetPlan | None:
        """How the error budget is shared out, if there is one."""
        return BudgetPlan(self.budget_rule, self.budget_tests) if self.budget else None

    @property
    def specs(self) -> tuple[PolicySpec, PolicySpec]:
        """The candidate and the safe policy."""
        return parse_spec(self.candidate), parse_spec(self.safe)

    @property
    def uploads(self) -> tuple[str, ...]:
        """The hashes of the policy files that it needs."""
        kinds = [one for one in self.specs if one.kind is SpecKind.POLICY]
        return tuple(one.name.removeprefix("sha256:") for one in kinds)

    @property
    def text(self) -> str:
        """The definition as it is stored and hashed."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def checked(self) -> "GateDefinition":
        """The definition, if the library takes all of it."""
        for spec in self.specs:
            _require_servable(spec)
        _ = self.columns, self.settings, self.episodes_per_window
        Conditions(
            self.guardrails,
            self.multiplicity,
            self.reward_range,
            self.allow_unguaranteed,
            self.valid_for,  # type: ignore[arg-type]
        )
        parse_origin(self.candidate_from or None)
        self._require_origin()
        for one in self.approvers:
            require_name("an approver", one)
        if self.budget:
            require_name("a budget", self.budget)
            require_p_value(self.settings)
        if self.mode is Mode.RELEASE:
            self._require_watchable()
        return self

    def _require_origin(self) -> None:
        """A file is uploaded without the record of its training, so somebody has to say what made it."""
        if self.specs[0].kind is SpecKind.POLICY and not self.candidate_from:
            raise SettingsError(
                "the candidate is a file, and nothing says with which episodes it was made: it would be "
                "tested on those too.",
                expected="candidate_from: elsewhere, or before:TIME",
                remedy="Name the time of the last episode that its search has seen (`candidate_from`).",
            )

    def _require_watchable(self) -> None:
        """A release is watched, and after it the candidate is what logs."""
        if self.specs[1].kind is SpecKind.BEHAVIOR:
            raise SettingsError(
                "safe is 'behavior', and after a release that is the candidate, so nothing could be watched.",
                expected="the column or the file of the safe policy",
                remedy="Log the probabilities of the safe policy too, and give its column (`safe`).",
            )
        if self.estimate_propensities:
            raise SettingsError(
                "the probabilities of the actions are estimated, which takes a whole log, so a release could "
                "not be watched batch by batch.",
                remedy="Log them, or let the gate decide again at every window, in continuous mode.",
            )


def definition_of(values: Mapping[str, Any]) -> GateDefinition:
    """A definition from plain values; what does not fit is said in one sentence."""
    try:
        return GateDefinition.model_validate(values).checked()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the definition"
        raise SettingsError(
            f"{place}: {first['msg']}.", remedy="See docs/how-to/service.md for its keys."
        ) from error


def _require_servable(spec: PolicySpec) -> None:
    """Nothing that imports code, and no path: only columns, and files that were uploaded."""
    paths = spec.kind is SpecKind.POLICY and UPLOADED.fullmatch(spec.name) is None
    if spec.kind is SpecKind.PYTHON or paths:
        raise SettingsError(
            f"'{spec}' cannot be a policy of the service, which runs no code and reads no paths.",
            expected=SPECS,
            remedy="Write its probabilities into a column, or upload the file (`PUT /v1/policies`).",
        )
