"""The log of past episodes: episodes × steps, checked once at the door, then trusted.

An `EpisodeLog` may hold spare rows. A row whose first step is masked out is not an episode: it has weight
zero everywhere, so programs for a fixed capacity are compiled once and the rows filled as data arrive.

Where episodes are of very unequal length, their steps lie one after the other instead (`Ragged`): then
memory grows with the number of steps, not with the longest episode.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from .arrays import (
    ArrayLike,
    Flags,
    Floats,
    Grid,
    Integers,
    Layout,
    Ragged,
    in_double,
    map_leaves,
    room_for,
    times_sign,
    with_zeros,
)
from .door import Propensity, check_arrays, check_frame
from .errors import LogError, SettingsError
from .inputs import by_name, member, names, none_or, number, seed_of, text, whole

JITTER = 16.0  # places
WIDE_ROOMS = (64, 256, 1024, 4096)  # episodes


class EpisodeLog(eqx.Module):
    """Logged episodes, padded to one length; build it with `from_arrays` or `from_frame`.

    `layout` says where the steps lie: `cells` are (episodes, steps), or the steps one after the other.
    `recorded` holds, by a policy's name, its log-probability of each logged action, or of all actions.
    `outcomes` are other quantities measured at each step besides the reward, by name, for guardrails to
    watch. Returns and forecasts are of `rewards` alone; see `with_outcome`.
    """

    episode_numbers: Float[ArrayLike, " n"]
    actions: Shaped[ArrayLike, "..."]
    behavior_log_probs: Float[ArrayLike, "*cells"]
    rewards: Float[ArrayLike, "*cells"]
    mask: Bool[ArrayLike, "*cells"]
    states: Shaped[ArrayLike, "..."] | None = None
    recorded: dict[str, Float[ArrayLike, "..."]] = eqx.field(default_factory=dict)
    outcomes: dict[str, Float[ArrayLike, "*cells"]] = eqx.field(default_factory=dict)
    num_actions: int | None = eqx.field(static=True, default=None)
    layout: Layout = eqx.field(default_factory=Grid)

    @classmethod
    def from_arrays(
        cls,
        actions: Any,
        rewards: Any,
        behavior: Any,
        *,
        propensity: Propensity = Propensity.PROBABILITY,
        episode_numbers: Any = None,
        mask: Any = None,
        states: Any = None,
        recorded: Mapping[str, Any] | None = None,
        outcomes: Mapping[str, Any] | None = None,
        num_actions: int | None = None,
    ) -> Self:
        """Build from arrays of shape (episodes, steps); one-step episodes may be of shape (episodes,).

        `behavior` and each entry of `recorded` hold, for the logged action, what `propensity` says.
        Each entry of `outcomes` has the shape of the rewards.
        """
        return cls(
            **check_arrays(
                actions, rewards, behavior, member("propensity", Propensity, propensity),
                episode_numbers, mask, states, by_name("recorded", recorded),
                _num_actions(num_actions), by_name("outcomes", outcomes),
            )
        )  # fmt: skip

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        episode: str = "episode",
        step: str | None = "step",
        action: str | Sequence[str] = "action",
        behavior: str = "behavior_prob",
        reward: str = "reward",
        states: str | Sequence[str] = (),
        recorded: Mapping[str, str] | None = None,
        outcomes: Mapping[str, str] | None = None,
        propensity: Propensity = Propensity.PROBABILITY,
        num_actions: int | None = None,
        action_set: Sequence[Any] | None = None,
    ) -> Self:
        """Build from a pandas or polars frame with one row per step, sorted by episode and step.

        One-step logs need no `step` column. `recorded` maps a policy's name to the column with its
        probability of the logged action, `outcomes` an outcome's name to its column. `action_set`
        lists the labels when actions are not integers.
        """
        if isinstance(action_set, str):
            raise SettingsError(f"action_set is {action_set!r}.", expected="a list of labels")
        return cls(
            **check_frame(
                frame, text("episode", episode), none_or(partial(text, "step"), step),
                _one_or_more("action", action), text("behavior", behavior), text("reward", reward),
                _one_or_more("states", states) if states else (), by_name("recorded", recorded),
                member("propensity", Propensity, propensity), _num_actions(num_actions), action_set,
                by_name("outcomes", outcomes),
            )
        )  # fmt: skip

    @property
    def present(self) -> Bool[ArrayLike, " n"]:
        """Which rows hold an episode."""
        first: ArrayLike = self.layout.firsts(self.mask)
        return first

    @property
    def capacity(self) -> int:
        """Number of rows, spare ones included."""
        return int(self.episode_numbers.shape[0])

    @property
    def num_steps(self) -> int:
        """How many steps an episode may have."""
        return self.layout.longest(self.mask.shape)

    @property
    def step_numbers(self) -> Int[Array, "*cells"]:
        """The number of each step within its episode, from 0."""
        return self.layout.step_numbers(self.mask.shape)

    @property
    def lengths(self) -> Integers:
        """How many steps each row holds."""
        mask = np.asarray(self.mask)
        if not isinstance(self.layout, Ragged):
            return np.asarray(np.count_nonzero(mask, axis=1))
        return np.bincount(np.asarray(self.layout.rows)[mask], minlength=self.capacity)

    @property
    def num_episodes(self) -> int:
        return int(np.sum(np.asarray(self.present)))

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last episode number; (1, 0) when there is none."""
        numbers = np.asarray(self.episode_numbers)[np.asarray(self.present)]
        return (float(numbers.min()), float(numbers.max())) if numbers.size else (1.0, 0.0)

    def take(self, rows: Any) -> "EpisodeLog":
        """The episodes in these rows."""
        if isinstance(self.layout, Ragged):
            return _taken(self, self.layout, np.arange(self.capacity)[rows])
        return map_leaves(lambda leaf: leaf[rows], self)

    def only(self, rows: Bool[ArrayLike, " n"]) -> "EpisodeLog":
        """The log without the other episodes: they become spare rows, and the capacity stays."""
        return dataclasses.replace(self, mask=self.mask & self.layout.spread(rows))

    def with_actions(self, count: int) -> "EpisodeLog":
        """The log with more actions, which no recorded policy ever takes."""

        def wider(recorded: ArrayLike) -> ArrayLike:
            if recorded.ndim == self.mask.ndim or recorded.shape[-1] == count:
                return recorded
            spare = [(0, 0)] * self.mask.ndim + [(0, count - recorded.shape[-1])]
            return np.pad(np.asarray(recorded), spare, constant_values=-np.inf)

        recorded = {name: wider(one) for name, one in self.recorded.items()}
        return dataclasses.replace(self, num_actions=count, recorded=recorded)

    def with_outcome(self, name: str, sign: float = 1.0) -> Self:
        """The log with sign × this outcome in place of the rewards, so that every test is about it.

        The new log has no outcomes. For a harmful outcome use sign −1, so that more is better.
        """
        if name not in self.outcomes:
            raise LogError(
                f"the log has no outcome '{name}'.",
                expected=f"one of {sorted(self.outcomes)}",
                remedy=f"Pass outcomes={{'{name}': …}} when you build the log.",
            )
        return dataclasses.replace(self, rewards=times_sign(self.outcomes[name], sign), outcomes={})

    def of_rewards(self) -> Self:
        """The log without other outcomes: a test of the rewards is the same whatever else was measured."""
        return dataclasses.replace(self, outcomes={})

    @property
    def num_logged_steps(self) -> int:
        """How many steps all episodes have together."""
        return int(np.sum(np.asarray(self.mask)))

    def digest(self) -> str:
        """SHA-256 of the episodes, the same whatever the capacity and the layout."""
        return str(self._hashed().hexdigest())

    def _hashed(self) -> Any:
        sha, mask = hashlib.sha256(f"tidegate-log-2 {self.num_actions}".encode()), np.asarray(self.mask)
        policies, rest = (self.behavior_log_probs, self.recorded), (self.states, self.outcomes)
        steps, lengths = (self.actions, self.rewards, policies, rest), self.lengths
        include(sha, self.episode_numbers, lengths > 0)
        include(sha, lengths, lengths > 0)
        include(sha, steps, mask)
        return sha


