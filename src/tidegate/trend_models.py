"""Which trend would have forecast this policy's past? Time bases, windows and discounts, tried on it.

Each model forecasts from dates in the newer half of the training episodes, with what was known then,
and its errors are compared with what came next (rolling origins: Tashman, 2000). The choice may be used
in a test of the held-out episodes as if it had been made beforehand: they have no part in it.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float

from .arrays import full_products, in_double, replace_at
from .basis import Basis, ConstantBasis, CosineBasis, PeriodicBasis, PolynomialBasis, TimeAxis
from .dependence import residual_memory
from .episodes import TrainingEpisodes
from .errors import LogError, SettingsError
from .performance import ForecastSettings, log_axis, series_of, training_returns
from .periods import estimate_period
from .policies import Policy
from .scales import MIN_DATES, Series
from .trend import TrendDesign, TrendFit, fit_trend, trend_design

OLDER = 0.5  # the part of the log before the first date; a season is looked for in it alone
FEW = 4  # training episodes that the time after a date holds, on average at least
FOLLOWING = 2  # and those that it must hold
SMALLEST = 12  # episodes through which a trend may go
PER_COLUMN = 3  # and at least so many per column of its basis
CREDIBLE = 2.0  # standard errors
MAX_COSINES = 4
MAX_CYCLES = 96  # in the older half; more would slip between the frequencies of `estimate_period`


class TrendModel(eqx.Module):
    """A time basis, and which of the past counts: a `window`, or old episodes discounted.

    Both are in units of time; None: all of the past counts alike.
    """

    basis: Basis
    window: float | None = None
    half_life: float | None = None
    name: str = eqx.field(static=True, default="trend")

    def __check_init__(self) -> None:
        for what, value in (("window", self.window), ("half_life", self.half_life)):
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise SettingsError(
                    f"{what} is {value}", expected="a positive length of time, or None"
                )

    @property
    def whole_log(self) -> bool:
        """Whether all of the past counts alike."""
        return self.window is None and self.half_life is None

    def weights(self, times: Any, date: Any) -> Float[Array, " n"]:
        """ω: how much an episode counts at this date; 0 for those that were not known then."""
        return _weights(*self._reach(), jnp.asarray(times), date)

    def _reach(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Window and half-life as arrays, so that models of one basis share a program."""
        window, half_life = (
            jnp.asarray(jnp.inf if one is None else one, float)
            for one in (self.window, self.half_life)
        )
        return window, half_life


class PastErrors(eqx.Module):
    """A model's forecasts from dates in the past, beside the mean of the episodes that came next.

    `variance` is that of the forecast, `realised_noise` that of the mean it is compared with. A date is
    `fair` if the model had enough episodes before it and there were enough after it.
    """

    dates: Float[Array, " m"]
    error: Float[Array, " m"]
    realised: Float[Array, " m"]
    variance: Float[Array, " m"]
    realised_noise: Float[Array, " m"]
    fair: Bool[Array, " m"]

    @property
    def noise(self) -> Float[Array, " m"]:
        """The variance that an error has without any bias."""
        return self.variance + self.realised_noise


@dataclasses.dataclass(frozen=True)
class ModelTrial:
    """How one model did: `bias` is its error beyond noise, `swing` what it had to forecast.

    A model is `tried` if no date had too few episodes for it alone, and `credible` if its squared error
    is not larger than the best one's by more than two standard errors of their difference over the dates.
    """

    model: TrendModel
    root_mean_square_error: float
    bias: float
    swing: float
    standard_error: float
    dates: int
    tried: bool
    credible: bool

    @property
    def lost(self) -> bool:
        """Whether its errors beyond noise are as large as the movement it should have forecast."""
        return self.bias > self.standard_error and self.bias >= self.swing


