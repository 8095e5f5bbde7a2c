"""The coverage study of the paper's claims: known trends, several kinds of noise, several bootstraps.

The paper claims coverage for the wild bootstrap (Theorem 2) and argues against its rivals (Appendix D).
Here all of them see the same simulated returns.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..basis import CosineBasis, TimeAxis
from ..bootstrap import (
    ConfidenceInterval,
    Rademacher,
    Side,
    check_draws,
    percentile_interval,
    percentile_t_interval,
    tail,
)
from ..errors import SettingsError
from ..inputs import whole
from ..trend import TrendFit, fit_trend, trend_design
from .coverage import CoverageRow, Judged, Simulated, binomial_error, by_cell, judge
from .rivals import block_draws, episode_draws, pairs_interval, plain_t_interval, residual_interval
from .tables import Estimate, markdown_table

TRUE_WEIGHTS = (1.0, -0.7, 0.4, 0.2)  # of the cosines of order 0 to 3
SCALE_GROWTH = 10.0  # the last heteroscedastic noise over the first


class Noise(enum.Enum):
    """What is added to the trend: mean 0, and variance 1 on average over the log."""

    NORMAL = "normal"
    SKEWED = "skewed"  # exponential less its mean: skewness 2
    HEAVY = "heavy-tailed"  # Student's t, 3 degrees of freedom: no fourth moment
    HETEROSCEDASTIC = "heteroscedastic"  # normal, its scale grows along the log


class Resamples(eqx.Module):
    """The random part of all bootstraps, shared by those that draw in the same way."""

    signs: Rademacher
    episodes: Int[Array, "b n"]
    blocks: Int[Array, "b n"]


METHODS: dict[str, Callable[[TrendFit, Resamples, float], ConfidenceInterval]] = {
    "wild percentile-t": lambda fit, drawn, alpha: percentile_t_interval(fit, drawn.signs, alpha),
    "wild percentile": lambda fit, drawn, alpha: percentile_interval(fit, drawn.signs, alpha),
    "plain t": lambda fit, _, alpha: plain_t_interval(fit, alpha),
    "pairs bootstrap": lambda fit, drawn, alpha: pairs_interval(fit, drawn.episodes, alpha),
    "residual bootstrap": lambda fit, drawn, alpha: residual_interval(fit, drawn.episodes, alpha),
    "block bootstrap": lambda fit, drawn, alpha: residual_interval(fit, drawn.blocks, alpha),
}


@dataclasses.dataclass(frozen=True)
class TrendCell:
    """The true trend is a cosine of order 3; `order` is what is fitted.

    Cells of equal length and noise see the same logs under the same seed.
    """

    episodes: int = 200
    alpha: float = 0.05
    noise: Noise = Noise.SKEWED
    order: int = 3
    lookahead: int = 5
    draws: int = 500

    def __post_init__(self) -> None:
        check_draws(self.draws, tail(self.alpha, Side.BOTH))
        whole("lookahead", self.lookahead, 1)
        if self.order < 0 or self.episodes < 4 * (self.order + 1):
            raise SettingsError(
                f"order {self.order} is fitted to {self.episodes} episodes",
                expected="an order from 0 up and at least 4 · (order + 1) episodes",
                remedy="With fewer, some draws of pairs have too few distinct times for a fit.",
            )

    @property
    def factors(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "noise": self.noise.value}

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(METHODS)

    def simulate(self, key: PRNGKeyArray, count: int) -> Simulated:
        return Simulated(_simulate(self, jax.random.split(key, count)), {})


def trend_cells() -> list[TrendCell]:
    """One factor at a time around the default cell, and the length of the log under two noises."""
    lengths = (25, 50, 100, 200, 500, 2000)
    cells = [
        *(TrendCell(episodes=episodes) for episodes in lengths),
        *(TrendCell(episodes=k, noise=Noise.HETEROSCEDASTIC) for k in lengths),
        *(TrendCell(noise=noise) for noise in Noise),
        *(TrendCell(alpha=alpha) for alpha in (0.01, 0.05, 0.1, 0.2)),
        *(TrendCell(order=order) for order in (1, 3, 6)),
    ]
    return list(dict.fromkeys(cells))


def draw_noise(noise: Noise, key: PRNGKeyArray, n: int) -> Float[Array, " n"]:
    """The noise of one log."""
    match noise:
        case Noise.NORMAL:
            return jax.random.normal(key, (n,))
        case Noise.SKEWED:
            return jax.random.exponential(key, (n,)) - 1
        case Noise.HEAVY:
            return jax.random.t(key, 3.0, (n,)) / math.sqrt(3)
        case Noise.HETEROSCEDASTIC:
            scale = jnp.linspace(1, SCALE_GROWTH, n)
            return jax.random.normal(key, (n,)) * scale / jnp.sqrt(jnp.mean(scale**2))


def trend_table(rows: Sequence[CoverageRow]) -> str:
    """A line per cell, a column per method: coverage in % ± its standard error.

    Bold: farther from 1 − α than three standard errors of a method that covers 1 − α exactly.
    """
    cells = by_cell(rows)
    lines = []
    for cell in cells:
        factors = cell[0].factors
        head = [
            factors["episodes"],
            f"{1 - factors['alpha']:.0%}",
            factors["noise"],
            factors["order"],
        ]
        lines.append([*map(str, head), *map(_entry, cell)])
    return markdown_table(["k", "1 − α", "noise", "order", *(row.method for row in cells[0])], lines)


@partial(jax.jit, static_argnums=0)
def _simulate(cell: TrendCell, keys: PRNGKeyArray) -> Judged:
    times = jnp.arange(1.0, cell.episodes + 1)
    axis = TimeAxis(0.0, float(cell.episodes), cell.lookahead)
    present = jnp.ones(cell.episodes, bool)
    design = trend_design(CosineBasis(cell.order), times, present, axis)
    trend, truth = _true_trend(times, axis), jnp.mean(_true_trend(jnp.asarray(axis.forecast_times), axis))

    def one(key: PRNGKeyArray) -> Judged:
        noise_key, bootstrap_key = jax.random.split(key)
        fit = fit_trend(design, trend + draw_noise(cell.noise, noise_key, cell.episodes))
        return judge(_intervals(fit, bootstrap_key, cell.draws, cell.alpha), truth, cell.alpha)

    results: Judged = jax.lax.map(one, keys)
    return results


def _intervals(fit: TrendFit, key: PRNGKeyArray, draws: int, alpha: float) -> list[ConfidenceInterval]:
    """The interval of every method from one fit."""
    sign_key, episode_key, block_key = jax.random.split(key, 3)
    n = fit.returns.size
    drawn = Resamples(
        signs=Rademacher(sign_key, draws),
        episodes=episode_draws(episode_key, draws, n),
        blocks=block_draws(block_key, draws, n),
    )
    return [interval(fit, drawn, alpha) for interval in METHODS.values()]


def _true_trend(times: Float[Array, " n"], axis: TimeAxis) -> Float[Array, " n"]:
    basis = CosineBasis(len(TRUE_WEIGHTS) - 1)
    return basis.design_matrix(times, axis) @ jnp.array(TRUE_WEIGHTS)


def _entry(row: CoverageRow) -> str:
    text = Estimate(100 * row.coverage, 100 * row.error).text(1)
    alpha = row.factors["alpha"]
    missed = abs(row.coverage - (1 - alpha))
    return f"**{text}**" if missed > 3 * binomial_error(alpha, row.runs) else text
