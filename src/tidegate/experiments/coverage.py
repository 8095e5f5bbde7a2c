"""The coverage study: how often does an interval for the forecast contain the truth?

The paper claims it for the wild bootstrap (Theorem 2) and argues against the rest (Appendix D); here
all of them see the same simulated returns, whose trend is known.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..arrays import in_double
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
from ..trend import TrendFit, fit_trend, trend_design
from .rivals import block_draws, episode_draws, pairs_interval, plain_t_interval, residual_interval
from .sweep import Column

TRUE_WEIGHTS = (1.0, -0.7, 0.4, 0.2)  # of the cosines of order 0 to 3
SCALE_GROWTH = 10.0  # the last heteroscedastic noise over the first


class Noise(enum.Enum):
    """What is added to the trend: mean 0, and variance 1 on average over the log."""

    NORMAL = "normal"
    SKEWED = "skewed"  # exponential less its mean: skewness 2
    HEAVY = "heavy-tailed"  # Student's t, 3 degrees of freedom: no fourth moment
    HETEROSCEDASTIC = "heteroscedastic"  # normal, its scale grows along the log


@dataclasses.dataclass(frozen=True)
class CoverageCell:
    """One setting of the study; the true trend is a cosine of order 3, `order` is what is fitted."""

    episodes: int = 200
    alpha: float = 0.05
    noise: Noise = Noise.SKEWED
    order: int = 3
    lookahead: int = 5
    draws: int = 500

    def __post_init__(self) -> None:
        check_draws(self.draws, tail(self.alpha, Side.BOTH))
        if self.lookahead < 1:
            raise SettingsError(f"lookahead is {self.lookahead}", expected="an integer from 1 up")
        if self.order < 0 or self.episodes < 4 * (self.order + 1):
            raise SettingsError(
                f"order {self.order} is fitted to {self.episodes} episodes",
                expected="an order from 0 up and at least 4 · (order + 1) episodes",
                remedy="With fewer, some draws of pairs have too few distinct times for a fit.",
            )


_CELL_FIELDS = ("episodes", "alpha", "noise", "order", "lookahead", "draws")


class CoverageRow(TypedDict):
    """What became of one method in one cell; plain values, ready for JSON."""

    episodes: int
    alpha: float
    noise: str
    order: int
    lookahead: int
    draws: int
    method: str
    runs: int
    coverage: float
    standard_error: float
    median_width: float


class Resamples(eqx.Module):
    """The random part of all bootstraps, shared by those that draw alike."""

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


def coverage_study() -> list[CoverageCell]:
    """One factor at a time around the default cell, and the length of the log under two noises."""
    lengths = (25, 50, 100, 200, 500, 2000)
    cells = [
        *(CoverageCell(episodes=episodes) for episodes in lengths),
        *(CoverageCell(episodes=k, noise=Noise.HETEROSCEDASTIC) for k in lengths),
        *(CoverageCell(noise=noise) for noise in Noise),
        *(CoverageCell(alpha=alpha) for alpha in (0.01, 0.05, 0.1, 0.2)),
        *(CoverageCell(order=order) for order in (1, 3, 6)),
    ]
    return list(dict.fromkeys(cells))


@dataclasses.dataclass(frozen=True)
class CoverageJob:
    """All runs of one cell; an engine runs it like a batch of a sweep.

    Cells of equal length and noise see the same logs under the same seed.
    """

    cell: CoverageCell
    count: int
    seed: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise SettingsError(f"runs is {self.count}", expected="an integer from 1 up")

    @property
    def name(self) -> str:
        return "-".join(f"{value}" for value in _plain(self.cell).values())

    @property
    def program(self) -> CoverageCell:
        return self.cell

    def prepare(self) -> None:
        """Nothing to share: every cell is a program of its own."""

    @in_double
    def run(self) -> dict[str, Column]:
        """One row per simulated log: for each method, whether it held the truth, and how wide it was."""
        keys = jax.random.split(jax.random.key(self.seed), self.count)
        covered, widths = (np.asarray(one).T for one in _simulate(self.cell, keys))
        return {
            **{name: np.full(self.count, value) for name, value in _plain(self.cell).items()},
            "run": np.arange(self.count),
            **{f"{name}: covered": held for name, held in zip(METHODS, covered, strict=True)},
            **{f"{name}: width": width for name, width in zip(METHODS, widths, strict=True)},
        }


def summarise_coverage(columns: dict[str, Column]) -> list[CoverageRow]:
    """Count, in each cell and for each method, how many intervals hold the truth."""
    cells = list(zip(*(columns[name].tolist() for name in _CELL_FIELDS), strict=True))
    rows = []
    for cell in dict.fromkeys(cells):
        here = np.array([one == cell for one in cells])
        for method in METHODS:
            coverage = float(columns[f"{method}: covered"][here].mean())
            runs = int(here.sum())
            rows.append(
                CoverageRow(
                    **dict(zip(_CELL_FIELDS, cell, strict=True)),  # type: ignore[typeddict-item]
                    method=method,
                    runs=runs,
                    coverage=coverage,
                    standard_error=_binomial_error(coverage, runs),
                    median_width=float(np.median(columns[f"{method}: width"][here])),
                )
            )
    return rows


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


def all_intervals(
    fit: TrendFit, key: PRNGKeyArray, draws: int, alpha: float
) -> dict[str, ConfidenceInterval]:
    """The interval of every method from one fit."""
    sign_key, episode_key, block_key = jax.random.split(key, 3)
    n = fit.returns.size
    drawn = Resamples(
        signs=Rademacher(sign_key, draws),
        episodes=episode_draws(episode_key, draws, n),
        blocks=block_draws(block_key, draws, n),
    )
    return {method: interval(fit, drawn, alpha) for method, interval in METHODS.items()}


def coverage_table(rows: Sequence[CoverageRow]) -> str:
    """Markdown: a line per cell, a column per method, coverage in % ± its standard error.

    Bold: farther from 1 − α than three standard errors of a method that covers 1 − α exactly.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [["k", "1 − α", "noise", "order", *methods], ["---"] * (4 + len(methods))]
    entries = {(_cell_values(row), row["method"]): _entry(row) for row in rows}
    for cell in dict.fromkeys(_cell_values(row) for row in rows):
        episodes, alpha, noise, order, *_ = cell
        head = [f"{episodes}", f"{1 - alpha:.0%}", noise, f"{order}"]
        lines.append(head + [entries.get((cell, method), "") for method in methods])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@partial(jax.jit, static_argnums=0)
