"""Wild bootstrap (Wu, 1986; Liu, 1988; Mammen, 1993): flip the residuals' signs, refit, repeat.

No draw is ever refitted. In the coordinates of `trend.py`, one row of multipliers σ gives
    forecast* − forecast = uᵀc                                  c = Qᵀ(ξσ)
    variance*            = Σ a²ξ²σ² − 2 qᵀc + cᵀMc              q = Qᵀ(a²ξσ),  M = Qᵀdiag(a²)Q
so all draws together are one product of the multipliers (B × n) with an n × 2d matrix. Multipliers
are made from the key block by block, so memory grows with n and never with B·n.
"""

import abc
import enum
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from .episodes import ArrayLike
from .errors import SettingsError
from .trend import TrendFit

BLOCK = 512  # episodes per block: 500 × 512 doubles stay in a core's cache
MAX_EXACT = 14
MAX_HELD = 2**22  # multipliers that a search keeps in memory rather than makes anew


class Multipliers(eqx.Module):
    """B rows of independent multipliers with mean 0 and variance 1.

    The multiplier of episode i in draw b depends on (key, b, i) alone, never on the log's capacity.
    """

    unit_square: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def num_draws(self) -> int: ...

    @abc.abstractmethod
    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        """Multipliers of the first `width` episodes of a block."""


class KeyedMultipliers(Multipliers):
    """Multipliers made on the fly from random bits."""

    key: PRNGKeyArray
    draws: int = eqx.field(static=True)

    @property
    def num_draws(self) -> int:
        return self.draws

    def _words(self, index: Any, per_block: int) -> UInt32[Array, "b w"]:
        # `bits`, not `rademacher`: the latter gives other draws when 64-bit mode is on.
        return jax.random.bits(
            jax.random.fold_in(self.key, index), (self.draws, per_block), jnp.uint32
        )


