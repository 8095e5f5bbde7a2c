"""Search for a candidate on one part of a log, test it on the other, and keep both results together."""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..arrays import Integers, in_double
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes
from ..errors import LogError
from ..gates.guardrails import Guardrail
from ..gates.multiplicity import Multiplicity
from ..gates.signatures import PrivateKey, signed
from ..inputs import seed_of
from ..logs import LoadedLog, resolve_policy
from ..logs.fitting import action_names
from ..logs.memory import in_words, size_of
from ..logs.saved import file_of
from ..policies import LoggedPolicy, ParametricPolicy, Policy
from ..reasons import Reason, Status, Verdict
from ..record import SEAL, Advantage, describe_settings, plain, sealed, write_record
from ..returns import observed_returns
from ..search import Objective, SearchSettings, search_candidate
from ..serving import PolicyFile
from ..serving.files import DecisionLink, file_content
from .asking import ColumnNames, NamedSearch, asked, chosen
from .choices import Preset
from .conditions import WEEK, Conditions
from .description import PolicyDescription, describe_policy
from .gating import GateRecord, decide
from .guarding import with_outcomes
from .opening import Log, OpenLog, PolicyLike, Stage, counted, is_object, open_log, policy_name, silent
from .room import STEP_BYTES, VALUE_BYTES, require_room
from .settings import PlainSettings, SearchChoices, Settings
from .showing import Shown
from .starts import feature_scaling, require_exploration, resolve_class, start_policy
from .training import Overlap, TrainingRecord, episodes_hash, input_names, training_path, training_rows
from .trials import Trial

MIN_TRAINING = 2
SEARCH_DRAWS = 200
FOUND = "found by search"
SEARCHED = (
    "The search saw {share:.2%} of the episodes, as many as it can hold in {room}; all others were left for "
    "the test."
)
_OBJECTIVES = {Preset.PAPER: Objective.PERCENTILE, Preset.MULTISCALE: Objective.NORMAL}


