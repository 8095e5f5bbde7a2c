"""Compiling is most of the suite's work: quick to compile, and never twice on this machine."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# Before JAX is imported, and for the processes that tests start.
for name, value in {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false",
    "OPENBLAS_NUM_THREADS": "1",  # the workers share the cores
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parent.parent / ".pytest_cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(name, value)

# Tracing makes many objects that live on, and looking through them for garbage took a tenth of the time.
gc.set_threshold(100_000, 50, 1_000)

import jax  # noqa: E402
import pytest  # noqa: E402

from tidegate.arrays import forget_programs  # noqa: E402

LONGEST = (
    "test_docs.py",
    "test_endurance.py",
    "test_large.py",
    "test_attacks_bounds.py",
    "test_commands.py",
    "test_record_schema.py",
    "test_golden.py",
    "test_cluster.py",
    "test_ray.py",
    "test_safety.py",
    "test_checks.py",
    "test_loop.py",
    "test_cli.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that at the end no worker is left alone with much of it."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Kernels follow the caller's precision; tests compare them to 1e-10."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def fresh_programs() -> Iterator[None]:
    """A process may hold only so many mappings, and every compiled program has some."""
    yield
    forget_programs()
    jax.clear_caches()  # type: ignore[no-untyped-call]
