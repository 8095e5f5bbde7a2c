"""Named sets of settings."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array

from .basis import Basis, ConstantBasis, CosineBasis
from .comparison import Multiscale, TwoBounds
from .forecast import ForecastSettings
from .inputs import member
from .loop import SpinSettings
from .models import TrendModels
from .search import ByAction, Objective, SearchSettings
from .values import LinearValues


def paper_settings(
    *,
    lookahead: int = 4,
    basis: Basis | None = None,
    gradient_steps: int | Array = 14,
    entropy_weight: float | Array = 0.01,
    train_fraction: float = 0.5,
    objective: Objective = Objective.PERCENTILE,
    test_candidates: bool = True,
) -> SpinSettings:
    """SPIN as in the runs behind the paper's Table 1 (docs/explanation/differences.md tells
    where its text differs).

    The paper draws `lookahead` from {2, 4, 6, 8}, the cosine order from 1 to 4, `gradient_steps` as
    2 to 5 per episode of lookahead, and `entropy_weight` log-uniformly from 5e-5 to 1.
    """
    forecast = ForecastSettings(
        lookahead,
        TwoBounds(basis or CosineBasis(3), max_share=float("inf")),
        alpha=0.05,
        draws=500,
        support_z=float("inf"),
    )
    search = SearchSettings(
        steps=gradient_steps,
        learning_rate=0.01,
        entropy_weight=entropy_weight,
        objective=objective,
        alpha=0.05,
        draws=200,
        natural_gradient=True,
        average_gradient=True,
        entropy_in_returns=True,
    )
    return SpinSettings(forecast, search, train_fraction=train_fraction, test_candidates=test_candidates)


def stationary_settings(
    *,
    lookahead: int = 4,
    gradient_steps: int | Array = 14,
    entropy_weight: float | Array = 0.01,
) -> SpinSettings:
    """The paper's baseline: the same algorithm, which assumes that the world stands still."""
    return paper_settings(
        lookahead=lookahead,
        basis=ConstantBasis(),
        gradient_steps=gradient_steps,
        entropy_weight=entropy_weight,
    )


def paper_run(
    *,
    lookahead: int,
    order: int | Array,
    steps_per_episode: float | Array,
    entropy_weight: float | Array,
    train_fraction: float = 0.5,
    objective: str = "PERCENTILE",
    test_candidates: bool = True,
) -> SpinSettings:
    """`paper_settings` in the plain values that a sweep draws; orders up to 4 share a program."""
    return paper_settings(
        lookahead=lookahead,
        basis=CosineBasis(order, columns=5),
        gradient_steps=_gradient_steps(lookahead, steps_per_episode),
        entropy_weight=entropy_weight,
        train_fraction=train_fraction,
        objective=member("objective", Objective, objective),
        test_candidates=test_candidates,
    )


def stationary_run(
    *, lookahead: int, steps_per_episode: float | Array, entropy_weight: float | Array
) -> SpinSettings:
    """`stationary_settings` in the plain values that a sweep draws."""
    return stationary_settings(
        lookahead=lookahead,
        gradient_steps=_gradient_steps(lookahead, steps_per_episode),
        entropy_weight=entropy_weight,
    )


def multiscale_forecast(settings: ForecastSettings, *, calendar: tuple[float, ...] = ()) -> ForecastSettings:
    """These settings with Tidegate's own test: no window, order or period to choose.

    Doubly robust returns, one paired test at α, trend models of every time scale weighted by how well they
    would have forecast the past (docs/explanation/multiscale.md). `calendar` lists the periods: day, week.
    """
    test = Multiscale(TrendModels(calendar=calendar))
    return dataclasses.replace(settings, test=test, value_model=LinearValues())


def multiscale_settings(
    *,
    lookahead: int = 4,
    gradient_steps: int | Array = 14,
    entropy_weight: float | Array = 0.02,
    train_fraction: float = 0.5,
    alpha: float = 0.05,
) -> SpinSettings:
    """SPIN's loop with Tidegate's own test; a loop explores little by little, so support is not checked.

    Over a few actions without a state, the candidate is chosen in closed form (`ByAction`) and
    `gradient_steps` do not matter; any other policy is climbed to. A policy that keeps exploring is better
    known, and so are its alternatives: the entropy weight is for rewards of about 1.
    """
    forecast = multiscale_forecast(ForecastSettings(lookahead, alpha=alpha, support_z=float("inf")))
    search = SearchSettings(
        steps=gradient_steps,
        learning_rate=0.1,
        entropy_weight=entropy_weight,
        objective=Objective.NORMAL,
        natural_gradient=True,
        average_gradient=True,
        by_action=ByAction(),
    )
    return SpinSettings(forecast, search, train_fraction=train_fraction)


def multiscale_run(
    *, lookahead: int, steps_per_episode: float | Array, entropy_weight: float | Array
) -> SpinSettings:
    """`multiscale_settings` in the plain values that a sweep draws."""
    return multiscale_settings(
        lookahead=lookahead,
        gradient_steps=_gradient_steps(lookahead, steps_per_episode),
        entropy_weight=entropy_weight,
    )


def _gradient_steps(lookahead: int, per_episode: float | Array) -> Array:
    return jnp.round(lookahead * jnp.asarray(per_episode)).astype(int)
