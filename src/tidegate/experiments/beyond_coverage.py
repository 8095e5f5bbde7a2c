"""Do the intervals hold in worlds whose drift no basis was chosen for?

Each log is collected by the safe policy and begins anywhere in the world's season, so that it ends
anywhere. Forecast is the mean return of a sharper policy over the next episodes, whose truth is known.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..arrays import in_double
from ..basis import CosineBasis, TimeAxis
from ..bootstrap import ConfidenceInterval, Side
from ..errors import SettingsError
from ..performance import ForecastSettings, forecast_policy
from ..policies import SoftmaxPolicy
from ..presets import multiscale_settings
from ..simulators.drifting import DriftingBandit
from .sweep import Column

TARGET_LOGIT = 3.0  # of the first arm; the others have 0
STANDING_CYCLE = 2_000.0  # starts of logs in a world without a season
# Logs that are simulated at once: each has draws × episodes multipliers.
LOGS_AT_ONCE = {"cpu": 4, "gpu": 100}

METHODS: dict[str, Callable[[int], ForecastSettings]] = {
    "Multiscale": lambda lookahead: multiscale_settings(lookahead=lookahead).forecast,
    "SPIN": lambda lookahead: ForecastSettings(lookahead, basis=CosineBasis(3)),
}


@dataclasses.dataclass(frozen=True)
class LogCell:
    """One world, one length of the log, one look-ahead."""

    name: str
    world: DriftingBandit
    episodes: int
    lookahead: int

    @property
    def cycle(self) -> float:
        """Logs begin anywhere in it."""
        frequency = float(self.world.frequency)
        return 2 * math.pi / frequency if frequency else STANDING_CYCLE


@dataclasses.dataclass(frozen=True)
class LogJob:
    """All logs of one cell; an engine runs it like a batch of a sweep.

    Cells that differ in the look-ahead alone see the same logs under the same seed.
    """

    cell: LogCell
    count: int
    seed: int
    methods: tuple[str, ...] = tuple(METHODS)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise SettingsError(f"runs is {self.count}", expected="an integer from 1 up")

    @property
    def name(self) -> str:
        cell = self.cell
        return f"{cell.name.replace(' ', '_')}-{cell.episodes}-{cell.lookahead}"

    @property
    def program(self) -> tuple[int, int, int]:
        return self.cell.world.arms, self.cell.episodes, self.cell.lookahead

    def prepare(self) -> None:
        """The first job of a program compiles it; the others find it."""

    @in_double
    def run(self) -> dict[str, Column]:
        """One row per log: for each method, whether it held the truth, and how wide it was."""
        cell = self.cell
        start_key, key = jax.random.split(jax.random.key(self.seed))
        starts = jnp.floor(jax.random.uniform(start_key, (self.count,)) * cell.cycle)
        covered, widths = _simulate(
            cell.episodes, cell.lookahead, self.methods,
            cell.world, starts, jax.random.split(key, self.count),
        )  # fmt: skip
        columns = {
            "world": np.full(self.count, cell.name),
            "episodes": np.full(self.count, cell.episodes),
            "lookahead": np.full(self.count, cell.lookahead),
            "run": np.arange(self.count),
            "start": np.asarray(starts),
        }
        for i, method in enumerate(self.methods):
            columns[f"{method}: covered"] = np.asarray(covered)[:, i]
            columns[f"{method}: width"] = np.asarray(widths)[:, i]
        return columns


@dataclasses.dataclass(frozen=True)
class LogSummary:
    """What became of one method in one cell."""

    world: str
    episodes: int
    lookahead: int
    method: str
    runs: int
    coverage: float
    error: float
    median_width: float


def summarise_logs(columns: dict[str, Column]) -> list[LogSummary]:
    """Count, in each cell and for each method, how many intervals hold the truth."""
    names = [columns[name].tolist() for name in ("world", "episodes", "lookahead")]
    cells = list(zip(*names, strict=True))
    methods = [name.removesuffix(": width") for name in columns if name.endswith(": width")]
    summaries = []
    for cell in dict.fromkeys(cells):
        rows = np.array([one == cell for one in cells])
        runs = int(rows.sum())
        for method in methods:
            coverage = float(columns[f"{method}: covered"][rows].mean())
            error = math.sqrt(coverage * (1 - coverage) / runs)
            width = float(np.median(columns[f"{method}: width"][rows]))
            world, episodes, lookahead = cell
            summaries.append(
                LogSummary(world, episodes, lookahead, method, runs, coverage, error, width)
            )
    return summaries


@partial(jax.jit, static_argnums=(0, 1, 2))
def _simulate(
    episodes: int,
    lookahead: int,
    methods: tuple[str, ...],
    world: DriftingBandit,
    starts: Float[Array, " logs"],
    keys: PRNGKeyArray,
) -> tuple[Bool[Array, "logs methods"], Float[Array, "logs methods"]]:
    target = SoftmaxPolicy(np.where(np.arange(world.arms) == 0, TARGET_LOGIT, 0.0))

    def one(log: tuple[Float[Array, ""], PRNGKeyArray]) -> tuple[Array, Array]:
        start, key = log
        collect_key, sign_key = jax.random.split(key)
        past = world.collect(world.safe_policy, start + jnp.arange(1.0, episodes + 1), collect_key)
        future = start + episodes + jnp.arange(1.0, lookahead + 1)
        truth = jnp.mean(world.performance(target, future))
        axis = TimeAxis(start, start + episodes, lookahead)

        def interval(settings: ForecastSettings) -> ConfidenceInterval:
            # Every log has its own signs: shared ones would err together.
            signs = settings.multipliers(sign_key, settings.draws)
            return forecast_policy(settings, target, past, axis, signs, Side.BOTH)[1]

        intervals = [interval(METHODS[name](lookahead)) for name in methods]
        lower = jnp.stack([found.lower for found in intervals])
        upper = jnp.stack([found.upper for found in intervals])
        return (lower <= truth) & (truth <= upper), upper - lower

    at_once = LOGS_AT_ONCE.get(jax.default_backend(), LOGS_AT_ONCE["cpu"])
    results: tuple[Array, Array] = jax.lax.map(one, (starts, keys), batch_size=at_once)
    return results
