"""What a step is worth under the policy that logged it: predictions that steady `dr_returns`.

A prediction takes noise out of an estimate and adds no bias, however wrong it is, as long as it was
not fitted on the very episode it is used for: fit on the training half, use on the held-out half, or
`cross_fit` within one half. The world drifts, so the models follow time.
"""

import abc
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .episodes import EpisodeLog
from .errors import LogError, SettingsError
from .precision import full_products


class ValueModel(eqx.Module):
    """A recipe that predicts the reward-to-go Σ_{l≥t} γ^{l−t} r_l of each logged step for each action."""

    @abc.abstractmethod
    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "n t a"]:
        """Fitted on `training` alone, evaluated at the rows of `log`.

        One value per action of the log, or a single one whatever the action (a = 1).
        """

    def cross_fit(
        self, training: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "n t a"]:
        """Each episode is predicted from the other fold: every second of those present."""
        even = jnp.cumsum(training.present) % 2 == 0

        def predicted_from(rows: Any) -> Float[Array, "n t a"]:
            return self.predict(_only(training, rows), training, discount, per_action=per_action)

        from_even, from_odd = jax.vmap(predicted_from)(jnp.stack([even, ~even]))
        return jnp.where(even[:, None, None], from_odd, from_even)


class RecentMeans(ValueModel):
    """Means of the reward-to-go by action and step, over the episodes close in time.

    An episode weighs 2^(−|time difference| / half-life). The half-life is the one of span, span/2, …
    (`ladder` of them) whose past-only means best foretold the training episodes one by one.
    `shrinkage` counts as that many episodes at the mean over all actions, so that an action seldom
    seen is worth what the others are. Before the first and after the last training episode the mean
    at that end is held; without any data it is 0.
    """

    ladder: int = eqx.field(static=True, default=7)
    shrinkage: float = eqx.field(static=True, default=0.1)

    def __check_init__(self) -> None:
        if not 1 <= self.ladder <= 7:
            raise SettingsError(f"ladder is {self.ladder}", expected="1 to 7 half-lives")
        if not self.shrinkage > 0:
            raise SettingsError(f"shrinkage is {self.shrinkage}", expected="a weight above 0")

    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "n t a"]:
        targets = reward_to_go(training, discount)
        return self.smooth(training, targets, _cells(training, log.num_actions, per_action), log)

    def smooth(
        self,
        training: EpisodeLog,
        targets: Float[Array, "m t"],
        cells: Bool[Array, "m t a"],
        log: EpisodeLog,
    ) -> Float[Array, "n t a"]:
        """The means of these targets in each cell, at the times of `log`; rows in any order."""
        if training.capacity == 0:
            return jnp.zeros((*log.mask.shape, cells.shape[-1]))
        order = jnp.argsort(jnp.where(training.present, training.episode_numbers, jnp.inf))
        targets, cells = jnp.where(training.mask, targets, 0.0)[order], cells[order]
        # A spare row comes last, at the time of the last episode, and has no cell.
        first, last = _span(training)
        present = jnp.asarray(training.present)[order]
        times = jnp.where(present, jnp.asarray(training.episode_numbers)[order], last)
        sums = jnp.stack([jnp.where(cells, targets[..., None], 0.0), cells], axis=-1)
        span = jnp.where(last > first, last - first, 1.0)
        half_lives = span / 2 ** jnp.arange(self.ladder)
        errors = jax.lax.map(lambda h: self._surprise(times, targets, cells, sums, h), half_lives)
        at = jnp.clip(jnp.asarray(log.episode_numbers), first, last)
        return self._means(_two_sided(times, sums, at, half_lives[jnp.argmin(errors)]))

    def _surprise(
        self, times: Any, targets: Any, cells: Any, sums: Any, half_life: Any
    ) -> Float[Array, ""]:
        """Squared error of predicting each episode from those before it."""
        decays = _decays(times, half_life)
        past = decays * _earlier(decayed_sums(decays, sums))
        return jnp.sum(jnp.where(cells, (targets[..., None] - self._means(past)) ** 2, 0.0))

    def _means(self, sums: Float[Array, "n t a 2"]) -> Float[Array, "n t a"]:
        total, weight = sums[..., 0], sums[..., 1]
        all_weight = jnp.sum(weight, axis=-1, keepdims=True)
        overall = jnp.sum(total, axis=-1, keepdims=True) / jnp.where(all_weight > 0, all_weight, 1)
        return (total + self.shrinkage * overall) / (weight + self.shrinkage)


