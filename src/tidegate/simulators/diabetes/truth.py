"""What treatments are truly worth: means over many simulated days, made once and kept on disk.

The performance of a treatment depends on episode and speed only through the drifting patient's mixing
weight c, so a table over c serves every episode and every speed. All treatments and all c see the same days.
"""

import hashlib
import json
import logging
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import __version__
from ...arrays import ArrayLike
from ...errors import SettingsError
from ...record import writing
from .day import DaySettings, Treatment, draw_day, run_day
from .patient import Patient, blend

FORMAT = 1  # change it when the simulated days change
# Days simulated at once: a CPU likes what fits its cache, a GPU what fills it.
CPU_LANES, GPU_LANES = 1024, 65536

logger = logging.getLogger(__name__)


class PerformanceTable(eqx.Module):
    """Mean return of each treatment at equally spaced mixing weights from 0 to 1."""

    means: Float[ArrayLike, "nodes treatments"]
    standard_errors: Float[ArrayLike, "nodes treatments"]
    out_of_range: Float[ArrayLike, "nodes treatments"]  # share of days
    treatments: Float[ArrayLike, "treatments 2"]

    def at(self, weights: Float[ArrayLike, " n"]) -> Float[Array, "n treatments"]:
        """Mean returns at these mixing weights, linear between the nodes."""
        means = jnp.asarray(self.means, float)
        place = jnp.clip(jnp.asarray(weights, float), 0.0, 1.0) * (means.shape[0] - 1)
        left = jnp.clip(jnp.floor(place).astype(int), 0, means.shape[0] - 2)
        share = (place - left)[:, None]
        return (1 - share) * means[left] + share * means[left + 1]


def performance_table(
    first: Patient,
    second: Patient,
    treatments: Float[ArrayLike, "treatments 2"],
    settings: DaySettings | None = None,
    *,
    days: int = 1000,
    nodes: int = 33,
    seed: int = 0,
    cache: str | Path | None = None,
) -> PerformanceTable:
    """The table for a patient who drifts between `first` (c = 1) and `second` (c = 0).

    It is read from the folder `cache` (by default the user's cache folder) if it was made before.
    """
    settings = settings or DaySettings()
    if days < 2 or nodes < 2:
        raise SettingsError(f"the table has {days} days and {nodes} nodes", expected="at least 2 of each")
    treatments = np.asarray(treatments, np.float64)
    Treatment(treatments[:, 0], treatments[:, 1])
    manifest = {
        "format": FORMAT,
        "tidegate": __version__,
        "patients": _digest((first, second)),
        "settings": _digest(settings),
        "treatments": treatments.tolist(),
        "days": days,
        "nodes": nodes,
        "seed": seed,
    }
    path = Path(cache or _user_cache()) / f"diabetes-{_digest_text(manifest)[:16]}.npz"
    arrays = _load(path, manifest)
    if arrays is None:
        logger.info("simulating %d days for %s", days * nodes * len(treatments), path.name)
        arrays = _simulate(first, second, treatments, settings, days, nodes, seed)
        _save(path, manifest, arrays)
    means, errors, outside = arrays
    return PerformanceTable(means, errors, outside, treatments)


def _simulate(
    first: Patient,
    second: Patient,
    treatments: np.ndarray[Any, Any],
    settings: DaySettings,
    days: int,
    nodes: int,
    seed: int,
) -> tuple[np.ndarray[Any, Any], ...]:
    """Batches of days on as many threads as there are cores; a GPU takes one batch after another."""
    on_cpu = jax.default_backend() == "cpu"
    size = min(days, max(1, (CPU_LANES if on_cpu else GPU_LANES) // len(treatments)))
    starts = np.arange(0, days, size)

    def batch(weight: float, start: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        # In 32-bit whatever the caller's precision, and outside any trace that is going on.
        with jax.ensure_compile_time_eval(), jax.enable_x64(False):
            keys = jax.random.split(jax.random.key(seed), len(starts) * size)[start:][:size]
            found = _days(first, second, jnp.asarray(weight), treatments, keys, settings)
            return np.asarray(found[0], np.float64), np.asarray(found[1])

    weights = np.linspace(0.0, 1.0, nodes)
    batches = [(float(weight), int(start)) for weight in weights for start in starts]
    batch(*batches[0])  # compiles
    with ThreadPoolExecutor((os.cpu_count() or 1) if on_cpu else 1) as pool:
        results = list(pool.map(lambda one: batch(*one), batches))
    returns, outside = (
        np.stack(part).reshape(nodes, -1, len(treatments))[:, :days] for part in zip(*results, strict=True)
    )
    _report(outside)
    errors = returns.std(axis=1, ddof=1) / np.sqrt(days)
    return returns.mean(axis=1), errors, outside.mean(axis=1)


@eqx.filter_jit
def _days(
    first: Patient,
    second: Patient,
    weight: Any,
    treatments: Any,
    keys: Any,
    settings: DaySettings,
) -> tuple[Float[Array, "days treatments"], Any]:
    patient = blend(weight, first, second)

    def day(key: Any) -> Any:
        draws = draw_day(settings, key)

        def treated(treatment: Any) -> Any:
            record = run_day(patient, Treatment(*treatment), draws, settings)
            return record.episode_return, record.out_of_range

        return jax.vmap(treated)(jnp.asarray(treatments, float))

    returned: tuple[Any, Any] = jax.vmap(day)(keys)
    return returned


def _report(outside: np.ndarray[Any, Any]) -> None:
    if outside.any():
        logger.warning(
            "glucose left the model's range on %d of %d days; by treatment %s",
            outside.sum(),
            outside.size,
            outside.sum(axis=(0, 1)).tolist(),
        )


def _user_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tidegate"


def _load(path: Path, manifest: dict[str, Any]) -> tuple[np.ndarray[Any, Any], ...] | None:
    """What was stored for exactly these settings; a damaged file counts as missing."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if json.loads(str(stored["manifest"])) != manifest:
                return None
            return stored["means"], stored["standard_errors"], stored["out_of_range"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _save(path: Path, manifest: dict[str, Any], arrays: tuple[np.ndarray[Any, Any], ...]) -> None:
    means, errors, outside = arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        np.savez(
            file,
            manifest=np.array(json.dumps(manifest)),
            means=means,
            standard_errors=errors,
            out_of_range=outside,
        )


def _digest(tree: Any) -> str:
    leaves, structure = jax.tree.flatten(tree)
    return _digest_text([str(structure), [np.asarray(leaf, np.float64).tolist() for leaf in leaves]])


def _digest_text(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
