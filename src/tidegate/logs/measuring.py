"""The reduction of a log to episodes: what every policy would have earned in each, a block at a time.

What a step is worth is fitted to a sample of the log, so that it takes bounded memory. An episode is
predicted from others alone: those whose place in time is odd from those whose place is even, and the reverse.
Blocks have one shape, and every number of an episode follows from its own steps and from the sample: so it is
the same, bit for bit, whichever block the episode is in.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..arrays import Flags, Grid, Integers, Layout, Ragged, kept, map_leaves, room_for
from ..door import to_grid
from ..episodes import EpisodeLog, grow, roomy
from ..forecast import ForecastSettings, acts_of, estimated_returns, gap_between, has_contexts
from ..policies import Policy, lists_actions
from ..returns import log_ratios, observed_returns, stopped_ratios

BLOCK_CELLS, FEWEST_ROWS = 2**17, 64
REWARD = ""  # the outcome that every log has

Fit = Any  # a model of the episodes at even places in time, or at odd ones


class Predictors(eqx.Module):
    """What was fitted to a fold of the sample, by outcome and kind of values.

    `acts` predict what a rival does that does not list its probabilities. `contexts` says whether the
    probability of an action differed from step to step of the sample.
    """

    values: dict[str, dict[bool, Fit]]
    acts: Fit | None
    contexts: Bool[Array, ""]


class MeasuredBlock(eqx.Module):
    """A block of episodes reduced; the first axis of a pair is that of the policies."""

    ratios: Float[Array, "p n"]
    stopped: Float[Array, "p n"]
    peaks: Float[Array, "p n"]
    observed: dict[str, Float[Array, " n"]]
    returns: dict[str, Float[Array, "p n"]]
    gaps: dict[str, tuple[Float[Array, " n"], Float[Array, " n"]]]


@kept
def fit_predictors(
    settings: ForecastSettings, policies: tuple[Policy, ...], folds: tuple[EpisodeLog, EpisodeLog]
) -> tuple[Predictors, Predictors]:
    """The value models of both halves of a sample, if the settings have one."""
    contexts = has_contexts(*folds)
    even, odd = (_fitted(settings, policies, fold, contexts) for fold in folds)
    return even, odd


def _fitted(
    settings: ForecastSettings, policies: tuple[Policy, ...], fold: EpisodeLog, contexts: Bool[Array, ""]
) -> Predictors:
    model, discount = settings.value_model, settings.discount
    if model is None:
        return Predictors({}, None, contexts)

    def fitted(log: EpisodeLog, discount: float, per_action: bool) -> Fit:
        return model.fit(log, discount, log.num_actions, per_action=per_action)

    kinds = sorted({lists_actions(one, fold) for one in policies})
    values = {
        name: {kind: fitted(of_outcome(fold, name), discount, kind) for kind in kinds}
        for name in outcomes_of(fold)
    }
    if len(kinds) < 2 or not settings.test.rivals(policies[-1]):
        return Predictors(values, None, contexts)
    rival = next(one for one in policies if not lists_actions(one, fold))
    return Predictors(values, fitted(acts_of(rival, fold), 0.0, True), contexts)


@kept
def measure_block(
    settings: ForecastSettings,
    policies: tuple[Policy, ...],
    predictors: Predictors,
    log: EpisodeLog,
    longest: int,
) -> MeasuredBlock:
    """The episodes of a block, none of which the predictors were fitted to, reduced; the longest of the whole
    log has `longest` steps."""
    kinds = [lists_actions(one, log) for one in policies]
    acts = None if predictors.acts is None else predictors.acts(log)
    returns, gaps, observed = {}, {}, {}
    for name in outcomes_of(log):
        watched = of_outcome(log, name)
        values = {kind: fit(log) for kind, fit in predictors.values.get(name, {}).items()}
        each = [
            estimated_returns(settings, one, watched, values.get(kind))
            for one, kind in zip(policies, kinds, strict=True)
        ]
        returns[name], observed[name] = jnp.stack(each), observed_returns(watched, settings.discount)
        if acts is not None:
            pair, listing = (policies[0], policies[1]), kinds.index(True)
            gap = gap_between(pair, listing, returns[name], watched, settings.discount, values, acts)
            gaps[name] = (gap.plain, gap.added)
    ratios = jnp.stack([log_ratios(one, log) for one in policies])
    return MeasuredBlock(
        jnp.sum(ratios, axis=-1),
        jnp.stack([stopped_ratios(one, log, settings.discount, longest) for one in policies]),
        jnp.max(jnp.where(log.mask, jnp.cumsum(ratios, axis=-1), -jnp.inf), axis=-1),
        observed,
        returns,
        gaps,
    )


def outcomes_of(log: EpisodeLog) -> tuple[str, ...]:
    """The reward, and what else was measured."""
    return (REWARD, *log.outcomes)


def of_outcome(log: EpisodeLog, name: str) -> EpisodeLog:
    """The log with this outcome in place of the rewards."""
    return log.of_rewards() if name == REWARD else log.with_outcome(name)


def sample_folds(sample: EpisodeLog, odd: Any, rooms: Sequence[int]) -> tuple[EpisodeLog, EpisodeLog]:
    """The episodes of a sample at even and at odd places in time, with room for the log's longest episode."""
    log = laid_out(sample, rooms)
    even, uneven = (roomy(log.take(np.flatnonzero(one))) for one in (~odd, odd))
    return even, uneven


