"""What a step is worth under the policy that logged it: predictions that reduce the noise of `dr_returns`.

A prediction reduces the noise of an estimate and adds no bias, however wrong it is, as long as it was
not fitted on the very episode it is used for: fit on the training half, use on the held-out half, or
`cross_fit` within one half. The world drifts, so the models follow time.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import Ragged, full_products, map_leaves, recurrence
from .episodes import EpisodeLog, grow
from .errors import LogError
from .inputs import instance, none_or, number, whole

CHUNK = 32  # rows that a filter treats as one product


class ValueModel(eqx.Module):
    """A recipe that predicts the reward-to-go Σ_{l≥t} γ^{l−t} r_l of each logged step for each action."""

    @abc.abstractmethod
    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "*cells a"]:
        """Fitted on `training` alone, evaluated at the rows of `log`.

        One value per action of the log, or a single one whatever the action (a = 1).
        """

    @abc.abstractmethod
    def fit(
        self, training: EpisodeLog, discount: float, num_actions: int | None, *, per_action: bool
    ) -> Callable[[EpisodeLog], Float[Array, "*cells a"]]:
        """`predict` in two parts: any log can follow whose episodes are no longer than those of this one."""

    def cross_fit(
        self, training: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "*cells a"]:
        """Each episode is predicted from the other fold; the folds alternate in time."""
        if isinstance(training.layout, Ragged):
            return self._cross_fit_ragged(training, discount, per_action)
        half = -(-training.capacity // 2)
        padded = grow(training, 2 * half)
        order = _time_order(padded)
        folds = map_leaves(
            lambda leaf: jnp.moveaxis(leaf.reshape(half, 2, *leaf.shape[1:]), 1, 0),
            padded.take(order),
        )

        def predicted_from(one: EpisodeLog, other: EpisodeLog) -> Float[Array, "*cells a"]:
            return self.predict(one, other, discount, per_action=per_action)

        predicted = jax.vmap(predicted_from)(map_leaves(lambda leaf: leaf[::-1], folds), folds)
        in_time = jnp.moveaxis(predicted, 0, 1).reshape(2 * half, *predicted.shape[2:])
        return in_time[jnp.argsort(order)][: training.capacity]

    def _cross_fit_ragged(
        self, training: EpisodeLog, discount: float, per_action: bool
    ) -> Float[Array, "s a"]:
        """The same, with the other fold masked out: the lengths of the folds follow from the times."""
        odd = alternating(training)
        from_odd, from_even = (
            self.predict(training.only(fold), training, discount, per_action=per_action)
            for fold in (odd, ~odd)
        )
        return jnp.where(training.layout.spread(odd)[:, None], from_even, from_odd)


class RecentMeans(ValueModel):
    """Means of the reward-to-go by action and step, over the episodes close in time.

    An episode has weight 2^(−|time difference| / half-life). The half-life is the one of span, span/2, …
    (`ladder` of them) whose past-only means best predicted each training episode in turn. `shrinkage`
    counts as that many episodes at the mean over all actions, so that a rarely seen action is assumed to be
    worth about as much as the others. Before the first and after the last training episode the mean at
    that end is used; without any data it is 0.
    """

    ladder: int = eqx.field(static=True, default=7, converter=partial(whole, "ladder", low=1, high=7))
    shrinkage: float = eqx.field(static=True, default=0.1, converter=partial(number, "shrinkage", above=0))

    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "*cells a"]:
        targets = reward_to_go(training, discount)
        return self.smooth(training, targets, _cells(training, log.num_actions, per_action), log)

    def fit(
        self, training: EpisodeLog, discount: float, num_actions: int | None, *, per_action: bool
    ) -> "RecentFit | RaggedFit":
        return self.remember(
            training, reward_to_go(training, discount), _cells(training, num_actions, per_action)
        )

    def smooth(
        self,
        training: EpisodeLog,
        targets: Float[Array, "..."],
        cells: Bool[Array, "... a"],
        log: EpisodeLog,
    ) -> Float[Array, "*cells a"]:
        """The means of these targets in each cell, at the times of `log`; rows in any order."""
        if training.capacity == 0:
            return jnp.zeros((*log.mask.shape, cells.shape[-1]))
        if type(training.layout) is not type(log.layout):
            raise LogError(
                "one of the logs has episodes of very unequal length, and the other has not.",
                remedy="Read both in one go, and split them with split_log.",
            )
        return self.remember(training, targets, cells)(log)

    def remember(
        self, training: EpisodeLog, targets: Float[Array, "..."], cells: Bool[Array, "... a"]
    ) -> "RecentFit | RaggedFit":
        """The means of these targets, to be asked for at any time."""
        if isinstance(training.layout, Ragged):
            return self._remember_ragged(training, targets, cells)
        order = _time_order(training)
        # A spare row comes last, at the time of the last episode, and has no cell.
        first, last = _span(training)
        present = jnp.asarray(training.present)[order]
        times = jnp.where(present, jnp.asarray(training.episode_numbers)[order], last)
        cells, targets = _time_last(cells[order]), jnp.where(training.mask, targets, 0.0)[order].T
        sums = jnp.stack([jnp.where(cells, targets[:, None], 0.0), cells])
        half_lives = jnp.where(last > first, last - first, 1.0) / 2 ** jnp.arange(self.ladder)
        errors = jax.vmap(self._surprise, (None, None, None, None, 0))(
            times, targets, cells, sums, half_lives
        )
        half_life = half_lives[jnp.argmin(errors)]
        growth = _growth(times, times, half_life)
        return RecentFit(
            first=first,
            last=last,
            times=times,
            half_life=half_life,
            until=remembered(sums * growth, 1.0),
            since=remembered(sums / growth, 1.0, reverse=True),
            model=self,
        )

    def _remember_ragged(
        self, training: EpisodeLog, targets: Float[Array, " s"], cells: Bool[Array, "s a"]
    ) -> "RaggedFit":
        """The same, with the steps in the order of their numbers, then of time."""
        first, last = _span(training)
        steps = jnp.asarray(training.step_numbers)
        times = jnp.clip(training.layout.spread(jnp.asarray(training.episode_numbers)), first, last)
        order = jnp.lexsort((times, steps))
        steps, times, cells = steps[order], times[order], cells[order]
        targets = jnp.where(training.mask, targets, 0.0)[order]
        sums = jnp.stack([jnp.where(cells, targets[:, None], 0.0), cells], axis=1)

        def memory(half_life: Any) -> Float[Array, " s"]:
            kept = jnp.exp2((times[:-1] - times[1:]) / half_life)
            return jnp.pad(jnp.where(steps[1:] == steps[:-1], kept, 0.0), (1, 0))

        def surprise(half_life: Any) -> Float[Array, ""]:
            kept = memory(half_life)
            past = kept[:, None, None] * _earlier(recurrence(sums, kept), axis=0)
            predicted = self.means(jnp.moveaxis(past, 0, -1)).T
            return jnp.sum(jnp.where(cells, (targets[:, None] - predicted) ** 2, 0.0))

        half_lives = jnp.where(last > first, last - first, 1.0) / 2 ** jnp.arange(self.ladder)
        half_life = half_lives[jnp.argmin(jax.lax.map(surprise, half_lives))]
        kept = memory(half_life)
        return RaggedFit(
            first=first,
            last=last,
            starts=jnp.searchsorted(steps, jnp.arange(training.num_steps + 1)),
            times=times,
            half_life=half_life,
            until=recurrence(sums, kept),
            since=recurrence(sums[::-1], jnp.roll(kept, -1)[::-1])[::-1],
            model=self,
        )

    def _surprise(self, times: Any, targets: Any, cells: Any, sums: Any, half_life: Any) -> Float[Array, ""]:
        """Squared error of predicting each episode from those before it."""
        growth = _growth(times, times, half_life)
        past = _earlier(remembered(sums * growth, 1.0)) / growth
        return jnp.sum(jnp.where(cells, (targets[:, None] - self.means(past)) ** 2, 0.0))

    def means(self, sums: Float[Array, "2 t a n"]) -> Float[Array, "t a n"]:
        """Means from sums and weights, drawn towards the mean over all actions."""
        total, weight = sums
        all_weight = jnp.sum(weight, axis=-2, keepdims=True)
        overall = jnp.sum(total, axis=-2, keepdims=True) / jnp.where(all_weight > 0, all_weight, 1)
        return jnp.asarray((total + self.shrinkage * overall) / (weight + self.shrinkage))


class RecentFit(eqx.Module):
    """`RecentMeans` of some training episodes: Σᵢ 2^(−|x − xᵢ| / half-life) · sumᵢ at any time x.

    `until` and `since` are running sums over the training rows in time, from the first and from the last.
    """

    first: Float[Array, ""]
    last: Float[Array, ""]
    times: Float[Array, " m"]
    half_life: Float[Array, ""]
    until: Float[Array, "2 t a m"]
    since: Float[Array, "2 t a m"]
    model: RecentMeans

    def __call__(self, log: EpisodeLog) -> Float[Array, "n t a"]:
        """The means at the times of these episodes."""
        times = self.times
        at = jnp.clip(jnp.asarray(log.episode_numbers), self.first, self.last)
        after = jnp.searchsorted(times, at, side="right")  # the first training row later than x

        def reach(rows: Any, kept: Any, running: Any) -> Float[Array, "2 t a n"]:
            return jnp.where(kept, running[..., jnp.clip(rows, 0, times.size - 1)], 0.0)

        earlier, later = reach(after - 1, after > 0, self.until), reach(after, after < times.size, self.since)
        asked = _growth(at, times, self.half_life)
        return jnp.moveaxis(self.model.means(earlier / asked + later * asked), -1, 0)


class RaggedFit(eqx.Module):
    """`RecentMeans` of episodes of very unequal length: the means of a step number are among its own steps.

    The steps lie in the order of their numbers, then of time; `starts` says where each number begins.
    """

    first: Float[Array, ""]
    last: Float[Array, ""]
    starts: Int[Array, " t"]
    times: Float[Array, " s"]
    half_life: Float[Array, ""]
    until: Float[Array, "s 2 a"]
    since: Float[Array, "s 2 a"]
    model: RecentMeans

    def __call__(self, log: EpisodeLog) -> Float[Array, "*cells a"]:
        """The means at the times and the step numbers of these episodes' steps."""
        at = log.layout.spread(jnp.clip(jnp.asarray(log.episode_numbers), self.first, self.last))
        at, steps = jnp.broadcast_arrays(at, jnp.minimum(log.step_numbers, self.starts.size - 2))
        begin, end = self.starts[steps], self.starts[steps + 1]
        after = self._after(at, begin, end)

        def reach(rows: Any, kept: Any, running: Any) -> Float[Array, "*cells 2 a"]:
            rows = jnp.clip(rows, 0, self.times.size - 1)
            faded = jnp.exp2(-jnp.abs(at - self.times[rows]) / self.half_life)
            return jnp.where(kept[..., None, None], running[rows] * faded[..., None, None], 0.0)

        sums = reach(after - 1, after > begin, self.until) + reach(after, after < end, self.since)
        flat = jnp.moveaxis(sums.reshape(-1, *sums.shape[-2:]), 0, -1)
        return self.model.means(flat).T.reshape(*at.shape, -1)

    def _after(
        self, at: Float[Array, "*cells"], begin: Int[Array, "*cells"], end: Int[Array, "*cells"]
    ) -> Int[Array, "*cells"]:
        """The first row from `begin` to `end` that is later: found by halves, for all cells at once."""

        def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) // 2
            past = (low < high) & (self.times[jnp.minimum(middle, self.times.size - 1)] <= at)
            return jnp.where(past, middle + 1, low), jnp.where(past | (low >= high), high, middle)

        low: Array = jax.lax.fori_loop(0, self.times.size.bit_length(), halved, (begin, end))[0]
        return low