@dataclasses.dataclass(frozen=True)
class TrendChoice:
    """What the training episodes say of each model.

    `memory` is the correlation of the best model's residuals from one training episode to the next. Well
    above 0, an interval that takes the noise for independent is too short: use `long_run_t_interval` or
    `dependent_interval`.
    """

    trials: tuple[ModelTrial, ...]
    best: TrendModel
    forecastable: bool
    memory: float
    tried_with: ForecastSettings

    @property
    def credible(self) -> tuple[TrendModel, ...]:
        return tuple(trial.model for trial in self.trials if trial.credible)

    @property
    def settings(self) -> ForecastSettings:
        """The settings with the basis of the best model, for a forecast or a test."""
        if not self.forecastable:
            raise SettingsError(
                "no trend model forecast the past better than not forecasting at all",
                expected="a policy whose returns can be forecast",
                remedy="Keep the safe policy, or shorten the lookahead.",
            )
        if not self.best.whole_log:
            raise SettingsError(
                f"the best trend model is '{self.best.name}', which leaves out or discounts the past",
                expected="a model in which all of the past counts alike",
                remedy="Use the preset 'multiscale': it asks windows of every length.",
            )
        return dataclasses.replace(self.tried_with, basis=self.best.basis, scales=None)

    def __str__(self) -> str:
        width = max(len(trial.model.name) for trial in self.trials)
        lines = [f"{'model':{width}}  error   beyond noise  dates"]
        for trial in sorted(self.trials, key=_rank):
            mark = "best" if trial.model is self.best else "credible" if trial.credible else ""
            numbers = f"{trial.root_mean_square_error:<6.3g}  {trial.bias:<12.3g}  {trial.dates:<5}"
            lines.append(f"{trial.model.name:{width}}  {numbers}  {mark}".rstrip())
        lines.append(f"forecastable: {self.forecastable}; memory of the noise: {self.memory:.2f}")
        return "\n".join(lines)


def standard_models(span: float, period: float | None = None) -> tuple[TrendModel, ...]:
    """Constant, line, cosines, recent lines, discounted lines, and a season if there is a period."""
    line = PolynomialBasis(1)
    return (
        TrendModel(ConstantBasis(), name="constant"),
        TrendModel(line, name="line"),
        *(
            # Of one width, so that all orders share a program.
            TrendModel(CosineBasis(order, MAX_COSINES + 1), name=f"cosines of order {order}")
            for order in range(1, MAX_COSINES + 1)
        ),
        *(
            TrendModel(line, window=span / part, name=f"line through the last 1/{part}")
            for part in (2, 4, 8, 16)
        ),
        *(
            TrendModel(line, half_life=span / part, name=f"line, half-life 1/{part}")
            for part in (4, 8, 16)
        ),
        *(
            [TrendModel(PeriodicBasis(period), name=f"line and season of {period:.4g}")]
            if period is not None
            else []
        ),
    )


def past_errors(
    model: TrendModel, series: Series, axis: TimeAxis, lookahead: int, origins: int = 24
) -> PastErrors:
    """Forecast from up to `origins` dates in the newer half of the series with what was known then.

    Each time the mean return over the next `lookahead`, or over the time of a few episodes if that is
    longer, so far apart that these means share no episode. The series' rows are in time order.
    """
    if origins < MIN_DATES:
        raise SettingsError(f"origins is {origins}", expected=f"at least {MIN_DATES} dates")
    basis = jax.tree.map(jnp.asarray, model.basis)
    return _past_errors(basis, model._reach(), series, axis, jnp.asarray(lookahead, float), origins)


def model_fit(model: TrendModel, series: Series, axis: TimeAxis, lookahead: int) -> TrendFit:
    """The model's trend through all of the series, with its forecast of the next episodes."""
    basis = jax.tree.map(jnp.asarray, model.basis)
    return _model_fit(basis, model._reach(), series, axis, lookahead)


@eqx.filter_jit
def _model_fit(
    basis: Basis,
    counted: tuple[Float[Array, ""], Float[Array, ""]],
    series: Series,
    axis: TimeAxis,
    lookahead: int,
) -> TrendFit:
    date = axis.horizon - lookahead
    future = axis.horizon + jnp.arange(1 - lookahead, 1)
    local = TimeAxis(jnp.maximum(axis.origin, date - counted[0]), axis.horizon)
    weights = _weights(*counted, jnp.asarray(series.times), date)
    design = trend_design(basis, series.times, series.present, future, local, weights)
    return fit_trend(design, jnp.asarray(series.returns))