def _simulate(
    cell: CoverageCell, keys: PRNGKeyArray
) -> tuple[Bool[Array, "runs methods"], Float[Array, "runs methods"]]:
    times = jnp.arange(1.0, cell.episodes + 1)
    future = cell.episodes + jnp.arange(1.0, cell.lookahead + 1)
    axis = TimeAxis(0.0, float(cell.episodes), cell.lookahead)
    present = jnp.ones(cell.episodes, bool)
    design = trend_design(CosineBasis(cell.order), times, present, axis)
    trend, truth = _true_trend(times, axis), jnp.mean(_true_trend(future, axis))

    def one(key: PRNGKeyArray) -> tuple[Bool[Array, " methods"], Float[Array, " methods"]]:
        noise_key, bootstrap_key = jax.random.split(key)
        fit = fit_trend(design, trend + draw_noise(cell.noise, noise_key, cell.episodes))
        intervals = all_intervals(fit, bootstrap_key, cell.draws, cell.alpha).values()
        lower = jnp.stack([interval.lower for interval in intervals])
        upper = jnp.stack([interval.upper for interval in intervals])
        return (lower <= truth) & (truth <= upper), upper - lower

    results: tuple[Array, Array] = jax.lax.map(one, keys)
    return results


def _true_trend(times: Float[Array, " n"], axis: TimeAxis) -> Float[Array, " n"]:
    basis = CosineBasis(len(TRUE_WEIGHTS) - 1)
    return basis.design_matrix(times, axis) @ jnp.array(TRUE_WEIGHTS)


def _plain(cell: CoverageCell) -> dict[str, Any]:
    return {**dataclasses.asdict(cell), "noise": cell.noise.value}


def _binomial_error(rate: float, runs: int) -> float:
    return math.sqrt(rate * (1 - rate) / runs)


def _cell_values(row: CoverageRow) -> tuple[Any, ...]:
    """What tells one cell from another; the first four are shown in the table."""
    return tuple(row[name] for name in _CELL_FIELDS)  # type: ignore[literal-required]


def _entry(row: CoverageRow) -> str:
    text = f"{100 * row['coverage']:.1f} ± {100 * row['standard_error']:.1f}"
    missed = abs(row["coverage"] - (1 - row["alpha"]))
    return f"**{text}**" if missed > 3 * _binomial_error(row["alpha"], row["runs"]) else text
