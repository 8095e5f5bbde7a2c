"""What worlds with one decision per episode share: collecting a log, and the truth in closed form."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..arrays import ArrayLike, full_products
from ..episodes import EpisodeLog
from ..policies import DiscretePolicy


class Bandit(eqx.Module):
    """Arms whose expected rewards depend on time alone; noise is normal. Episode numbers start at 1."""

    noise: eqx.AbstractVar[float | Array]

    @abc.abstractmethod
    def expected_rewards(self, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, "n arms"]:
        """What each arm earns on average."""

    @full_products
    def performance(
        self, policy: DiscretePolicy, episode_numbers: Float[ArrayLike, " n"]
    ) -> Float[Array, " n"]:
        """ρ(π, i), exactly."""
        return self.expected_rewards(episode_numbers) @ jnp.exp(policy.log_probs())

    def collect(
        self, policy: DiscretePolicy, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog:
        """Run the policy for these episodes."""
        action_key, noise_key = jax.random.split(key)
        count = episode_numbers.shape[0]
        log_probs, expected = policy.log_probs(), self.expected_rewards(episode_numbers)
        actions = jax.random.categorical(action_key, log_probs, shape=(count,))
        means = jnp.take_along_axis(expected, actions[:, None], axis=1)
        noise = self.noise * jax.random.normal(noise_key, means.shape, means.dtype)
        return EpisodeLog(
            episode_numbers=episode_numbers,
            actions=actions[:, None],
            behavior_log_probs=log_probs[actions][:, None],
            rewards=means + noise,
            mask=jnp.ones((count, 1), bool),
            num_actions=expected.shape[1],
        )