@in_double
def select_trend(
    policy: Policy,
    training: TrainingEpisodes,
    settings: ForecastSettings,
    models: Sequence[TrendModel] | None = None,
) -> TrendChoice:
    """Try the models on the policy's returns in the training episodes; `settings.basis` is not used.

    Models of your own must not know the newer half of the training episodes, on which they are tried.
    """
    _check_training(training, models)
    axis = log_axis(settings, training.span or training.log.span)
    series = series_of(training.log, training_returns(settings, training.log, policy)[0])
    if models is None:
        span = float(axis.horizon - axis.origin) - settings.lookahead
        models = standard_models(span, season(series, axis, settings.lookahead))
    found = [past_errors(model, series, axis, settings.lookahead) for model in models]
    trials = _compared(tuple(models), found)
    best = min((trial for trial in trials if trial.tried), key=_rank).model
    return TrendChoice(
        trials=trials,
        best=best,
        forecastable=not all(trial.lost for trial in trials if trial.tried),
        memory=float(_memory(model_fit(best, series, axis, settings.lookahead))),
        tried_with=settings,
    )


def season(series: Series, axis: TimeAxis, lookahead: int) -> float | None:
    """The period in the older half, from 2 to 96 cycles of it; None if noise could show as much.

    The newer half is left out: a season found with its help would seem to have forecast it.
    """
    times, present = np.asarray(series.times), np.asarray(series.present)
    length = OLDER * float(axis.horizon - lookahead - axis.origin)
    older = present & (times <= float(axis.origin) + length)
    count = int(older.sum())
    longest, shortest = length / 2, max(length / MAX_CYCLES, FEW * length / max(count, 1))
    if count < SMALLEST or shortest >= longest:
        return None
    limits = jnp.asarray(longest), jnp.asarray(shortest)
    found, share = _estimate_period(series.returns, times, older, *limits)
    by_chance = 2 * math.log(length / shortest) / count
    return float(found) if float(share) > 2 * by_chance else None


_estimate_period = eqx.filter_jit(
    lambda values, times, present, longest, shortest: estimate_period(
        values, times, present, longest=longest, shortest=shortest
    )
)


def _check_training(training: Any, models: Sequence[TrendModel] | None) -> None:
    if not isinstance(training, TrainingEpisodes):
        raise SettingsError(
            f"the choice of a trend was given {type(training).__name__}",
            expected="TrainingEpisodes, from split_log",
            remedy="A trend that was chosen on the test episodes cannot be tested on them.",
        )
    if models is not None and len(models) == 0:
        raise SettingsError("there are no trend models to try", expected="one at least, or None")


def _compared(models: tuple[TrendModel, ...], found: list[PastErrors]) -> tuple[ModelTrial, ...]:
    """The models on the dates that are fair to any; one that such a date is not fair to is not tried."""
    fair = np.stack([np.asarray(one.fair) for one in found])
    dates = fair.any(axis=0)
    tried = fair[:, dates].all(axis=1) & (dates.sum() >= MIN_DATES)
    if not tried.any():
        raise LogError(
            f"the training episodes leave {int(dates.sum())} dates at which a trend could be tried.",
            expected=f"{MIN_DATES} dates with {SMALLEST} episodes before and {FOLLOWING} after each",
            remedy="Log more episodes, or give more of them to training.",
        )
    squares = np.stack([np.asarray(one.error) ** 2 for one in found])
    means = [np.mean(s[dates]) if t else np.inf for s, t in zip(squares, tried, strict=True)]
    best = squares[int(np.argmin(means))][dates]
    return tuple(
        _trial(model, one, bool(fits), bool(fits) and _within(squares[i][dates] - best))
        for i, (model, one, fits) in enumerate(zip(models, found, tried, strict=True))
    )


def _within(more: npt.NDArray[np.float64]) -> bool:
    """Whether the mean is at most two of its standard errors above zero."""
    return bool(more.mean() <= CREDIBLE * more.std(ddof=1) / math.sqrt(more.size))


def _trial(model: TrendModel, found: PastErrors, tried: bool, credible: bool) -> ModelTrial:
    fair = np.asarray(found.fair)
    error, noise, realised, realised_noise, variance = (
        np.asarray(one)[fair]
        for one in (found.error, found.noise, found.realised, found.realised_noise, found.variance)
    )
    if not fair.any():
        return ModelTrial(model, math.nan, math.nan, math.nan, math.nan, 0, False, False)
    moved = (realised - realised.mean()) ** 2 - realised_noise
    return ModelTrial(
        model,
        root_mean_square_error=float(np.sqrt(np.mean(error**2))),
        bias=float(np.sqrt(max(np.mean(error**2 - noise), 0.0))),
        swing=float(np.sqrt(max(np.mean(moved), 0.0))),
        standard_error=float(np.sqrt(np.mean(variance))),
        dates=int(fair.sum()),
        tried=tried,
        credible=credible,
    )


