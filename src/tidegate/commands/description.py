"""What a found policy does: how often it takes each action, for whom it differs, and on what it rests.

"Logged" is what the log did: the share of each action, or the mean of a continuous one. The distance between
two policies is the probability that moves, ½ Σₐ |π(a) − π′(a)|; for continuous actions, how far the mean
moves, in standard deviations of the logged actions.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..arrays import Flags, Floats
from ..episodes import EpisodeLog
from ..serving import PolicyFile
from ..serving.policies import action_probabilities, outputs

MAX_STEPS = 20_000  # evenly spread over the log: a description needs no more
LEAST_STEPS, LEAST_SHARE = 30, 0.02  # of a group that is worth a word
MOST_ACTIONS, MOST_GROUPS, MOST_FEATURES = 10, 5, 10
NOTABLE = 0.01


@dataclasses.dataclass(frozen=True)
class Change:
    """How often an action is taken, or its mean if it is continuous."""

    action: str
    new: float
    logged: float


@dataclasses.dataclass(frozen=True)
class Group:
    """Steps that have something in common, how far apart the policies are there, and what changes most."""

    who: str
    share: float
    distance: float
    change: Change


@dataclasses.dataclass(frozen=True)
class Reliance:
    """How far the policy moves when the values of a feature are shuffled among the steps."""

    feature: str
    distance: float


@dataclasses.dataclass(frozen=True)
class PolicyDescription:
    """A policy beside the logged one, over the logged steps; only the largest differences are kept."""

    sentence: str
    continuous: bool
    actions: tuple[Change, ...]
    groups: tuple[Group, ...]
    features: tuple[Reliance, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class _Steps:
    """What the policy sees at some steps, what it does there, and what the log did; one column per action."""

    file: PolicyFile
    inputs: Floats
    new: Floats
    logged: Floats
    unit: Floats

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.file.actions or ()))

    def distance(self, first: Floats, second: Floats) -> Floats:
        """Between two policies, or two rows of such, along the last axis."""
        moved = np.abs(first - second) / self.unit
        return np.asarray(moved.mean(axis=-1) if self.file.continuous else moved.sum(axis=-1) / 2)


def describe_policy(file: PolicyFile, log: EpisodeLog) -> PolicyDescription:
    """The policy beside what the log did."""
    steps = _steps(file, log)
    groups = sorted(_groups(steps), key=lambda one: -one.distance)[:MOST_GROUPS]
    reliances = sorted(_reliances(steps), key=lambda one: -one.distance)[:MOST_FEATURES]
    changes = _changes(steps, np.ones(len(steps.inputs), bool))
    least = sorted(map(_size, changes))[-MOST_ACTIONS:][0]
    return PolicyDescription(
        sentence=_sentence(steps, changes, groups, reliances),
        continuous=file.continuous,
        actions=tuple(one for one in changes if _size(one) >= least),
        groups=tuple(groups),
        features=tuple(reliances),
    )


def _steps(file: PolicyFile, log: EpisodeLog) -> _Steps:
    filled = np.argwhere(np.asarray(log.mask))
    rows = filled[np.linspace(0, len(filled) - 1, min(len(filled), MAX_STEPS)).round().astype(np.int64)]
    where = tuple(rows.T)
    inputs = np.zeros((len(rows), 0)) if not file.features else np.asarray(log.states)[where]
    actions = np.asarray(log.actions)[where]
    if file.continuous:
        taken = actions.reshape(len(rows), -1).astype(np.float64)
        spread = taken.std(axis=0)
        return _Steps(file, inputs, outputs(file, inputs), taken, np.where(spread > 0, spread, 1.0))
    taken = (actions[:, None] == np.arange(file.size)).astype(np.float64)
    return _Steps(file, inputs, action_probabilities(file, inputs), taken, np.ones(file.size))


def _changes(steps: _Steps, rows: Flags) -> tuple[Change, ...]:
    new, logged = steps.new[rows].mean(axis=0), steps.logged[rows].mean(axis=0)
    pairs = zip(steps.labels, new.tolist(), logged.tolist(), strict=True)
    return tuple(Change(*one) for one in pairs)


def _size(change: Change) -> float:
    return abs(change.new - change.logged)


def _groups(steps: _Steps) -> Iterator[Group]:
    for who, rows in _splits(steps):
        share = float(rows.mean())
        if rows.sum() < LEAST_STEPS or not LEAST_SHARE <= share < 1:
            continue
        new, logged = steps.new[rows].mean(axis=0), steps.logged[rows].mean(axis=0)
        most = int(np.argmax(np.abs(new - logged) / steps.unit))
        yield Group(who, share, float(steps.distance(new, logged)), _changes(steps, rows)[most])


def _splits(steps: _Steps) -> Iterator[tuple[str, Flags]]:
    """Each category of a text, and both sides of a number's median."""
    for (name, category), values in zip(steps.file.inputs, steps.inputs.T, strict=True):
        if category is not None:
            yield f"{name} is {category}", values == 1
            continue
        middle = float(np.median(values))
        if values.max() > middle:
            yield f"{name} > {middle:.4g}", values > middle
            yield f"{name} ≤ {middle:.4g}", values <= middle
        else:
            yield f"{name} = {middle:.4g}", values == middle
            yield f"{name} < {middle:.4g}", values < middle


def _reliances(steps: _Steps) -> Iterator[Reliance]:
    order = np.random.default_rng(0).permutation(len(steps.inputs))  # the same for each feature and each run
    act = outputs if steps.file.continuous else action_probabilities
    first = 0
    for feature in steps.file.features or ():
        columns = slice(first, first := first + len(feature.inputs))
        shuffled = steps.inputs.copy()
        shuffled[:, columns] = steps.inputs[order, columns]
        moved = steps.distance(steps.new, act(steps.file, shuffled))
        yield Reliance(feature.name, float(moved.mean()))


def _sentence(
    steps: _Steps, changes: tuple[Change, ...], groups: list[Group], reliances: list[Reliance]
) -> str:
    continuous = steps.file.continuous
    sizes = np.array([one.new - one.logged for one in changes]) / steps.unit
    most = changes[int(np.argmax(np.abs(sizes)) if continuous else np.argmax(sizes))]
    if continuous:
        said = [f"The new policy's mean {most.action} is {most.new:.4g}, the log's {most.logged:.4g}"]
    elif most.new - most.logged < NOTABLE:
        said = ["The new policy takes each action about as often as the log did"]
    else:
        often = f"{most.new:.0%} of the steps, the log in {most.logged:.0%}"
        said = [f"The new policy takes {most.action} in {often}"]
    if groups and groups[0].distance >= NOTABLE:
        said.append(f"it differs most where {groups[0].who}")
    resting = [one.feature for one in reliances[:2] if one.distance >= NOTABLE]
    if resting:
        said.append(f"it depends mostly on {' and '.join(resting)}")
    return "; ".join(said) + "."