@full_products
def remembered(values: Float[Array, "*m n"], memory: Any, *, reverse: bool = False) -> Float[Array, "*m n"]:
    """yᵢ = xᵢ + memory · yᵢ₋₁ along the last axis; reversed, yᵢ = xᵢ + memory · yᵢ₊₁.

    Chunk by chunk as a product with the powers of the memory, then the same for the chunks' ends: no
    loop over the episodes, on any device.
    """
    if reverse:
        return remembered(values[..., ::-1], memory)[..., ::-1]
    n, memory = values.shape[-1], jnp.asarray(memory, values.dtype)
    width = min(n, CHUNK)
    count = -(-n // width)
    spare = [(0, 0)] * (values.ndim - 1) + [(0, count * width - n)]
    chunks = jnp.pad(values, spare).reshape(*values.shape[:-1], count, width)
    back = jnp.arange(width) - jnp.arange(width)[:, None]
    sums = chunks @ jnp.where(back >= 0, memory ** jnp.maximum(back, 0), 0.0)
    if n > width:
        ends = remembered(sums[..., :-1, -1], memory**width)
        carried = ends[..., None] * memory ** jnp.arange(1, width + 1)
        sums = sums.at[..., 1:, :].add(carried)
    return sums.reshape(*values.shape[:-1], count * width)[..., :n]


def reward_to_go(log: EpisodeLog, discount: float) -> Float[Array, "*cells"]:
    """Σ_{l≥t} γ^{l−t} r_l from each logged step to the end of its episode, 0 after it."""
    rewards = jnp.where(log.mask, log.rewards, 0.0)
    if isinstance(log.layout, Ragged):
        last = jnp.roll(log.step_numbers, -1) == 0
        return recurrence(rewards[::-1], jnp.where(last, 0.0, discount)[::-1])[::-1]
    return remembered(rewards, discount, reverse=True)


def _growth(at: Float[Array, " n"], times: Float[Array, " m"], half_life: Any) -> Float[Array, " n"]:
    """2^((x − middle of the log) / half-life): scaled by it, a decaying sum is an ordinary one.

    It stays within 2^±32, since no half-life is shorter than a 64th of the log.
    """
    return jnp.exp2((at - (times[0] + times[-1]) / 2) / half_life)


def _earlier(running: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """The sum before each row."""
    before = jnp.moveaxis(running, axis, -1)
    before = jnp.concatenate([jnp.zeros_like(before[..., :1]), before[..., :-1]], axis=-1)
    return jnp.moveaxis(before, -1, axis)


def alternating(log: EpisodeLog) -> Bool[Array, " n"]:
    """Every second episode in time: one of the folds of a cross-fit, whose other one are the rest."""
    return jnp.argsort(_time_order(log)) % 2 == 1


def _time_order(log: EpisodeLog) -> Int[Array, " n"]:
    """Rows by time, spare ones last."""
    return jnp.argsort(jnp.where(log.present, log.episode_numbers, jnp.inf))


def _time_last(rows: Any) -> Any:
    return jnp.moveaxis(rows, 0, -1)


def _span(log: EpisodeLog) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """First and last time of the episodes present; (0, 0) when there is none."""
    times, any_present = jnp.asarray(log.episode_numbers), jnp.any(log.present)
    first = jnp.min(times, where=log.present, initial=jnp.inf)
    last = jnp.max(times, where=log.present, initial=-jnp.inf)
    return jnp.where(any_present, first, 0.0), jnp.where(any_present, last, 0.0)


def _cells(training: EpisodeLog, num_actions: int | None, per_action: bool) -> Bool[Array, "*cells a"]:
    """Which step belongs to which mean."""
    mask = jnp.asarray(training.mask)[..., None]
    if not per_action:
        return mask
    if num_actions is None:
        raise LogError(
            "a value per action needs discrete actions, and the log's are continuous.",
            remedy="Use per_action=False: one value whatever the action.",
        )
    return mask & (jnp.asarray(training.actions)[..., None] == jnp.arange(num_actions))


class LinearValues(ValueModel):
    """Ridge regression on [1, step, state features] per action, plus `RecentMeans` of its residuals.

    Features are standardised; `ridge` is relative to the number of steps. Integer states are one-hot
    encoded if `num_states` says how many there are, and used as numbers otherwise. For a log without
    states only the recent means are used.
    """

    num_states: int | None = eqx.field(
        static=True, default=None, converter=partial(none_or, partial(whole, "num_states", low=1))
    )
    ridge: float = eqx.field(static=True, default=1e-3, converter=partial(number, "ridge", above=0))
    recent: RecentMeans = eqx.field(
        default_factory=RecentMeans, converter=partial(instance, "recent", RecentMeans)
    )

    @full_products
    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "*cells a"]:
        if training.states is None or log.states is None:
            return self.recent.predict(training, log, discount, per_action=per_action)
        cells = _cells(training, log.num_actions, per_action)
        linear, rest = self._regression(training, reward_to_go(training, discount), cells)
        return linear(log) + self.recent.smooth(training, rest, cells, log)

    @full_products
    def fit(
        self, training: EpisodeLog, discount: float, num_actions: int | None, *, per_action: bool
    ) -> "RecentFit | RaggedFit | LinearFit":
        cells, targets = _cells(training, num_actions, per_action), reward_to_go(training, discount)
        if training.states is None:
            return self.recent.remember(training, targets, cells)
        linear, rest = self._regression(training, targets, cells)
        return dataclasses.replace(linear, recent=self.recent.remember(training, rest, cells))

    def _regression(
        self, training: EpisodeLog, targets: Float[Array, "..."], cells: Bool[Array, "... a"]
    ) -> "tuple[LinearFit, Float[Array, '...']]":
        """What the features tell of the targets, and what they leave."""
        scale, level = self._scale(training, targets)
        seen = scale(self.features(training, training.num_steps))
        coefficients = _ridge(seen, targets - level, cells, self.ridge)
        own = jnp.sum(jnp.where(cells, seen @ coefficients, 0.0), axis=-1)
        return LinearFit(scale, coefficients, level, self, training.num_steps), targets - level - own

    def _scale(self, training: EpisodeLog, targets: Float[Array, "..."]) -> "tuple[_Scale, Float[Array, '']]":
        """The training log's units, and its mean target."""
        mask = jnp.asarray(training.mask)
        count = jnp.maximum(jnp.sum(mask), 1)
        raw = self.features(training, training.num_steps)

        def mean(values: Any) -> Any:
            return jnp.sum(jnp.where(mask[..., None], values, 0.0), axis=tuple(range(mask.ndim))) / count

        centre = mean(raw)
        scale = jnp.sqrt(mean((raw - centre) ** 2))
        # A feature that never varied, up to rounding, carries no information.
        varied = scale > np.sqrt(np.finfo(scale.dtype).eps) * jnp.abs(centre)
        unit = jnp.where(varied, 1 / jnp.where(varied, scale, 1.0), 0.0)

        return _Scale(centre, unit), mean(targets[..., None])[0]

    def features(self, log: EpisodeLog, num_steps: int) -> Float[Array, "*cells p"]:
        """Step, of `num_steps` at most, and state as numbers."""
        states, ndim = jnp.asarray(log.states), log.mask.ndim
        steps = jnp.linspace(0.0, 1.0, num_steps)[log.step_numbers]
        steps = jnp.broadcast_to(steps, log.mask.shape)
        if states.ndim == ndim and jnp.issubdtype(states.dtype, jnp.integer) and self.num_states:
            states = jax.nn.one_hot(states, self.num_states)
        width = math.prod(states.shape[ndim:])
        columns = states.reshape(*log.mask.shape, width).astype(steps.dtype)
        return jnp.concatenate([steps[..., None], columns], axis=-1)


class _Scale(eqx.Module):
    """The units of features: standard deviations from the mean, behind a constant."""

    centre: Float[Array, " p"]
    unit: Float[Array, " p"]

    def __call__(self, features: Float[Array, "... p"]) -> Float[Array, "... q"]:
        ones = jnp.ones_like(features[..., :1])
        return jnp.concatenate([ones, (features - self.centre) * self.unit], axis=-1)


class LinearFit(eqx.Module):
    """`LinearValues` of some training episodes; `recent` follows what the regression leaves."""

    scale: _Scale
    coefficients: Float[Array, "p a"]
    level: Float[Array, ""]
    model: LinearValues
    num_steps: int = eqx.field(static=True)
    recent: RecentFit | RaggedFit | None = None

    @full_products
    def __call__(self, log: EpisodeLog) -> Float[Array, "*cells a"]:
        features = self.model.features(log, self.num_steps)
        found = self.level + self.scale(features) @ self.coefficients
        return found if self.recent is None else found + self.recent(log)


def _ridge(
    features: Float[Array, "*cells p"],
    targets: Float[Array, "*cells"],
    cells: Bool[Array, "*cells a"],
    ridge: float,
) -> Float[Array, "p a"]:
    """One least-squares fit per cell; a cell without steps gets zeros."""
    weights, each = cells.astype(features.dtype), "mt"[: targets.ndim]
    gram = jnp.einsum(f"{each}a,{each}p,{each}q->apq", weights, features, features)
    moments = jnp.einsum(f"{each}a,{each}p,{each}->ap", weights, features, targets)
    penalty = ridge * (jnp.sum(weights, axis=tuple(range(targets.ndim))) + 1.0)
    gram += penalty[:, None, None] * jnp.eye(features.shape[-1])
    factor = jnp.linalg.cholesky(gram)
    return jax.vmap(lambda f, m: jax.scipy.linalg.cho_solve((f, True), m))(factor, moments).T