def reward_to_go(log: EpisodeLog, discount: float) -> Float[Array, "n t"]:
    """Σ_{l≥t} γ^{l−t} r_l from each logged step to the end of its episode, 0 after it."""
    rewards = jnp.where(log.mask, log.rewards, 0.0)
    return decayed_sums(jnp.full_like(rewards, discount), rewards, axis=1, reverse=True)


def decayed_sums(
    decays: Float[Array, "..."],
    values: Float[Array, "..."],
    *,
    axis: int = 0,
    reverse: bool = False,
) -> Float[Array, "..."]:
    """Sᵢ = decayᵢ · Sᵢ₋₁ + valueᵢ along the axis (from its end if `reverse`)."""

    def join(before: Any, after: Any) -> Any:
        return before[0] * after[0], before[1] * after[0] + after[1]

    sums: Array = jax.lax.associative_scan(join, (decays, values), reverse=reverse, axis=axis)[1]
    return sums


def _two_sided(
    times: Float[Array, " m"], sums: Any, at: Float[Array, " n"], half_life: Any
) -> Float[Array, "n t a 2"]:
    """Σᵢ 2^(−|x − xᵢ| / half-life) · sumᵢ at each time x of `at`."""
    decays = _decays(times, half_life)
    # Both directions in one scan: the second runs from the last row to the first.
    both = jnp.stack([decays, jnp.roll(decays, -1, axis=0)[::-1]], axis=1)
    running = decayed_sums(both, jnp.stack([sums, sums[::-1]], axis=1))
    until, since = running[:, 0], running[::-1, 1]
    after = jnp.searchsorted(times, at, side="right")  # the first training row later than x

    def reach(rows: Any, kept: Any, running: Any) -> Float[Array, "n t a 2"]:
        rows = jnp.clip(rows, 0, times.size - 1)
        weights = jnp.where(kept, jnp.exp2(-jnp.abs(at - times[rows]) / half_life), 0.0)
        return jnp.asarray(weights[:, None, None, None] * running[rows])

    return reach(after - 1, after > 0, until) + reach(after, after < times.size, since)


def _decays(times: Float[Array, " m"], half_life: Any) -> Float[Array, "m 1 1 1"]:
    """What is left at each row of the sum at the row before; nothing comes before the first."""
    left = jnp.exp2(-jnp.diff(times) / half_life)
    return jnp.concatenate([jnp.zeros_like(times[:1]), left])[:, None, None, None]