class Rademacher(KeyedMultipliers):
    """±1 with equal odds: keeps the even moments of the residuals. The paper's choice; 1 bit each."""

    unit_square: ClassVar[bool] = True

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        words = self._words(index, BLOCK // 32)[:, : -(-width // 32)]
        bits = (words[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
        return 1.0 - 2.0 * bits.reshape(self.draws, -1)[:, :width].astype(float)


class Mammen(KeyedMultipliers):
    """Mammen's two points: third moment 1, so that skewness is kept as well."""

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        golden = (1 + math.sqrt(5)) / 2
        low_share = golden / math.sqrt(5)
        words = self._words(index, BLOCK)[:, :width]
        return jnp.where(words < jnp.uint32(round(low_share * 2**32)), 1 - golden, golden)


class Webb(KeyedMultipliers):
    """Webb's six points ±√½, ±1, ±√1½: many distinct draws even from a handful of episodes."""

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        points = jnp.sqrt(jnp.array([0.5, 1.0, 1.5]))
        points = jnp.concatenate([-points, points])
        return points[self._words(index, BLOCK)[:, :width] % 6]


class GivenSigns(Multipliers):
    """An explicit matrix of ±1: all sign vectors, or rows shared across a batch of runs."""

    unit_square: ClassVar[bool] = True
    signs: Float[ArrayLike, "b n"]

    @property
    def num_draws(self) -> int:
        return int(self.signs.shape[0])

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        signs = jnp.asarray(self.signs)
        if signs.shape[1] <= BLOCK:
            return signs[:, :width]
        padded = jnp.pad(signs, ((0, 0), (0, -signs.shape[1] % BLOCK)))
        return jax.lax.dynamic_slice_in_dim(padded, index * BLOCK, BLOCK, axis=1)[:, :width]


def all_signs(num_episodes: int) -> GivenSigns:
    """All 2^n sign vectors: the wild bootstrap without sampling error."""
    if num_episodes > MAX_EXACT:
        raise SettingsError(
            f"{num_episodes} episodes have 2^{num_episodes} sign vectors",
            expected=f"at most {MAX_EXACT} episodes for the exact bootstrap",
            remedy="Draw the signs instead: Rademacher(key, draws).",
        )
    codes = np.arange(2**num_episodes)[:, None] >> np.arange(num_episodes)
    return GivenSigns(1.0 - 2.0 * (codes & 1))


class Side(enum.Enum):
    """Which bounds are wanted; each side that is bounded gets its share of α."""

    BOTH = "two-sided"
    LOWER = "lower bound"
    UPPER = "upper bound"


class ConfidenceInterval(eqx.Module):
    """Bounds on the mean return over the forecast window; an unbounded side is infinite."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]


def weighted_sums(
    multipliers: Multipliers, columns: Float[Array, "n m"], *, squared: bool = False
) -> Float[Array, "b m"]:
    """Σᵢ σᵢ · columnsᵢ (or σᵢ²) for every draw."""

    def values(index: Any, width: int) -> Float[Array, "b w"]:
        block = multipliers.block(index, width).astype(columns.dtype)
        return block**2 if squared else block

    n, m = columns.shape
    if n <= BLOCK:
        return values(0, n) @ columns
    blocks = jnp.pad(columns, ((0, -n % BLOCK), (0, 0))).reshape(-1, BLOCK, m)

    def add(total: Array, indexed: tuple[Array, Array]) -> tuple[Array, None]:
        index, block = indexed
        return total + values(index, BLOCK) @ block, None

    zero = jnp.zeros((multipliers.num_draws, m), columns.dtype)
    return jax.lax.scan(add, zero, (jnp.arange(blocks.shape[0]), blocks))[0]


def held(multipliers: Multipliers, n: int) -> Multipliers:
    """The same multipliers as a matrix, if it is small: for a loop that uses them many times."""
    if not multipliers.unit_square or multipliers.num_draws * n > MAX_HELD:
        return multipliers
    blocks = [multipliers.block(j, min(BLOCK, n - j * BLOCK)) for j in range(-(-n // BLOCK))]
    return GivenSigns(jnp.concatenate(blocks, axis=1))


def multiplier_row(multipliers: Multipliers, draw: Any, n: int) -> Float[Array, " n"]:
    """The multipliers of one draw."""
    blocks = jax.lax.map(lambda j: multipliers.block(j, BLOCK)[draw], jnp.arange(-(-n // BLOCK)))
    return blocks.reshape(-1)[:n] if n > BLOCK else multipliers.block(0, n)[draw]


def forecast_deviations(fit: TrendFit, multipliers: Multipliers) -> Float[Array, " b"]:
    """forecast* − forecast for every draw."""
    return weighted_sums(multipliers, (fit.design.forecast_weights * fit.residuals)[:, None])[:, 0]


def pseudo_statistics(
    fit: TrendFit, multipliers: Multipliers
) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
    """forecast* − forecast and variance* for every draw."""
    q, d = fit.design.orthonormal, fit.design.horizon.size
    squared_weights = fit.design.forecast_weights[:, None] ** 2
    residuals = fit.residuals[:, None]
    sums = weighted_sums(
        multipliers, jnp.concatenate([residuals * q, squared_weights * residuals * q], axis=1)
    )
    c, cross = sums[:, :d], sums[:, d:]
    leading = fit.variance
    if not multipliers.unit_square:
        leading = weighted_sums(multipliers, squared_weights * residuals**2, squared=True)[:, 0]
    quadratic = jnp.sum((c @ (q.T @ (squared_weights * q))) * c, axis=1)
    variance = leading - 2 * jnp.sum(cross * c, axis=1) + quadratic
    return c @ fit.design.horizon, variance


def studentized_deviations(fit: TrendFit, multipliers: Multipliers) -> Float[Array, " b"]:
    """t* = (forecast* − forecast)/√variance* for every draw."""
    deviations, variances = pseudo_statistics(fit, multipliers)
    return deviations / jnp.sqrt(variances)


def percentile_t_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: float, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """Algorithm 2: [forecast − t*_(1−tail) s, forecast − t*_(tail) s]."""
    ordered = _sorted(studentized_deviations(fit, multipliers))
    spread = jnp.sqrt(fit.variance)
    return _interval(
        side,
        lower=fit.point - spread * upper_order_statistic(ordered, tail(alpha, side)),
        upper=fit.point - spread * lower_order_statistic(ordered, tail(alpha, side)),
    )


def percentile_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: float, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """The quantiles of forecast* themselves: cheaper, less accurate (Efron and Tibshirani, 1994)."""
    ordered = _sorted(forecast_deviations(fit, multipliers))
    return _interval(
        side,
        lower=fit.point + lower_order_statistic(ordered, tail(alpha, side)),
        upper=fit.point + upper_order_statistic(ordered, tail(alpha, side)),
    )


def tail(alpha: float, side: Side) -> float:
    """The probability left outside each bounded side."""
    if not 0 < alpha < 1:
        raise SettingsError(f"alpha is {alpha}", expected="a probability strictly between 0 and 1")
    return alpha / 2 if side is Side.BOTH else alpha


def lower_rank(probability: float, draws: int) -> int:
    """⌊pB⌋, counted from 1 (the paper's footnote); the rounding mends 0.29 · 100 = 28.999…"""
    return math.floor(round(probability * draws, 9))


def upper_rank(probability: float, draws: int) -> int:
    """⌈(1 − p)B⌉, counted from 1."""
    return math.ceil(round((1 - probability) * draws, 9))


def check_draws(draws: int, probability: float) -> None:
    """A bound needs at least one draw beyond it."""
    if lower_rank(probability, draws) < 1:
        raise SettingsError(
            f"{draws} draws cannot bound a tail of {probability:g}",
            expected=f"at least {math.ceil(1 / probability)} draws",
        )


def lower_order_statistic(ordered: Float[Array, " b"], probability: float) -> Float[Array, ""]:
    """The ⌊pB⌋-th smallest value; −∞ when B is too small to have one."""
    rank = lower_rank(probability, ordered.shape[0])
    return ordered[rank - 1] if rank >= 1 else jnp.full((), -jnp.inf, ordered.dtype)


def upper_order_statistic(ordered: Float[Array, " b"], probability: float) -> Float[Array, ""]:
    """The ⌈(1 − p)B⌉-th smallest value."""
    return ordered[upper_rank(probability, ordered.shape[0]) - 1]


def _sorted(values: Float[Array, " b"]) -> Float[Array, " b"]:
    """In order; all NaN if any is, because a sort would hide it at the end."""
    return jnp.where(jnp.any(jnp.isnan(values)), jnp.nan, jnp.sort(values))


def _interval(side: Side, *, lower: Array, upper: Array) -> ConfidenceInterval:
    infinite = jnp.full_like(lower, jnp.inf)
    return ConfidenceInterval(
        lower=-infinite if side is Side.UPPER else lower,
        upper=infinite if side is Side.LOWER else upper,
    )
