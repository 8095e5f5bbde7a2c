"""About how many more episodes until this candidate could pass, and which actions lack data.

The gate opens when the estimated advantage exceeds the half-widths. These shrink with √Σa², where a are
the forecast weights of a longer log; estimated advantage, noise level and action mix are assumed to
persist. Where a movement that is soon forgotten forecasts best, a longer log does not help, but more episodes
in the same time may. This is a rough answer to "is it worth waiting?", not evidence.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arrays import ArrayLike, Floats, Integers, in_double, kept
from ..basis import Basis, TimeAxis
from ..comparison import Comparison
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes
from ..forecast import ForecastSettings
from ..mixture import Trend, Trials
from ..policies import BehaviorPolicy, Policy
from ..reasons import Reason
from ..returns import log_ratios
from ..safety import compare_once, with_room
from ..trend import trend_design
from .findings import NUMBERED, Names
from .support import ActionSupport, action_support

Episodes = int | None

GROWTH = np.geomspace(1.0, 1000.0, 121)  # lengths of the log to try, as multiples of its present length
GRID = 2048  # times that stand for those of a longer log
LIKELY_Z = 0.84  # 80 % of a normal distribution
UNDECIDED = (Reason.NOT_BETTER, Reason.SCALES_DISAGREE)
HEAVY_SHARE = 0.2
OVERUSE = 2.0


@dataclasses.dataclass(frozen=True, eq=False)
class ActionNeed:
    """Which actions lack data.

    `variance_shares` says which actions' episodes cause the variance of the candidate's forecast; for
    episodes of several steps, which actions' steps cause the variance of the importance ratios.
    """

    support: ActionSupport
    variance_shares: Floats

    @property
    def lacking(self) -> Integers:
        """Actions that are unseen, rare, or cause much variance and are far more frequent than in the log."""
        counts, shares = self.support.counts, self.support.policy_shares
        logged = counts / max(1, counts.sum())
        overused = (0.0 if shares is None else shares) > OVERUSE * logged
        heavy = np.flatnonzero(overused & (self.variance_shares > HEAVY_SHARE))
        return np.unique(np.concatenate([self.support.unseen, self.support.rare, heavy]))


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """How many more episodes it might take; None where no number of them would do.

    `more_episodes` gives even odds if the estimated advantage is the true one, `likely_episodes` odds of
    4 to 1. `episode_range` repeats `more_episodes` for an advantage one standard error larger and smaller.
    `more_traffic` is how many times as many episodes in the same time would give even odds, where a
    movement leads.
    """

    derived: ClassVar = ("lacking_actions",)

    reason: Reason
    num_episodes: int
    difference: float | None
    difference_error: float | None
    half_widths: float | None
    more_episodes: Episodes
    likely_episodes: Episodes
    episode_range: tuple[Episodes, Episodes]
    more_traffic: float | None
    actions: ActionNeed | None
    sentence: str

    @property
    def lacking_actions(self) -> list[int]:
        """The actions that lack data."""
        return [] if self.actions is None else [int(one) for one in self.actions.lacking]

    def __str__(self) -> str:
        return self.sentence


@in_double
def plan(
    candidate: Policy,
    safe: Policy | None,
    log: EpisodeLog,
    settings: ForecastSettings,
    *,
    training: EpisodeLog | None = None,
    span: tuple[float, float] | None = None,
    steps: tuple[Policy, EpisodeLog] | None = None,
    names: Names = NUMBERED,
) -> Plan:
    """How many more episodes under the present policy until the candidate could pass the gate?

    The log is the one that is tested: if half of the episodes go to a search, twice as many are needed.
    `training` are the search's episodes, if any; else a share of the log is for training, as in the gate.
    Of a log that was reduced to episodes, `steps` hold the candidate and the log, or a sample, step by step.
    `names` are for the sentence.
    """
    given = None if training is None else TrainingEpisodes(training, span)
    seen, tested = with_room(settings, given, HeldOutEpisodes(log, span))
    safe = BehaviorPolicy() if safe is None else safe
    outcome, axis = compare_once(settings, candidate, safe, tested, seen)
    known, held = (candidate, log) if steps is None else steps
    weights = None
    if held.num_steps == 1 and held.capacity == log.capacity:
        fit = outcome.candidate
        weights = np.asarray(fit.design.forecast_weights * fit.residuals)[: log.capacity]
    needed = _action_need(known, held, weights)
    return outlook(settings, log.num_episodes, axis, outcome, needed, names=names)


@in_double
def outlook(
    settings: ForecastSettings,
    num_episodes: int,
    axis: TimeAxis,
    outcome: Comparison,
    actions: ActionNeed | None = None,
    *,
    names: Names = NUMBERED,
) -> Plan:
    """How many more than `num_episodes` the gate would need, from a comparison that was made already."""
    reason, n = Reason(int(outcome.reason)), num_episodes
    advantage, error = float(outcome.point), float(outcome.standard_error)
    widths = advantage - float(outcome.lower)
    finite = math.isfinite(advantage + error + widths)
    more: Episodes = None
    likely: Episodes = None
    bounds: tuple[Episodes, Episodes] = (None, None)
    if reason is Reason.BETTER:
        more, likely, bounds = 0, 0, (0, 0)
    elif reason in UNDECIDED and finite and _stands_still(outcome.trials):
        shrinkage = _with_movement(outcome.difference, _shrinkage(settings, axis, float(axis.length)))

        def needed(gain: float, margin: float = 0.0) -> Episodes:
            return _more_episodes(n, shrinkage, gain, widths + margin * error)

        more, likely = needed(advantage), needed(advantage, LIKELY_Z)
        bounds = needed(advantage + error), needed(advantage - error)
    traffic = _more_traffic(outcome, advantage, widths) if finite else None
    return Plan(
        reason=reason,
        num_episodes=n,
        difference=advantage if finite else None,
        difference_error=error if finite else None,
        half_widths=widths if finite else None,
        more_episodes=more,
        likely_episodes=likely,
        episode_range=bounds,
        more_traffic=traffic,
        actions=actions,
        sentence=_movement_sentence(outcome.trials, reason, advantage, traffic, names)
        or _sentence(settings, reason, n, advantage, more, bounds),
    )


def _stands_still(trials: Trials) -> bool:
    """Whether the trend that leads goes on as it was, so that a longer log would help."""
    return trials.kinds[int(trials.best)] in ("level", "line", "trend")


def _noise_share(fit: Trend) -> float:
    """How much of the forecast's variance is noise, which more episodes reduce; the rest is movement."""
    parts = np.asarray(fit.design.forecast_weights) * np.asarray(fit.noise)
    parts *= parts
    noise = float(np.sum(parts))
    variance = float(fit.variance)
    return min(1.0, noise / variance) if variance > 0 else 1.0


