"""Is there memory for what a command computes from a log? Asked before it starts."""

from ..bootstrap import BLOCK
from ..logs.memory import MemoryLimit
from ..logs.reducing import SAMPLE_STEPS
from ..policies import DiscretePolicy, Policy, lists_actions
from .choices import Preset
from .opening import OpenLog
from .settings import PlainSettings

# Measured with `gate`, `evaluate` and `check` on logs of 0.2 to 10 million episodes, and rounded up.
EPISODE_BYTES = {Preset.MULTISCALE: 500, Preset.PAPER: 800}
STEP_BYTES = 500
VALUE_BYTES = 500  # of each action at each step, where a model predicts what it is worth
LATEST = "use the latest part of the log"
DRAW_BYTES = 10  # of each draw for each episode of a block


def require_room(opened: OpenLog, settings: PlainSettings, *policies: Policy | None) -> None:
    """The forecasts of these policies fit into the log's memory limit; None is one yet to be found."""
    log, limit, outline = opened.log, opened.loaded.limit, opened.outline
    require_forecast_room(limit, outline.num_episodes, settings)
    steps, actions = min(outline.num_steps, SAMPLE_STEPS), log.num_actions
    listed = any(
        one is None or isinstance(one, DiscretePolicy) or lists_actions(one, log) for one in policies
    )
    if settings.doubly_robust and listed and actions is not None:
        limit.require(
            steps * actions * VALUE_BYTES,
            f"a prediction for each of {actions:,} actions at each of {steps:,} steps",
            remedy="give the policy as a column of probabilities (column:NAME)",
        )


def require_forecast_room(limit: MemoryLimit, episodes: int, settings: PlainSettings) -> None:
    """A forecast from the returns of this many episodes fits."""
    needed = episodes * EPISODE_BYTES[settings.preset]
    limit.require(needed, f"a forecast from {episodes:,} episodes", remedy=LATEST)
    limit.beside(needed).require(
        settings.draws * min(episodes, BLOCK) * DRAW_BYTES,
        f"a bootstrap of {settings.draws:,} draws",
        remedy="lower `draws`",
    )
