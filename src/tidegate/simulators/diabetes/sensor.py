"""Continuous glucose monitors: a reading every few minutes, with drifting, skewed noise.

The noise has a value every 15 minutes: a first-order autoregression of normal draws, bent by Johnson's SU
curve. Cubic splines fill in between, one for each 150 minutes. Model and figures are those of simglucose
0.2.11 (see NOTICE), where they come from Breton and Kovatchev (2008).
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.interpolate import make_interp_spline

from ...arrays import full_products
from ...errors import SettingsError
from .patient import Number

KNOT_MINUTES = 15
KNOTS_PER_SPLINE = 10


class Sensor(eqx.Module):
    """A sensor by its noise, its range in mg/dL and the minutes between two readings."""

    sample_minutes: int = eqx.field(static=True)
    lowest: Number = 39.0
    highest: Number = 600.0
    autocorrelation: Number = 0.7
    noise_location: Number = -5.47  # ξ of Johnson's SU, mg/dL
    noise_scale: Number = 15.9574  # λ, mg/dL
    noise_skew: Number = -0.5444  # γ
    noise_shape: Number = 1.6898  # δ

    @full_products
    def noise(self, key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
        """The errors of `count` readings in a row, in mg/dL."""
        spline = _spline(self.sample_minutes)
        num_splines = -(-count // spline.shape[0])
        draws = jax.random.normal(key, (num_splines * KNOTS_PER_SPLINE + 1,))
        knots = self._johnson(self._autoregression(draws.size) @ draws)
        pieces = KNOTS_PER_SPLINE * np.arange(num_splines)[:, None] + np.arange(spline.shape[1])
        return (knots[pieces] @ spline.T).ravel()[:count]

    def read(self, glucose: Number, noise: Number) -> Float[Array, "..."]:
        """A reading stays within the sensor's range."""
        return jnp.clip(glucose + noise, self.lowest, self.highest)

    def _autoregression(self, size: int) -> Float[Array, "n n"]:
        """Row k gives e_k = ρ (e_{k−1} + draw_k), with e_0 = draw_0, in terms of all draws."""
        row, column = np.mgrid[:size, :size]
        power = np.maximum(row - column + (column > 0), 0)
        return jnp.where(row >= column, jnp.asarray(self.autocorrelation, float) ** power, 0.0)

    def _johnson(self, normal: Array) -> Array:
        bent: Array = jnp.sinh((normal - self.noise_skew) / self.noise_shape)
        return jnp.asarray(self.noise_location + self.noise_scale * bent)


SENSORS = {
    "Dexcom": Sensor(3),
    "GuardianRT": Sensor(5),
    "Navigator": Sensor(1, lowest=32.0),
}


def load_sensor(name: str) -> Sensor:
    """Dexcom, GuardianRT or Navigator."""
    if name not in SENSORS:
        raise SettingsError(f"there is no sensor {name!r}.", expected=f"one of {sorted(SENSORS)}")
    return SENSORS[name]


@functools.cache
def _spline(sample_minutes: int) -> np.ndarray[Any, Any]:
    """Readings of one spline, without its first knot, as linear functions of its knots."""
    knots = KNOT_MINUTES * np.arange(KNOTS_PER_SPLINE + 1)
    times = np.arange(sample_minutes, knots[-1] + 1, sample_minutes)
    matrix: np.ndarray[Any, Any] = make_interp_spline(knots, np.eye(knots.size), k=3)(times)
    return matrix