@dataclasses.dataclass(frozen=True, eq=False)
class Improvement(Shown):
    """The candidate, how it was found, what it does, and what the test on unseen episodes says.

    `file` names its actions and features: what is saved, but for the decision.
    """

    policy: ParametricPolicy
    file: PolicyFile
    gate: GateRecord
    training: TrainingRecord
    search: SearchChoices
    search_settings: dict[str, Any]
    description: PolicyDescription

    @property
    def verdict(self) -> Verdict:
        return self.gate.verdict

    @property
    def deploys(self) -> bool:
        return self.gate.deploys

    @property
    def status(self) -> Status:
        return self.gate.status

    @property
    def reason(self) -> Reason:
        return self.gate.reason

    @property
    def advantage(self) -> Advantage:
        """What is forecast of candidate − safe: its point, bounds, p-value and level."""
        return self.gate.advantage

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the decision record, and what `tidegate improve --json` prints."""
        search = {**plain(self.search), "settings": self.search_settings}
        found = {
            "policy_class": self.file.policy,
            "search": search,
            "description": plain(self.description),
        }
        return sealed("improve", {**self.gate.content, **found})


def improve(
    log: Log,
    *,
    safe: PolicyLike = "behavior",
    settings: Settings = None,
    columns: ColumnNames = None,
    search: SearchChoices | Mapping[str, Any] | None = None,
    guardrails: Sequence[Guardrail | str] = (),
    multiplicity: Multiplicity | str = Multiplicity.HOLM,
    reward_range: tuple[float, float] | None = None,
    allow_unguaranteed: bool = False,
    valid_for: str | datetime.timedelta = WEEK,
    dates: int = 0,
    seed: int = 0,
    now: datetime.datetime | None = None,
    stage: Stage = silent,
    **named: Unpack[NamedSearch],
) -> Improvement:
    """Find a candidate on the training part of the log, and test it against the safe policy on the rest.

    The seed drives the search; the split and the test follow from the log. The search looks at the reward
    alone; guardrails and all other conditions are those of `gate`.
    """
    wanted = asked(improve, log, settings, columns, named)
    choices = chosen("search", SearchChoices, search, named)
    asked_for = Conditions(  # which coerces or refuses each of them
        guardrails,  # type: ignore[arg-type]
        multiplicity,  # type: ignore[arg-type]
        reward_range,
        allow_unguaranteed,
        valid_for,  # type: ignore[arg-type]
        now,
        dates,
    )
    seed = seed_of(seed)
    opened = open_log(with_outcomes(wanted.log, asked_for.guardrails), seed=seed, stage=stage)
    safe_policy, opened = opened.policy(safe)
    over = wanted.settings.over(opened.span, opened.loaded.time)
    require_room(opened, over, safe_policy, None)
    require_exploration(choices, opened.log)
    room = size_of("search_memory", choices.search_memory)
    share = searched_share(opened, choices.train_fraction, room)
    if share < choices.train_fraction:
        opened = opened.noting(SEARCHED.format(share=share, room=in_words(room)))
    rows = training_rows(opened.num_episodes, share)
    _require_search_room(opened, rows)
    training = TrainingEpisodes(_known(opened.gathered(rows), safe), opened.span)
    candidate, details = _search(training, safe_policy, over, choices, seed, stage)
    record = _training_record(opened, training.log, share, candidate)
    policies, reduced = opened.reduced((candidate, safe), (candidate, safe_policy), over.forecast(), stage)
    unseen = np.setdiff1d(np.arange(opened.num_episodes), rows)
    trial = Trial(
        opened=reduced,
        names=(FOUND, policy_name(safe)),
        policies=policies,  # type: ignore[arg-type]
        held_out=HeldOutEpisodes(reduced.log.take(unseen), opened.span),
        seen=TrainingEpisodes(reduced.log.take(rows), opened.span),
        overlap=Overlap.HELD_OUT,
        training=record,
        settings=over,
        seed=seed,
    )
    tested = decide(trial, asked_for, stage)
    resolved = dataclasses.replace(choices, policy_class=resolve_class(choices, opened.log))
    file = file_of(candidate, action_names(opened.loaded), opened.loaded.features)
    described = describe_policy(file, reduced.steps.log)
    return Improvement(candidate, file, tested, record, resolved, details, described)


def save_improvement(found: Improvement, path: str | Path, key: PrivateKey | None = None) -> Path:
    """Save the policy, and beside it the record, signed if there is a key; its path is returned.

    The policy's file holds the seal of the record, which holds the policy's own hash.
    """
    record, content = training_path(path), found.to_dict()
    decision = DecisionLink(content[SEAL], content["status"], content["expires_at"])
    write_record(file_content(dataclasses.replace(found.file, decision=decision)), path)
    write_record(content if key is None else signed(content, key), record)
    return record


def _search(
    training: TrainingEpisodes,
    safe: Policy,
    settings: PlainSettings,
    choices: SearchChoices,
    seed: int,
    stage: Stage,
) -> tuple[ParametricPolicy, dict[str, Any]]:
    if training.log.num_episodes < MIN_TRAINING:
        raise LogError(
            f"{training.log.num_episodes} training episodes are too few to search on.",
            remedy="Raise `train_fraction`, or collect more.",
        )
    start = start_policy(choices, training.log, seed=seed)
    scaling = feature_scaling(training.log)
    seen = training if scaling is None else scaling.apply(training)
    details = SearchSettings(
        steps=choices.steps,
        learning_rate=choices.learning_rate,
        entropy_weight=choices.entropy * _spread(training.log, settings.discount),
        objective=_OBJECTIVES[settings.preset],
        alpha=settings.alpha,
        draws=max(SEARCH_DRAWS, math.ceil(1 / settings.alpha)),
    )
    # A safe policy that reads features would misread scaled ones.
    rival = safe if scaling is None or isinstance(safe, LoggedPolicy) else None
    found = search_candidate(
        start,
        seen,
        settings.forecast(),
        details,
        against=rival,
        seed=seed,
        progress=counted(stage, "searching for a candidate"),
    )
    return found if scaling is None else scaling.undo(found), describe_settings(details)


def searched_share(opened: OpenLog, wanted: float, room: int) -> float:
    """The share of the episodes that are searched: no more of a large log than so many bytes hold."""
    return min(wanted, room // _step_bytes(opened) / opened.outline.num_steps)


def _step_bytes(opened: OpenLog) -> int:
    """What a search takes for a step."""
    return STEP_BYTES + (opened.log.num_actions or 1) * VALUE_BYTES


def _require_search_room(opened: OpenLog, rows: Integers) -> None:
    steps = int(opened.outline.lengths[rows].sum(dtype=np.int64))
    opened.loaded.limit.require(
        steps * _step_bytes(opened), f"a search on {steps:,} steps", remedy="lower `search_memory`"
    )


def _known(loaded: LoadedLog, policy: PolicyLike) -> EpisodeLog:
    """The log with the probabilities of a policy that is named."""
    return loaded.log if is_object(policy) else resolve_policy(policy_name(policy), loaded)[1].log


@in_double
def _spread(log: EpisodeLog, discount: float) -> float:
    spread = float(np.std(np.asarray(observed_returns(log, discount))))
    return spread if math.isfinite(spread) else 0.0


def _training_record(
    opened: OpenLog,
    training: EpisodeLog,
    share: float,
    policy: ParametricPolicy,
) -> TrainingRecord:
    return TrainingRecord(
        data_hash=opened.data_hash,
        num_episodes=opened.num_episodes,
        num_training=training.num_episodes,
        train_fraction=share,
        episodes_hash=episodes_hash(training),
        policy_hash=policy.digest(),
        features=input_names(opened.loaded),
        labels=tuple(str(label) for label in opened.loaded.labels),
    )