def include(sha: Any, values: Any, where: Flags) -> None:
    """Add the values at some places to a hash, with their names and types."""
    count = int(np.count_nonzero(where))
    first = bool(where.reshape(-1)[:count].all())  # then no copy is made
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        cells = np.ascontiguousarray(leaf)
        rows = cells.reshape(-1, *cells.shape[where.ndim :])[:count] if first else cells[where]
        sha.update(f"{jax.tree_util.keystr(path)} {rows.dtype} {rows.shape}".encode())
        sha.update(rows.data)


def time_order(log: EpisodeLog) -> slice | Integers:
    """The rows that hold an episode, by episode number."""
    return rows_by_time(np.asarray(log.episode_numbers), np.asarray(log.present))


def rows_by_time(times: Floats, present: Flags) -> slice | Integers:
    """The rows that are there, in the order of time; if they lie so, a slice, which NumPy does not copy."""
    count = int(np.count_nonzero(present))
    if present[:count].all() and np.all(times[1:count] >= times[: max(count - 1, 0)]):
        return slice(count)
    rows = np.flatnonzero(present)
    return np.asarray(rows[np.argsort(times[rows], kind="stable")])


def in_time_order(log: EpisodeLog) -> EpisodeLog:
    """The episodes without spare rows, sorted by their numbers."""
    rows = time_order(log)
    whole = isinstance(rows, slice) and rows.stop == log.capacity
    return log if whole else log.take(rows)


