"""How much of α each test of a sequence may use, so that the whole sequence errs with probability α.

A gate that is used every week has many chances to be wrong. If the j-th test has level αⱼ and Σ αⱼ ≤ α,
then the chance of any wrong deployment, ever, is at most α (Boole). Nothing is assumed about how the
tests depend on each other, so they may share episodes, and each may test a different candidate. On the
same log they share most of their episodes: then the true chance is smaller than α, and the bound is
conservative. But each test must keep its level, and levels are small: see docs/how-to/repeated-tests.md for
how many episodes that takes.
"""

import abc
import math
from functools import partial
from statistics import NormalDist
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes
from ..inputs import whole
from ..loop import Spending

Part = TypeVar("Part", TrainingEpisodes, HeldOutEpisodes)


class FlatLevel(Spending):
    """No budget: every test has level α, and the chance of a wrong deployment grows with their number."""

    def level(self, test: Any) -> Float[Array, "..."]:
        return _where_counted(test, self.alpha)


class HarmonicSpending(Spending):
    """Any number of tests: α h/(j+h−1) − α h/(j+h) for the j-th, which adds up to α J/(J+h) after J.

    Half of α is spent after `half` tests, and what is left never runs out. Among open-ended rules, it was
    chosen for its power in the 50th to the 250th test. At α = 0.05 the 100th test has level 1.3e-4
    (z = 3.66). The series 6/(π² j²) leaves it 3.0e-6 (4.52) and c/(j log²(j+1)) 6.9e-6 (4.35), because
    they spend three fifths of α on the first test, when there are the fewest episodes.
    """

    half: int = eqx.field(static=True, default=100, converter=partial(whole, "half", low=1))

    def level(self, test: Any) -> Float[Array, "..."]:
        later = jnp.maximum(jnp.asarray(test, float), 1.0) + self.half
        return _where_counted(test, self.alpha * self.half / ((later - 1) * later))


class PlannedSpending(Spending):
    """A rule for a planned number of tests; there is nothing left after them."""

    tests: int = eqx.field(static=True, converter=partial(whole, "tests", low=1))


class EvenSpending(PlannedSpending):
    """α/tests for each of the planned tests (Bonferroni)."""

    def level(self, test: Any) -> Float[Array, "..."]:
        return _where_counted(test, self.alpha / self.tests, self.tests)


class SidakLevel(PlannedSpending):
    """1 − (1−α)^(1/tests) for each of the planned tests (Šidák, 1967): only for tests on fresh episodes.

    The levels sum to a little more than α. The chance of any wrong deployment is at most α if each test
    keeps its level whatever the earlier ones have shown, as when no episode is tested twice: see `fresh`.
    """

    def level(self, test: Any) -> Float[Array, "..."]:
        return _where_counted(test, -math.expm1(math.log1p(-self.alpha) / self.tests), self.tests)


class FractionSpending(PlannedSpending):
    """An alpha-spending function over the share of the planned information (Lan and DeMets, 1983).

    The j-th of the planned tests may use what is spent between (j−1)/tests and j/tests. A trial in
    medicine would turn these increments into larger levels by the joint law of its tests. That is not
    done here: candidates change from test to test, so the law is unknown, and Boole's bound needs none.
    """

    @abc.abstractmethod
    def spent(self, fraction: Any) -> Float[Array, "..."]:
        """What may be spent by this fraction of the plan: from 0 at 0 to α at 1, never falling."""

    def between(self, before: Any, after: Any) -> Float[Array, "..."]:
        """What a test at fraction `after` may use, if the one before it was at `before`."""
        return jnp.maximum(self.spent(after) - self.spent(before), 0.0)

    def level(self, test: Any) -> Float[Array, "..."]:
        number = jnp.asarray(test, float)
        increment = self.between((number - 1) / self.tests, number / self.tests)
        return _where_counted(test, increment, self.tests)


class OBrienFlemingSpending(FractionSpending):
    """2 − 2Φ(z/√fraction), z the upper α/2 point: next to nothing at first, most of it at the end.

    In the manner of O'Brien and Fleming (1979): for plans whose last tests, on the longest log, matter most.
    """

    def spent(self, fraction: Any) -> Float[Array, "..."]:
        z = -NormalDist().inv_cdf(self.alpha / 2)
        return 2 * norm.sf(z / jnp.sqrt(_share(fraction)))


class PocockSpending(FractionSpending):
    """α log(1 + (e − 1) fraction), in the manner of Pocock (1977): nearly even, a little more at first."""

    def spent(self, fraction: Any) -> Float[Array, "..."]:
        return self.alpha * jnp.log1p((math.e - 1) * _share(fraction))


def since(log: EpisodeLog, time: Any) -> EpisodeLog:
    """The log without its episodes up to this time: they become spare rows, and the capacity stays."""
    later = log.episode_numbers > time
    return log.only(later)


def fresh(episodes: Part, time: float) -> Part:
    """The episodes after the last test, which ended at this time; the trend's axis begins there too.

    A test on these alone owes nothing to the earlier tests, so `SidakLevel` applies. It rests on fewer
    episodes, though, and a trend needs many.
    """
    span = episodes.span
    return type(episodes)(
        since(episodes.log, time),
        None if span is None else (max(span[0], float(time) + 1), span[1]),
    )


def _share(fraction: Any) -> Float[Array, "..."]:
    return jnp.clip(jnp.asarray(fraction, float), 0.0, 1.0)


def _where_counted(test: Any, level: Any, last: float = math.inf) -> Float[Array, "..."]:
    """The level for tests from 1 to the last, and 0 for every other number."""
    number = jnp.asarray(test, float)
    return jnp.where((number >= 1) & (number <= last), jnp.asarray(level, float), 0.0)