def _more_traffic(outcome: Comparison, advantage: float, widths: float) -> float | None:
    """How many times as many episodes in the same time: noise shrinks with them, movement does not."""
    if _stands_still(outcome.trials) or not 0 < advantage <= widths:
        return None
    noise = _noise_share(outcome.difference)
    allowed = (advantage / widths) ** 2 - (1 - noise)  # the share of the variance that may be left to noise
    return noise / allowed if allowed > 0 else None


def _movement_sentence(
    trials: Trials, reason: Reason, advantage: float, traffic: float | None, names: Names
) -> str:
    """What would help if movement decides; empty if the length of the log does."""
    if reason not in UNDECIDED or _stands_still(trials) or not advantage > 0:
        return ""
    memory = float(trials.memories[int(trials.best)])
    start = (
        f"The advantage moves, and what it was is forgotten after about {names.span(memory)}, so that older "
        "episodes help little. "
    )
    if traffic is None:
        return start + "Shorten the lookahead, or wait until the advantage moves more slowly."
    return start + f"About {traffic:.2g} times as many episodes in the same time give an even chance."


@kept
def _squared_weights(
    shape: Basis,
    axis: TimeAxis,
    spans: Float[ArrayLike, " g"],
    positions: Float[ArrayLike, " m"],
) -> Float[Array, " g"]:
    """Σa² of logs that last `span`, times their number of episodes."""

    def one(span: Float[Array, ""]) -> Float[Array, ""]:
        times = axis.origin + 1 + span * positions
        design = trend_design(shape, times, jnp.ones(GRID, bool), axis.before(axis.origin + 1 + span))
        return jnp.sum(design.forecast_weights**2) * GRID

    squares: Array = jax.lax.map(one, spans)
    return squares


