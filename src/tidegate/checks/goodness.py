"""Does the trend fit? The paper asks for such tests of its smoothness assumption before use.

Each finding is a p-value or a number, with what it means. They test what the intervals rest on: a
trend in the span of the basis, independent noise, no jumps, no forecast that depends on a few episodes.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..arrays import ArrayLike, Floats, Integers, kept, room_for, with_zeros
from ..basis import Basis, CosineBasis, FourierBasis, PolynomialBasis, TimeAxis
from ..bootstrap import Rademacher
from ..cells import Series
from ..episodes import rows_by_time
from ..mixture import Trend
from ..reasons import MIN_EPISODES
from ..safety import VERDICT_SEED
from ..trend import TrendFit
from .findings import NUMBERED, Finding, Level, Names, found, level_of, undetermined
from .trend_tests import Autocorrelation, Jump, Significance, autocorrelation_test, jump_test, score_test

PAST = "past_forecasts"
TESTS = (
    PAST, "trend_misfit", "lag_1_autocorrelation", "autocorrelation", "jump", "horizon_leverage",
    "horizon_influence",
)  # fmt: skip
DRAWS = 499  # (1 + B)·5 % and ·1 % are whole numbers
EXTRA_COLUMNS = 3
MAX_LAGS = 10
LEVERAGE_NOTE, LEVERAGE_WARNING = 0.1, 0.25
MATERIAL = 0.1  # a correlation of neighbours that makes standard errors a tenth too small


@dataclasses.dataclass(frozen=True, eq=False)
class FittedTrend:
    """A trend through the episodes `rows` of a log in time order; `shape` is its basis, or a similar one.

    The arrays of the `fit` have spare rows behind these: one program tests all trends of about this length.
    `doubt` says why the trend cannot be tested; it is empty if it can.
    """

    rows: slice | Integers
    times: Floats
    axis: TimeAxis
    fit: Trend
    shape: Basis
    doubt: str
    tested_by: tuple[str, ...]
    longest_lookahead: float = math.nan

    @property
    def weights(self) -> Floats:
        """How much each episode's return counts in the forecast."""
        return np.asarray(self.fit.design.forecast_weights)[: self.times.size]


def fitted_trend(
    fit: Trend,
    series: Series,
    axis: TimeAxis,
    shape: Basis,
    tested_by: tuple[str, ...],
    longest: float = math.nan,
) -> FittedTrend:
    """The trend that a test has fitted to some episodes of a log, whose rows may be in any order."""
    times, used = np.asarray(series.times), np.asarray(fit.design.present)
    in_time = rows_by_time(times, np.asarray(series.present))
    kept = used[in_time]
    rows: slice | Integers = slice(kept.size) if kept.all() else np.flatnonzero(kept)
    taken = in_time if kept.all() else np.arange(times.size)[in_time][rows]
    times = times[taken]
    spare = room_for(times.size) - times.size

    def placed(values: Any, axis: int = 0) -> Any:
        if isinstance(taken, slice) and values.shape[axis] == taken.stop + spare:
            return values  # whose rows lie so already
        where = (slice(None),) * axis + (taken,)
        return with_zeros(np.asarray(values)[where], spare, axis)

    fit = fit.in_rows(placed)
    doubt = identified(fit).doubt
    return FittedTrend(rows, times, axis, fit, shape, doubt, tested_by, longest)


class Identified(eqx.Module):
    """What tells whether a trend can be tested: how many episodes it has, and how large their values."""

    episodes: Int[ArrayLike, ""]
    columns: Int[ArrayLike, ""]
    conditioning: Float[ArrayLike, ""]
    variance: Float[ArrayLike, ""]
    largest_return: Float[ArrayLike, ""]
    largest_residual: Float[ArrayLike, ""]

    @property
    def doubt(self) -> str:
        """Why the trend cannot be tested; empty if it can."""
        n, columns = int(self.episodes), int(self.columns)
        least = 1e3 * np.finfo(np.float64).eps * float(self.largest_return)
        if n < max(MIN_EPISODES, 2 * columns):
            return f"{n} episodes are too few for a trend with {columns} time features"
        if not math.isfinite(float(self.largest_return)):
            return "an estimated return is not a finite number"
        if not float(self.conditioning) > np.sqrt(np.finfo(np.float64).eps):
            return "the trend cannot be identified from these episode times"
        if not math.isfinite(float(self.variance)):
            return "the forecast's variance is not a finite number"
        if not float(self.largest_residual) > least:
            return "the estimated returns show no variation about their trend"
        return ""


