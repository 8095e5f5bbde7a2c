"""Does the log show what the policy does? Counts of the actions, and the policy's shares of them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float

from ..arrays import ArrayLike, Floats, in_double, kept
from ..episodes import EpisodeLog, roomy
from ..policies import DiscretePolicy, Policy, lists_actions
from ..returns import log_ratios
from ..safety import RATIO_TOLERANCE
from .findings import NUMBERED, Finding, Level, Names, found, undetermined

FEW_USES = 10
RARE_SHARE = 0.01
STRAY_SHARE = 1e-4
CHUNK = 2**22  # action probabilities held at a time
LISTED = 5


@dataclasses.dataclass(frozen=True, eq=False)
class ActionSupport:
    """How often the log takes each action, and how often the policy would in the logged states.

    Where only its probabilities of the logged actions are known, its shares are estimated by importance
    sampling, which misses actions that the log never shows.
    """

    counts: npt.NDArray[np.int64]
    policy_shares: Floats | None

    @property
    def unseen(self) -> npt.NDArray[np.intp]:
        """Actions that the policy takes and the log never shows."""
        return np.flatnonzero((self.counts == 0) & (self._shares > 0))

    @property
    def rare(self) -> npt.NDArray[np.intp]:
        """Actions that the policy takes at least one time in a hundred and the log hardly ever shows."""
        few = (self.counts > 0) & (self.counts < FEW_USES)
        return np.flatnonzero(few & (self._shares >= RARE_SHARE))

    @property
    def unseen_share(self) -> float:
        """How often the policy takes actions that the log never shows."""
        return float(self._shares[self.unseen].sum())

    @property
    def _shares(self) -> Floats:
        return np.zeros(self.counts.size) if self.policy_shares is None else self.policy_shares


@in_double
def action_support(log: EpisodeLog, policy: Policy | None) -> ActionSupport | None:
    """Counts of the actions, and the policy's shares of them; None for continuous actions."""
    num_actions, log = log.num_actions, roomy(log)
    if num_actions is None:
        return None
    mask = np.asarray(log.mask)
    taken = np.asarray(log.actions)[mask].astype(np.int64)
    counts = np.bincount(taken, minlength=num_actions)
    if policy is None:
        return ActionSupport(counts, None)
    if isinstance(policy, DiscretePolicy):
        shares = _chosen_shares(policy, log)
    elif lists_actions(policy, log):
        listed = np.exp(np.asarray(policy.action_log_probs(log))[mask])
        shares = listed.sum(axis=0) / max(taken.size, 1)
    else:
        with np.errstate(over="ignore"):  # an infinite share is reported as undetermined
            ratios = np.exp(np.asarray(log_ratios(policy, log))[mask])
        shares = np.bincount(taken, ratios, num_actions) / max(taken.size, 1)
    return ActionSupport(np.pad(counts, (0, shares.size - counts.size)), shares)


def _chosen_shares(policy: DiscretePolicy, log: EpisodeLog) -> Floats:
    """The policy's action probabilities, averaged over the logged states."""
    policy.logged_log_probs(log.take(slice(0, 1)))  # raises an error if the policy does not fit the log
    first = jax.eval_shape(lambda: policy.outputs(log.states))
    if first.ndim == 1:
        return np.exp(np.asarray(policy.log_probs(), np.float64))
    size = max(1, CHUNK // int(np.prod(first.shape[1:])))
    states: Any = log.states
    parts = [slice(start, start + size) for start in range(0, log.mask.shape[0], size)]
    sums = [_summed_probs(policy, states[part], log.mask[part]) for part in parts]
    return np.asarray(np.sum(sums, axis=0) / max(1, np.sum(log.mask)), np.float64)


@kept
def _summed_probs(policy: DiscretePolicy, states: Any, mask: Bool[ArrayLike, "..."]) -> Float[Array, " a"]:
    probs = jnp.exp(policy.log_probs(states))
    return jnp.sum(jnp.where(mask[..., None], probs, 0.0), axis=tuple(range(mask.ndim)))


def support_finding(
    policy: Policy, log: EpisodeLog, actions: ActionSupport, names: Names = NUMBERED
) -> Finding:
    """How often does the policy take actions that the log never shows, and which does it show too rarely?"""
    name = "action_support"
    if actions.policy_shares is None or not np.all(np.isfinite(actions.policy_shares)):
        return undetermined(name, "a probability of the policy is not a finite number")
    share, rare = actions.unseen_share, _listed(actions.rare, names)
    level = Level.NOTE if rare else Level.OK
    if not isinstance(policy, DiscretePolicy) and not lists_actions(policy, log):
        sentence = "Actions that the log never shows cannot be seen here: look at the mean ratio."
    elif share <= STRAY_SHARE:
        sentence = "The log shows every action that the policy takes."
    else:
        level = Level.WARNING if share > RATIO_TOLERANCE else Level.NOTE
        sentence = (
            f"The policy takes actions that the log never shows, {share:.1%} of the time "
            f"(actions {_listed(actions.unseen, names)}): nothing is known about them."
        )
    if rare:
        sentence += f" Shown fewer than {FEW_USES} times: actions {rare}."
    return found(name, share, sentence, level=level)


def _listed(actions: npt.NDArray[np.intp], names: Names) -> str:
    listed = ", ".join(names.action(int(action)) for action in actions[:LISTED])
    return listed + (f" and {actions.size - LISTED} more" if actions.size > LISTED else "")
