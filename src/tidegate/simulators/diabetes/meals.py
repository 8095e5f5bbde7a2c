"""What a patient eats on a random day, and meals given by hand, as grams announced in each minute."""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...arrays import ArrayLike
from ...errors import SettingsError
from .checks import check_not_negative

DAY_MINUTES = 1440


class MealPlan(eqx.Module):
    """Breakfast, lunch and dinner, each followed by a snack: how likely, when (minutes), how much (g)."""

    probability: Float[ArrayLike, " meals"]
    earliest: Float[ArrayLike, " meals"]
    latest: Float[ArrayLike, " meals"]
    usual_time: Float[ArrayLike, " meals"]
    time_sd: Float[ArrayLike, " meals"]
    usual_size: Float[ArrayLike, " meals"]
    size_sd: Float[ArrayLike, " meals"]

    def draw(self, key: PRNGKeyArray) -> Float[Array, " minutes"]:
        """One day: grams announced in each minute. Times and sizes are whole minutes and grams."""
        skip_key, time_key, size_key = jax.random.split(key, 3)
        shape = self.probability.shape
        eaten = jax.random.uniform(skip_key, shape) < self.probability
        lower = (self.earliest - self.usual_time) / self.time_sd
        upper = (self.latest - self.usual_time) / self.time_sd
        shift = jax.random.truncated_normal(time_key, lower, upper, shape)
        times = jnp.round(self.usual_time + self.time_sd * shift)
        sizes = jnp.round(self.usual_size + self.size_sd * jax.random.normal(size_key, shape))
        sizes = jnp.where(eaten, jnp.maximum(sizes, 0.0), 0.0)
        at_minute = times == jnp.arange(DAY_MINUTES)[:, None]
        return jnp.sum(jnp.where(at_minute, sizes, 0.0), axis=1)


def usual_meals() -> MealPlan:
    """The random day of simglucose's scenario."""
    hours = 60.0
    return MealPlan(
        probability=np.array([0.95, 0.3, 0.95, 0.3, 0.95, 0.3]),
        earliest=hours * np.array([5.0, 9.0, 10.0, 14.0, 16.0, 20.0]),
        latest=hours * np.array([9.0, 10.0, 14.0, 16.0, 20.0, 23.0]),
        usual_time=hours * np.array([7.0, 9.5, 12.0, 15.0, 18.0, 21.5]),
        time_sd=np.array([60.0, 30.0, 60.0, 30.0, 60.0, 30.0]),
        usual_size=np.array([45.0, 10.0, 70.0, 10.0, 80.0, 10.0]),
        size_sd=np.array([10.0, 5.0, 10.0, 5.0, 10.0, 5.0]),
    )


def meals_at(meals: Iterable[tuple[int, float]]) -> Float[np.ndarray, " minutes"]:
    """(minute of the day, grams) pairs -> grams announced in each minute."""
    grams = np.zeros(DAY_MINUTES)
    for minute, size in meals:
        if not 0 <= minute < DAY_MINUTES or minute != int(minute):
            raise SettingsError(
                f"a meal is at minute {minute}",
                expected=f"a whole minute of the day, 0 to {DAY_MINUTES - 1}",
            )
        check_not_negative("meal", size, "grams")
        grams[int(minute)] += size
    return grams
