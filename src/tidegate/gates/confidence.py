"""Bounds on the mean of all numbers so far that hold at every count at once, also while the mean moves.

Of n numbers with the sum S, let μ̃ be the mean of their n expectations, each given the numbers before it, and
V the sum of their variances. For large n, S − nμ̃ moves like a Brownian motion W at time V, whatever the
numbers' distribution and however their means move (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024: the
asymptotic confidence sequence of Lyapunov's type; Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro, 2024,
for policies whose values move). For each slope λ, exp(λW − λ²V/2) is a martingale. Mixed over the positive
half of a normal distribution of λ with variance ρ² (Robbins, 1970) it is one too:

    M = 2 (ρ²V + 1)^(−1/2) exp(y²/2) Φ(y),   y = W / √(V + 1/ρ²),

of expectation 1, so by Ville's inequality (1939) it ever reaches 1/α with probability at most α. For y ≥ 0,
Φ(y) ≥ 1 − exp(−y²/2)/2, so M ≥ 1/α wherever 2 exp(y²/2) − 1 ≥ √(ρ²V + 1)/α: with probability 1 − α, at all n,

    W < √[ (V + 1/ρ²) · 2 log((1 + √(ρ²V + 1)/α) / 2) ].

Half of the line suffices, as each bound is one-sided: the published sequence, of the whole line, has
√(ρ²V + 1)/α under its logarithm. V is estimated from the numbers, so all of this is for large n: nothing is
said before a `start`, whose numbers also set the scale of ρ. Their scatter says nothing about their sum, if
they are about normal, so ρ may come from them.

Numbers of which a few are large fool every such bound as long as those are missing. So it is widened as if
one more number were still to come, as far from the mean as the farthest so far. That is of order 1/n, and
vanishes beside the bound.
"""

import dataclasses
import functools
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar

from ..arrays import Flags, Floats

ROUNDING = 1e-12  # of the sum of squares: less variation than that is none


@dataclasses.dataclass(frozen=True, eq=False)
class RunningSums:
    """What the bounds need to know of all numbers so far; each field has one entry per sequence.

    `scale` is the variance of a number when the sequence began to speak, 0 before that. From `accumulated`,
    the first axis is time.
    """

    count: Floats
    total: Floats
    squares: Floats
    highest: Floats
    lowest: Floats
    scale: Floats

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        zeros = np.zeros(shape)
        return cls(zeros, zeros, zeros, np.full(shape, -np.inf), np.full(shape, np.inf), zeros)

    def at(self, place: int) -> "RunningSums":
        """The sums at one time of many."""
        return RunningSums(*(getattr(self, one.name)[place] for one in dataclasses.fields(self)))

    @property
    def mean(self) -> Floats:
        """NaN before there is a number."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.count)

    @property
    def variance(self) -> Floats:
        """That of a single number; 0 if they are all the same, up to rounding."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            around = self.squares - self.total**2 / self.count
            varies = (self.count > 1) & (around > ROUNDING * self.squares)
            return np.where(varies, around / np.maximum(self.count - 1, 1), 0.0)

    @property
    def finite(self) -> Flags:
        """Whether no number, and no sum, was beyond what can be counted with."""
        return np.asarray(np.isfinite(self.total) & np.isfinite(self.squares))


def accumulated(sums: RunningSums, values: Floats, start: int) -> RunningSums:
    """The sums after each of the values, which follow each other along the first axis.

    They are added one after the other: the result is the same, bit for bit, in however many parts they come.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        path = RunningSums(
            _run(np.add, sums.count, np.ones_like(values)),
            _run(np.add, sums.total, values),
            _run(np.add, sums.squares, values * values),
            _run(np.maximum, sums.highest, values),
            _run(np.minimum, sums.lowest, values),
            np.broadcast_to(sums.scale, values.shape),
        )
    return dataclasses.replace(path, scale=_scales(path, start))


def _run(operation: np.ufunc, first: Floats, rest: Floats) -> Floats:
    joined = np.concatenate([np.broadcast_to(first, rest.shape[1:])[None], rest])
    return np.asarray(operation.accumulate(joined, axis=0)[1:])


def _scales(path: RunningSums, start: int) -> Floats:
    """The scale that was set before, or else the variance at the first time when there may be one."""
    found = path.variance
    may = (path.count >= start) & (found > 0)
    if not may.shape[0]:
        return np.asarray(path.scale)
    first = np.argmax(may, axis=0)[None]
    begun = np.arange(may.shape[0]).reshape(-1, *[1] * (may.ndim - 1)) >= first
    fresh = np.where(begun & may.any(axis=0), np.take_along_axis(found, first, axis=0), 0.0)
    return np.where(path.scale > 0, path.scale, fresh)


def upper_bounds(sums: RunningSums, level: float, tightest_at: int) -> Floats:
    """Of the mean expectation so far: ever wrong with probability `level`. Infinite until there is one."""
    with np.errstate(invalid="ignore"):  # infinity − infinity, where a number was not finite
        return np.asarray(sums.mean + _reach(sums, level, tightest_at))


def lower_bounds(sums: RunningSums, level: float, tightest_at: int) -> Floats:
    """The same from below, with a probability of its own."""
    with np.errstate(invalid="ignore"):
        return np.asarray(sums.mean - _reach(sums, level, tightest_at))


def _reach(sums: RunningSums, level: float, tightest_at: int) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        variance = sums.count * sums.variance
        rho_squared = best_mixture(level) / (tightest_at * sums.scale)
        farthest = np.maximum(sums.highest - sums.mean, sums.mean - sums.lowest)
        known = boundary(variance, rho_squared, level) + farthest
        return np.where((sums.scale > 0) & (variance > 0), known / sums.count, np.inf)


def boundary(variance: Floats, rho_squared: Floats | float, level: float) -> Floats:
    """What a Brownian motion at time `variance` ever exceeds with probability at most `level`."""
    return np.asarray(np.sqrt((variance + 1 / rho_squared) * _squared(rho_squared * variance, level)))


def _squared(mixed: Floats | float, level: float) -> Floats:
    """y², as a function of ρ²V."""
    return np.asarray(2 * np.log((1 + np.sqrt(mixed + 1) / level) / 2))


@functools.cache
def best_mixture(level: float) -> float:
    """ρ²V where the bound is tightest in standard errors: ρ² is this, over the variance at that time."""

    def width(log_mixed: float) -> float:
        mixed = float(np.exp(log_mixed))
        return float((1 + 1 / mixed) * _squared(mixed, level))

    return float(np.exp(minimize_scalar(width, bounds=(-3.0, 12.0), method="bounded").x))