def _rank(trial: ModelTrial) -> tuple[bool, float]:
    error = trial.root_mean_square_error
    return not trial.tried, math.inf if math.isnan(error) else error


@eqx.filter_jit
def _memory(fit: TrendFit) -> Float[Array, ""]:
    """Of the residuals as they count in the fit: a discounted trend may be far from old episodes."""
    design = fit.design
    residuals = design.scaled(fit.residuals)
    return residual_memory(residuals, design.present, num_columns=design.num_columns)


def _weights(
    window: Float[Array, ""], half_life: Float[Array, ""], times: Float[Array, " n"], date: Any
) -> Float[Array, " n"]:
    age = date - times
    return jnp.where((age >= 0) & (age < window), 2.0 ** -(jnp.maximum(age, 0) / half_life), 0.0)


@eqx.filter_jit
@full_products
def _past_errors(
    basis: Basis,
    counted: tuple[Float[Array, ""], Float[Array, ""]],
    series: Series,
    axis: TimeAxis,
    lookahead: Float[Array, ""],
    origins: int,
) -> PastErrors:
    times, present = jnp.asarray(series.times), jnp.asarray(series.present)
    returns = jnp.where(present, jnp.asarray(series.returns), 0.0)
    last = axis.horizon - lookahead
    span = last - axis.origin
    reach = jnp.maximum(lookahead, FEW * span / jnp.maximum(jnp.sum(present), 1))
    newest = last - reach
    step = jnp.maximum(reach, ((1 - OLDER) * span - reach) / (origins - 1))
    dates = newest - step * jnp.arange(origins)

    def at(date: Float[Array, ""]) -> PastErrors:
        return _past_error(basis, counted, returns, times, present, axis.origin, date, reach)

    found: PastErrors = jax.lax.map(at, dates)
    # Of the oldest date, rounding decides on which side of the middle it lies.
    in_newer_half = dates > last - (1 - OLDER) * span - 1e-3 * step
    return replace_at(lambda one: one.fair, found, found.fair & in_newer_half)


def _past_error(
    basis: Basis,
    counted: tuple[Float[Array, ""], Float[Array, ""]],
    returns: Float[Array, " n"],
    times: Float[Array, " n"],
    present: Bool[Array, " n"],
    origin: Any,
    date: Float[Array, ""],
    reach: Float[Array, ""],
) -> PastErrors:
    after = present & (times > date) & (times <= date + reach)
    following = jnp.sum(after)
    shares = after / jnp.maximum(following, 1)
    local = TimeAxis(jnp.maximum(origin, date - counted[0]), date + reach)
    weights = _weights(*counted, times, date)
    design = trend_design(basis, times, present, date[None] + reach, local, weights)
    fit = fit_trend(_forecasting(design, shares @ basis.design_matrix(times, local)), returns)
    count = design.effective_episodes
    freedom = jnp.maximum(count - design.num_columns, 1)
    scatter = jnp.sum(design.scaled(fit.residuals) ** 2)
    scatter = scatter / jnp.sum(design.scaled(design.scaled(design.present.astype(scatter.dtype))))
    realised = shares @ returns
    error = realised - fit.point
    variance = fit.variance * count / freedom
    realised_noise = scatter * count / freedom / jnp.maximum(following, 1)
    enough = count >= jnp.maximum(SMALLEST, PER_COLUMN * design.num_columns)
    fair = enough & (following >= FOLLOWING) & jnp.isfinite(error + variance + realised_noise)
    return PastErrors(date, error, realised, variance, realised_noise, fair)


def _forecasting(design: TrendDesign, features: Float[Array, " d"]) -> TrendDesign:
    """The same regression, forecasting where the mean of the time features is this."""
    horizon = jax.scipy.linalg.solve_triangular(design.factor, features, trans="T")
    return replace_at(lambda one: one.horizon, design, horizon)
