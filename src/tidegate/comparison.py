"""Two policies on the same episodes: tests as objects that all give the same kind of answer.

A test says whether the candidate's returns are forecast to exceed the safe policy's, and how its trend is
modelled. `TwoBounds` is the published one: a bound of each policy at α/2. `Paired` bounds the difference at
α: both policies see the same noise, so their difference is known better than either. `Multiscale` is
paired, and tries its trend models on the past; those found credible must agree.
"""

import abc
import enum
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import ArrayLike, Floats, map_leaves, replace_at
from .basis import Basis, CosineBasis, TimeAxis
from .bootstrap import (
    ConfidenceInterval,
    Multipliers,
    Side,
    check_draws,
    one_sided,
    percentile_t_interval,
    tail,
    tail_probability,
)
from .inputs import instance
from .models import (
    LINE,
    MIN_TIMES,
    LeadingTrend,
    ModelForecasts,
    Series,
    TrendModels,
    first_at_their_time,
    largest,
    leading_model,
    smallest,
    tried_forecasts,
    trusted_forecast,
)
from .policies import Policy
from .trend import TrendDesign, TrendFit, fit_trend, trend_curve, trend_design

MIN_EPISODES = 10
MAX_SHARE = 1 / 3  # of the squared forecast weights that one episode may have
CURVE_POINTS = 200


class Verdict(enum.Enum):
    """What to do."""

    DEPLOY = "deploy the candidate"
    KEEP = "keep the safe policy"


class Status(enum.StrEnum):
    """The outcome in the words of deployment pipelines."""

    PASS = "pass"
    """DEPLOY."""
    INCONCLUSIVE = "inconclusive"
    """KEEP for want of evidence."""
    FAIL = "fail"
    """KEEP because harm is shown, or because a guardrail blocks."""
    ERROR = "error"
    """Nothing could be decided: the log is unfit."""


class Reason(enum.IntEnum):
    """Why, in the order in which the test checks. Only the first one deploys."""

    BETTER = 0
    NO_EPISODES = 1
    TOO_FEW_EPISODES = 2
    LOG_FULL = 3
    SINGULAR_TREND = 4
    LOOKAHEAD_TOO_LONG = 5
    FEW_DECIDE = 6
    SUPPORT = 7
    NO_VARIATION = 8
    NOT_FINITE = 9
    BUDGET_SPENT = 10
    NOT_FORECASTABLE = 11
    NOT_BETTER = 12
    SCALES_DISAGREE = 13
    RANGE_DISAGREES = 14
    NOT_GUARANTEED = 15

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Reason.BETTER: "the candidate is forecast to beat the safe policy, beyond chance.",
    Reason.NO_EPISODES: "there is no test episode. Hold some out: lower `train_fraction`, or collect.",
    Reason.TOO_FEW_EPISODES: (
        f"there are too few test episodes (at least {MIN_EPISODES}, as many as the shortest time scale "
        "has, and two per feature of a basis, at different times). Collect more, or use a smaller basis."
    ),
    Reason.LOG_FULL: (
        "the log's capacity was exhausted and episodes were lost. Start again with a larger capacity."
    ),
    Reason.SINGULAR_TREND: (
        "the trend cannot be identified from these episode times (the design is singular). "
        "Use a smaller basis or a longer log."
    ),
    Reason.LOOKAHEAD_TOO_LONG: (
        "the log is too short to try this lookahead on its past, and a forecast that was never tried is no "
        "evidence. Shorten the lookahead, or collect more."
    ),
    Reason.FEW_DECIDE: (
        "the forecast rests on very few episodes, by their times alone. Check the times of the last episodes "
        "for mistakes, or wait until there are more after the gap."
    ),
    Reason.SUPPORT: (
        "the importance ratios of a policy do not average to one: it takes actions that the log "
        "does not support, or the logged propensities are wrong. Collect with more exploration, or "
        "check the propensities."
    ),
    Reason.NO_VARIATION: (
        "the estimated returns show no variation about their trend, so they carry no evidence. "
        "Check the rewards and the policies' probabilities."
    ),
    Reason.NOT_FINITE: (
        "a bound is not a finite number. Check for extreme rewards or ratios, or raise the number of draws."
    ),
    Reason.BUDGET_SPENT: (
        "the error budget has nothing for this test, so it cannot open the gate. Set a new budget for new "
        "episodes, and say so."
    ),
    Reason.NOT_FORECASTABLE: (
        "the trend is not forecastable: at every time scale, forecasts of the past missed by as much as "
        "there was to forecast. Shorten the lookahead, or gate more often."
    ),
    Reason.NOT_BETTER: (
        "the candidate is not forecast to beat the safe policy, beyond chance. Collect more episodes, or "
        "propose a candidate with a clearer advantage."
    ),
    Reason.SCALES_DISAGREE: (
        "the latest episodes point the other way: a shorter time scale forecasts a disadvantage, beyond "
        "chance. Wait for more episodes."
    ),
    Reason.RANGE_DISAGREES: (
        "the candidate is forecast to beat the safe policy, but for rewards of the range that was given, the "
        "episodes are too few to exclude chance without an approximation. Collect more, or give a narrower "
        "range if it is true."
    ),
    Reason.NOT_GUARANTEED: (
        "the candidate is forecast to beat the safe policy, but that is not guaranteed. Mend what the "
        "caveats name, or accept the risk knowingly (`allow_unguaranteed=True`)."
    ),
}


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


