"""Policies: log_prob, sample, entropy. All are pytrees; leading batch axes follow the states.

A policy without state ignores `states`. `outputs` are the parameters of the action distribution
(logits, or mean and log standard deviation); their Fisher information gives natural gradients.
"""

import abc
import hashlib
import itertools
import json
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .arrays import ArrayLike
from .episodes import EpisodeLog
from .errors import PolicyError
from .inputs import (
    check_min_probability,
    network_layers,
    number,
    parameter,
    require_fit,
    seed_of,
    shown,
    text,
    whole,
)
from .measured import MeasuredLog

MAX_SUMMED = 32


class Policy(eqx.Module):
    """Something that can act, and can say how likely an action was."""

    @abc.abstractmethod
    def log_prob(self, actions: Any, states: Any = None) -> Float[Array, "..."]: ...

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, states: Any = None) -> Shaped[Array, "..."]: ...

    @abc.abstractmethod
    def entropy(self, states: Any = None) -> Float[Array, "..."]: ...

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        """Log-probability (or log-density) of each logged action under this policy."""
        return jnp.broadcast_to(self.log_prob(log.actions, log.states), log.mask.shape)

    def action_log_probs(self, log: EpisodeLog) -> Float[Array, "... a"] | None:
        """Log-probabilities of all actions that it knows, at each logged step; None if it cannot say."""
        return None

    def name_in(self, log: MeasuredLog) -> str | None:
        """The name under which a log holds the policy's estimates; None if those are what was seen."""
        raise PolicyError(
            f"the returns of {type(self).__name__} were not estimated when the log was read.",
            expected=f"one of {sorted(log.returns)}",
        )

    def digest(self) -> str:
        """SHA-256 of the policy's class, fields and parameters."""
        content = {name: _encode(value) for name, value in vars(self).items()}
        text = json.dumps([type(self).__name__, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class ParametricPolicy(Policy):
    """A policy whose action distribution is a differentiable function of its leaves."""

    @abc.abstractmethod
    def outputs(self, states: Any = None) -> Float[Array, "... p"]: ...

    @abc.abstractmethod
    def output_fisher(self, outputs: Float[Array, " p"]) -> Float[Array, "p p"]:
        """Fisher information of the action distribution with respect to its own parameters."""


class DiscretePolicy(ParametricPolicy):
    """Softmax over logits."""

    def log_probs(self, states: Any = None) -> Float[Array, "... a"]:
        """Log-probabilities of all actions."""
        return jax.nn.log_softmax(self.outputs(states))

    def log_prob(self, actions: Any, states: Any = None) -> Float[Array, "..."]:
        log_probs = self.log_probs(states)
        if log_probs.ndim == 1 and log_probs.size <= MAX_SUMMED:
            # A masked sum, not a gather: its gradient adds up in a fixed order on every device.
            chosen = jnp.asarray(actions) == jnp.arange(log_probs.size).reshape(-1, *[1] * jnp.ndim(actions))
            shaped = log_probs.reshape(-1, *[1] * jnp.ndim(actions))
            return jnp.sum(jnp.where(chosen, shaped, 0.0), axis=0)
        if log_probs.ndim == 1:
            return log_probs[jnp.asarray(actions)]
        chosen = jnp.asarray(actions)[..., None]
        return jnp.take_along_axis(log_probs, chosen, axis=-1)[..., 0]

    def sample(self, key: PRNGKeyArray, states: Any = None) -> Int[Array, "..."]:
        return jax.random.categorical(key, self.outputs(states))

    def entropy(self, states: Any = None) -> Float[Array, "..."]:
        log_probs = self.log_probs(states)
        # An action of probability zero adds nothing: 0 · log 0 = 0.
        return -jnp.sum(jnp.where(jnp.isneginf(log_probs), 0.0, jnp.exp(log_probs) * log_probs), -1)

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        known = jax.eval_shape(lambda: self.outputs(log.states)).shape[-1]
        if log.num_actions is None or log.num_actions > known:
            found = "continuous actions" if log.num_actions is None else f"{log.num_actions} actions"
            raise PolicyError(
                f"the policy knows {known} actions, the log has {found}.",
                remedy="Use a policy over all actions of the log.",
            )
        return super().logged_log_probs(log)

    def action_log_probs(self, log: EpisodeLog) -> Float[Array, "... a"] | None:
        return self.log_probs(log.states)

    def output_fisher(self, outputs: Float[Array, " p"]) -> Float[Array, "p p"]:
        probs = jax.nn.softmax(outputs)
        return jnp.diag(probs) - jnp.outer(probs, probs)


class SoftmaxPolicy(DiscretePolicy):
    """One distribution, whatever the state."""

    logits: Float[ArrayLike, " a"]

    def __init__(self, logits: Any) -> None:
        self.logits = parameter("logits", logits, 1, impossible=True)

    @classmethod
    def from_probs(cls, probs: Any) -> Self:
        """The softmax policy with these probabilities."""
        values = np.asarray(parameter("probs", probs, 1), np.float64)
        if np.any(values < 0) or not np.isclose(values.sum(), 1.0):
            raise PolicyError(f"probabilities {values} do not form a distribution")
        with np.errstate(divide="ignore"):
            return cls(np.log(values))

    def outputs(self, states: Any = None) -> Float[Array, " a"]:
        return jnp.asarray(self.logits)


class TabularPolicy(DiscretePolicy):
    """One row of logits per state; states are integers."""

    table: Float[ArrayLike, "s a"]

    def __init__(self, table: Any) -> None:
        self.table = parameter("table", table, 2, impossible=True)

    def outputs(self, states: Any = None) -> Float[Array, "... a"]:
        rows = _states(self, states)
        # A state outside the table is undefined, not the last one: NaN keeps the gate shut.
        return jnp.asarray(self.table).at[rows].get(mode="fill", fill_value=jnp.nan)


class LinearPolicy(DiscretePolicy):
    """Logits linear in the state's features."""

    weights: Float[ArrayLike, "f a"]
    bias: Float[ArrayLike, " a"]

    def __init__(self, weights: Any, bias: Any) -> None:
        self.weights = parameter("weights", weights, 2)
        self.bias = parameter("bias", bias, 1, impossible=True)
        require_fit("weights", self.weights.shape[1], "bias", self.bias.shape[0])

    def outputs(self, states: Any = None) -> Float[Array, "... a"]:
        return _states(self, states) @ jnp.asarray(self.weights) + jnp.asarray(self.bias)


class MLPPolicy(DiscretePolicy):
    """Logits from a tanh network over the state's features; layers are (weights, bias) pairs."""

    layers: tuple[tuple[ArrayLike, ArrayLike], ...]

    def __init__(self, layers: Any) -> None:
        self.layers = network_layers(layers)

    @classmethod
    def init(cls, sizes: tuple[int, ...], *, seed: int = 0) -> Self:
        """Random hidden layers and a zero last layer: the uniform policy to begin with."""
        if not isinstance(sizes, list | tuple) or len(sizes) < 2:
            raise PolicyError(f"sizes is {shown(sizes)}.", expected="as in (features, hidden, actions)")
        sizes = tuple(whole("sizes", one, 1) for one in sizes)
        rng = np.random.default_rng(seed_of(seed))
        hidden = [
            (rng.normal(0.0, fan_in**-0.5, (fan_in, fan_out)), np.zeros(fan_out))
            for fan_in, fan_out in itertools.pairwise(sizes[:-1])
        ]
        return cls([*hidden, (np.zeros(sizes[-2:]), np.zeros(sizes[-1]))])

    def outputs(self, states: Any = None) -> Float[Array, "... a"]:
        hidden = _states(self, states)
        for weights, bias in self.layers[:-1]:
            hidden = jnp.tanh(hidden @ jnp.asarray(weights) + jnp.asarray(bias))
        weights, bias = self.layers[-1]
        return hidden @ jnp.asarray(weights) + jnp.asarray(bias)


class ExploringPolicy(DiscretePolicy):
    """Another policy, mixed with chance so that no action is rarer than `min_probability`.

    With A actions, π(a) = m + (1 − A·m)·π₀(a). The outputs are log π, which are logits of π too.
    """

    policy: DiscretePolicy
    min_probability: float = eqx.field(static=True)

    def __init__(self, policy: DiscretePolicy, min_probability: float) -> None:
        self.policy = policy
        self.min_probability = number("min_probability", min_probability, 0, below=1)

    def outputs(self, states: Any = None) -> Float[Array, "... a"]:
        probs = jax.nn.softmax(self.policy.outputs(states))
        check_min_probability(self.min_probability, probs.shape[-1])
        return jnp.log(self.min_probability + (1 - probs.shape[-1] * self.min_probability) * probs)


class ContinuousPolicy(ParametricPolicy):
    """Independent normal distributions; outputs are the means, then the log standard deviations."""

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        if log.num_actions is not None:
            raise PolicyError(
                f"the policy acts continuously, the log has {log.num_actions} discrete actions.",
                remedy="Build the log with propensity=Propensity.LOG_DENSITY.",
            )
        return super().logged_log_probs(log)

    def _moments(self, states: Any) -> tuple[Float[Array, "... a"], Float[Array, "... a"]]:
        mean, log_std = jnp.split(self.outputs(states), 2, axis=-1)
        return mean, log_std

    def log_prob(self, actions: Any, states: Any = None) -> Float[Array, "..."]:
        mean, log_std = self._moments(states)
        scores = jax.scipy.stats.norm.logpdf(jnp.asarray(actions), mean, jnp.exp(log_std))
        return jnp.sum(scores, axis=-1)

    def sample(self, key: PRNGKeyArray, states: Any = None) -> Float[Array, "... a"]:
        mean, log_std = self._moments(states)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def entropy(self, states: Any = None) -> Float[Array, "..."]:
        _, log_std = self._moments(states)
        return jnp.sum(log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e), axis=-1)

    def output_fisher(self, outputs: Float[Array, " p"]) -> Float[Array, "p p"]:
        _, log_std = jnp.split(outputs, 2)
        return jnp.diag(jnp.concatenate([jnp.exp(-2 * log_std), jnp.full_like(log_std, 2.0)]))


class GaussianPolicy(ContinuousPolicy):
    """One normal distribution per action coordinate, whatever the state."""

    mean: Float[ArrayLike, " a"]
    log_std: Float[ArrayLike, " a"]

    def __init__(self, mean: Any, log_std: Any) -> None:
        self.mean = parameter("mean", mean, 1)
        self.log_std = parameter("log_std", log_std, 1)
        require_fit("mean", self.mean.shape[0], "log_std", self.log_std.shape[0])

    def outputs(self, states: Any = None) -> Float[Array, " p"]:
        return jnp.concatenate([jnp.asarray(self.mean), jnp.asarray(self.log_std)])


class LinearGaussianPolicy(ContinuousPolicy):
    """Means linear in the state's features, constant standard deviations."""

    weights: Float[ArrayLike, "f a"]
    bias: Float[ArrayLike, " a"]
    log_std: Float[ArrayLike, " a"]

    def __init__(self, weights: Any, bias: Any, log_std: Any) -> None:
        self.weights = parameter("weights", weights, 2)
        self.bias = parameter("bias", bias, 1)
        self.log_std = parameter("log_std", log_std, 1)
        require_fit("weights", self.weights.shape[1], "bias", self.bias.shape[0])
        require_fit("bias", self.bias.shape[0], "log_std", self.log_std.shape[0])

    def outputs(self, states: Any = None) -> Float[Array, "... p"]:
        mean = _states(self, states) @ jnp.asarray(self.weights) + jnp.asarray(self.bias)
        log_std = jnp.broadcast_to(jnp.asarray(self.log_std), mean.shape)
        return jnp.concatenate([mean, log_std], axis=-1)


class LoggedPolicy(Policy):
    """A policy that is known only through the log: it can be evaluated, but not act."""

    def log_prob(self, *given: Any, **named: Any) -> Any:
        raise PolicyError(
            f"{self} is known only through the log.",
            remedy="It can be evaluated and tested, but it can neither act nor start a search.",
        )

    sample = entropy = log_prob


class BehaviorPolicy(LoggedPolicy):
    """Whatever collected the log: every ratio is 1, and the returns are the observed ones."""

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        return jnp.asarray(log.behavior_log_probs)

    def name_in(self, log: MeasuredLog) -> str | None:
        return None

    def __str__(self) -> str:
        return "the behaviour policy"


class RecordedPolicy(LoggedPolicy):
    """A policy that lives in another program: its probabilities, of logged or all actions, are in the log."""

    name: str = eqx.field(static=True, converter=lambda one: text("the name of a policy", one))

    def logged_log_probs(self, log: EpisodeLog) -> Float[Array, "n t"]:
        table = self.action_log_probs(log)
        if table is None:
            return self._recorded(log)
        return jnp.take_along_axis(table, jnp.asarray(log.actions)[..., None], axis=-1)[..., 0]

    def action_log_probs(self, log: EpisodeLog) -> Float[Array, "*cells a"] | None:
        recorded = self._recorded(log)
        return None if recorded.ndim == log.mask.ndim else recorded

    def name_in(self, log: MeasuredLog) -> str | None:
        return self.name if self.name in log.returns else super().name_in(log)

    def _recorded(self, log: EpisodeLog) -> Float[Array, "..."]:
        if self.name not in log.recorded:
            raise PolicyError(
                f"the log holds no probabilities of policy '{self.name}'.",
                expected=f"one of {sorted(log.recorded)}",
                remedy=f"Pass recorded={{'{self.name}': …}} when you build the log.",
            )
        return jnp.asarray(log.recorded[self.name])

    def __str__(self) -> str:
        return f"policy '{self.name}'"


class MeasuredPolicy(RecordedPolicy):
    """A policy whose returns were estimated while the log was read; its digest is that of the policy."""

    origin: str = eqx.field(static=True)

    def digest(self) -> str:
        return self.origin


class ObservedPolicy(BehaviorPolicy):
    """The policy that logged the episodes, under whatever name; its digest is that of the policy so named."""

    origin: str = eqx.field(static=True)

    def digest(self) -> str:
        return self.origin


def lists_actions(policy: Policy, log: EpisodeLog) -> bool:
    """Whether the policy gives a probability to every action of the log, and to no other."""
    if log.num_actions is None:
        return False
    found = jax.eval_shape(lambda: policy.action_log_probs(log))
    return found is not None and bool(found.shape[-1] == log.num_actions)


def _states(policy: Policy, states: Any) -> Shaped[Array, "..."]:
    if states is None:
        raise PolicyError(
            f"{type(policy).__name__} needs states, and the log has none.",
            remedy="Give the log states or features, or use SoftmaxPolicy or GaussianPolicy.",
        )
    return jnp.asarray(states)


CLASSES: dict[str, type[Policy]] = {
    cls.__name__: cls
    for cls in (
        SoftmaxPolicy,
        TabularPolicy,
        LinearPolicy,
        MLPPolicy,
        GaussianPolicy,
        LinearGaussianPolicy,
        RecordedPolicy,
    )
}


def policy_values(policy: Policy) -> dict[str, Any]:
    """The class and the fields of a policy in JSON values: what `save_policy` writes."""
    if isinstance(policy, ExploringPolicy):
        return {**policy_values(policy.policy), "min_probability": policy.min_probability}
    if type(policy).__name__ not in CLASSES:
        raise PolicyError(f"{type(policy).__name__} is not one of {sorted(CLASSES)}")
    return {"policy": type(policy).__name__, **{name: _encode(value) for name, value in vars(policy).items()}}


def _encode(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Policy):
        return policy_values(value)
    if isinstance(value, tuple):
        return [_encode(one) for one in value]
    array = np.asarray(value)
    return {"dtype": str(array.dtype), "shape": array.shape, "values": array.ravel().tolist()}