def _earlier(running: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
    return jnp.concatenate([jnp.zeros_like(running[:1]), running[:-1]])


def _span(log: EpisodeLog) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """First and last time of the episodes present; (0, 0) when there is none."""
    times, any_present = jnp.asarray(log.episode_numbers), jnp.any(log.present)
    first = jnp.min(times, where=log.present, initial=jnp.inf)
    last = jnp.max(times, where=log.present, initial=-jnp.inf)
    return jnp.where(any_present, first, 0.0), jnp.where(any_present, last, 0.0)


def _cells(training: EpisodeLog, num_actions: int | None, per_action: bool) -> Bool[Array, "m t a"]:
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


def _only(log: EpisodeLog, rows: Bool[Array, " n"]) -> EpisodeLog:
    """The log with the other rows turned into spare ones."""
    return dataclasses.replace(log, mask=jnp.asarray(log.mask) & rows[:, None])


class LinearValues(ValueModel):
    """Ridge regression on [1, step, state features] per action, plus `RecentMeans` of what it leaves.

    Features are standardised; `ridge` is relative to the number of steps. Integer states are taken
    one by one where `num_states` says how many there are, else as a number. A log without states
    leaves the regression nothing to see, and the recent means are all there is.
    """

    num_states: int | None = eqx.field(static=True, default=None)
    ridge: float = eqx.field(static=True, default=1e-3)
    recent: RecentMeans = eqx.field(default_factory=RecentMeans)

    def __check_init__(self) -> None:
        if not self.ridge > 0:
            raise SettingsError(f"ridge is {self.ridge}", expected="a share above 0, such as 0.001")

    @full_products
    def predict(
        self, training: EpisodeLog, log: EpisodeLog, discount: float, *, per_action: bool
    ) -> Float[Array, "n t a"]:
        if training.states is None or log.states is None:
            return self.recent.predict(training, log, discount, per_action=per_action)
        cells = _cells(training, log.num_actions, per_action)
        targets = reward_to_go(training, discount)
        seen, asked, level = self._standardised(training, log, targets)
        coefficients = _ridge(seen, targets - level, cells, self.ridge)
        own = jnp.sum(jnp.where(cells, seen @ coefficients, 0.0), axis=-1)
        left = self.recent.smooth(training, targets - level - own, cells, log)
        return level + asked @ coefficients + left

    def _standardised(
        self, training: EpisodeLog, log: EpisodeLog, targets: Float[Array, "m t"]
    ) -> tuple[Float[Array, "m t p"], Float[Array, "n t p"], Float[Array, ""]]:
        """Both logs' features in the training log's units, and its mean target."""
        mask = jnp.asarray(training.mask)
        count = jnp.maximum(jnp.sum(mask), 1)
        raw = self._features(training)

        def mean(values: Any) -> Any:
            return jnp.sum(jnp.where(mask[..., None], values, 0.0), axis=(0, 1)) / count

        centre = mean(raw)
        scale = jnp.sqrt(mean((raw - centre) ** 2))
        # A feature that never varied has nothing to say.
        unit = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1.0), 0.0)

        def standard(features: Any) -> Any:
            ones = jnp.ones_like(features[..., :1])
            return jnp.concatenate([ones, (features - centre) * unit], axis=-1)

        return standard(raw), standard(self._features(log)), mean(targets[..., None])[0]

    def _features(self, log: EpisodeLog) -> Float[Array, "n t p"]:
        states = jnp.asarray(log.states)
        steps = jnp.broadcast_to(jnp.linspace(0.0, 1.0, log.mask.shape[1]), log.mask.shape)
        if states.ndim == 2 and jnp.issubdtype(states.dtype, jnp.integer) and self.num_states:
            states = jax.nn.one_hot(states, self.num_states)
        width = math.prod(states.shape[2:])
        columns = states.reshape(*log.mask.shape, width).astype(steps.dtype)
        return jnp.concatenate([steps[..., None], columns], axis=-1)


def _ridge(
    features: Float[Array, "m t p"],
    targets: Float[Array, "m t"],
    cells: Bool[Array, "m t a"],
    ridge: float,
) -> Float[Array, "p a"]:
    """One least-squares fit per cell; a cell without steps gets zeros."""
    weights = cells.astype(features.dtype)
    gram = jnp.einsum("mta,mtp,mtq->apq", weights, features, features)
    moments = jnp.einsum("mta,mtp,mt->ap", weights, features, targets)
    penalty = ridge * (jnp.sum(weights, axis=(0, 1)) + 1.0)
    gram += penalty[:, None, None] * jnp.eye(features.shape[-1])
    factor = jnp.linalg.cholesky(gram)
    return jax.vmap(lambda f, m: jax.scipy.linalg.cho_solve((f, True), m))(factor, moments).T
