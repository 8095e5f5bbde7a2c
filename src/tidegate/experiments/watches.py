"""Watches in worlds that are known: how often one rolls back without reason, and how soon with one.

In a world there are a few actions; the new policy takes them with the probabilities `candidate`, and the safe
one would have taken them with `safe`. Episodes are weighted by `predicted`, as in `weigh`, and followed by
the watch's own path, many runs side by side.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.stats import beta

from ..arrays import Floats, Integers
from ..gates.guardrails import Guardrail
from ..gates.watch import followed
from ..gates.watch_records import Watch
from ..gates.weighing import Expected, WeighedEpisodes, predicted

Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]
Means = Callable[[Floats], Floats]
NEVER = np.iinfo(np.int64).max
BLOCK = 100  # runs at a time


@dataclasses.dataclass(frozen=True)
class WatchedWorld:
    """`means` gives, for episode numbers, the mean of each action (episodes, actions); `noise` is added.

    `harmless` says that the mean advantage since the release never is below zero.
    """

    name: str
    candidate: Floats
    safe: Floats
    means: Means
    noise: Noise
    harmless: bool = True

    def advantage(self, episodes: Floats) -> Floats:
        """The true advantage of the new policy, episode by episode."""
        return np.asarray(self.means(episodes) @ (self.candidate - self.safe))

    def draw(self, rng: np.random.Generator, runs: int, episodes: int, outcomes: int = 1) -> WeighedEpisodes:
        """So many runs, as a watch sees them; each outcome has a noise of its own.

        Where there is harm, it is to the reward alone.
        """
        numbers = np.arange(episodes, dtype=np.float64)
        actions = rng.choice(self.candidate.size, size=(episodes, runs), p=self.candidate)
        ratios = (self.safe / self.candidate)[actions]
        means = np.take_along_axis(self.means(numbers), actions, axis=1)
        others = means if self.harmless else np.zeros_like(means)
        watched = [
            one_step_advantages(ratios, level + self.noise(rng, actions.shape))
            for level in (means, *[others] * (outcomes - 1))
        ]
        return WeighedEpisodes(
            numbers[1:],
            np.stack(watched, axis=-1)[1:],
            np.stack([np.ones_like(ratios), ratios], axis=-1)[1:],
        )


def one_step_advantages(ratios: Floats, rewards: Floats, memory: float = 100.0) -> Floats:
    """What `weigh` gives for one-step episodes of the candidate: (episodes, runs); the first is of no use."""
    count = rewards.shape[0]
    starts = np.arange(count)
    expected = Expected.nothing((rewards.shape[1],))
    values, _ = predicted(expected, rewards.T.copy(), np.ones(count, np.int64), starts, memory)
    return np.asarray((1 - ratios) * (rewards - values.T))


def rollbacks(watch: Watch, world: WatchedWorld, runs: int, episodes: int, seed: int) -> Integers:
    """After how many episodes since the release each run is rolled back; `NEVER` if it is not."""
    found = []
    for start in range(0, runs, BLOCK):
        rng = np.random.default_rng([seed, start])
        count = min(BLOCK, runs - start)
        drawn = world.draw(rng, count, episodes, len(watch.names))
        found.append(first_harm(watch, drawn))
    return np.concatenate(found)


def first_harm(watch: Watch, drawn: WeighedEpisodes) -> Integers:
    """The same for episodes that were drawn: the first, which is no evidence, counts."""
    state = watch.begin()
    harmful = followed(watch, state.sums, state.ratios, drawn).harmful.any(axis=-1)
    return np.where(harmful.any(axis=0), np.argmax(harmful, axis=0) + 2, NEVER)


def rate_interval(count: int, total: int) -> tuple[float, float]:
    """Of Clopper and Pearson, at 95 %."""
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return float(low), float(high)


def half_deviation(world: WatchedWorld, direction: Floats, of_reward: bool = False) -> WatchedWorld:
    """The world with a harm of half a standard deviation: of an episode's advantage, or of its reward.

    `direction` says by how much each action becomes worse, up to a factor; the world's noise has variance 1.
    """
    chosen, gap = world.candidate, 1 - world.safe / world.candidate
    centred = direction - chosen @ direction
    loss = direction @ (world.candidate - world.safe)
    weights = np.ones_like(gap) if of_reward else gap**2
    # (size · loss)² = ¼ · variance; an advantage has the mean −size · loss, its square is no variance.
    between, within = chosen @ (weights * centred**2), chosen @ weights
    squared = 0.0 if of_reward else loss**2
    size = np.sqrt(0.25 * within / (loss**2 - 0.25 * (between - squared))) * np.sign(loss)
    what = "reward" if of_reward else "advantage"
    return dataclasses.replace(
        world,
        name=f"{world.name}: half a standard deviation of the {what}",
        means=lambda numbers: np.tile(-size * direction, (numbers.size, 1)),
        harmless=False,
    )


def watch_with(guardrails: int) -> Watch:
    """A watch of the reward and of so many other outcomes, which may not become worse at all."""
    rails = tuple(Guardrail(f"outcome {i}", 0.0, lower_is_better=False) for i in range(guardrails))
    return Watch(guardrails=rails)


def softmax(*logits: float) -> Floats:
    """Probabilities from logits."""
    powers = np.exp(np.array(logits))
    return np.asarray(powers / powers.sum())


def greedy(actions: int, best: int, least: float) -> Floats:
    """The best action, and every other one with the least probability."""
    found = np.full(actions, least)
    found[best] = 1 - least * (actions - 1)
    return found


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.normal(size=shape)


def _right(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.exponential(size=shape)


def _left(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return -rng.exponential(size=shape)


def _heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.lognormal(size=shape)


def _rare(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.asarray((rng.random(shape) < 0.05) * 1.0)


def _complaints(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.asarray((rng.random(shape) < 0.05) * -1.0)


def _seldom(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.asarray((rng.random(shape) < 0.01) * -1.0)


def _t3(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_t(3, size=shape)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.asarray(0.3 * rng.normal(size=shape))


def _growing(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    scale = np.exp(3.0 * np.arange(shape[0]) / shape[0])
    return np.asarray(scale[:, None] * rng.normal(size=shape))


def _moving(course: Callable[[Floats], Floats], direction: Floats) -> Means:
    return lambda numbers: np.asarray(course(numbers)[:, None] * direction)


NEW, OLD = softmax(2, 1.5, 1.2, 1, 1), softmax(1, 1, 1.2, 1.5, 2)
TOWARDS = (NEW - OLD) / ((NEW - OLD) @ (NEW - OLD))  # worth 1 more to the new policy
SAME = np.zeros(5)
# Worth nothing in the difference: what the new policy gains by one action it loses by another.
SPREAD = np.array([1.0, 0.2, 0.5, 0.3, 0.9])
BALANCED = SPREAD - (SPREAD @ (NEW - OLD)) * TOWARDS
# The gain from the third action, which the new policy hardly ever takes, is lost by the second.
RARELY, COSTS = (np.array([0.6, 0.37, 0.03]), np.array([0.5, 0.2, 0.3])), np.array([0, -0.27 / 0.17, -1])


def _still(values: Floats) -> Means:
    return lambda numbers: np.tile(values, (numbers.size, 1))


def worlds() -> tuple[WatchedWorld, ...]:
    """Worlds without harm: the mean advantage since the release is zero or more at every time."""
    none = _still(SAME)
    level = _moving(lambda at: 3 * np.sin(at / 150), np.ones(5))
    apart = greedy(5, 0, 0.05), greedy(5, 1, 0.05)
    far = greedy(5, 0, 0.02), greedy(5, 1, 0.02)
    return (
        WatchedWorld("no difference, normal rewards", NEW, OLD, none, _normal),
        WatchedWorld("rewards skewed to the right (exponential)", NEW, OLD, none, _right),
        WatchedWorld("rewards skewed to the left (exponential)", NEW, OLD, none, _left),
        WatchedWorld("heavy tails (Student's t, 3 degrees)", NEW, OLD, none, _t3),
        WatchedWorld("skewed and heavy (log-normal)", NEW, OLD, none, _heavy),
        WatchedWorld("clicks, 5 in 100", NEW, OLD, none, _rare),
        WatchedWorld("complaints, 5 in 100", NEW, OLD, none, _complaints),
        WatchedWorld("complaints, 1 in 100", NEW, OLD, none, _seldom),
        WatchedWorld("actions differ, no advantage", NEW, OLD, _still(BALANCED), _normal),
        WatchedWorld("advantage grows from 0", NEW, OLD, _moving(lambda at: at / 5_000, TOWARDS), _normal),
        WatchedWorld(
            "seasonal advantage, mean back at 0 every 500", NEW, OLD,
            _moving(lambda at: np.sin(2 * np.pi * at / 500), TOWARDS), _normal,
        ),
        WatchedWorld("level of rewards swings by 3", NEW, OLD, level, _normal),
        WatchedWorld("noise grows twentyfold", NEW, OLD, none, _growing),
        WatchedWorld("other actions almost always, 5 in 100 the rest", *apart, none, _normal),
        WatchedWorld("the same, skewed to the left", *apart, none, _left),
        WatchedWorld("other actions almost always, 2 in 100 the rest", *far, none, _normal),
        WatchedWorld("a costly action avoided, seen 3 in 100 times", *RARELY, _still(COSTS), _small),
    )  # fmt: skip


def harms() -> tuple[WatchedWorld, ...]:
    """Worlds in which the new policy is worse by half a standard deviation, from the release on."""
    still = WatchedWorld("softmax policies", NEW, OLD, _still(SAME), _normal)
    skewed = dataclasses.replace(still, name="skewed rewards", noise=_right)
    apart = WatchedWorld(
        "almost always other actions", greedy(3, 0, 0.1), greedy(3, 1, 0.1), _still(np.zeros(3)), _normal
    )
    return (
        half_deviation(still, NEW - OLD),
        half_deviation(still, NEW - OLD, of_reward=True),
        half_deviation(skewed, NEW - OLD),
        half_deviation(apart, apart.candidate - apart.safe, of_reward=True),
    )