class Trials(eqx.Module):
    """What each trend model says about the difference, and what the test requires of the model.

    A model that is needed passes with a `lowers` above the margin; one that is watched contradicts with an
    `uppers` below it. Each bound is at the level of the test that it decides.
    """

    spans: Float[Array, " j"]
    counts: Int[Array, " j"]
    points: Float[Array, " j"]
    errors: Float[Array, " j"]
    biases: Float[Array, " j"]
    lowers: Float[Array, " j"]
    uppers: Float[Array, " j"]
    p_values: Float[Array, " j"] | None
    needed: Bool[Array, " j"]
    watched: Bool[Array, " j"]
    best: Int[Array, ""]
    longest: Float[Array, ""]  # the longest lookahead that the test could have been asked for


class Comparison(eqx.Module):
    """A test's answer, as arrays; `p_value` is None for a test that has none.

    `point` is the forecast advantage of the candidate; `lower` and `upper` bound it, each with the error
    probability of the test; `difference` is the trend behind them. The policies' own trends and intervals
    are for display, unless the test itself compares them.
    """

    candidate: TrendFit
    safe: TrendFit
    candidate_interval: ConfidenceInterval
    safe_interval: ConfidenceInterval
    difference: TrendFit
    point: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    p_value: Float[Array, ""] | None
    trials: Trials
    reason: Int[Array, ""]
    alpha: Float[ArrayLike, ""] | float  # the probability outside the policies' own intervals

    @property
    def standard_error(self) -> Float[Array, ""]:
        """Of the forecast advantage, bias included."""
        return self.trials.errors[self.trials.best]

    @property
    def deploys(self) -> Bool[Array, ""]:
        return self.reason == Reason.BETTER


