"""Where a search begins: the behaviour's own action frequencies, whatever the state.

There the importance ratios are near 1. The search sees standardised features; afterwards the scaling is
folded into the first layer, so that the saved policy takes the features as the log has them.
"""

import dataclasses
from typing import Any

import numpy as np

from ..arrays import Floats, replace_at
from ..episodes import EpisodeLog, TrainingEpisodes
from ..errors import SettingsError
from ..inputs import check_min_probability
from ..policies import (
    DiscretePolicy,
    ExploringPolicy,
    GaussianPolicy,
    LinearGaussianPolicy,
    LinearPolicy,
    MLPPolicy,
    ParametricPolicy,
    SoftmaxPolicy,
)
from .choices import PolicyClass
from .settings import SearchChoices


@dataclasses.dataclass(frozen=True, eq=False)
class Scaling:
    """x ↦ (x − center)/scale; None where the states are not features."""

    center: Floats
    scale: Floats

    def apply(self, training: TrainingEpisodes) -> TrainingEpisodes:
        """The same episodes with standardised features."""
        states = (np.asarray(training.log.states) - self.center) / self.scale
        log = dataclasses.replace(training.log, states=states)
        return TrainingEpisodes(log, training.span)

    def undo(self, policy: ParametricPolicy) -> ParametricPolicy:
        """The equivalent policy on the raw features."""
        if isinstance(policy, ExploringPolicy):
            return replace_at(lambda one: one.policy, policy, self.undo(policy.policy))
        if isinstance(policy, MLPPolicy):
            first, *rest = policy.layers
            return MLPPolicy([self._layer(*first), *rest])
        if isinstance(policy, LinearPolicy):
            return LinearPolicy(*self._layer(policy.weights, policy.bias))
        if isinstance(policy, LinearGaussianPolicy):
            return LinearGaussianPolicy(*self._layer(policy.weights, policy.bias), policy.log_std)
        return policy

    def _layer(self, weights: Any, bias: Any) -> tuple[Floats, Floats]:
        scaled = np.asarray(weights) / self.scale[:, None]
        return scaled, np.asarray(bias) - self.center @ scaled


def feature_scaling(log: EpisodeLog) -> Scaling | None:
    """The mean and spread of the features in these episodes."""
    if log.states is None or np.ndim(log.states) == log.mask.ndim:
        return None
    features = np.asarray(log.states, np.float64)[np.asarray(log.mask)]
    spread = features.std(axis=0)
    return Scaling(features.mean(axis=0), np.where(spread > 0, spread, 1.0))


def resolve_class(choices: SearchChoices, log: EpisodeLog) -> PolicyClass:
    """The class to search in; one that does not fit the actions or the features is refused."""
    continuous, features = log.num_actions is None, feature_scaling(log) is not None
    wanted = choices.policy_class
    if wanted is PolicyClass.AUTO:
        if continuous:
            return PolicyClass.GAUSSIAN
        return PolicyClass.LINEAR if features else PolicyClass.SOFTMAX
    if continuous != (wanted is PolicyClass.GAUSSIAN):
        raise SettingsError(
            f"{wanted} policies do not fit {'continuous' if continuous else 'discrete'} actions.",
            expected="gaussian for continuous actions, softmax, linear or mlp for discrete ones",
        )
    if wanted in (PolicyClass.LINEAR, PolicyClass.MLP) and not features:
        raise SettingsError(
            f"{wanted} policies need features.", remedy="Name them, as in `features=['age', 'load']`."
        )
    return wanted


def require_exploration(choices: SearchChoices, log: EpisodeLog) -> None:
    """The actions of this log can all keep the least probability that was chosen."""
    if choices.min_probability == 0:
        return
    if log.num_actions is None:
        raise SettingsError(
            f"min_probability is {choices.min_probability:g}, and the actions are continuous.",
            remedy="Leave it out: a density has no least probability.",
        )
    check_min_probability(choices.min_probability, log.num_actions)


def start_policy(choices: SearchChoices, log: EpisodeLog, *, seed: int) -> ParametricPolicy:
    """The policy to begin with: of the chosen class, and as close to the behaviour as a constant can be."""
    start = _bare_start(choices, log, seed)
    if choices.min_probability == 0 or not isinstance(start, DiscretePolicy):
        return start
    return ExploringPolicy(start, choices.min_probability)


def _bare_start(choices: SearchChoices, log: EpisodeLog, seed: int) -> ParametricPolicy:
    kind, scaling = resolve_class(choices, log), feature_scaling(log)
    width = 0 if scaling is None else scaling.center.size
    if kind is PolicyClass.GAUSSIAN:
        return _gaussian(log, width)
    logits = np.log(_shares(log))
    if kind is PolicyClass.SOFTMAX:
        return SoftmaxPolicy(logits)
    if kind is PolicyClass.LINEAR:
        return LinearPolicy(np.zeros((width, logits.size)), logits)
    network = MLPPolicy.init((width, choices.hidden, logits.size), seed=seed)
    *hidden, (weights, _) = network.layers
    return MLPPolicy([*hidden, (weights, logits)])


def _shares(log: EpisodeLog) -> Floats:
    """Add one half to each count, so that no action is impossible."""
    if log.num_actions is None:
        raise SettingsError("continuous actions have no shares.")
    taken = np.asarray(log.actions)[np.asarray(log.mask)].astype(np.int64)
    counts = np.bincount(taken, minlength=log.num_actions) + 0.5
    return np.asarray(counts / counts.sum())


def _gaussian(log: EpisodeLog, width: int) -> ParametricPolicy:
    actions = np.asarray(log.actions, np.float64)[np.asarray(log.mask)]
    actions = actions.reshape(actions.shape[0], -1)
    mean, spread = actions.mean(axis=0), actions.std(axis=0)
    log_std = np.log(np.where(spread > 0, spread, 1.0))
    if width == 0:
        return GaussianPolicy(mean, log_std)
    return LinearGaussianPolicy(np.zeros((width, mean.size)), mean, log_std)