def identified(fit: Trend) -> Identified:
    """The few numbers of a fit that tell whether it can be tested."""
    design, xp = fit.design, fit.returns.__array_namespace__()  # NumPy for NumPy's arrays
    return Identified(
        xp.sum(design.present),
        design.num_columns,
        design.conditioning,
        fit.variance,
        xp.max(xp.abs(fit.returns), initial=0.0),
        xp.max(xp.abs(fit.residuals), initial=0.0),
    )


class TrendTests(eqx.Module):
    """All tests of a trend that need a bootstrap."""

    added: int = eqx.field(static=True)  # time features of the richer trend
    richer: Significance
    autocorrelation: Autocorrelation
    jump: Jump


@kept
def _tested_trend(
    fit: TrendFit, shape: Basis, times: Floats, axis: TimeAxis, lags: int, signs: Rademacher
) -> TrendTests:
    added = richer_columns(shape, times, axis)
    return TrendTests(
        added.shape[0],
        score_test(fit.design, fit.residuals, added, signs),
        autocorrelation_test(fit.design, fit.residuals, lags, signs),
        jump_test(fit.design, fit.residuals, signs),
    )


def trend_findings(fitted: FittedTrend, names: Names = NUMBERED) -> tuple[Finding, ...]:
    """The findings about a fitted trend; like a verdict, they depend on no seed."""
    if fitted.doubt:
        return tuple(undetermined(name, fitted.doubt) for name in fitted.tested_by)
    own = _past_forecasts(fitted.fit) if PAST in fitted.tested_by else _tests_of_trust(fitted, names)
    return (*own, _leverage(fitted), _influence(fitted, names))


