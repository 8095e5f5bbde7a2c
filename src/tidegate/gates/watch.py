"""After a DEPLOY: is the new policy worse than the safe one after all? Asked at every episode.

Each outcome (the reward, and those of the guardrails) has a confidence sequence on its mean advantage since
the release. Where its upper end is below minus the margin, harm is shown, and the watch says to roll back,
for good. With m outcomes each sequence has level α/m (Bonferroni): if no mean advantage ever is beyond its
margin, a watch that never ends rolls back with probability α at most, for large numbers of episodes.

One pure step, `watch_step`, serves one new episode and a whole file alike: the state after some
episodes is the same, bit for bit, however many of them each call brings.

A number that is not finite ends the watch with a rollback: it fails towards the safe policy. Where the ratios
do not average to one, the episodes cannot say what the safe policy would have earned: no harm is shown then,
and no advantage; the status is `error` as long as that lasts. Nor is anything shown as long as the policies'
difference depends on a few episodes with large ratios.
"""

import dataclasses
from typing import Any

import numpy as np

from ..arrays import Flags, Floats
from ..episodes import EpisodeLog
from ..policies import Policy
from ..reasons import MIN_EPISODES
from ..safety import RATIO_TOLERANCE
from .confidence import RunningSums, accumulated, lower_bounds, upper_bounds
from .watch_records import Evidence, Sequence, Signal, Watch, WatchReason, WatchState
from .weighing import Expected, WeighedEpisodes, weigh

SUPPORT_Z = 3.0  # standard errors by which the mean ratio may miss 1: enough to hold back, so few suffice


def watch_episodes(
    watch: Watch, state: WatchState, candidate: Policy, safe: Policy, log: EpisodeLog
) -> tuple[WatchState, Signal]:
    """The episodes of a log, one or many, in the order in which they happened, after those of the state."""
    if state.harm is not None:
        return state, signal_of(watch, state)
    weighed, expected = weighed_episodes(watch, state, candidate, safe, log)
    state, _ = watch_step(watch, state, weighed)
    state = dataclasses.replace(state, expected=expected if state.harm is None else watch.begin().expected)
    return state, signal_of(watch, state)


def weighed_episodes(
    watch: Watch, state: WatchState, candidate: Policy, safe: Policy, log: EpisodeLog
) -> tuple[WeighedEpisodes, Expected]:
    """The episodes in numbers, and what to expect of the next."""
    return weigh(
        candidate,
        safe,
        log,
        watch.outcomes,
        state.expected,
        discount=watch.discount,
        memory=watch.memory,
    )


def watch_step(watch: Watch, state: WatchState, episodes: WeighedEpisodes) -> tuple[WatchState, Signal]:
    """The state after these episodes, and what it says. After harm, it says so and changes no more."""
    if state.harm is not None or not episodes.numbers.size:
        return state, signal_of(watch, state)
    path = followed(watch, state.sums, state.ratios, episodes)
    ends = ~path.finite | path.harmful.any(axis=-1)
    stop = int(np.argmax(ends)) if ends.any() else ends.size - 1
    harm = _evidence(watch, path, stop, episodes) if ends[stop] else None
    last = stop if path.finite[stop] else stop - 1  # what is not finite is not added
    if last >= 0:
        state = dataclasses.replace(state, sums=path.sums.at(last), ratios=path.ratios.at(last))
    state = dataclasses.replace(state, harm=harm)
    return state, signal_of(watch, state)


@dataclasses.dataclass(frozen=True, eq=False)
class Path:
    """What a watch knows after each episode: the first axis is time, the last one of bounds, outcomes."""

    sums: RunningSums
    ratios: RunningSums
    lower: Floats
    upper: Floats
    finite: Flags
    harmful: Flags


def followed(watch: Watch, sums: RunningSums, ratios: RunningSums, episodes: WeighedEpisodes) -> Path:
    """Every bound after every episode. Between time and outcomes there may be axes of many runs."""
    gaps = np.diff(episodes.ratios, axis=-1) ** 2
    sums = accumulated(sums, episodes.advantages, watch.min_episodes)
    ratios = accumulated(ratios, np.concatenate([episodes.ratios, gaps], axis=-1), watch.min_episodes)
    lower, upper = bounds(watch, sums, ratios)
    finite = np.asarray(sums.finite.all(axis=-1) & ratios.finite.all(axis=-1))
    return Path(sums, ratios, lower, upper, finite, upper < -watch.margins)


def bounds(watch: Watch, sums: RunningSums, ratios: RunningSums) -> tuple[Floats, Floats]:
    """Of the mean advantages; infinite where the episodes cannot tell the policies apart."""
    tells = (enough(ratios) & supported(ratios))[..., None]
    lower = lower_bounds(sums, watch.level, watch.tightest_at)
    upper = upper_bounds(sums, watch.level, watch.tightest_at)
    return np.where(tells, lower, -np.inf), np.where(tells, upper, np.inf)


def enough(ratios: RunningSums) -> Flags:
    """Whether the difference of the policies rests on enough episodes.

    The effective number of weights (Kong, 1992), which are the squares of its ratios: an episode counts in a
    variance by the square of its weight.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.asarray(ratios.total[..., 2] ** 2 / ratios.squares[..., 2] >= MIN_EPISODES)


def supported(ratios: RunningSums) -> Flags:
    """Whether both policies' mean ratios are 1, up to chance and to the digits of logged probabilities."""
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = SUPPORT_Z * np.sqrt(ratios.variance / ratios.count)
        excess = np.abs(ratios.mean - 1) - chance
        return np.asarray((excess[..., :2] <= RATIO_TOLERANCE).all(axis=-1))


def signal_of(watch: Watch, state: WatchState) -> Signal:
    """What a state says."""
    sums, level = state.sums, watch.level
    lower, upper = bounds(watch, sums, state.ratios)
    numbers = zip(sums.mean, lower, upper, strict=True)
    sequences = tuple(
        Sequence(name, _known(mean), _known(low), _known(high), margin, level)
        for name, (mean, low, high), margin in zip(watch.names, numbers, watch.margins.tolist(), strict=True)
    )
    return Signal(_reason(state, sequences), int(sums.count[0]), sequences, state.harm)


def _reason(state: WatchState, sequences: tuple[Sequence, ...]) -> WatchReason:
    if state.harm is not None:
        return state.harm.reason
    if not state.sums.scale.any() or not enough(state.ratios):
        return WatchReason.TOO_FEW
    if not supported(state.ratios):
        return WatchReason.NO_SUPPORT
    lower = sequences[0].lower
    return WatchReason.BETTER if lower is not None and lower > 0 else WatchReason.NOT_SHOWN


def _evidence(watch: Watch, path: Path, stop: int, episodes: WeighedEpisodes) -> Evidence:
    """The first sequence that ends the watch, in the order in which they are listed."""
    finite = bool(path.finite[stop])
    own = path.harmful[stop] if finite else ~path.sums.finite[stop]
    which = int(np.argmax(own))
    mean, upper = (values[stop, which] if finite else np.nan for values in (path.sums.mean, path.upper))
    return Evidence(
        WatchReason.HARM if finite else WatchReason.NOT_FINITE,
        watch.names[which],
        float(episodes.numbers[stop]),
        int(path.sums.count[stop, which]),
        _known(mean),
        _known(upper),
        float(watch.margins[which]),
        watch.level,
    )


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
