from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Kernels follow the caller's precision; tests compare them to 1e-10."""
    with jax.enable_x64(True):
        yield
