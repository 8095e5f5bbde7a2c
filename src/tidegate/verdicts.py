"""What the gate may say, as sentences with cause and remedy."""

import enum

MIN_EPISODES = 10


class Verdict(enum.Enum):
    """What to do."""

    DEPLOY = "deploy the candidate"
    KEEP = "keep the safe policy"


class Reason(enum.IntEnum):
    """Why; in the order in which the test asks. Only the first one deploys."""

    BETTER = 0
    NO_EPISODES = 1
    TOO_FEW_EPISODES = 2
    LOG_FULL = 3
    SINGULAR_TREND = 4
    SUPPORT = 5
    NO_VARIATION = 6
    NOT_FINITE = 7
    BUDGET_SPENT = 8
    NOT_FORECASTABLE = 9
    NOT_BETTER = 10
    SCALES_DISAGREE = 11

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Reason.BETTER: "the candidate is forecast to beat the safe policy, beyond chance.",
    Reason.NO_EPISODES: "there is no test episode. Hold some out: lower train_fraction, or collect.",
    Reason.TOO_FEW_EPISODES: (
        f"there are too few test episodes (at least {MIN_EPISODES}, as many as the shortest time scale "
        "has, and two per feature of a basis). Collect more, or use a smaller basis."
    ),
    Reason.LOG_FULL: (
        "the log's capacity was exhausted and episodes were lost. Start again with a larger capacity."
    ),
    Reason.SINGULAR_TREND: (
        "the trend cannot be identified from these episode times (the design is singular). "
        "Use a smaller basis or a longer log."
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
        "a bound is not a finite number. Check for extreme rewards or ratios, or raise the number "
        "of draws."
    ),
    Reason.BUDGET_SPENT: (
        "the error budget has nothing for this test, so it cannot open the gate. Set a new budget for new "
        "episodes, and say so."
    ),
    Reason.NOT_FORECASTABLE: (
        "the trend is not forecastable: at every time scale, forecasts of the past missed by as much as "
        "there was to forecast. Shorten the lookahead, or gate more often."
    ),
    Reason.NOT_BETTER: (
        "the candidate is not forecast to beat the safe policy, beyond chance. Collect more episodes, or "
        "propose a candidate with a clearer advantage."
    ),
    Reason.SCALES_DISAGREE: (
        "the latest episodes point the other way: a shorter time scale forecasts a disadvantage, beyond "
        "chance. Wait for more episodes."
    ),
}