def laid_out(log: EpisodeLog, rooms: Sequence[int]) -> EpisodeLog:
    """Some episodes of a log in the layout of all: a sum over steps has the same bits in one layout only."""
    return on_grid(log, rooms[0]) if len(rooms) == 1 else ragged(log, rooms[-1])


def on_grid(log: EpisodeLog, num_steps: int) -> EpisodeLog:
    """The same episodes, each with room for so many steps."""
    if not isinstance(log.layout, Ragged) and log.num_steps == num_steps:
        return map_leaves(np.asarray, log)
    mask = np.arange(num_steps) < log.lengths[:, None]
    return _laid(log, lambda leaf: to_grid(leaf, mask), Grid())


def ragged(log: EpisodeLog, longest: int) -> EpisodeLog:
    """The same episodes, their steps one after the other; the longest of the whole log has `longest`."""
    return _laid(log, lambda leaf: leaf, Ragged.of(log.lengths, longest))


def _laid(log: EpisodeLog, lay: Callable[[Any], Any], layout: Layout) -> EpisodeLog:
    """The log with its steps in another layout: `lay` puts the values of all steps in their places."""
    mask, numbers = np.asarray(log.mask), log.episode_numbers
    bare = dataclasses.replace(log, episode_numbers=None, layout=Grid())  # type: ignore[arg-type]
    steps = map_leaves(lambda leaf: lay(np.asarray(leaf)[mask]), bare)
    placed: EpisodeLog = dataclasses.replace(steps, episode_numbers=np.asarray(numbers), layout=layout)
    return placed


def block_rows(num_steps: int, num_episodes: int) -> int:
    """How many episodes of so many steps a block holds, in a log with so many of one fold."""
    most = min(BLOCK_CELLS // num_steps, room_for(num_episodes) + FEWEST_ROWS - 1)
    return max(FEWEST_ROWS, most // FEWEST_ROWS * FEWEST_ROWS)


def blocks_of(
    log: EpisodeLog, sizes: Mapping[int, int], odd: Flags
) -> Iterator[tuple[EpisodeLog, Integers, bool]]:
    """The episodes in blocks of one shape for each number of steps; which rows are in each, and which fold.

    `sizes` tells how many episodes a block holds, for each number of steps that they have room for.
    """
    rooms = np.array(sorted(sizes))
    room = rooms[np.searchsorted(rooms, log.lengths)]
    for num_steps, fold in itertools.product(np.unique(room).tolist(), (False, True)):
        rows, size = np.flatnonzero((room == num_steps) & (odd == fold)), sizes[num_steps]
        for start in range(0, rows.size, size):
            chosen = rows[start : start + size]
            part = log if chosen.size == log.capacity else log.take(chosen)
            yield grow(on_grid(part, num_steps), size), chosen, fold