class ComparisonTest(eqx.Module):
    """How the trend is modelled, and how two policies are compared.

    `rule` says when the gate opens, `trend_words` what the bounds assume about the trend, `rests_on` whose
    trend it is, and `voided_by` which findings about it take the guarantee away. A test that `tries_models`
    needs training episodes to try them on. A test that `has_p_value` may be held to any level, even one that
    is not known until it runs.
    """

    rule: ClassVar[str]
    trend_words: ClassVar[str]
    rests_on: ClassVar[tuple[str, ...]] = ("difference",)
    voided_by: ClassVar[tuple[str, ...]]
    tries_models: ClassVar[bool] = False
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
    def lead(self, series: Series, past: Series, axis: TimeAxis) -> LeadingTrend:
        """The trend that forecasts `series`, chosen from those tried on `past`."""

    @abc.abstractmethod
    def forecast(
        self, series: Series, past: Series, terms: Terms, side: Side
    ) -> tuple[TrendFit, ConfidenceInterval]:
        """The trend of one policy's returns, and bounds on their forecast."""

    @abc.abstractmethod
    def compare(self, tested: Series, past: Series, terms: Terms) -> Comparison:
        """Will the first of two series of returns exceed the second, less the margin?"""

    def model_names(self, count: int) -> tuple[str, ...]:
        """The names of the trend models that `compare` has tried."""
        return ("trend",) * count

    @abc.abstractmethod
    def curve(self, fit: TrendFit, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
        """Times and values of a trend, for a picture."""


class _OneBasis(ComparisonTest):
    """One model of the whole log, taken on trust; residuals are `corrected` for their leverage, or not."""

    corrected: ClassVar[bool] = True
    trend_words: ClassVar[str] = "a smooth trend in the span of the basis"
    voided_by: ClassVar[tuple[str, ...]] = (
        "trend_misfit", "lag_1_autocorrelation", "autocorrelation", "jump", "horizon_leverage",
        "horizon_influence",
    )  # fmt: skip

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

    def lead(self, series: Series, past: Series, axis: TimeAxis) -> LeadingTrend:
        return LeadingTrend(jnp.asarray(axis.length), fit_trend(self.design(series, axis), series.returns))

    def forecast(
        self, series: Series, past: Series, terms: Terms, side: Side
    ) -> tuple[TrendFit, ConfidenceInterval]:
        fit = fit_trend(self.design(series, terms.axis), series.returns)
        return fit, percentile_t_interval(fit, terms.multipliers, terms.alpha, side)

    def curve(self, fit: TrendFit, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
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

    def compare(self, tested: Series, past: Series, terms: Terms) -> Comparison:
        level, margin = terms.granted, terms.margin
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
            point=difference.point,
            lower=bounds[0],
            upper=bounds[1],
            p_value=None,
            trials=_only_trial(difference, bounds, terms.axis),
            reason=first_doubt(doubts),
            alpha=level,
        )


class _OnDifference(ComparisonTest):
    """One bound on the forecast of candidate − safe."""

    @abc.abstractmethod
    def forecasts(
        self, tested: Series, past: Series, terms: Terms
    ) -> tuple[ModelForecasts, tuple[TrendFit, ConfidenceInterval]]:
        """The difference of two series by every trend model; and the trends and bounds of both, stacked."""

    def compare(self, tested: Series, past: Series, terms: Terms) -> Comparison:
        level, margin = terms.granted, terms.margin
        found, both = self.forecasts(tested, past, terms)
        choice, points = found.choice, found.fits.point
        p_values = jax.vmap(tail_probability)((points + margin) / found.errors, found.draws, found.freedom)
        point, p_value = points[choice.best], largest(p_values, choice.needed)
        lowers, uppers = found.lower_bounds(level), _contradiction_bounds(found, terms.alpha)
        varies = jax.vmap(_varies)(found.fits)
        spread_out = jax.vmap(lambda fit: fit.design.largest_share)(found.fits) <= MAX_SHARE
        doubts = {
            **_design_doubts(self, map_leaves(lambda leaf: leaf[0], found.fits.design), tested),
            Reason.LOOKAHEAD_TOO_LONG: ~choice.tried,
            Reason.FEW_DECIDE: ~jnp.all(jnp.where(choice.needed, spread_out, True)),
            Reason.NO_VARIATION: ~jnp.all(jnp.where(choice.needed, varies, True)),
            Reason.NOT_FINITE: ~(jnp.isfinite(point) & jnp.isfinite(p_value)),
            Reason.BUDGET_SPENT: ~(jnp.asarray(level) > 0),
            Reason.NOT_FORECASTABLE: ~choice.forecastable,
            Reason.NOT_BETTER: ~(p_value <= level),
            Reason.SCALES_DISAGREE: ~_agree(found, -margin, terms.alpha),
        }

        first, second = (map_leaves(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
        return Comparison(
            *(first[0], second[0], first[1], second[1]),
            difference=map_leaves(lambda leaf: leaf[choice.best], found.fits),
            point=point,
            lower=smallest(lowers, choice.needed),
            upper=largest(found.upper_bounds(level), choice.needed),
            p_value=p_value,
            trials=_trials(found, lowers, uppers, p_values),
            reason=first_doubt(doubts),
            alpha=terms.alpha,
        )


class Paired(_OnDifference, _OneBasis):
    """One bound on the difference at α, with a trend taken on trust."""

    rule: ClassVar[str] = (
        "The gate opens only if the p-value of the difference is small enough; the policies' own intervals "
        "may overlap."
    )

    def forecasts(
        self, tested: Series, past: Series, terms: Terms
    ) -> tuple[ModelForecasts, tuple[TrendFit, ConfidenceInterval]]:
        def alone(returns: Float[Array, " n"]) -> tuple[TrendFit, ConfidenceInterval]:
            return self.forecast(Series(returns, tested.times, tested.present), past, terms, Side.BOTH)

        found = trusted_forecast(self.basis, tested.difference, terms.axis, terms.multipliers)
        return found, jax.vmap(alone)(tested.returns)


class Multiscale(_OnDifference):
    """One bound on the difference at α that must hold for every model that the past makes credible."""

    tries_models: ClassVar[bool] = True
    # How far a line is off, its past has shown; that neighbours go together, it takes for noise.
    voided_by: ClassVar[tuple[str, ...]] = ("lag_1_autocorrelation",)
    trend_words: ClassVar[str] = (
        "a line through the episodes of the leading time scale that misses by about as much as it missed "
        "in the past"
    )
    rule: ClassVar[str] = (
        "The gate opens only if the p-value of the difference is small enough at every time scale that must "
        "pass, and no shorter scale points the other way; the policies' own intervals may overlap."
    )

    models: TrendModels = eqx.field(
        default_factory=TrendModels, converter=functools.partial(instance, "models", TrendModels)
    )

    @property
    def least_episodes(self) -> int:
        return max(MIN_EPISODES, self.models.smallest)

    @property
    def least_times(self) -> int:
        return MIN_TIMES

    @property
    def shape(self) -> Basis:
        return CosineBasis(3)

    @property
    def lead_shape(self) -> Basis:
        return LINE

    def asked_for(self, alpha: float) -> Any:
        return np.asarray(alpha, float)

    def model_names(self, count: int) -> tuple[str, ...]:
        return self.models.names(count)

    def forecasts(
        self, tested: Series, past: Series, terms: Terms
    ) -> tuple[ModelForecasts, tuple[TrendFit, ConfidenceInterval]]:
        # Three series through one program: most of a gate's time is compiling it.
        caution, each = self.models.caution, Series(0, None, None)  # type: ignore[arg-type]
        series, before = tested.with_difference, past.with_difference
        three = jax.vmap(self._tried, (each, each, None, 0))(
            series, before, terms, jnp.array([0.0, caution, caution])
        )
        found, alone = (map_leaves(lambda leaf, i=i: leaf[i], three) for i in (0, slice(1, None)))
        return found, jax.vmap(self._bounds, (0, 0, None))(alone, series.returns[1:], terms)

    def _tried(self, series: Series, past: Series, terms: Terms, caution: Any) -> ModelForecasts:
        return tried_forecasts(self.models, series, past, terms.axis, terms.multipliers, caution=caution)

    def lead(self, series: Series, past: Series, axis: TimeAxis) -> LeadingTrend:
        return leading_model(self.models, series, past, axis)

    def forecast(
        self, series: Series, past: Series, terms: Terms, side: Side
    ) -> tuple[TrendFit, ConfidenceInterval]:
        found = self._tried(series, past, terms, self.models.caution)
        return self._bounds(found, jnp.where(jnp.asarray(series.present), series.returns, 0.0), terms, side)

    def _bounds(
        self, found: ModelForecasts, returns: Float[Array, " n"], terms: Terms, side: Side = Side.BOTH
    ) -> tuple[TrendFit, ConfidenceInterval]:
        """Bounds over all credible models; the trend is the leading one, with bias in its variance."""
        needed, best, level = found.choice.needed, found.choice.best, tail(terms.alpha, side)
        lower = smallest(found.lower_bounds(level), needed)
        upper = largest(found.upper_bounds(level), needed)
        leading = map_leaves(lambda leaf: leaf[best], found.fits)
        leading = replace_at(
            lambda fit: (fit.returns, fit.variance), leading, (returns, found.errors[best] ** 2)
        )
        return leading, one_sided(side, lower=lower, upper=upper)

    def curve(self, fit: TrendFit, axis: TimeAxis, times: Floats, present: Any) -> tuple[Floats, Floats]:
        """Over the span of the leading model."""
        end = float(axis.end)
        used = np.asarray(fit.design.present)[present]
        if np.unique(times[used]).size < 2:
            return np.array([float(axis.origin) + 1, end]), np.full(2, float(fit.point))
        fitted = np.asarray(fit.coordinates @ fit.design.orthonormal)[present][used]
        if self.models.others:
            return times[used], fitted
        line = np.polynomial.Polynomial.fit(times[used], fitted, 1)
        points = np.linspace(float(times[used].min()), end, CURVE_POINTS)
        return points, np.asarray(line(points))


def first_doubt(doubts: dict[Reason, Bool[Array, ""]]) -> Int[Array, ""]:
    """Every doubt must be a definite False before BETTER is reached."""
    ordered = sorted(doubts)
    return jnp.select(
        [doubts[reason] for reason in ordered],
        [jnp.int32(reason) for reason in ordered],
        jnp.int32(Reason.BETTER),
    )


def earlier_doubt(one: Int[Array, ""], other: Int[Array, ""]) -> Int[Array, ""]:
    """Of two reasons, the one that is checked first; BETTER only if both are."""
    both = (one != Reason.BETTER) & (other != Reason.BETTER)
    return jnp.where(both, jnp.minimum(one, other), jnp.maximum(one, other))


def _design_doubts(
    test: ComparisonTest, design: TrendDesign, tested: Series
) -> dict[Reason, Bool[Array, ""]]:
    count = jnp.sum(design.present)
    times = jnp.sum(first_at_their_time(tested.times, jnp.asarray(tested.present)))
    tolerance = np.sqrt(_epsilon(design.conditioning))
    return {
        Reason.NO_EPISODES: count < 1,
        Reason.TOO_FEW_EPISODES: (count < test.least_episodes) | (times < test.least_times),
        Reason.SINGULAR_TREND: ~(design.conditioning > tolerance),
    }


def _varies(fit: TrendFit) -> Bool[Array, ""]:
    scale = jnp.max(jnp.abs(fit.returns) * jnp.abs(fit.design.forecast_weights))
    return fit.variance > (1e3 * _epsilon(fit.variance) * scale) ** 2


def _epsilon(values: Array) -> float:
    return float(np.finfo(values.dtype).eps)


def _contradiction_bounds(found: ModelForecasts, alpha: Any) -> Float[Array, " j"]:
    """Noise alone can flip the sign at short scales: only a forecast clearly below the limit contradicts,
    and the more models are watched, the clearer it must be."""
    return found.upper_bounds(alpha / jnp.maximum(jnp.sum(found.choice.watched), 1))


def _agree(found: ModelForecasts, limit: Any, alpha: Any) -> Bool[Array, ""]:
    # Where both policies acted alike throughout a span, there is no noise: the point is the bound.
    same = found.fits.variance == 0
    above = jnp.where(same, found.fits.point >= limit, _contradiction_bounds(found, alpha) > limit)
    return jnp.all(jnp.where(found.choice.watched, above, True))


def _trials(
    found: ModelForecasts,
    lowers: Float[Array, " j"],
    uppers: Float[Array, " j"],
    p_values: Float[Array, " j"],
) -> Trials:
    choice = found.choice
    return Trials(
        spans=found.spans,
        counts=found.counts,
        points=found.fits.point,
        errors=found.errors,
        biases=found.biases,
        lowers=lowers,
        uppers=uppers,
        p_values=p_values,
        needed=choice.needed,
        watched=choice.watched,
        best=choice.best,
        longest=choice.longest,
    )


def _only_trial(
    difference: TrendFit, bounds: tuple[Float[Array, ""], Float[Array, ""]], axis: TimeAxis
) -> Trials:
    """The trend of the whole log, without a p-value."""
    asked = jnp.ones(1, bool)
    return Trials(
        spans=jnp.reshape(axis.length, (1,)),
        counts=jnp.sum(difference.design.present)[None],
        points=difference.point[None],
        errors=jnp.sqrt(difference.variance)[None],
        biases=jnp.zeros(1),
        lowers=bounds[0][None],
        uppers=bounds[1][None],
        p_values=None,
        needed=asked,
        watched=asked,
        best=jnp.zeros((), int),
        longest=jnp.asarray(axis.longest_trusted),
    )
