"""Whole sets of settings under one name."""

from jaxtyping import Array

from .basis import Basis, ConstantBasis, CosineBasis
from .candidate import Objective, SearchSettings
from .loop import SpinSettings
from .performance import ForecastSettings


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
    """SPIN as in the runs behind the paper's Table 1 (docs/differences.md says where its text differs).

    The paper draws `lookahead` from {2, 4, 6, 8}, the cosine order from 1 to 4, `gradient_steps` as
    2 to 5 per episode of lookahead, and `entropy_weight` log-uniformly from 5e-5 to 1.
    """
    forecast = ForecastSettings(
        lookahead, basis=basis or CosineBasis(3), alpha=0.05, draws=500, support_z=float("inf")
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
    return SpinSettings(
        forecast, search, train_fraction=train_fraction, test_candidates=test_candidates
    )


def stationary_settings(
    *,
    lookahead: int = 4,
    gradient_steps: int | Array = 14,
    entropy_weight: float | Array = 0.01,
) -> SpinSettings:
    """The paper's baseline: the same algorithm in the belief that the world stands still."""
    return paper_settings(
        lookahead=lookahead,
        basis=ConstantBasis(),
        gradient_steps=gradient_steps,
        entropy_weight=entropy_weight,
    )
