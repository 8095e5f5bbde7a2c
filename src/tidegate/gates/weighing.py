"""How much better was each episode than it would have been under the other policy? Known as it happens.

An episode was logged under the new policy. What the safe policy would have earned in it is an importance
sampling estimate, and the advantage of the episode is the difference of both policies' returns. From each
return-to-go, its mean over earlier episodes is taken first: `dr_returns` with values that depend on the past
alone, so that the difference stays unbiased given the past. For one step that is

    (w_candidate − w_safe) · (reward − mean of the rewards before),

w being the ratios of a policy's probability to the logged one: exactly 1 for a candidate that took the
actions itself.

Among all baselines, the mean of earlier rewards *weighted by* (w_candidate − w_safe)² has the least variance.
It is not used. Where ratios vary much, such a mean depends on the few rewards that had large ratios, and
until the next of these comes, the advantages lean to one side. A bound that is watched all the time must not
lean: with the plain mean, what usually happens is worth about nothing, as it should be. Means forget, so they
follow a world that drifts.
"""

import dataclasses
from typing import Self

import numpy as np
from jaxtyping import Array, Float

from ..arrays import Floats, Integers, Ragged, in_double, kept
from ..episodes import EpisodeLog, very_roomy
from ..policies import Policy
from ..returns import dr_returns, episode_ratios
from ..values import reward_to_go

FORGOTTEN = 1e-9  # episodes: where the means rest on fewer, nothing is known


@dataclasses.dataclass(frozen=True, eq=False)
class Expected:
    """What an episode may earn from each of its steps on, as far as earlier episodes tell.

    `sums` (…, steps) are of their returns-to-go, `counts` (steps) of the episodes, both with the weight
    (1 − 1/memory) to the power of an episode's age.
    """

    sums: Floats
    counts: Floats

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> Self:
        """Before the first episode."""
        return cls(np.zeros((*shape, 0)), np.zeros(0))

    @property
    def known(self) -> int:
        """For how many steps there is a mean: every episode that reaches a step has reached the earlier."""
        return int(np.sum(self.counts > FORGOTTEN))


@dataclasses.dataclass(frozen=True, eq=False)
class WeighedEpisodes:
    """Episodes as a watch sees them: their numbers, the advantage of each in each outcome, and their ratios.

    `advantages` are (episodes, …, outcomes), signed so that more is better, `ratios` (episodes, …, 2) of the
    candidate and of the safe policy.
    """

    numbers: Floats
    advantages: Floats
    ratios: Floats


def predicted(
    expected: Expected, to_go: Floats, lengths: Integers, starts: Integers, memory: float
) -> tuple[Floats, Expected]:
    """For each step, the mean of earlier returns-to-go from a step of this number; and what is known then.

    `to_go` is (…, cells): the steps of episode i are `lengths[i]` cells from `starts[i]` on. A step that no
    earlier episode has reached is expected to earn what the last known one does.
    """
    longest, kept = int(lengths.max(initial=0)), 1 - 1 / memory
    spare = max(0, longest - expected.counts.size)
    sums = np.pad(expected.sums, [(0, 0)] * (expected.sums.ndim - 1) + [(0, spare)])
    counts, values = np.pad(expected.counts, (0, spare)), np.zeros_like(to_go)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        values[..., start : start + length] = _means(Expected(sums, counts), length)
        sums, counts = sums * kept, counts * kept
        sums[..., :length] += to_go[..., start : start + length]
        counts[:length] += 1
    return values, Expected(sums, counts)


def _means(expected: Expected, length: int) -> Floats:
    known = expected.known
    if not known:
        return np.zeros((*expected.sums.shape[:-1], length))
    steps = np.minimum(np.arange(length), known - 1)
    return np.asarray(expected.sums[..., steps] / expected.counts[steps])


@in_double
def weigh(
    candidate: Policy,
    safe: Policy,
    log: EpisodeLog,
    outcomes: tuple[tuple[str | None, float], ...],
    expected: Expected,
    *,
    discount: float = 1.0,
    memory: float = 100.0,
) -> tuple[WeighedEpisodes, Expected]:
    """The advantage of each episode in each outcome, a name (None for the reward) with its sign.

    The episodes must be in the order in which they happened. The very first one has nothing to be compared
    with: it only tells what to expect.
    """
    lengths, padded = log.lengths, very_roomy(log)
    starts, present = _starts(padded), np.flatnonzero(lengths)
    logs = [padded if name is None else padded.with_outcome(name, sign) for name, sign in outcomes]
    logs = [dataclasses.replace(one, outcomes={}) for one in logs]
    to_go = np.stack([np.asarray(_to_go(one, discount)).reshape(-1) for one in logs])
    values, known = predicted(expected, to_go, lengths[present], starts[present], memory)
    shape = (*np.shape(padded.mask), 1)
    gaps = [
        _gaps(candidate, safe, one, discount, own.reshape(shape))
        for one, own in zip(logs, values, strict=True)
    ]
    ratios = [_ratios(policy, logs[0]) for policy in (candidate, safe)]
    chosen = present if expected.known else present[1:]
    return WeighedEpisodes(
        np.asarray(log.episode_numbers, np.float64)[chosen],
        np.stack([np.asarray(one) for one in gaps], axis=-1)[chosen],
        np.stack([np.asarray(one) for one in ratios], axis=-1)[chosen],
    ), known


@kept
def _to_go(log: EpisodeLog, discount: float) -> Float[Array, "*cells"]:
    return reward_to_go(log, discount)


@kept
def _gaps(
    candidate: Policy, safe: Policy, log: EpisodeLog, discount: float, values: Float[Array, "*cells 1"]
) -> Float[Array, " n"]:
    return dr_returns(candidate, log, discount, values) - dr_returns(safe, log, discount, values)


@kept
def _ratios(policy: Policy, log: EpisodeLog) -> Float[Array, " n"]:
    return episode_ratios(policy, log)


def _starts(log: EpisodeLog) -> Integers:
    """Where the steps of each episode begin, when all cells lie one after the other."""
    if isinstance(log.layout, Ragged):
        return np.asarray(log.layout.starts, np.int64)
    return np.arange(log.capacity, dtype=np.int64) * log.num_steps
