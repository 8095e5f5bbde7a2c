"""Two policies on the same episodes: tests as objects that all give the same kind of answer.

A test says whether the candidate's returns are forecast to exceed the safe policy's, and how its trend is
modelled. `TwoBounds` is the published one: a bound of each policy at α/2. `Paired` bounds the difference at
α: both policies see the same noise, so their difference is known better than either. `Multiscale` is
paired, and weighs trend models of every time scale by how well they would have forecast the past.
"""

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import ArrayLike, Floats, map_leaves, replace_at
from .basis import Basis, CosineBasis, PolynomialBasis, TimeAxis
from .bootstrap import (
    ConfidenceInterval,
    Multipliers,
    Side,
    StudentisedTest,
    check_draws,
    one_sided,
    percentile_t_interval,
    tail,
)
from .calendar_seasons import CalendarSeason, calendar_season, no_seasons
from .cells import MIN_CELLS, PER_CELL, Cells, Series, divide_each, have_times, in_reach
from .inputs import instance
from .mixture import (
    MovingFit,
    Trend,
    Trials,
    Tried,
    climatology_reach,
    describe_trials,
    moving_fit,
    trusted_trial,
    weigh,
)
from .models import TrendModels
from .policies import Policy
from .reasons import MIN_EPISODES, Reason, first_doubt
from .trend import TrendDesign, TrendFit, fit_trend, trend_curve, trend_design

MAX_SHARE = 1 / 3  # of the squared forecast weights that one episode may have
CURVE_POINTS = 200
UNFORESEEN = (
    2.5  # times the variance of a policy's own forecast: its level moves as no model of the list does
)


class Terms(eqx.Module):
    """The terms of a comparison: its time axis, its bootstrap draws and its error probability.

    `level` is the probability of a wrong deployment that this test may use, α unless there is a budget;
    `margin` is how much worse the candidate may be, as for a guardrail.
    """

    axis: TimeAxis
    multipliers: Multipliers
    alpha: Float[ArrayLike, ""] | float
    level: Any = None
    margin: Float[ArrayLike, ""] | float = 0.0

    @property
    def granted(self) -> Any:
        return self.alpha if self.level is None else self.level


class Comparison(eqx.Module):
    """A test's answer, as arrays; `p_value` is None for a test that has none.

    `difference` is the trend of the candidate's advantage, `point` its forecast; `lower` and `upper` bound
    that, each with the error probability of the test. The policies' own trends and intervals are for
    display, unless the test itself compares them.
    """

    candidate: Trend
    safe: Trend
    candidate_interval: ConfidenceInterval
    safe_interval: ConfidenceInterval
    difference: Trend
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    p_value: Float[Array, ""] | None
    trials: Trials
    reason: Int[Array, ""]
    alpha: Float[ArrayLike, ""] | float  # the probability outside the policies' own intervals

    @property
    def point(self) -> Float[Array, ""]:
        return self.difference.point

    @property
    def standard_error(self) -> Float[Array, ""]:
        """Of the forecast advantage."""
        return jnp.sqrt(self.difference.variance)

    @property
    def deploys(self) -> Bool[Array, ""]:
        return self.reason == Reason.BETTER


