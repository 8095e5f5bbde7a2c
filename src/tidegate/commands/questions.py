"""A gate and its error budget: what is asked, what may be tested, and what the ledger keeps of it."""

import dataclasses

from ..errors import SettingsError
from ..gates.ledger import Grant, episodes_for, question_hash
from ..reasons import MIN_EPISODES
from ..record import describe_settings, plain
from .conditions import Conditions
from .settings import PlainSettings
from .trials import Trial


def require_p_value(settings: PlainSettings) -> None:
    """A budget grants a level to compare a p-value with, and the paper's test has no p-value."""
    if not settings.test.has_p_value:
        raise SettingsError(
            f"the preset '{settings.preset}' cannot draw on an error budget: its test has no p-value "
            "to compare with a level.",
            expected="the preset 'multiscale'",
            remedy="Leave out `budget` or `preset='paper'`.",
        )


def question(trial: Trial, asked_for: Conditions) -> str:
    """The identity of what is asked: all that the answer depends on, except the level."""
    held_out, seen = trial.held_out, trial.seen
    candidate, safe = trial.policies
    return question_hash(
        held_out.log.digest(),
        {"candidate": candidate.digest(), "safe": safe.digest()},
        {
            "settings": plain(vars(trial.settings)),
            "forecast": describe_settings(trial.settings.forecast()),
            "span": plain(held_out.span),
            "training": None if seen is None else seen.log.digest(),
            "guardrails": plain(list(asked_for.guardrails)),
            "multiplicity": asked_for.multiplicity.name if asked_for.guardrails else None,
            "reward_range": plain(asked_for.reward_range),
            "allow_unguaranteed": asked_for.allow_unguaranteed,
        },
        trial.seed,
    )


def allowed(trial: Trial, grant: Grant | None) -> Trial:
    """The trial on the episodes that the grant leaves.

    Episodes that earlier tests have used are left out of both parts, so that this test sees none of them.
    If few training episodes are left, the test takes some of the held-out ones in their place.
    """
    if grant is None or grant.after is None:
        return trial
    seen = None if trial.seen is None else episodes_for(grant, trial.seen)
    if seen is not None and seen.log.num_episodes < MIN_EPISODES:
        seen = None
    return dataclasses.replace(trial, held_out=episodes_for(grant, trial.held_out), seen=seen)


def last_episode(trial: Trial) -> float:
    """The last episode that this test has used, for training or for testing."""
    return (trial.held_out.span or trial.held_out.log.span)[1]
