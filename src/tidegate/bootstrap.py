"""Wild bootstrap (Wu, 1986; Liu, 1988; Mammen, 1993): flip the residuals' signs, refit, repeat.

No draw is ever refitted. In the coordinates of `trend.py`, one row of multipliers σ gives
    forecast* − forecast = uᵀc                                  c = Qᵀ(ξσ)
    variance*            = Σ a²ξ²σ² − 2 qᵀc + cᵀMc              q = Qᵀ(a²ξσ),  M = Qᵀdiag(a²)Q
With leverage-corrected residuals, ξ/(1 − h) stands for ξ and, in the variance, a/(1 − h) for a. So all draws
together are one product of the multipliers (B × n) with an n × 2d matrix. Multipliers are made from the key
block by block, so memory grows with n and never with B·n.
"""

import abc
import enum
import math
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from .arrays import ArrayLike, full_products
from .errors import SettingsError
from .trend import TrendFit

BLOCK = 2048  # episodes per block; measured best of 256 to 2048 on two cores
MAX_EXACT = 14
TAIL_SHARE = 0.02  # share of the draws beyond which the tail is modelled as Student's
MAX_HELD = 2**22  # the most multipliers that a search keeps in memory instead of remaking them


class Multipliers(eqx.Module):
    """B independent rows of multipliers with mean 0 and variance 1.

    The multiplier of episode i in draw b depends on (key, b, i) alone, never on the log's capacity.
    """

    @property
    @abc.abstractmethod
    def num_draws(self) -> int: ...

    @property
    def unit_square(self) -> bool:
        """Whether σ² is always 1, which saves a product."""
        return False

    @abc.abstractmethod
    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        """Multipliers of the first `width` episodes of a block."""

    def sums(self, index: Any, rows: Float[Array, "m w"], *, squared: bool = False) -> Float[Array, "b m"]:
        """Σᵢ σᵢ · rowᵢ (or σᵢ²) over the first episodes of a block, for every draw and every row."""
        values = self.block(index, rows.shape[1]).astype(rows.dtype)
        return (values**2 if squared else values) @ rows.T


class KeyedMultipliers(Multipliers):
    """Multipliers made on the fly from random bits."""

    key: PRNGKeyArray
    draws: int = eqx.field(static=True)

    @property
    def num_draws(self) -> int:
        return self.draws

    def _words(self, index: Any, per_block: int) -> UInt32[Array, "b w"]:
        # `bits`, not `rademacher`: the latter gives different draws when 64-bit mode is on.
        return jax.random.bits(jax.random.fold_in(self.key, index), (self.draws, per_block), jnp.uint32)


class Rademacher(KeyedMultipliers):
    """±1 with equal odds: keeps the even moments of the residuals. The paper's choice; 1 bit each."""

    @property
    def unit_square(self) -> bool:
        return True

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
    """Six points ±√½, ±1, ±√1½ (Webb, 2023): many distinct draws even from a handful of episodes."""

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        points = jnp.sqrt(jnp.array([0.5, 1.0, 1.5]))
        points = jnp.concatenate([-points, points])
        return points[self._words(index, BLOCK)[:, :width] % 6]


class GivenMultipliers(Multipliers):
    """An explicit matrix: all sign vectors, or rows that are used many times."""

    values: Float[ArrayLike, "b n"]
    signs_only: bool = eqx.field(static=True, default=True)

    @property
    def num_draws(self) -> int:
        return int(self.values.shape[0])

    @property
    def unit_square(self) -> bool:
        return self.signs_only

    def block(self, index: Any, width: int) -> Float[Array, "b w"]:
        values = jnp.asarray(self.values)
        return jax.lax.dynamic_slice_in_dim(values, index * BLOCK, width, axis=1)


def all_signs(num_episodes: int) -> GivenMultipliers:
    """All 2^n sign vectors: the wild bootstrap without sampling error."""
    if num_episodes > MAX_EXACT:
        raise SettingsError(
            f"{num_episodes} episodes have 2^{num_episodes} sign vectors",
            expected=f"at most {MAX_EXACT} episodes for the exact bootstrap",
            remedy="Draw the signs instead: Rademacher(key, draws).",
        )
    codes = np.arange(2**num_episodes)[:, None] >> np.arange(num_episodes)
    return GivenMultipliers(1.0 - 2.0 * (codes & 1))


class Side(enum.Enum):
    """Which bounds are wanted; each side that is bounded gets its share of α."""

    BOTH = "two-sided"
    LOWER = "lower bound"
    UPPER = "upper bound"


