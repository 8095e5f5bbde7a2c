"""A sweep cut into batches, and one batch as one compiled program.

All runs of a group share the bootstrap's signs, window by window, so that a batch multiplies one sign
matrix with many runs at once, and so that results do not depend on how the runs are cut into batches.
"""

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..arrays import ArrayLike
from ..drivers import History, simulate, untraceable
from ..errors import SettingsError, foreign_code
from .sweep import Columns, Runs, Sweep, resolve

CURVE_BINS = 40
# Each doubling is compiled separately: a GPU has the speed to spare, a CPU has not. Results are the same.
FIRST_CAPACITY = {False: 256, True: 1024}
# The search for the fastest product takes longer than the rest of the compilation, and finds no better.
COMPILER_OPTIONS: dict[bool, dict[str, Any]] = {
    False: {},
    True: {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0},
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some runs of one group; plain data, so that it can travel to another process."""

    sweep: Sweep
    shape: tuple[tuple[str, Any], ...]
    runs: Runs
    seed: int
    size: int
    name: str

    @property
    def count(self) -> int:
        return len(self.runs)

    @property
    def program(self) -> tuple[Any, ...]:
        """What fixes the compiled program: all but the values of the traced fields."""
        sweep = self.sweep
        traced = *sorted(sweep.drawn), *next(iter(sweep.cells.values()))
        fixed = *sorted(sweep.world_fixed.items()), *sorted(sweep.fixed.items())
        run = sweep.world, sweep.algorithm, fixed, sweep.jump, sweep.num_episodes, sweep.warmup
        return run, traced, self.shape, self.size, self.seed

    def prepare(self) -> None:
        compiled(self)

    def run(self) -> Columns:
        return run_batch(self)


def cut(sweep: Sweep, runs: Runs, *, size: int, seed: int) -> list[Batch]:
    """Group the runs by shape, sort them by length, cut them into equal batches."""
    shapes = [name for name in sweep.shapes if name in runs.drawn]
    keys = [tuple(runs.drawn[name][i].item() for name in shapes) for i in range(len(runs))]
    batches = []
    for key in sorted(set(keys)):
        rows = np.array([i for i, one in enumerate(keys) if one == key])
        if sweep.length is not None:
            rows = rows[np.argsort(runs.drawn[sweep.length][rows], kind="stable")]
        parts = sweep.name.replace(" ", "_"), *sweep.world_fixed.values(), *key
        label = "-".join(map(str, parts))
        width = min(size, len(rows))
        for start in range(0, len(rows), width):
            part = runs.take(rows[start : start + width])
            name = f"{label}-{start:06d}"
            batches.append(Batch(sweep, tuple(zip(shapes, key, strict=True)), part, seed, width, name))
    return batches


def run_batch(batch: Batch) -> Columns:
    """One row per run: where it stands in the sweep, its hyper-parameters, its results."""
    count = batch.count
    # The last batch of a group is filled up, so that it fits the same program.
    rows = np.minimum(np.arange(batch.size), count - 1)
    filled = batch.runs.take(rows)
    results = compiled(batch)(*arguments(batch, filled))
    columns = {name: np.asarray(values)[:count] for name, values in results.items()}
    cells = np.array(list(batch.sweep.cells))[batch.runs.cell]
    return {
        "algorithm": np.full(count, batch.sweep.name),
        "cell": cells,
        "setting": batch.runs.setting,
        "trial": batch.runs.trial,
        **batch.runs.drawn,
        **columns,
    }


def arguments(batch: Batch, runs: Runs) -> tuple[Any, ...]:
    """What the compiled program takes: keys, the world's fields, the traced hyper-parameters."""
    root = jax.random.key(batch.seed)
    numbers = (runs.cell * 1_000_003 + runs.setting) * 1_009 + runs.trial
    keys = jax.vmap(functools.partial(jax.random.fold_in, root))(jnp.asarray(numbers, jnp.uint32))
    cells = list(batch.sweep.cells.values())
    world = {name: jnp.asarray([cells[i][name] for i in runs.cell], jnp.float32) for name in cells[0]}
    shapes = dict(batch.shape)
    drawn = {
        name: jnp.asarray(values, jnp.float32 if values.dtype.kind == "f" else jnp.int32)
        for name, values in runs.drawn.items()
        if name not in shapes
    }
    return keys, world, drawn


def compiled(batch: Batch) -> Any:
    """The program of a batch, compiled once per group and size."""
    key = batch.program
    with _LOCK:
        lock = _LOCKS.setdefault(key, threading.Lock())
    with lock:
        if key not in _PROGRAMS:
            filled = batch.runs.take(np.zeros(batch.size, int))
            lowered = _lowered(batch, filled)
            _PROGRAMS[key] = lowered.compile(compiler_options=COMPILER_OPTIONS[_on_gpu()])
    return _PROGRAMS[key]


def _lowered(batch: Batch, filled: Runs) -> Any:
    """The program before it is compiled: here the world and the algorithm, which may be the user's, run."""
    sweep = batch.sweep
    with foreign_code(
        lambda error: SettingsError(
            f"{sweep.world} with {sweep.algorithm} failed: {error!r}.", where=f"sweep '{sweep.name}'"
        )
    ):
        try:
            return jax.jit(_program(batch)).lower(*arguments(batch, filled))
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            raise untraceable(f"{sweep.world} with {sweep.algorithm}", error) from None


# Batches run on several threads; each program is compiled by the first that needs it.
_LOCK = threading.Lock()
_LOCKS: dict[Any, threading.Lock] = {}
_PROGRAMS: dict[Any, Any] = {}


def _program(batch: Batch) -> Any:
    sweep, shapes = batch.sweep, dict(batch.shape)
    make_world, make_settings = resolve(sweep.world), resolve(sweep.algorithm)
    lookahead = int({**sweep.fixed, **shapes}["lookahead"])
    sign_key = jax.random.fold_in(jax.random.key(batch.seed), lookahead)

    def one(key: PRNGKeyArray, fields: Mapping[str, Array], drawn: Mapping[str, Array]) -> Any:
        settings = make_settings(**sweep.fixed, **shapes, **drawn)
        world = make_world(**sweep.world_fixed, **fields)
        history = simulate(
            world,
            settings,
            key,
            sign_key,
            num_episodes=sweep.num_episodes,
            window=lookahead,
            warmup=sweep.warmup,
            capacity=FIRST_CAPACITY[_on_gpu()],
        )
        results = _results(history)
        if sweep.jump is not None:
            windows = lookahead * np.arange(history.deployed.size)
            after = sweep.warmup + windows >= fields[sweep.jump]
            results["lapse"] = lapse(_unsafe(history), after) * lookahead
        return results

    return jax.vmap(one)


def _on_gpu() -> bool:
    return jax.default_backend() == "gpu"


def _results(history: History) -> dict[str, Array]:
    return {
        "improvement_over_safe": history.improvement_over_safe,
        "violation_rate": history.violation_rate,
        "deployment_rate": history.deployment_rate,
        "curve_performance": _binned(history.performance),
        "curve_safe": _binned(history.safe_performance),
        "curve_unsafe": _binned(_unsafe(history).astype(history.performance.dtype)),
    }


def lapse(unsafe: Bool[ArrayLike, " w"], after: Bool[ArrayLike, " w"]) -> Float[Array, ""]:
    """For how many windows after a jump a candidate that was worse stayed in force; NaN if none follows."""
    still = jnp.cumprod(jnp.where(after, unsafe, True))
    return jnp.where(jnp.any(after), jnp.sum(jnp.where(after, still, 0)), jnp.nan)


def _unsafe(history: History) -> Bool[Array, " w"]:
    """Windows in which a candidate ran and was truly worse."""
    return history.deployed & (history.performance < history.safe_performance)


def _binned(values: Array) -> Array:
    """Averages over equal stretches of the run, whatever the window."""
    bins = np.arange(values.size) * CURVE_BINS // values.size
    member = (bins == np.arange(CURVE_BINS)[:, None]).astype(np.float32)
    return jnp.asarray(member / np.maximum(member.sum(axis=1, keepdims=True), 1)) @ values
