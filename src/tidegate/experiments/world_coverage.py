"""Do the intervals hold in worlds whose drift no basis was chosen for?

Each log is collected by the safe policy and begins anywhere in the world's season, so that it may end
anywhere too. What is forecast is the mean return of a sharper policy over the next episodes, whose truth
is known.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..basis import CosineBasis, FourierBasis, TimeAxis
from ..bootstrap import ConfidenceInterval, Side
from ..comparison import Paired, Terms, TwoBounds
from ..forecast import ForecastSettings, forecast_policy
from ..policies import SoftmaxPolicy
from ..presets import multiscale_settings
from ..simulators.drifting import NEVER, DriftingBandit
from .coverage import CoverageRow, Judged, Simulated, by_cell, judge
from .tables import Estimate, markdown_table

ALPHA = 0.05
TARGET_LOGIT = 3.0  # of the first arm; the others have 0
STANDING_CYCLE = 2_000.0  # where logs may start in a world without a season
# Logs that are simulated at once: each has draws × episodes multipliers.
LOGS_AT_ONCE = {"cpu": 4, "gpu": 100}


def knowing_the_season(lookahead: int, period: Float[Array, ""]) -> ForecastSettings:
    """The regression of somebody who knows what the world is: one wave of its period about a level."""
    settings = multiscale_settings(lookahead=lookahead).forecast
    return dataclasses.replace(settings, test=Paired(FourierBasis(1, period)))


Method = Callable[[int, Float[Array, ""]], ForecastSettings]  # of a lookahead and the season's period
METHODS: dict[str, Method] = {
    "Multiscale": lambda lookahead, _: multiscale_settings(lookahead=lookahead).forecast,
    "SPIN": lambda lookahead, _: ForecastSettings(lookahead, TwoBounds(CosineBasis(3))),
    "Oracle": knowing_the_season,
}


@dataclasses.dataclass(frozen=True)
class WorldCell:
    """One world, one length of the log, one look-ahead.

    Cells that differ only in the look-ahead see the same logs under the same seed.
    """

    name: str
    world: DriftingBandit
    episodes: int
    lookahead: int

    @property
    def cycle(self) -> float:
        """Logs begin anywhere in it."""
        frequency = float(self.world.frequency)
        return 2 * math.pi / frequency if frequency else STANDING_CYCLE

    @property
    def factors(self) -> dict[str, Any]:
        return {"world": self.name, "episodes": self.episodes, "lookahead": self.lookahead}

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(METHODS)

    def simulate(self, key: PRNGKeyArray, count: int) -> Simulated:
        return self.judged(tuple(METHODS.values()), key, count)

    def judged(self, methods: tuple[Method, ...], key: PRNGKeyArray, count: int) -> Simulated:
        """How any methods fare in the logs of this cell."""
        start_key, key = jax.random.split(key)
        starts = jnp.floor(jax.random.uniform(start_key, (count,)) * self.cycle)
        keys = jax.random.split(key, count)
        found = _simulate(methods, self.episodes, self.lookahead, self.world, starts, keys)
        return Simulated(found, {"start": np.asarray(starts)})


def world_coverage_table(rows: Sequence[CoverageRow]) -> str:
    """A line per cell: the share of each method's intervals that hold the truth, their width and score."""
    cells = by_cell(rows)
    names = ["world", "k", "look-ahead", "logs"]
    for row in cells[0]:
        names += [f"{row.method}: coverage %", "median width", "mean score"]
    lines = []
    for cell in cells:
        factors = cell[0].factors
        line = [factors["world"], f"{factors['episodes']:,}", f"{factors['lookahead']}"]
        line.append(f"{cell[0].runs:,}")
        for row in cell:
            coverage = Estimate(100 * row.coverage, 100 * row.error)
            known = math.isfinite(row.mean_score)
            line += (
                [coverage.text(1), f"{row.median_width:.3g}", f"{row.mean_score:.3g}"] if known else [""] * 3
            )
        lines.append(line)
    return f"{markdown_table(names, lines)}\n{_pooled(cells)}\n"


def _pooled(cells: Sequence[Sequence[CoverageRow]]) -> str:
    """All cells in a sentence or two: the methods' mean scores, and how far the first is from the oracle."""
    means = np.mean([[row.mean_score for row in cell[:-1]] for cell in cells], axis=0)
    each = (f"{row.method} {mean:.3g}" for row, mean in zip(cells[0], means, strict=False))
    said = f"Mean score over all cells: {', '.join(each)}."
    ratios = np.array([cell[0].mean_score / cell[-1].mean_score for cell in cells])
    known = ratios[np.isfinite(ratios)]
    if not known.size:
        return said
    beside = f"{np.median(known):.2g} times the oracle's in the median, {known.max():.2g} times at most"
    return f"{said} In {known.size} seasonal cells, {cells[0][0].method}'s is {beside}."


@partial(jax.jit, static_argnums=(0, 1, 2))
def _simulate(
    methods: tuple[Method, ...],
    episodes: int,
    lookahead: int,
    world: DriftingBandit,
    starts: Float[Array, " logs"],
    keys: PRNGKeyArray,
) -> Judged:
    target = SoftmaxPolicy(np.where(np.arange(world.arms) == 0, TARGET_LOGIT, 0.0))

    lasting = (jnp.asarray(world.frequency) > 0) & (jnp.asarray(world.stop) >= NEVER)
    period = 2 * math.pi / jnp.where(lasting, world.frequency, jnp.nan)  # elsewhere there is no oracle

    def one(log: tuple[Float[Array, ""], PRNGKeyArray]) -> Judged:
        start, key = log
        collect_key, sign_key = jax.random.split(key)
        past = world.collect(world.safe_policy, start + jnp.arange(1.0, episodes + 1), collect_key)
        axis = TimeAxis(start, start + episodes, lookahead)
        truth = jnp.mean(world.performance(target, axis.forecast_times))

        def interval(settings: ForecastSettings) -> ConfidenceInterval:
            # Every log has its own signs: shared ones would err together.
            signs = settings.multipliers(sign_key, settings.draws)
            terms = Terms(axis, signs, ALPHA)
            return forecast_policy(settings, target, past, terms, Side.BOTH)[1]

        return judge((interval(make(lookahead, period)) for make in methods), truth, ALPHA)

    at_once = LOGS_AT_ONCE.get(jax.default_backend(), LOGS_AT_ONCE["cpu"])
    results: Judged = jax.lax.map(one, (starts, keys), batch_size=at_once)
    return results
