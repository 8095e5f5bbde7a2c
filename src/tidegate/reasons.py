"""What a test concludes, and why: words for people, four words for machines. DEPLOY has one reason only."""

import enum

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .cells import MIN_CELLS, PER_CELL

MIN_EPISODES = 10


class Verdict(enum.Enum):
    """What to do."""

    DEPLOY = "deploy the candidate"
    KEEP = "keep the safe policy"


class Status(enum.StrEnum):
    """The outcome in the words of deployment pipelines."""

    PASS = "pass"
    """DEPLOY."""
    INCONCLUSIVE = "inconclusive"
    """KEEP for want of evidence."""
    FAIL = "fail"
    """KEEP because harm is shown, or because a guardrail blocks."""
    ERROR = "error"
    """Nothing could be decided: the log is unfit."""


class Reason(enum.IntEnum):
    """Why, in the order in which the test checks. Only the first one deploys."""

    BETTER = 0
    NO_EPISODES = 1
    TOO_FEW_EPISODES = 2
    LOG_FULL = 3
    SINGULAR_TREND = 4
    LOOKAHEAD_TOO_LONG = 5
    FEW_DECIDE = 6
    SUPPORT = 7
    NO_VARIATION = 8
    NOT_FINITE = 9
    BUDGET_SPENT = 10
    SCALES_DISAGREE = 11
    NOT_BETTER = 12
    RANGE_DISAGREES = 14
    NOT_GUARANTEED = 15

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Reason.BETTER: "the candidate is forecast to beat the safe policy, beyond chance.",
    Reason.NO_EPISODES: "there is no test episode. Hold some out: lower `train_fraction`, or collect.",
    Reason.TOO_FEW_EPISODES: (
        f"there are too few test episodes (at least {MIN_EPISODES}, {MIN_CELLS * PER_CELL} for a mixture of "
        "trend models, and two per feature of a basis, at different times). Collect more, or use a smaller "
        "basis."
    ),
    Reason.LOG_FULL: (
        "the log's capacity was exhausted and episodes were lost. Start again with a larger capacity."
    ),
    Reason.SINGULAR_TREND: (
        "the trend cannot be identified from these episode times (the design is singular). "
        "Use a smaller basis or a longer log."
    ),
    Reason.LOOKAHEAD_TOO_LONG: (
        "the log is too short to try this lookahead on its past, and a forecast that was never tried is no "
        "evidence. Shorten the lookahead, or collect more."
    ),
    Reason.FEW_DECIDE: (
        "the forecast rests on very few episodes because of when they happened. Check the times of the last "
        "episodes for mistakes, or wait until there are more after the gap."
    ),
    Reason.SUPPORT: (
        "the importance ratios of a policy do not average to one: it takes actions that the log "
        "does not support, or the logged propensities are wrong. Collect with more exploration, or "
        "check the propensities."
    ),
    Reason.NO_VARIATION: (
        "the estimated returns show no variation about their trend, so they carry no evidence. "
        "Check the rewards and the policies' probabilities."
    ),
    Reason.NOT_FINITE: (
        "a bound is not a finite number. Check for extreme rewards or ratios, or raise the number of draws."
    ),
    Reason.BUDGET_SPENT: (
        "the error budget has nothing for this test, so it cannot open the gate. Set a new budget for new "
        "episodes, and tell your readers."
    ),
    Reason.NOT_BETTER: (
        "the candidate is not forecast to beat the safe policy, beyond chance. Collect more episodes, or "
        "propose a candidate with a clearer advantage."
    ),
    Reason.SCALES_DISAGREE: (
        "the candidate is ahead if its advantage stays on the line through the log, but models that let it "
        "move, or that follow the latest episodes, are not convinced. Wait for more episodes, or shorten the "
        "lookahead."
    ),
    Reason.RANGE_DISAGREES: (
        "the candidate is forecast to beat the safe policy, but with rewards in the given range, there are "
        "too few episodes to rule out chance without an approximation. Collect more, or give a narrower "
        "range if it is true."
    ),
    Reason.NOT_GUARANTEED: (
        "the candidate is forecast to beat the safe policy, but that is not guaranteed. Fix what the "
        "caveats name, or accept the risk knowingly (`allow_unguaranteed=True`)."
    ),
}


def first_doubt(doubts: dict[Reason, Bool[Array, ""]]) -> Int[Array, ""]:
    """Every doubt must be a definite False before BETTER is reached."""
    ordered = sorted(doubts)
    return jnp.select(
        [doubts[reason] for reason in ordered],
        [jnp.int32(reason) for reason in ordered],
        jnp.int32(Reason.BETTER),
    )


def earlier_doubt(one: Int[Array, ""], other: Int[Array, ""]) -> Int[Array, ""]:
    """Of two reasons, the one that is checked first; BETTER only if both are."""
    both = (one != Reason.BETTER) & (other != Reason.BETTER)
    return jnp.where(both, jnp.minimum(one, other), jnp.maximum(one, other))
