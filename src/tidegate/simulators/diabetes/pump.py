"""Insulin pumps: what is asked for, rounded to the pump's increment and held within its limits.

Limits and increments are those of simglucose 0.2.11 (see NOTICE), which rounds in pmol/min.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import SettingsError
from .patient import PMOL_PER_UNIT, Number


class Pump(eqx.Module):
    """Limits in U/min, increments in pmol/min.

    Rounding has no slope, so gradients pass through it as if it were not there (an increment is
    8 millionths of a unit). Beyond a limit the gradient is zero, as it should be.
    """

    max_bolus: Number
    max_basal: Number
    min_bolus: Number = 0.0
    min_basal: Number = 0.0
    bolus_increment: Number = 0.05
    basal_increment: Number = 0.05

    def bolus(self, rate: Number) -> Float[Array, "..."]:
        """The bolus that is delivered, in U/min."""
        return jnp.clip(_rounded(rate, self.bolus_increment), self.min_bolus, self.max_bolus)

    def basal(self, rate: Number) -> Float[Array, "..."]:
        """The basal rate that is delivered, in U/min."""
        return jnp.clip(_rounded(rate, self.basal_increment), self.min_basal, self.max_basal)


PUMPS = {
    "Insulet": Pump(max_bolus=30.0, max_basal=30.0),
    "Cozmo": Pump(max_bolus=75.0, max_basal=35.0),
}


def load_pump(name: str) -> Pump:
    """Insulet or Cozmo."""
    if name not in PUMPS:
        raise SettingsError(f"there is no pump {name!r}.", expected=f"one of {sorted(PUMPS)}")
    return PUMPS[name]


def _rounded(rate: Number, increment: Number) -> Array:
    asked: Array = jnp.asarray(rate, float)
    rounded = jnp.round(asked * PMOL_PER_UNIT / increment) * increment / PMOL_PER_UNIT
    through: Array = asked + jax.lax.stop_gradient(rounded - asked)
    return through