def present_rows(log: EpisodeLog) -> slice | Flags:
    """The rows that hold an episode: the first ones, of which NumPy makes no copy, or any."""
    present = np.asarray(log.present)
    count = int(np.count_nonzero(present))
    return slice(count) if present[:count].all() else present


def _num_actions(given: Any) -> int | None:
    return none_or(partial(whole, "num_actions", low=1), given)


def _one_or_more(name: str, given: Any) -> str | tuple[str, ...]:
    """A column, or several: here a comma may be part of a column's name."""
    return given if isinstance(given, str) else names(name, given)


def _taken(log: EpisodeLog, layout: Ragged, rows: Integers) -> EpisodeLog:
    chosen = Ragged.of(layout.lengths[rows], layout.num_steps)
    places = np.asarray(layout.starts)[rows][chosen.rows] + chosen.steps
    return _with_steps(log, lambda leaf: leaf[places], np.asarray(log.episode_numbers)[rows], chosen)


def _with_steps(
    log: EpisodeLog, change: Callable[..., Any], numbers: Any, layout: Ragged, *others: EpisodeLog
) -> EpisodeLog:
    """Another ragged log: `change` is applied to all that is known per step."""

    def steps(one: EpisodeLog) -> EpisodeLog:
        return dataclasses.replace(one, episode_numbers=None, layout=Grid())  # type: ignore[arg-type]

    changed = map_leaves(change, steps(log), *(steps(other) for other in others))
    return dataclasses.replace(changed, episode_numbers=numbers, layout=layout)


class TrainingEpisodes(eqx.Module):
    """Episodes that the candidate search may see; the safety test refuses them.

    `span` is the first and last episode number of the whole log: both halves forecast from its end.
    """

    log: EpisodeLog
    span: tuple[float, float] | None = None


class HeldOutEpisodes(eqx.Module):
    """Episodes that only the safety test may see; the candidate search refuses them."""

    log: EpisodeLog
    span: tuple[float, float] | None = None


@in_double
def split_log(
    log: EpisodeLog, *, train_fraction: float = 0.5, seed: int | None = None
) -> tuple[TrainingEpisodes, HeldOutEpisodes]:
    """Send ⌊train_fraction · n⌋ episodes to training and the rest to the test.

    Which ones depends only on their number, so nobody can try splits until the verdict suits them. The
    commands split like this. With a seed, the split is random.
    """
    rows = np.flatnonzero(np.asarray(log.present))
    count = training_count(rows.size, train_fraction)
    seed = none_or(seed_of, seed)
    if seed is None:
        trains = training_flags(rows.size, count)
        train, held_out = rows[trains], rows[~trains]
    else:
        train, held_out = (
            np.sort(rows[np.asarray(one)]) for one in split_rows(jax.random.key(seed), rows.size, count)
        )
    return (
        TrainingEpisodes(log.take(train), log.span),
        HeldOutEpisodes(log.take(held_out), log.span),
    )


def training_flags(count: int, num_train: int) -> Flags:
    """Which of `count` rows are for training, spread evenly over them, the same each time.

    Every k-th row is taken, after each row was moved by up to `JITTER` places. Without that, the split could
    fall into step with a rhythm of the log, such as the days of a week.
    """
    places = np.arange(count)
    order = np.argsort(places + JITTER * hashed(places), kind="stable")
    taken = (places + 1) * num_train // max(count, 1) > places * num_train // max(count, 1)
    flags = np.zeros(count, bool)
    flags[order[taken]] = True
    return flags


def hashed(numbers: Integers) -> Floats:
    """Numbers in [0, 1) that look random: splitmix64 (Steele, Lea and Flood, 2014), whatever the library."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64)


def split_rows(key: PRNGKeyArray, count: int, num_train: int) -> tuple[Int[Array, " m"], Int[Array, " n"]]:
    """Which of `count` rows are for training and which for the test, in a random order."""
    order = jax.random.permutation(key, count)
    return order[:num_train], order[num_train:]


def training_count(num_episodes: int, train_fraction: float) -> int:
    """⌊train_fraction · n⌋, safe against 0.29 · 100 = 28.999…"""
    share = number("train_fraction", train_fraction, 0, 1)
    return int(np.floor(round(share * num_episodes, 9)))


def empty_like(window: EpisodeLog, capacity: int) -> EpisodeLog:
    """A log of spare rows with the window's shapes."""
    _require_grid(window)
    return map_leaves(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), jnp.asarray(leaf).dtype), window)


