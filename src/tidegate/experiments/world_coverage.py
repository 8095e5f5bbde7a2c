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

from ..basis import CosineBasis, TimeAxis
from ..bootstrap import ConfidenceInterval, Side
from ..comparison import Terms, TwoBounds
from ..forecast import ForecastSettings, forecast_policy
from ..policies import SoftmaxPolicy
from ..presets import multiscale_settings
from ..simulators.drifting import DriftingBandit
from .coverage import CoverageRow, Simulated, by_cell, judge
from .tables import Estimate, markdown_table

TARGET_LOGIT = 3.0  # of the first arm; the others have 0
STANDING_CYCLE = 2_000.0  # where logs may start in a world without a season
# Logs that are simulated at once: each has draws × episodes multipliers.
LOGS_AT_ONCE = {"cpu": 4, "gpu": 100}

METHODS: dict[str, Callable[[int], ForecastSettings]] = {
    "Multiscale": lambda lookahead: multiscale_settings(lookahead=lookahead).forecast,
    "SPIN": lambda lookahead: ForecastSettings(lookahead, TwoBounds(CosineBasis(3))),
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
        start_key, key = jax.random.split(key)
        starts = jnp.floor(jax.random.uniform(start_key, (count,)) * self.cycle)
        keys = jax.random.split(key, count)
        covered, widths = _simulate(self.episodes, self.lookahead, self.world, starts, keys)
        return Simulated(covered, widths, {"start": np.asarray(starts)})


def world_coverage_table(rows: Sequence[CoverageRow]) -> str:
    """A line per cell: for each method the share of intervals that hold the truth, and their width."""
    cells = by_cell(rows)
    names = ["world", "k", "look-ahead", "logs"]
    for row in cells[0]:
        names += [f"{row.method}: coverage %", "median width"]
    lines = []
    for cell in cells:
        factors = cell[0].factors
        line = [factors["world"], f"{factors['episodes']:,}", f"{factors['lookahead']}"]
        line.append(f"{cell[0].runs:,}")
        for row in cell:
            coverage = Estimate(100 * row.coverage, 100 * row.error)
            line += [coverage.text(1), f"{row.median_width:.3g}"]
        lines.append(line)
    return markdown_table(names, lines)


@partial(jax.jit, static_argnums=(0, 1))
def _simulate(
    episodes: int,
    lookahead: int,
    world: DriftingBandit,
    starts: Float[Array, " logs"],
    keys: PRNGKeyArray,
) -> tuple[Array, Array]:
    target = SoftmaxPolicy(np.where(np.arange(world.arms) == 0, TARGET_LOGIT, 0.0))

    def one(log: tuple[Float[Array, ""], PRNGKeyArray]) -> tuple[Array, Array]:
        start, key = log
        collect_key, sign_key = jax.random.split(key)
        past = world.collect(world.safe_policy, start + jnp.arange(1.0, episodes + 1), collect_key)
        axis = TimeAxis(start, start + episodes, lookahead)
        future = start + episodes + jnp.arange(1.0, lookahead + 1)
        truth = jnp.mean(world.performance(target, future))

        def interval(settings: ForecastSettings) -> ConfidenceInterval:
            # Every log has its own signs: shared ones would err together.
            signs = settings.multipliers(sign_key, settings.draws)
            terms = Terms(axis, signs, settings.alpha)
            return forecast_policy(settings, target, past, terms, Side.BOTH)[1]

        return judge((interval(make(lookahead)) for make in METHODS.values()), truth)

    at_once = LOGS_AT_ONCE.get(jax.default_backend(), LOGS_AT_ONCE["cpu"])
    results: tuple[Array, Array] = jax.lax.map(one, (starts, keys), batch_size=at_once)
    return results
