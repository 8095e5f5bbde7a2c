"""A bound on the past advantage that holds for any number of episodes, given the range of the returns.

The gate's own bounds are asymptotic: a loss that is rare and large enough never shows in them. If the
returns G are known to lie between `low` and `high`, then
    X = w_c (G − low) + w_s (high − G) ≥ 0,    E X = (candidate's value − safe policy's value) + (high − low),
with w the importance ratios of whole episodes, which need no bound of their own. The mean of numbers that
are never negative is bounded below by betting (Waudby-Smith and Ramdas, 2024): if it were m or less, a
gambler who bets the share c of his capital on each of them, at the odds X/m, would not gain. His capital is
Π (1 + c (X/m − 1)), of expectation at most ((1 − c) + c · mean/m)ⁿ ≤ 1 by the inequality of arithmetic and
geometric means: so the X need not have the same distribution, only be independent, and the bound is about the
average over the episodes, while the world drifts. The shares c are a fixed mixture.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from ..arrays import Flags, Floats, in_double
from ..checks.findings import NUMBERED, Names
from ..episodes import EpisodeLog
from ..errors import LogError, SettingsError
from ..inputs import shown
from ..policies import Policy
from ..returns import episode_ratios, observed_returns

SHARES = 1 - 1 / (1 + 2.0 ** np.arange(-12, 5))  # of the capital: from 1/4097 to 16/17, about twofold apart
HALVINGS = 50


@dataclasses.dataclass(frozen=True)
class RangeBound:
    """The average advantage over the last episodes is at least `lower`, wrong with probability `level`.

    The bound is about the past; whether the advantage lasts is for the forecast to say. Both must agree.
    """

    low: float
    high: float
    level: float
    lower: float
    num_episodes: int

    @property
    def agrees(self) -> bool:
        return self.lower > 0

    def __str__(self) -> str:
        return (
            f"For returns between {self.low:g} and {self.high:g}, the advantage over the last "
            f"{self.num_episodes:,} test episodes was at least {self.lower:.4g} on average, without an "
            "approximation (Waudby-Smith and Ramdas, 2024)."
        )


@in_double
def range_bound(
    candidate: Policy,
    safe: Policy,
    log: EpisodeLog,
    returns_between: tuple[float, float],
    level: float,
    *,
    discount: float = 1.0,
    since: float = -math.inf,
    names: Names = NUMBERED,
) -> RangeBound:
    """Bound the candidate's average advantage in the episodes after `since`; an error uses the `names`."""
    low, high = checked_range(returns_between)
    chosen = np.asarray(log.present) & (np.asarray(log.episode_numbers) > since)
    returns = np.asarray(observed_returns(log, discount))
    _require_inside(returns, chosen, log, (low, high), names)
    mine, theirs = (np.asarray(episode_ratios(one, log)) for one in (candidate, safe))
    values = (mine * (returns - low) + theirs * (high - returns))[chosen]
    lower = mean_above(values, level) - (high - low)
    return RangeBound(low, high, level, lower, int(values.size))


def mean_above(values: Floats, level: float) -> float:
    """A lower bound on the mean of independent numbers, none negative, wrong with probability `level`."""
    if not values.size or not level > 0 or not np.all(np.isfinite(values)):
        return 0.0
    refuted, accepted = 0.0, float(values.mean())
    for _ in range(HALVINGS):
        middle = (refuted + accepted) / 2
        if middle > 0 and log_capital(values, middle) >= -math.log(level):
            refuted = middle
        else:
            accepted = middle
    return refuted


def log_capital(values: Floats, mean: float) -> float:
    """The logarithm of what the mixture of gamblers has won against "the mean is at most this"."""
    with np.errstate(over="ignore"):
        odds = values / mean - 1
    totals = np.log1p(SHARES[:, None] * odds).sum(axis=1)
    peak = totals.max()
    return float(peak + np.log(np.mean(np.exp(totals - peak)))) if math.isfinite(peak) else math.inf


def checked_range(given: Any) -> tuple[float, float]:
    """The smallest and the largest return that an episode can have: two numbers, or a text LOW,HIGH."""
    try:
        low, high = (float(one) for one in (given.split(",") if isinstance(given, str) else given))
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingsError(
            f"the reward range is {shown(given)}.",
            expected="two finite numbers, the smaller one first, as in 0,1",
        )
    return low, high


def _require_inside(
    returns: Floats, chosen: Flags, log: EpisodeLog, ends: tuple[float, float], names: Names
) -> None:
    low, high = ends
    outside = np.flatnonzero(chosen & ((returns < low) | (returns > high)))
    if outside.size:
        number = float(np.asarray(log.episode_numbers)[outside[0]])
        raise LogError(
            f"the episode earned {returns[outside[0]]:g}, outside the range {low:g} to {high:g} "
            f"({outside.size:,} episodes in all).",
            where=names.episode(number),
            expected="the smallest and the largest return that an episode can ever have",
            remedy="The range is a promise about what may happen, not about what has happened: widen it.",
        )
