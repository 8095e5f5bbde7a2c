"""Blood-glucose risk after Kovatchev: low glucose and high glucose on one symmetric scale."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .patient import Number


class Risk(NamedTuple):
    """The low and the high blood-glucose index (LBGI, HBGI) and their sum, the risk index."""

    low: Float[Array, "..."]
    high: Float[Array, "..."]
    total: Float[Array, "..."]


def reading_risk(glucose: Number) -> Risk:
    """The risk of single readings in mg/dL; a reading below 1 counts as 1."""
    # The floor is just above 1, where the power of the logarithm still has a slope.
    logarithm = jnp.log(jnp.maximum(glucose, 1.0 + 1e-6))
    symmetric = 1.509 * (logarithm**1.084 - 5.381)
    low = 10 * jnp.minimum(symmetric, 0.0) ** 2
    high = 10 * jnp.maximum(symmetric, 0.0) ** 2
    return Risk(low, high, low + high)


def risk_index(glucose: Float[Array, "... n"]) -> Risk:
    """LBGI, HBGI and risk index of a series: means over all its readings (the last axis)."""
    risk = reading_risk(glucose)
    return Risk(*(jnp.mean(part, axis=-1) for part in risk))
