"""A log reduced to episodes, the same way whether it is held or read in parts.

    task = reduction(settings, policies, outline, sample)
    blocks = task.measured(log, ranks)        of all episodes, or of some
    measured = assembled(outline, names, sample, [blocks, …])

What a step is worth is fitted to a sample of the episodes. All of them are then measured, block by block
(`measuring`), and lie in the order of time.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from ..arrays import ArrayLike, Flags, Floats, Integers, given_room, in_double, zeros_with_room
from ..door import unpadded
from ..episodes import EpisodeLog, hashed
from ..forecast import ForecastSettings
from ..measured import Estimates, MeasuredLog
from ..policies import MeasuredPolicy, ObservedPolicy, Policy
from .measuring import (
    REWARD,
    MeasuredBlock,
    Predictors,
    block_rows,
    blocks_of,
    fit_predictors,
    laid_out,
    measure_block,
    sample_folds,
)
from .specs import PolicySpec, SpecKind

SAMPLE_STEPS = 250_000
ROOM_RATIO = 4  # of the lengths that episodes have room for, where these are very unequal
SAMPLED = (
    "The log has more steps than a model of the rewards is fitted to: it was fitted to {sampled:,} of the "
    "{count:,} episodes, and findings about single steps are about these."
)

Blocks: TypeAlias = list[tuple[Integers, MeasuredBlock]]  # with the places in time of their episodes


@dataclasses.dataclass(frozen=True, eq=False)
class Outline:
    """When the episodes of a log were and how many steps each has, in the order of time.

    `numbers` are on the time axis, `began` is in the log's own terms (`LoadedLog.began`). `sampled` are the
    places of the sample.
    """

    numbers: Floats
    began: Floats
    lengths: Integers
    sampled: Integers

    @property
    def num_episodes(self) -> int:
        return int(self.numbers.size)

    @functools.cached_property
    def num_steps(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))

    @property
    def span(self) -> tuple[float, float]:
        return float(self.numbers[0]), float(self.numbers[-1])

    @functools.cached_property
    def rooms(self) -> tuple[int, ...]:
        """How many steps episodes have room for: one number, unless most would leave most of that empty."""
        longest = int(self.lengths.max())
        if not unpadded(self.lengths):
            return (longest,)
        powers = ROOM_RATIO ** np.arange(1, 64 // ROOM_RATIO)
        return (*powers[powers < longest].tolist(), longest)

    def laid_out(self, log: EpisodeLog) -> EpisodeLog:
        """Some of the episodes, in the layout that all of them would have."""
        return laid_out(log, self.rooms)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about a log of many steps."""
        sampled, count = self.sampled.size, self.num_episodes
        return () if sampled == count else (SAMPLED.format(sampled=sampled, count=count),)

    def digest(self, sample: EpisodeLog) -> str:
        """SHA-256 of when the episodes were, how long they are, and of all that the sample holds."""
        sha = hashlib.sha256(f"tidegate-outline-1 {sample.digest()}".encode())
        sha.update(np.ascontiguousarray(self.numbers).data)
        sha.update(np.ascontiguousarray(self.lengths, np.int64).data)
        return sha.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class Reduction:
    """All that it takes to measure episodes: one argument for whichever process does it."""

    settings: ForecastSettings
    policies: tuple[Policy, ...]
    predictors: tuple[Predictors, Predictors]
    rooms: tuple[int, ...]
    num_episodes: int

    @in_double
    def measured(self, log: EpisodeLog, ranks: Integers) -> Blocks:
        """What was found about these episodes, which lie at these places in time."""
        found: Blocks = []
        sizes = {room: block_rows(room, (self.num_episodes + 1) // 2) for room in self.rooms}
        for block, rows, odd in blocks_of(log, sizes, ranks % 2 == 1):
            others = self.predictors[not odd]
            one = measure_block(self.settings, self.policies, others, block, self.rooms[-1])
            found.append((ranks[rows], one))
        return found

    @property
    def contexts(self) -> bool:
        """Whether the probability of an action differed from step to step."""
        return bool(self.predictors[0].contexts)


@in_double
def reduction(
    settings: ForecastSettings, policies: tuple[Policy, ...], outline: Outline, sample: EpisodeLog
) -> Reduction:
    """Fit to the sample what a step is worth."""
    settings = settings.for_any_terms
    folds = sample_folds(sample, outline.sampled % 2 == 1, outline.rooms)
    predictors = fit_predictors(settings, policies, folds)
    return Reduction(settings, policies, predictors, outline.rooms, outline.num_episodes)


def share_of_sample(num_steps: int) -> float:
    """Which share of a log's episodes the sample holds."""
    return min(1.0, SAMPLE_STEPS / num_steps)


def in_sample(keys: Integers, share: float) -> Flags:
    """Whether the sample holds the episodes with these keys: as good as at random, and always the same."""
    return hashed(keys) < share


def sampled_places(keys: Integers, share: float) -> Integers:
    """The places in time of the sample's episodes, of which there is at least one."""
    found = np.flatnonzero(in_sample(keys, share))
    return found if found.size else np.array([np.argmin(hashed(keys))])


def known(policy: Policy, spec: PolicySpec | None) -> Policy:
    """The policy as the measured log knows it; what the logging policy would have earned is what was seen."""
    if spec is not None and spec.kind is SpecKind.BEHAVIOR:
        return ObservedPolicy(policy.digest())
    digest = policy.digest()
    return MeasuredPolicy(digest if spec is None else str(spec), digest)


def assembled(
    outline: Outline, task: Reduction, policies: tuple[Policy, ...], parts: Iterable[Blocks]
) -> MeasuredLog:
    """What was found about all episodes, in the order of time, of policies that are `known`."""
    count = outline.num_episodes
    names = {place: one.name for place, one in enumerate(policies) if isinstance(one, MeasuredPolicy)}
    several, filled = outline.rooms != (1,), np.zeros(count, bool)
    store: dict[Any, Floats] = {}

    def put(key: Any, ranks: Integers, values: Any) -> None:
        store.setdefault(key, zeros_with_room((count,), float))[ranks] = np.asarray(values)[: ranks.size]

    for part in parts:
        for ranks, block in part:
            filled[ranks] = True
            for place, name in names.items():
                put(("ratio", name), ranks, block.ratios[place])
                if several:
                    put(("stopped", name), ranks, block.stopped[place])
                    put(("peak", name), ranks, block.peaks[place])
            for outcome, returns in block.returns.items():
                put(("observed", outcome), ranks, block.observed[outcome])
                for place, name in names.items():
                    put(("return", outcome, name), ranks, returns[place])
                for place, gap in enumerate(block.gaps.get(outcome, ())):
                    put(("gap", outcome, place), ranks, gap)
    assert filled.all(), "an episode was not read"
    others = [outcome for kind, outcome, *_ in store if kind == "observed" and outcome != REWARD]

    def by_name(kind: str, *outcome: str) -> dict[str, ArrayLike]:
        return {
            name: store[kind, *outcome, name] for name in names.values() if (kind, *outcome, name) in store
        }

    def gaps(outcome: str) -> tuple[ArrayLike, ...]:
        return tuple(store[key] for key in (("gap", outcome, 0), ("gap", outcome, 1)) if key in store)

    return MeasuredLog(
        episode_numbers=given_room(outline.numbers),
        actions=zeros_with_room((count, 1), np.int8),
        behavior_log_probs=zeros_with_room((count, 1), np.int8),  # ratios are all that is known
        rewards=store["observed", REWARD][:, None],
        mask=given_room(np.ones((count, 1), bool)),
        recorded={name: values[:, None] for name, values in by_name("ratio").items()},
        outcomes={name: store["observed", name][:, None] for name in others},
        sizes=given_room(outline.lengths),
        stopped=by_name("stopped"),
        peaks=by_name("peak"),
        returns=by_name("return", REWARD),
        gaps=gaps(REWARD),
        others={name: Estimates(by_name("return", name), gaps(name)) for name in others},
        contexts=given_room(np.full(count, task.contexts)),
    )