class ConfidenceInterval(eqx.Module):
    """Bounds on the mean return over the forecast window; an unbounded side is infinite."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]


@full_products
def weighted_sums(
    multipliers: Multipliers,
    make_rows: Callable[..., Float[Array, "m w"]],
    *episodes: Float[Array, "... n"],
    squared: bool = False,
) -> Float[Array, "b m"]:
    """Σᵢ σᵢ · rowᵢ (or σᵢ²) for every draw and every row.

    The rows are a function of what is known per episode, so that they too are made block by block.
    """
    n = episodes[0].shape[-1]

    def block_sum(index: Any, width: int) -> Float[Array, "b m"]:
        slices = (jax.lax.dynamic_slice_in_dim(one, index * BLOCK, width, axis=-1) for one in episodes)
        return multipliers.sums(index, make_rows(*slices), squared=squared)

    full, rest = divmod(n, BLOCK)
    if full == 0:
        return block_sum(0, n)
    total: Array = jax.lax.fori_loop(1, full, lambda j, sums: sums + block_sum(j, BLOCK), block_sum(0, BLOCK))
    return total + block_sum(full, rest) if rest else total


def held(multipliers: Multipliers, n: int) -> Multipliers:
    """The same multipliers as a matrix, if it is small: for a loop that uses them many times."""
    if multipliers.num_draws * n > MAX_HELD:
        return multipliers
    blocks = [multipliers.block(j, min(BLOCK, n - j * BLOCK)) for j in range(-(-n // BLOCK))]
    return GivenMultipliers(jnp.concatenate(blocks, axis=1), multipliers.unit_square)


def multiplier_row(multipliers: Multipliers, draw: Any, n: int) -> Float[Array, " n"]:
    """The multipliers of one draw."""
    full, rest = divmod(n, BLOCK)
    parts = [multipliers.block(full, rest)[draw]] if rest else []
    if full:
        blocks = jax.lax.map(lambda j: multipliers.block(j, BLOCK)[draw], jnp.arange(full))
        parts = [blocks.reshape(-1), *parts]
    return jnp.concatenate(parts)


def forecast_deviations(fit: TrendFit, multipliers: Multipliers) -> Float[Array, " b"]:
    """forecast* − forecast for every draw."""
    weighted = fit.design.forecast_weights * fit.noise
    return weighted_sums(multipliers, lambda row: row[None], weighted)[:, 0]


@full_products
def pseudo_statistics(
    fit: TrendFit, multipliers: Multipliers
) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
    """forecast* − forecast and variance* for every draw."""
    q, d = fit.design.orthonormal, fit.design.horizon.size
    noise = fit.noise
    weights = (fit.design.horizon @ q) * fit.design.inflation
    squared_weights = weights**2

    def rows(q: Array, noise: Array, squared_weights: Array) -> Array:
        signed = noise * q
        return jnp.concatenate([signed, squared_weights * signed])

    sums = weighted_sums(multipliers, rows, q, noise, squared_weights)
    c, cross = sums[:, :d], sums[:, d:]
    leading: Array = jnp.sum((weights * noise) ** 2)
    if not multipliers.unit_square:
        squares = squared_weights * noise**2
        leading = weighted_sums(multipliers, lambda row: row[None], squares, squared=True)[:, 0]
    quadratic = jnp.sum((c @ ((squared_weights * q) @ q.T)) * c, axis=1)
    variance = leading - 2 * jnp.sum(cross * c, axis=1) + quadratic
    return c @ fit.design.horizon, variance


def studentized_deviations(fit: TrendFit, multipliers: Multipliers) -> Float[Array, " b"]:
    """t* = (forecast* − forecast)/√variance* for every draw."""
    deviations, variances = pseudo_statistics(fit, multipliers)
    return deviations / jnp.sqrt(variances)


def percentile_t_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: Any, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """Algorithm 2: [forecast − t*_(1−tail) s, forecast − t*_(tail) s]."""
    low, high = tail_values(studentized_deviations(fit, multipliers), tail(alpha, side))
    spread = jnp.sqrt(fit.variance)
    return one_sided(side, lower=fit.point - spread * high, upper=fit.point - spread * low)


def percentile_interval(
    fit: TrendFit, multipliers: Multipliers, alpha: float, side: Side = Side.BOTH
) -> ConfidenceInterval:
    """The quantiles of forecast* themselves: cheaper, less accurate (Efron and Tibshirani, 1994)."""
    low, high = tail_values(forecast_deviations(fit, multipliers), tail(alpha, side))
    return one_sided(side, lower=fit.point + low, upper=fit.point + high)


def tail(alpha: Any, side: Side) -> Any:
    """The probability left outside each bounded side."""
    if not eqx.is_array(alpha) and not 0 < alpha < 1:
        raise SettingsError(f"alpha is {alpha}", expected="a probability strictly between 0 and 1")
    return alpha / 2 if side is Side.BOTH else alpha


def lower_rank(probability: float, draws: int) -> int:
    """⌊pB⌋, counted from 1 (the paper's footnote); rounding guards against 0.29 · 100 = 28.999…"""
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


def draw_at_rank(values: Float[Array, " b"], rank: int) -> Array:
    """Which draw holds the rank-th smallest value, searched from the nearer end."""
    from_top = values.size - rank + 1
    if values.dtype == jnp.float64:  # XLA's top-k is a full sort here anyway
        return jnp.argsort(values)[rank - 1]
    if from_top < rank:
        return _top_draws(values, from_top)[from_top - 1]
    return _top_draws(-values, rank)[rank - 1]


def _top_draws(values: Float[Array, " b"], count: int) -> Array:
    # Without the barrier XLA turns "top k, then pick one" into a full sort, forty times slower on CPU.
    found: tuple[Array, Array] = jax.lax.optimization_barrier(jax.lax.top_k(values, count))  # type: ignore[no-untyped-call]
    return found[1]


def tail_values(values: Float[Array, " b"], probability: float) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The ⌊pB⌋-th and the ⌈(1 − p)B⌉-th smallest value.

    The former is −∞ when B is too small to have it. Both are NaN if any value is: NaN has no rank.
    """
    low_rank, high_rank = (rank(probability, values.size) for rank in (lower_rank, upper_rank))
    high = values[draw_at_rank(values, high_rank)]
    low = values[draw_at_rank(values, low_rank)] if low_rank else jnp.full_like(high, -jnp.inf)
    broken = jnp.any(jnp.isnan(values))
    return jnp.where(broken, jnp.nan, low), jnp.where(broken, jnp.nan, high)


def one_sided(side: Side, *, lower: Array, upper: Array) -> ConfidenceInterval:
    """The interval with the sides that are wanted; the other is infinite."""
    infinite = jnp.full_like(lower, jnp.inf)
    return ConfidenceInterval(
        lower=-infinite if side is Side.UPPER else lower,
        upper=infinite if side is Side.LOWER else upper,
    )


def tail_probability(
    statistic: Float[Array, ""], draws: Float[Array, " b"], freedom: Float[Array, ""]
) -> Float[Array, ""]:
    """P(draw ≥ statistic) from sorted draws; beyond their reach, Student's tail scaled to them."""
    count = jnp.sum(draws >= statistic)
    tail, scale = _tail(draws, freedom)
    beyond = norm.sf(normal_score(statistic / scale, freedom))
    share = (count + 1) / (draws.size + 1)
    # Not a number in, not a number out: NaN compares as False and would look like a tiny share.
    return jnp.where(jnp.isnan(statistic + scale), jnp.nan, jnp.where(count < tail, beyond, share))


def tail_quantile(
    draws: Float[Array, " b"], freedom: Float[Array, ""], level: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The statistic whose tail probability is `level`."""
    tail, scale = _tail(draws, freedom)
    number = jnp.asarray(level) * (draws.size + 1)
    rank = jnp.clip(jnp.floor(number + 1e-6).astype(int), 1, draws.size)
    beyond = scale * student_score(norm.isf(jnp.asarray(level)), freedom)
    return jnp.where(number < tail + 1, beyond, draws[-rank])


def _tail(draws: Float[Array, " b"], freedom: Float[Array, ""]) -> tuple[int, Float[Array, ""]]:
    """How many draws the tail holds, and the spread of Student's distribution that continues it."""
    tail = max(1, round(TAIL_SHARE * draws.size))
    return tail, draws[-tail] / student_score(norm.isf((tail + 1) / (draws.size + 1)), freedom)


def normal_score(t: Float[Array, ""], freedom: Float[Array, ""]) -> Float[Array, ""]:
    """The normal variate with the tail probability of Student's t (Wallace, 1959), for t ≥ 0."""
    return jnp.sqrt(freedom * jnp.log1p(t**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def student_score(z: Float[Array, ""], freedom: Float[Array, ""]) -> Float[Array, ""]:
    """The inverse of `normal_score`."""
    wider = z * (8 * freedom + 3) / (8 * freedom + 1)
    return jnp.sqrt(freedom * jnp.expm1(wider**2 / freedom))


def effective_freedom(fit: TrendFit) -> Float[Array, ""]:
    """(Σa²ξ²)² / Σa⁴ξ⁴: how many episodes the variance rests on (Satterthwaite, 1946)."""
    parts = (fit.design.forecast_weights * fit.noise) ** 2
    squares = jnp.sum(parts**2)
    freedom = jnp.where(squares > 0, jnp.sum(parts) ** 2 / squares, jnp.nan)
    return jnp.maximum(freedom - fit.design.num_columns, 1.0)


class StudentisedTest(eqx.Module):
    """A forecast with the bootstrap's t-statistics, sorted; all NaN if one of them is."""

    point: Float[Array, ""]
    error: Float[Array, ""]
    draws: Float[Array, " b"]
    freedom: Float[Array, ""]

    @classmethod
    def of(cls, fit: TrendFit, multipliers: Multipliers) -> Self:
        draws = jnp.sort(studentized_deviations(fit, multipliers))
        draws = jnp.where(jnp.any(jnp.isnan(draws)), jnp.nan, draws)
        return cls(fit.point, jnp.sqrt(fit.variance), draws, effective_freedom(fit))

    def p_value(self, margin: Any = 0.0) -> Float[Array, ""]:
        """Of "it is not above −margin"."""
        return tail_probability((self.point + margin) / self.error, self.draws, self.freedom)

    def lower(self, level: Any) -> Float[Array, ""]:
        """The lower bound, wrong with probability `level`."""
        return self.point - tail_quantile(self.draws, self.freedom, level) * self.error

    def upper(self, level: Any) -> Float[Array, ""]:
        """The upper bound, wrong with probability `level`."""
        return self.point + tail_quantile(-self.draws[::-1], self.freedom, level) * self.error
