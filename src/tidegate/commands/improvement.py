"""Search for a candidate on one part of a log, test it on the other, and keep both results together."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import in_double
from ..episodes import EpisodeLog, TrainingEpisodes, split_log
from ..errors import LogError
from ..gates.guardrails import Guardrail
from ..gates.multiplicity import Multiplicity
from ..policies import LoggedPolicy, ParametricPolicy, Policy, save_policy
from ..record import describe_settings, plain, sealed, write_record
from ..returns import observed_returns
from ..search import Objective, SearchSettings, search_candidate
from .choices import Preset
from .gating import GateRecord, decide
from .guarding import with_outcomes
from .opening import Log, OpenLog, Stage, open_log, silent
from .room import require_room
from .settings import PlainSettings, SearchChoices
from .starts import feature_scaling, resolve_class, start_policy
from .training import Overlap, TrainingRecord, episodes_hash, training_path
from .trials import Trial

MIN_TRAINING = 2
SEARCH_DRAWS = 200
FOUND = "found by search"
_OBJECTIVES = {Preset.PAPER: Objective.PERCENTILE, Preset.MULTISCALE: Objective.NORMAL}


@dataclasses.dataclass(frozen=True, eq=False)
class Improvement:
    """The candidate, how it was found, and what the test on unseen episodes says."""

    policy: ParametricPolicy
    gate: GateRecord
    training: TrainingRecord
    search: SearchChoices
    search_settings: dict[str, Any]

    def __str__(self) -> str:
        return f"{type(self.policy).__name__}, {self.gate}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the decision record, and what `tidegate improve --json` prints."""
        search = {**plain(self.search), "settings": self.search_settings}
        found = {"policy_class": type(self.policy).__name__, "search": search}
        return sealed("improve", {**self.gate.content, **found})


def improve(
    log: Log,
    *,
    safe: str = "behavior",
    settings: PlainSettings | None = None,
    search: SearchChoices | None = None,
    guardrails: Sequence[Guardrail] = (),
    multiplicity: Multiplicity = Multiplicity.HOLM,
    dates: int = 0,
    seed: int = 0,
    stage: Stage = silent,
) -> Improvement:
    """Find a candidate on the training part of the log, and test it against the safe policy on the rest.

    The seed drives the split, the search and the test; `dates` are those of a backtest, as in `gate`.
    The search looks at the reward alone; guardrails are tested, as in `gate`.
    """
    search = search or SearchChoices()
    opened = open_log(with_outcomes(log, guardrails), seed=seed, stage=stage)
    safe_policy, opened = opened.policy(safe)
    chosen = (settings or PlainSettings()).over(opened.log.span)
    require_room(opened, chosen, safe_policy, None)
    training, held_out = split_log(opened.log, train_fraction=search.train_fraction, seed=seed)
    stage("searching for a candidate")
    candidate, details = _search(training, safe_policy, chosen, search, seed)
    record = _training_record(opened, training.log, search, candidate, seed)
    trial = Trial(
        opened=opened,
        names=(FOUND, safe),
        policies=(candidate, safe_policy),
        held_out=held_out,
        seen=training,
        overlap=Overlap.HELD_OUT,
        training=record,
        settings=chosen,
        seed=seed,
    )
    tested = decide(trial, dates, stage, guardrails, multiplicity)
    resolved = dataclasses.replace(search, policy_class=resolve_class(search, opened.log))
    return Improvement(candidate, tested, record, resolved, details)


def save_improvement(found: Improvement, path: str | Path) -> Path:
    """Save the policy, and beside it the record, whose path is returned."""
    save_policy(found.policy, path)
    record = training_path(path)
    write_record(found.to_dict(), record)
    return record


def _search(
    training: TrainingEpisodes,
    safe: Policy,
    settings: PlainSettings,
    choices: SearchChoices,
    seed: int,
) -> tuple[ParametricPolicy, dict[str, Any]]:
    if training.log.num_episodes < MIN_TRAINING:
        raise LogError(
            f"{training.log.num_episodes} training episodes are too few to search on.",
            remedy="Raise train_fraction, or collect more.",
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
    found = search_candidate(start, seen, settings.forecast(), details, against=rival, seed=seed)
    return found if scaling is None else scaling.undo(found), describe_settings(details)


@in_double
def _spread(log: EpisodeLog, discount: float) -> float:
    spread = float(np.std(np.asarray(observed_returns(log, discount))))
    return spread if math.isfinite(spread) else 0.0


def _training_record(
    opened: OpenLog,
    training: EpisodeLog,
    search: SearchChoices,
    policy: ParametricPolicy,
    seed: int,
) -> TrainingRecord:
    return TrainingRecord(
        data_hash=opened.data_hash,
        num_episodes=opened.log.num_episodes,
        num_training=training.num_episodes,
        train_fraction=search.train_fraction,
        split_seed=seed,
        episodes_hash=episodes_hash(training),
        policy_hash=policy.digest(),
        features=opened.loaded.columns.features,
        labels=tuple(str(label) for label in opened.loaded.labels),
    )
