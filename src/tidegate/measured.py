"""Episodes of which only what was estimated is held: one row each, whatever their length."""

import dataclasses
from functools import partial
from typing import Any, Self

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from .arrays import ArrayLike, Integers, map_leaves, times_sign
from .episodes import EpisodeLog, include


class MeasuredLog(EpisodeLog):
    """Episodes whose returns were estimated while they were read: one row each, whatever its length.

    The row holds what was observed and, of each policy by name, the estimated return, the ratio of the whole
    episode (`recorded`, as a logarithm) and, if there are several steps, the stopped ratio and the largest
    ratio on the way (`peaks`, as a logarithm). `gaps` hold the difference of two policies where it is
    estimated by itself. The same quantities are in `others` for each outcome, by name. `contexts` says
    whether the log's actions had different probabilities at different steps: the same for each row.
    """

    sizes: Int[ArrayLike, " n"] = eqx.field(kw_only=True)
    stopped: dict[str, Float[ArrayLike, " n"]] = eqx.field(kw_only=True)
    peaks: dict[str, Float[ArrayLike, " n"]] = eqx.field(kw_only=True)
    returns: dict[str, Float[ArrayLike, " n"]] = eqx.field(kw_only=True)
    gaps: tuple[Float[ArrayLike, " n"], ...] = eqx.field(kw_only=True, default=())
    others: "dict[str, Estimates]" = eqx.field(kw_only=True, default_factory=dict)
    contexts: Bool[ArrayLike, " n"] = eqx.field(kw_only=True)

    @property
    def lengths(self) -> Integers:
        return np.where(np.asarray(self.present), np.asarray(self.sizes), 0)

    @property
    def num_logged_steps(self) -> int:
        return int(np.sum(self.lengths))

    def with_outcome(self, name: str, sign: float = 1.0) -> Self:
        measured = super().with_outcome(name, sign)
        signed = map_leaves(partial(times_sign, sign=sign), self.others[name])
        return dataclasses.replace(measured, returns=signed.returns, gaps=signed.gaps, others={})

    def of_rewards(self) -> Self:
        return dataclasses.replace(super().of_rewards(), others={})

    def _hashed(self) -> Any:
        sha = super()._hashed()
        rest = (self.stopped, self.peaks, self.returns, self.gaps, self.others, self.contexts)
        include(sha, rest, np.asarray(self.present))
        return sha


class Estimates(eqx.Module):
    """Estimated returns of each policy, by name, and the two parts of their `Gap`, if that is estimated."""

    returns: dict[str, Float[ArrayLike, " n"]]
    gaps: tuple[Float[ArrayLike, " n"], ...] = ()
