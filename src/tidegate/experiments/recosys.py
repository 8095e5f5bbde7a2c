"""The RecoSys study: hyper-parameters drawn as the paper draws them, many runs per cell."""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, PRNGKeyArray

from ..basis import CosineBasis
from ..drivers import simulate
from ..errors import SettingsError
from ..loop import SpinSettings
from ..presets import paper_settings, stationary_settings
from ..simulators.recommender import Recommender, speed_frequency

LOOKAHEADS = (2, 4, 6, 8)
NUM_EPISODES = 2_000
WARMUP = 20
BATCH = 25

Draws = dict[str, Array]
Algorithm = Callable[[int, Draws], SpinSettings]


@dataclasses.dataclass(frozen=True)
class Cell:
    """Results of all runs of one algorithm at one speed, one entry per run."""

    improvement_over_safe: npt.NDArray[np.float64]
    violation_rate: npt.NDArray[np.float64]
    deployment_rate: npt.NDArray[np.float64]


def draw_hyper_parameters(rng: np.random.Generator, lookahead: int, runs: int) -> Draws:
    """Order, gradient steps and entropy weight, as in the paper's Table 2."""
    return {
        "order": jnp.asarray(rng.integers(1, 5, runs)),
        "gradient_steps": jnp.asarray(np.round(lookahead * rng.uniform(2, 5, runs)).astype(int)),
        "entropy_weight": jnp.asarray(np.exp(rng.uniform(np.log(5e-5), 0.0, runs)), jnp.float32),
    }


def spin(lookahead: int, draws: Draws) -> SpinSettings:
    """SPIN with one draw of the hyper-parameters."""
    return paper_settings(
        lookahead=lookahead,
        basis=CosineBasis(draws["order"], columns=5),
        gradient_steps=draws["gradient_steps"],
        entropy_weight=draws["entropy_weight"],
    )


def baseline(lookahead: int, draws: Draws) -> SpinSettings:
    """The stationary baseline with one draw of the hyper-parameters."""
    return stationary_settings(
        lookahead=lookahead,
        gradient_steps=draws["gradient_steps"],
        entropy_weight=draws["entropy_weight"],
    )


def run_cell(algorithm: Algorithm, speed: int, *, runs: int, seed: int) -> Cell:
    """All runs of a cell, a quarter of them for each lookahead; one compiled program per lookahead."""
    quarter = runs // len(LOOKAHEADS)
    if quarter * len(LOOKAHEADS) != runs or quarter % BATCH:
        raise SettingsError(f"runs is {runs}", expected=f"a multiple of {len(LOOKAHEADS) * BATCH}")

    def run(lookahead: int) -> npt.NDArray[np.float64]:
        rng = np.random.default_rng((seed, speed, lookahead))
        draws = draw_hyper_parameters(rng, lookahead, quarter)
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), quarter)
        # Runs of a batch step together: of like length, none waits for another.
        order = np.argsort(draws["gradient_steps"])
        columns = _run_batches(
            algorithm,
            lookahead,
            jnp.asarray(speed_frequency(speed)),
            keys[order],
            {name: values[order] for name, values in draws.items()},
        )
        return np.asarray(columns, np.float64)[:, np.argsort(order)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return Cell(*np.concatenate(list(pool.map(run, LOOKAHEADS)), axis=1))


@partial(jax.jit, static_argnums=(0, 1))
def _run_batches(
    algorithm: Algorithm, lookahead: int, frequency: Array, keys: PRNGKeyArray, draws: Draws
) -> tuple[Array, Array, Array]:
    world = Recommender(frequency)
    sign_key = jax.random.key(lookahead)  # shared by all runs

    def one(inputs: tuple[PRNGKeyArray, Draws]) -> tuple[Array, Array, Array]:
        key, drawn = inputs
        history = simulate(
            world,
            algorithm(lookahead, drawn),
            key,
            sign_key,
            num_episodes=NUM_EPISODES,
            window=lookahead,
            warmup=WARMUP,
        )
        return history.improvement_over_safe, history.violation_rate, history.deployment_rate

    columns: tuple[Array, Array, Array] = jax.lax.map(one, (keys, draws), batch_size=BATCH)
    return columns