def _with_movement(fit: Trend, shrinkage: Floats) -> Floats:
    """The same if part of the error is movement, which a longer log is assumed not to reduce."""
    noise = _noise_share(fit)
    return np.asarray(np.sqrt(1 - noise + noise * shrinkage**2), np.float64)


def _shrinkage(settings: ForecastSettings, axis: TimeAxis, length: float) -> Floats:
    """How much narrower the intervals are, for each growth of the log at its present pace."""
    # Evenly spread but not regular, so that a period cannot hide between the times.
    jitter = np.random.default_rng(0).uniform(size=GRID)
    positions = (np.arange(GRID) + jitter) / GRID
    squares = _squared_weights(settings.test.lead_shape, axis, GROWTH * length, positions) / GROWTH
    return np.asarray(np.sqrt(squares / squares[0]), np.float64)


def _more_episodes(n: int, shrinkage: Floats, gain: float, widths: float) -> Episodes:
    """The smallest growth at which the gain exceeds the shrunken widths; None if none does."""
    if not gain > 0:
        return None
    passes = np.flatnonzero(gain > widths * shrinkage)
    if not passes.size:
        return None
    at = int(passes[0])
    if at == 0:
        return 0
    growth = np.interp(-gain / widths, -shrinkage[at - 1 : at + 1], GROWTH[at - 1 : at + 1])
    return math.ceil(n * (float(growth) - 1))


def _sentence(
    settings: ForecastSettings,
    reason: Reason,
    n: int,
    advantage: float,
    more: Episodes,
    bounds: tuple[Episodes, Episodes],
) -> str:
    if reason is Reason.BETTER:
        return "The candidate passes with the episodes at hand."
    if reason in (Reason.NO_EPISODES, Reason.TOO_FEW_EPISODES):
        needed = f"at least {settings.least_episodes:,} are needed for a first estimate"
        return f"{n:,} episodes say nothing yet: {needed}."
    if reason not in UNDECIDED:
        return f"More episodes alone will not help: {reason.sentence}"
    if not advantage > 0:
        return "The candidate is not estimated to be better: no number of episodes is expected to help."
    if more is None:
        return f"Even a log {GROWTH[-1]:,.0f} times as long is not expected to suffice."
    low, high = bounds
    fewest = f"about {_rounded(low)} if its advantage is one standard error larger than estimated"
    most = "no number would do" if high is None else f"about {_rounded(high)}"
    return (
        f"About {_rounded(more)} more episodes give the candidate an even chance ({fewest}; {most} if it is "
        "one standard error smaller). This holds if the estimated advantage, the noise and the mix of "
        "actions stay as they are."
    )


def _rounded(count: Episodes) -> str:
    """Two digits: more would claim too much."""
    if count is None:
        return "no number"
    digits = max(0, len(str(count)) - 2)
    return f"{round(count, -digits):,}"


def _action_need(candidate: Policy, log: EpisodeLog, weights: Floats | None) -> ActionNeed | None:
    """Which actions bring the noise: by their episodes' `weights` in the forecast, else by their ratios."""
    support = action_support(log, candidate)
    if support is None:
        return None
    mask = np.asarray(log.mask)
    taken = np.asarray(log.actions)[mask].astype(np.int64)
    if weights is not None:
        weight = weights[mask[:, 0]] ** 2
    else:
        with np.errstate(over="ignore"):
            weight = (np.exp(np.asarray(log_ratios(candidate, log))[mask]) - 1) ** 2
    sums: Floats = np.bincount(taken, np.nan_to_num(weight), support.counts.size).astype(np.float64)
    return ActionNeed(support, sums / sums.sum() if sums.sum() > 0 else sums)