def _require_grid(window: EpisodeLog) -> None:
    if isinstance(window.layout, Ragged):
        raise LogError(
            f"the window's episodes have up to {window.num_steps} steps, and most have far fewer.",
            expected="episodes of about the same length, since each gets the room of the longest",
            remedy="Split the long episodes.",
        )


def grow(log: EpisodeLog, capacity: int) -> EpisodeLog:
    """The same episodes with room for `capacity` of them."""
    if capacity < log.capacity:
        raise LogError(f"cannot shrink a log of capacity {log.capacity} to {capacity}")
    if capacity == log.capacity:
        return log
    if isinstance(log.layout, Ragged):
        return _with_spare_rows(log, log.layout, capacity - log.capacity)
    return map_leaves(partial(with_zeros, count=capacity - log.capacity), log)


def roomy(log: EpisodeLog) -> EpisodeLog:
    """The log with a few spare rows, so that one compiled program serves logs of about this length."""
    if isinstance(log.layout, Ragged):  # whose steps would have to be as many, too
        return log if log.capacity else grow(log, 1)
    return grow(log, room_for(log.capacity))


def very_roomy(log: EpisodeLog) -> EpisodeLog:
    """The same for batches of any length, where the work is little and a program for each length is much."""
    rooms = () if isinstance(log.layout, Ragged) else WIDE_ROOMS
    return next((grow(log, one) for one in rooms if log.capacity <= one), roomy(log))


def _with_spare_rows(log: EpisodeLog, layout: Ragged, count: int) -> EpisodeLog:
    """Each spare row is one step that is masked out."""

    def longer(leaf: Any) -> Any:
        return np.concatenate([leaf, np.zeros((count, *leaf.shape[1:]), leaf.dtype)])

    grown = Ragged.of(np.append(layout.lengths, np.ones(count, int)), layout.num_steps)
    return _with_steps(log, longer, longer(np.asarray(log.episode_numbers)), grown)


def joined(first: EpisodeLog, second: EpisodeLog) -> EpisodeLog:
    """The episodes of both, one log after the other."""

    def both(a: Any, b: Any) -> Any:
        return np.concatenate([a, b])

    if not isinstance(first.layout, Ragged) or not isinstance(second.layout, Ragged):
        return map_leaves(both, first, second)
    lengths = np.append(first.layout.lengths, second.layout.lengths)
    layout = Ragged.of(lengths, max(first.num_steps, second.num_steps))
    return _with_steps(first, both, both(first.episode_numbers, second.episode_numbers), layout, second)


def insert(log: EpisodeLog, episodes: EpisodeLog, row: Any) -> EpisodeLog:
    """Write `episodes` into the spare rows that start at `row`."""
    if episodes.capacity == 0:
        return log
    return map_leaves(
        lambda into, new: jax.lax.dynamic_update_slice_in_dim(
            into, jnp.asarray(new, into.dtype), row, axis=0
        ),
        log,
        episodes,
    )


def pad_steps(log: EpisodeLog, num_steps: int) -> EpisodeLog:
    """The same episodes with room for `num_steps` steps each."""
    _require_grid(log)
    spare = num_steps - log.mask.shape[1]
    if spare < 0:
        raise LogError(
            f"an episode has {log.mask.shape[1]} steps.",
            expected=f"at most {num_steps}, as in the first window",
            remedy="Pad the first window to the longest episode that can occur.",
        )
    if spare == 0:
        return log

    def pad(leaf: Any) -> Any:
        if leaf.ndim == 1:  # episode numbers have no steps
            return leaf
        return jnp.pad(jnp.asarray(leaf), ((0, 0), (0, spare), *[(0, 0)] * (leaf.ndim - 2)))

    return map_leaves(pad, log)


def conform(window: EpisodeLog, log: EpisodeLog) -> EpisodeLog:
    """The window with the log's number of steps and actions, or an error that names the difference."""
    for name in ("states", "recorded", "outcomes", "num_actions"):
        mine, theirs = getattr(window, name), getattr(log, name)
        named = isinstance(theirs, dict)
        if (mine is None) != (theirs is None) or (named and set(mine) != set(theirs)):
            raise LogError(
                f"the window's {name} differ from those of earlier windows.",
                expected=f"{sorted(theirs)}" if named else "",
                remedy="Build every window in the same way.",
            )
    if window.num_actions is not None and log.num_actions is not None:
        if window.num_actions > log.num_actions:
            raise LogError(
                f"the window has {window.num_actions} actions.",
                expected=f"at most {log.num_actions}, as in the first window",
                remedy="Pass num_actions=… when you build a window.",
            )
        window = window.with_actions(log.num_actions)
    return pad_steps(window, log.mask.shape[1])
