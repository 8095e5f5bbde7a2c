"""A saved policy on a log, by the names of its actions and features, whatever their order in the log."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..door import check_finite
from ..errors import PolicyError
from ..inputs import did_you_mean
from ..policies import ContinuousPolicy, DiscretePolicy, ParametricPolicy, Policy
from ..serving import PolicyFile
from ..serving.features import Feature, inputs_of
from .encoding import encoded, features_of, require_known
from .reading import LoadedLog
from .saved import policy_of


class FittedPolicy(ParametricPolicy):
    """A policy whose inputs and actions are elsewhere in the log than in the policy.

    `places[i]` is the place of its i-th input in the log's states; beyond their end it is always 0: a
    category that the log does not have. `order[a]` is the policy's own number of the log's action a.
    """

    policy: ParametricPolicy
    places: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)

    def outputs(self, states: Any = None) -> Any:
        if self.places:
            states = jnp.take(
                jnp.asarray(states), np.array(self.places), axis=-1, mode="fill", fill_value=0.0
            )
        return self.policy.outputs(states)[..., np.array(self.order)]

    def digest(self) -> str:
        """That of the policy as it was saved."""
        return self.policy.digest()


class FittedDiscretePolicy(FittedPolicy, DiscretePolicy):
    """With probabilities of actions."""


class FittedContinuousPolicy(FittedPolicy, ContinuousPolicy):
    """With densities of actions."""


def by_name(file: PolicyFile, spec: str, loaded: LoadedLog) -> tuple[Policy, LoadedLog]:
    """The policy of a file on this log, and the log with all that the policy looks at.

    Columns that the policy names and nobody mapped are read as features. A file without names is taken by
    position.
    """
    policy = policy_of(file)
    if file.features is None or not isinstance(policy, ParametricPolicy):
        return policy, loaded
    loaded, order = _with_actions(file, spec, loaded)
    if file.width is None:
        _require_state(file, spec, loaded)
        return _fitted(policy, (), order), loaded
    loaded = _with_features(file, spec, loaded)
    there = {one: place for place, one in enumerate(inputs_of(loaded.features))}
    places = tuple(there.get(one, len(there)) for one in file.inputs)
    return _fitted(policy, () if places == tuple(range(len(there))) else places, order), loaded


def _fitted(policy: ParametricPolicy, places: tuple[int, ...], order: tuple[int, ...]) -> Policy:
    if not places and order == tuple(range(len(order))):
        return policy
    kind = FittedContinuousPolicy if isinstance(policy, ContinuousPolicy) else FittedDiscretePolicy
    return kind(policy, places, order)


def action_names(loaded: LoadedLog) -> tuple[str | int, ...]:
    """The labels of the log's actions, else their numbers; of continuous actions, the columns."""
    if loaded.log.num_actions is None:
        return loaded.columns.action_columns
    return loaded.labels or tuple(range(loaded.log.num_actions))


def _with_actions(file: PolicyFile, spec: str, loaded: LoadedLog) -> tuple[LoadedLog, tuple[int, ...]]:
    """The log, which also knows actions that it has not seen, and the policy's number of each action."""
    known = file.actions or ()
    if file.continuous:
        found = loaded.columns.action_columns
        if loaded.log.num_actions is None and found != known:
            raise PolicyError(f"{spec} has the actions {list(known)}, and the log has {list(found)}.")
        return loaded, tuple(range(2 * file.size))
    if loaded.log.num_actions is None or (known[0] == 0 and not loaded.labels):
        return loaded, tuple(range(file.size))
    labels = action_names(loaded)
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise PolicyError(
            f"{spec} knows the actions {list(known)}, and not {unknown[0]!r}, which the log has.",
            remedy="Use a policy over all actions of the log.",
        )
    labels = (*labels, *(one for one in known if one not in labels))
    order = tuple(known.index(one) for one in labels)
    log = loaded.log.with_actions(len(labels))
    return dataclasses.replace(loaded, log=log, labels=tuple(map(str, labels))), order


def _require_state(file: PolicyFile, spec: str, loaded: LoadedLog) -> None:
    name = file.inputs[0].name
    if loaded.columns.state != name:
        raise PolicyError(
            f"{spec} looks up the state in column '{name}', and the log is read with "
            f"{'no state' if loaded.columns.state is None else loaded.columns.state!r}.",
            remedy=f"Map it as the state (state = '{name}').",
        )


def _with_features(file: PolicyFile, spec: str, loaded: LoadedLog) -> LoadedLog:
    table, mapped = loaded.table, {one.name: one for one in loaded.features}
    missing = tuple(one for one in file.features or () if one.name not in mapped)
    _require_columns(missing, spec, loaded)
    for feature in file.features or ():
        _require_same_kind(feature, mapped.get(feature.name) or features_of(table, [feature.name])[0], spec)
        if feature.categories:
            require_known(table, feature)
    if not missing:
        return loaded
    values = encoded(table, missing)
    check_finite(values, "state", table.places)
    added, states = loaded.grid(values), loaded.log.states
    joined = added if states is None else np.concatenate([np.asarray(states), added], axis=-1)
    log = dataclasses.replace(loaded.log, states=joined)
    return dataclasses.replace(loaded, log=log, features=(*loaded.features, *missing))


def _require_columns(missing: tuple[Feature, ...], spec: str, loaded: LoadedLog) -> None:
    known, parts = loaded.table.frame.columns, loaded.columns.parts
    for one in missing:
        if one.name not in known:
            raise PolicyError(
                f"{spec} looks at column '{one.name}', and the log has none.{did_you_mean(one.name, known)}",
                expected=f"the columns {[feature.name for feature in missing]}",
            )
        if parts.get(one.name) in ("action", "behavior_prob", "reward", "outcomes"):
            raise PolicyError(
                f"{spec} looks at column '{one.name}', which is the log's {parts[one.name]}.",
                expected="columns that are known before the action is taken",
            )
    if missing and loaded.columns.state is not None:
        raise PolicyError(
            f"{spec} looks at features, and the log is read with the state '{loaded.columns.state}'.",
            remedy="Leave the state column out.",
        )


def _require_same_kind(feature: Feature, found: Feature, spec: str) -> None:
    if bool(feature.categories) != bool(found.categories):
        kinds = ("text", "numbers") if feature.categories else ("numbers", "text")
        raise PolicyError(
            f"{spec} was made for {kinds[0]} in column '{feature.name}', and the log has {kinds[1]} there."
        )
