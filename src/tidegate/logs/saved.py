"""Saved policies as policies that can be tested: the strict reader is that of `tidegate.serving`."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import PolicyError
from ..policies import CLASSES, ExploringPolicy, Policy
from ..serving import PolicyFile, read_policy_file
from ..serving.features import Feature
from ..serving.files import DecisionLink


def load_policy(path: str | Path) -> Policy:
    """Read what `improve` or `save_policy` wrote."""
    return policy_of(read_policy_file(path))


def policy_of(file: PolicyFile) -> Policy:
    """The policy that a file describes; it takes its inputs in the file's order."""
    policy: Any = CLASSES[file.policy](**{name: _kept(value) for name, value in file.parameters.items()})
    return ExploringPolicy(policy, file.min_probability) if file.min_probability else policy


def file_of(
    policy: Policy,
    actions: tuple[str | int, ...],
    features: tuple[Feature, ...],
    decision: DecisionLink | None = None,
) -> PolicyFile:
    """What the file of a policy says, with names for its actions and for what it looks at."""
    least, bare = 0.0, policy
    if isinstance(policy, ExploringPolicy):
        least, bare = policy.min_probability, policy.policy
    if type(bare).__name__ not in CLASSES:
        raise PolicyError(f"{type(bare).__name__} is not one of {sorted(CLASSES)}")
    parameters = {name: _plain(value) for name, value in vars(bare).items()}
    file = PolicyFile(type(bare).__name__, parameters, least, actions, features, decision)
    # A policy that looks at nothing needs no column when it is served.
    return file if file.width != 0 else PolicyFile(file.policy, parameters, least, actions, (), decision)


def _kept(value: Any) -> Any:
    """32-bit numbers are JAX's, since constructors hold all others in 64-bit."""
    if isinstance(value, tuple):
        return tuple(_kept(one) for one in value)
    return jnp.asarray(value) if getattr(value, "dtype", None) == np.float32 else value


def _plain(value: Any) -> Any:
    return tuple(_plain(one) for one in value) if isinstance(value, tuple) else np.asarray(value)