def _tests_of_trust(fitted: FittedTrend, names: Names) -> tuple[Finding, ...]:
    """Of a trend that is taken on trust: is it rich enough, and is what it leaves only noise?"""
    assert isinstance(fitted.fit, TrendFit)
    lags = max(1, min(MAX_LAGS, fitted.times.size // 5))
    times = with_zeros(fitted.times, fitted.fit.returns.size - fitted.times.size)
    tests = _tested_trend(fitted.fit, fitted.shape, times, fitted.axis, lags, sign_flips())
    return (
        _misfit(tests.richer, tests.added),
        *_autocorrelation(tests.autocorrelation, lags),
        _jump(fitted, tests.jump, names),
    )


def _past_forecasts(fit: Any) -> tuple[Finding]:
    """Of a trend that was tried on the past: did it keep what it claimed?"""
    dates, off, p = int(fit.past.dates), float(fit.past.off), float(fit.past.misfit)
    level = level_of(p)
    missed = f"Forecasts from {dates} past dates were off by {off:.2g}"
    sentence = (
        f"{missed}, clearly more than they claimed (p = {p:.2g}): the returns have moved as no model of the "
        "list does. Shorten the lookahead, or start the log after what happened."
        if level
        else f"{missed}, no more than they claimed (p = {p:.2g})."
    )
    return (found(PAST, off, sentence, level=level, p_value=p),)


def sign_flips() -> Rademacher:
    """The sign flips of every test of a trend, always the same."""
    return Rademacher(jax.random.key(VERDICT_SEED), DRAWS)


def _misfit(test: Significance, added: int) -> Finding:
    p = float(test.p_value)
    level = level_of(p)
    sentence = (
        f"A richer trend ({added} more time features) fits clearly better (p = {p:.2g}): "
        "the forecast may be narrow and in the wrong place. Use a larger basis if you chose it; else wait "
        "for more episodes, or shorten the lookahead."
        if level
        else f"A richer trend does not fit clearly better (p = {p:.2g})."
    )
    return found("trend_misfit", float(test.statistic), sentence, level=level, p_value=p)


def richer_columns(basis: Basis, times: Any, axis: TimeAxis) -> Float[Array, "m n"]:
    """Time features beyond those of the basis: the next ones of its kind, or slow waves."""
    if isinstance(basis, CosineBasis):
        order = basis.order if isinstance(basis.order, int) else basis.columns - 1
        return CosineBasis(order + EXTRA_COLUMNS).design_matrix(times, axis).T[order + 1 :]
    if isinstance(basis, PolynomialBasis):
        wider = PolynomialBasis(basis.degree + EXTRA_COLUMNS)
        return wider.design_matrix(times, axis).T[basis.size :]
    waves = CosineBasis(EXTRA_COLUMNS).design_matrix(times, axis).T[1:]
    if isinstance(basis, FourierBasis):
        harmonics = FourierBasis(basis.order + 1, basis.period).design_matrix(times, axis).T
        return jnp.concatenate([waves, harmonics])  # those that the basis already has add nothing
    return waves


def _autocorrelation(test: Autocorrelation, lags: int) -> tuple[Finding, Finding]:
    first, first_p = float(test.first), float(test.first_p_value)
    p, level = float(test.ljung_box.p_value), level_of(float(test.ljung_box.p_value))
    neighbours = f"After the trend, neighbouring estimates correlate by {first:+.3f} (p = {first_p:.2g})."
    if level_of(first_p):
        effect = "narrow" if first > 0 else "wide"
        neighbours += f" The intervals are too {effect}: they take episodes to be independent."
    neighbourly = level_of(first_p) if first > MATERIAL else min(level_of(first_p), Level.NOTE)
    sentence = (
        f"What is left after the trend is correlated from episode to episode (Ljung-Box, {lags} "
        f"lags, p = {p:.2g}): the episodes are not independent, and positive correlation makes the "
        "intervals too narrow. Join dependent rows into episodes."
        if level
        else f"No correlation from episode to episode is seen (Ljung-Box, {lags} lags, p = {p:.2g})."
    )
    statistic = float(test.ljung_box.statistic)
    return (
        found("lag_1_autocorrelation", first, neighbours, level=neighbourly, p_value=first_p),
        found("autocorrelation", statistic, sentence, level=level, p_value=p),
    )


def _jump(fitted: FittedTrend, test: Jump, names: Names) -> Finding:
    p = float(test.significance.p_value)
    level = level_of(p)
    when = names.at(float(fitted.times[int(test.row)]))
    sentence = (
        f"The returns jump, most likely at {when} (p = {p:.2g}): the method assumes "
        "smooth change. If something changed then, start the log there."
        if level
        else f"No jump is seen beyond what the trend explains (p = {p:.2g})."
    )
    statistic = float(test.significance.statistic)
    return found("jump", statistic, sentence, level=level, p_value=p)


def _leverage(fitted: FittedTrend) -> Finding:
    """One episode's share must be small for the forecast to be nearly normal (Huber, 1973)."""
    squares, share = fitted.weights**2, float(fitted.fit.design.largest_share)
    worth = np.sqrt(squares).sum() ** 2 / squares.sum()
    sentence = (
        f"The times alone make the forecast rest on about {worth:,.0f} of {squares.size:,} episodes; "
        f"one carries {share:.1%} of the squared weight."
    )
    return found("horizon_leverage", share, sentence, level=_share_level(share))


def _influence(fitted: FittedTrend, names: Names) -> Finding:
    """The largest share (aᵢξᵢ)²/Σ(aξ)² of the forecast's variance from one episode."""
    parts = fitted.weights * np.asarray(fitted.fit.residuals)[: fitted.times.size]
    parts *= parts
    with np.errstate(invalid="ignore"):  # squares that overflow are reported as undetermined
        share, row = parts.max() / parts.sum(), int(parts.argmax())
    level = _share_level(share)
    episode = names.episode(float(fitted.times[row]))
    sentence = (
        f"{episode[:1].upper()}{episode[1:]} accounts for {share:.1%} of the forecast's variance, "
        "more than any other."
    )
    if level:
        sentence += " The interval depends on it: check its reward and ratio, or collect more."
    return found("horizon_influence", float(share), sentence, level=level)


def _share_level(share: float) -> Level:
    if share > LEVERAGE_WARNING:
        return Level.WARNING
    return Level.NOTE if share > LEVERAGE_NOTE else Level.OK