class ComparisonTest(eqx.Module):
    """How the trend is modelled, and how two policies are compared.

    `rule` says when the gate opens, `trend_words` what the bounds assume about the trend, `rests_on` whose
    trend it is, `tested_by` which findings are made about it, and `voided_by` which of these take the
    guarantee away. A test that `has_p_value` may be held to any level, even to one that is not known until
    it runs.
    """

    rule: ClassVar[str]
    trend_words: ClassVar[str]
    rests_on: ClassVar[tuple[str, ...]] = ("difference",)
    tested_by: ClassVar[tuple[str, ...]]
    voided_by: ClassVar[tuple[str, ...]]
    has_p_value: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def least_episodes(self) -> int:
        """How many episodes the test needs."""

    @property
    @abc.abstractmethod
    def least_times(self) -> int:
        """How many different times these must have."""

    def asked_for(self, alpha: float) -> Any:
        """α as its bounds take it: a number they are made for, unless one program can serve every α."""
        return alpha

    def held_to(self, level: float | None) -> Any:
        """The level as an argument of the compiled program, so that a new level needs no recompilation."""
        return None if level is None else np.asarray(level, float)

    def rivals(self, against: Policy | None) -> tuple[Policy, ...]:
        """The rival in the quantity that this test bounds, for a search to climb: none, or this policy."""
        return () if against is None else (against,)

    @property
    @abc.abstractmethod
    def shape(self) -> Basis:
        """The smooth trend over the whole log that checks compare with a constant."""

    @property
    @abc.abstractmethod
    def lead_shape(self) -> Basis:
        """The trend of the leading model, for a test of whether a richer one fits better."""

    @abc.abstractmethod
    def lead(self, series: Series, axis: TimeAxis) -> Trend:
        """The trend that forecasts the series, without bounds."""

    @abc.abstractmethod
    def forecast(self, series: Series, terms: Terms, side: Side) -> tuple[Trend, ConfidenceInterval]:
        """The trend of one policy's returns, and bounds on their forecast."""

    def compare(self, tested: Series, terms: Terms) -> Comparison:
        """Will the first of two series of returns exceed the second, less the margin?"""
        condensed, rows = self.condense(tested, terms.axis)
        return self.with_rows(self.judge(condensed, terms), rows)

    def condense(self, tested: Series, axis: TimeAxis) -> tuple[Any, Any]:
        """What the judgement needs of the series, and what else is known of their rows."""
        return tested, None

    @abc.abstractmethod
    def judge(self, condensed: Any, terms: Terms) -> Comparison:
        """The comparison, by what was condensed."""

    def with_rows(self, found: Comparison, rows: Any) -> Comparison:
        """The comparison with what is known of the rows."""
        return found

    @abc.abstractmethod
    def curve(self, fit: Trend, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
        """Times and values of a trend, for a picture."""


class _OneBasis(ComparisonTest):
    """One model of the whole log, taken on trust; residuals are `corrected` for their leverage, or not."""

    corrected: ClassVar[bool] = True
    trend_words: ClassVar[str] = "a smooth trend in the span of the basis"
    tested_by: ClassVar[tuple[str, ...]] = (
        "trend_misfit", "lag_1_autocorrelation", "autocorrelation", "jump", "horizon_leverage",
        "horizon_influence",
    )  # fmt: skip
    voided_by: ClassVar[tuple[str, ...]] = tested_by

    basis: Basis = eqx.field(
        default_factory=lambda: CosineBasis(3), converter=functools.partial(instance, "basis", Basis)
    )

    @property
    def least_episodes(self) -> int:
        return max(MIN_EPISODES, 2 * self.basis.size)

    @property
    def least_times(self) -> int:
        return 2 * self.basis.size

    @property
    def shape(self) -> Basis:
        return self.basis

    @property
    def lead_shape(self) -> Basis:
        return self.basis

    def design(self, series: Series, axis: TimeAxis) -> TrendDesign:
        """The regression at these times."""
        return trend_design(self.basis, series.times, series.present, axis, corrected=self.corrected)

    def lead(self, series: Series, axis: TimeAxis) -> TrendFit:
        return fit_trend(self.design(series, axis), series.returns)

    def forecast(self, series: Series, terms: Terms, side: Side) -> tuple[TrendFit, ConfidenceInterval]:
        fit = fit_trend(self.design(series, terms.axis), series.returns)
        return fit, percentile_t_interval(fit, terms.multipliers, terms.alpha, side)

    def curve(self, fit: Trend, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
        assert isinstance(fit, TrendFit)
        points = np.linspace(float(axis.origin) + 1, float(axis.end), CURVE_POINTS)
        return points, np.asarray(trend_curve(fit, self.basis, axis, points))


class TwoBounds(_OneBasis):
    """The published test: the candidate's lower bound above the safe policy's upper bound, α/2 each.

    Its level is that of the bounds, so it must be known before the test runs. One episode may have at most
    `max_share` of the squared forecast weights (the paper has no such check: ∞ switches it off).
    """

    max_share: float = eqx.field(static=True, default=MAX_SHARE)

    corrected: ClassVar[bool] = False
    rests_on: ClassVar[tuple[str, ...]] = ("candidate", "safe")
    has_p_value: ClassVar[bool] = False
    rule: ClassVar[str] = (
        "The gate opens only if the candidate's lower bound is above the safe policy's upper bound."
    )

    def held_to(self, level: float | None) -> Any:
        return level

    def rivals(self, against: Policy | None) -> tuple[Policy, ...]:
        return ()

    def judge(self, condensed: Series, terms: Terms) -> Comparison:
        tested, level, margin = condensed, terms.granted, terms.margin
        check_draws(terms.multipliers.num_draws, tail(level, Side.BOTH))
        design = self.design(tested, terms.axis)

        def bounded(returns: Float[Array, " n"]) -> tuple[TrendFit, ConfidenceInterval]:
            fit = fit_trend(design, returns)
            return fit, percentile_t_interval(fit, terms.multipliers, level, Side.BOTH)

        # One vmap over both policies, so that the multipliers are made once.
        fits, intervals = jax.vmap(bounded)(tested.returns)
        lower, upper = intervals.lower[0] + margin, intervals.upper[1]
        doubts = {
            **_design_doubts(self, design, tested),
            Reason.LOOKAHEAD_TOO_LONG: ~terms.axis.trusted,
            Reason.FEW_DECIDE: ~(design.largest_share <= self.max_share),
            Reason.NO_VARIATION: ~jnp.all(jax.vmap(_varies)(fits)),
            Reason.NOT_FINITE: ~(jnp.isfinite(lower) & jnp.isfinite(upper)),
            Reason.NOT_BETTER: ~(lower > upper),
        }
        first, second = (map_leaves(lambda leaf, i=i: leaf[i], (fits, intervals)) for i in (0, 1))
        difference = fit_trend(design, tested.difference.returns)
        bounds = intervals.lower[0] - upper, intervals.upper[0] - intervals.lower[1]
        return Comparison(
            *(first[0], second[0], first[1], second[1]),
            difference=difference,
            lower=bounds[0],
            upper=bounds[1],
            p_value=None,
            trials=trusted_trial(difference, bounds[0], None, terms.axis),
            reason=first_doubt(doubts),
            alpha=level,
        )


class Paired(_OneBasis):
    """One bound on the difference at α, with a trend taken on trust."""

    rule: ClassVar[str] = (
        "The gate opens only if the p-value of the difference is small enough; the policies' own intervals "
        "may overlap."
    )

    def judge(self, condensed: Series, terms: Terms) -> Comparison:
        tested, level, margin = condensed, terms.granted, terms.margin
        design = self.design(tested, terms.axis)
        fit = fit_trend(design, tested.difference.returns)
        test = StudentisedTest.of(fit, terms.multipliers)
        p_value, lower, upper = test.p_value(margin), test.lower(level), test.upper(level)
        doubts = {
            **_design_doubts(self, design, tested),
            Reason.LOOKAHEAD_TOO_LONG: ~terms.axis.trusted,
            Reason.FEW_DECIDE: ~(design.largest_share <= MAX_SHARE),
            Reason.NO_VARIATION: ~_varies(fit),
            Reason.NOT_FINITE: ~(jnp.isfinite(fit.point) & jnp.isfinite(p_value)),
            Reason.BUDGET_SPENT: ~(jnp.asarray(level) > 0),
            Reason.NOT_BETTER: ~(p_value <= level),
        }

        def alone(returns: Float[Array, " n"]) -> tuple[TrendFit, ConfidenceInterval]:
            return self.forecast(Series(returns, tested.times, tested.present), terms, Side.BOTH)

        both = jax.vmap(alone)(tested.returns)
        first, second = (map_leaves(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
        return Comparison(
            *(first[0], second[0], first[1], second[1]),
            difference=fit,
            lower=lower,
            upper=upper,
            p_value=p_value,
            trials=trusted_trial(fit, lower, p_value, terms.axis),
            reason=first_doubt(doubts),
            alpha=terms.alpha,
        )


class Multiscale(ComparisonTest):
    """One bound on the difference at α: the probability, over all trend models, that it is not positive."""

    # What the mixture claims of itself, it must have kept in the past; the rest it models.
    tested_by: ClassVar[tuple[str, ...]] = ("past_forecasts", "horizon_leverage", "horizon_influence")
    voided_by: ClassVar[tuple[str, ...]] = ("past_forecasts",)
    trend_words: ClassVar[str] = (
        "a movement like one of those in the list of trend models, each as likely as its past forecasts make "
        "it"
    )
    rule: ClassVar[str] = (
        "The gate opens only if the probability that the candidate is not better, over all trend models and "
        "as likely as the past makes them, is small enough; the policies' own intervals may overlap."
    )

    models: TrendModels = eqx.field(
        default_factory=TrendModels, converter=functools.partial(instance, "models", TrendModels)
    )

    @property
    def least_episodes(self) -> int:
        return MIN_CELLS * PER_CELL

    @property
    def least_times(self) -> int:
        return MIN_CELLS

    @property
    def shape(self) -> Basis:
        return CosineBasis(3)

    @property
    def lead_shape(self) -> Basis:
        return PolynomialBasis(1)

    def asked_for(self, alpha: float) -> Any:
        return np.asarray(alpha, float)

    def condense(self, tested: Series, axis: TimeAxis) -> tuple["InCells", "Rows"]:
        times, present = tested.times, in_reach(tested.times, tested.present, axis)
        returns = [jnp.where(present, one, 0.0) for one in (tested.difference.returns, *tested.returns)]
        each, seasons = self._divided(returns, times, present, axis)
        luck = jnp.append(jnp.zeros(1), jnp.broadcast_to(tested.luck, (2,)))
        cells = map_leaves(lambda *leaves: jnp.stack(leaves), *(one.without_rows() for one in each))
        counts = (jnp.broadcast_to(one, (3,)) for one in _counted(self, tested))
        known = InCells(cells, seasons.ahead, seasons.variance, luck, *counts)
        difference, candidate, safe = returns
        return known, Rows(difference, candidate, safe, each[0].row_cells, each[0].present)

    def with_rows(self, found: Comparison, rows: "Rows") -> Comparison:
        fits = {
            name: getattr(found, name).with_rows(getattr(rows, name), rows.row_cells, rows.present)
            for name in ("difference", "candidate", "safe")
        }
        return dataclasses.replace(found, **fits)

    def judge(self, condensed: "InCells", terms: Terms) -> Comparison:
        level, limit = terms.granted, -jnp.asarray(terms.margin)
        found = jax.vmap(lambda one: (one, *self._bounded(one, terms, Side.BOTH)))(condensed)
        (known, tried, fit, _), *alone = (map_leaves(lambda leaf, i=i: leaf[i], found) for i in range(3))
        cells = known.cells
        mixture = tried.mixture
        p_value = mixture.below(limit)
        trials = describe_trials(self.models, tried, terms.axis, level, limit)
        standing = mixture.only(jnp.arange(mixture.weights.shape[0])[:, None] == 0).below(limit)
        doubts = {
            **_count_doubts(self, known.count, known.enough_times),
            Reason.SINGULAR_TREND: ~cells.enough,
            Reason.LOOKAHEAD_TOO_LONG: ~(terms.axis.lookahead <= trials.longest),
            Reason.FEW_DECIDE: cells.varies & ~(fit.design.largest_share <= MAX_SHARE),
            Reason.NO_VARIATION: ~(cells.varies & (fit.variance > 0)),
            Reason.NOT_FINITE: ~(jnp.isfinite(fit.point) & jnp.isfinite(p_value)),
            Reason.BUDGET_SPENT: ~(jnp.asarray(level) > 0),
            Reason.SCALES_DISAGREE: ~(p_value <= level) & (standing <= level),
            Reason.NOT_BETTER: ~(p_value <= level),
        }
        return Comparison(
            *(alone[0][2], alone[1][2], alone[0][3], alone[1][3]),
            difference=fit,
            lower=mixture.quantile(level),
            upper=mixture.quantile(1 - jnp.asarray(level)),
            p_value=p_value,
            trials=trials,
            reason=first_doubt(doubts),
            alpha=terms.alpha,
        )

    def _divided(
        self, returns: Sequence[Float[Array, " n"]], times: Any, present: Any, axis: TimeAxis
    ) -> tuple[list[Cells], CalendarSeason]:
        """Each of these series in cells, without its calendar season; and the seasons."""
        cells, periods = divide_each(returns, times, present, axis), self.models.calendar
        if not periods:
            return cells, no_seasons(len(returns), returns[0].dtype)

        def season(one: Float[Array, " n"], precision: Float[Array, " c"]) -> CalendarSeason:
            known = dataclasses.replace(cells[0], precision=precision)  # all else is the same for each
            return calendar_season(periods, Series(one, times, present), known, axis)

        found = jax.vmap(season)(jnp.stack(returns), jnp.stack([one.precision for one in cells]))
        rest = [one - added for one, added in zip(returns, found.rows, strict=True)]
        return divide_each(rest, times, present, axis), found

    def lead(self, series: Series, axis: TimeAxis) -> MovingFit:
        returns = jnp.asarray(series.returns)
        (cells,), season = self._divided([returns], series.times, series.present, axis)
        tried = weigh(self.models, cells, axis).shifted(season.ahead[0], season.variance[0])
        return moving_fit(cells, tried, returns)

    def forecast(self, series: Series, terms: Terms, side: Side) -> tuple[MovingFit, ConfidenceInterval]:
        returns, luck = jnp.asarray(series.returns), jnp.asarray(series.luck)
        (cells,), season = self._divided([returns], series.times, series.present, terms.axis)
        counts = _counted(self, series)
        known = InCells(cells.without_rows(), season.ahead[0], season.variance[0], luck, *counts)
        fit, interval = self._bounded(known, terms, side)[1:]
        returns = jnp.where(cells.present, returns, 0.0)
        return fit.with_rows(returns, cells.row_cells, cells.present), interval

    def _bounded(
        self, known: "InCells", terms: Terms, side: Side
    ) -> tuple[Tried, MovingFit, ConfidenceInterval]:
        cells, axis = known.cells, terms.axis
        weighed = weigh(self.models, cells, axis).shifted(known.ahead, known.variance)
        fit, level = moving_fit(cells, weighed), tail(terms.alpha, side)
        lucky = known.luck / axis.lookahead
        wide = replace_at(lambda one: one.mixture, weighed, weighed.mixture.widened(UNFORESEEN))
        mixture = wide.shifted(jnp.zeros(()), lucky).mixture
        lower, upper = mixture.quantile(level), mixture.quantile(1 - jnp.asarray(level))
        reach = climatology_reach(cells, weighed.window.length, level)
        lower, upper = jnp.maximum(lower, fit.point - reach), jnp.minimum(upper, fit.point + reach)
        lower, upper = (jnp.where(cells.enough, one, jnp.nan) for one in (lower, upper))
        return weighed, fit, one_sided(side, lower=lower, upper=upper)

    def curve(self, fit: Trend, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
        """The path of the leading model, and the mixture's forecast."""
        assert isinstance(fit, MovingFit)
        ages, path = np.asarray(fit.ages)[::-1], np.asarray(fit.path)[::-1]
        known = np.isfinite(ages)
        past = float(axis.last) - ages[known] * float(axis.length)
        ahead = np.array([float(axis.last), float(axis.end)])
        return np.append(past, ahead), np.append(path[known], [float(fit.point)] * 2)


class InCells(eqx.Module):
    """A series in cells, all that the mixture needs of it; there are as many cells, however long the log is.

    `ahead` and `variance` are what a calendar season adds to the forecast. `count` is how many episodes there
    are, and `enough_times` whether these have times enough.
    """

    cells: Cells
    ahead: Float[Array, ""]
    variance: Float[Array, ""]
    luck: Float[Array, ""]
    count: Int[Array, ""]
    enough_times: Bool[Array, ""]


class Rows(eqx.Module):
    """What is known of each episode: what a policy gains on the other in it, what both earn, and its cell."""

    difference: Float[Array, " n"]
    candidate: Float[Array, " n"]
    safe: Float[Array, " n"]
    row_cells: Int[Array, " n"]
    present: Bool[Array, " n"]


def _counted(test: ComparisonTest, tested: Series) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """How many episodes there are, and whether they have times enough for the test."""
    present = jnp.asarray(tested.present)
    return jnp.sum(present), have_times(tested.times, present, test.least_times)


def _count_doubts(
    test: ComparisonTest, count: Int[Array, ""], enough_times: Bool[Array, ""]
) -> dict[Reason, Bool[Array, ""]]:
    return {
        Reason.NO_EPISODES: count < 1,
        Reason.TOO_FEW_EPISODES: (count < test.least_episodes) | ~enough_times,
    }


def _design_doubts(
    test: ComparisonTest, design: TrendDesign, tested: Series
) -> dict[Reason, Bool[Array, ""]]:
    tolerance = np.sqrt(_epsilon(design.conditioning))
    return {
        **_count_doubts(test, *_counted(test, tested)),
        Reason.SINGULAR_TREND: ~(design.conditioning > tolerance),
    }


def _varies(fit: TrendFit) -> Bool[Array, ""]:
    scale = jnp.max(jnp.abs(fit.returns) * jnp.abs(fit.design.forecast_weights))
    return fit.variance > (1e3 * _epsilon(fit.variance) * scale) ** 2


def _epsilon(values: Array) -> float:
    return float(np.finfo(values.dtype).eps)
