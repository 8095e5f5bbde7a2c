"""What would change a verdict: how far it is from turning, and how much more data would help.

A constant that is added to the candidate's return moves its bound by as much. So the bound itself says how
far the verdict is from turning.
"""

from collections.abc import Iterator

from ..reasons import Reason, Verdict
from .log_words import Plain
from .numbers import figure, signed

UNDECIDED = (Reason.NOT_BETTER.name, Reason.SCALES_DISAGREE.name)
MORE_DATA = (*UNDECIDED, Reason.NO_EPISODES.name, Reason.TOO_FEW_EPISODES.name)


def what_would_change(data: Plain) -> list[str]:
    """Sentences, from the record of a gate."""
    if data["verdict"] == Verdict.DEPLOY.name:
        return list(_until_shut(data))
    return [*_broken_guardrails(data), *_until_open(data)]


def _until_shut(data: Plain) -> Iterator[str]:
    lower = data["advantage"]["lower"]
    if lower is not None and lower > 0:
        yield (
            f"It holds unless the advantage falls by more than {figure(lower, 3)} per episode below what the "
            "models allow for."
        )
    yield "It is a forecast for this time only: ask again when it is over."


def _until_open(data: Plain) -> Iterator[str]:
    reason, advantage = data["reason"], data["advantage"]
    lower = advantage["lower"]
    if reason == Reason.NOT_BETTER.name and (advantage["upper"] or 0.0) < -advantage["margin"]:
        yield (
            f"Another candidate. Even the upper bound of the advantage, {signed(advantage['upper'], 3)}, is "
            "below zero: more data is not expected to help."
        )
        return
    if reason in UNDECIDED and lower is not None:
        yield (
            f"{figure(-lower, 3)} more per episode from the candidate would open the gate: that is how far "
            "the bound is from zero."
        )
    if reason == Reason.RANGE_DISAGREES.name:
        bound = signed(data["range"]["lower"], 3)
        yield f"The bound for the range of the rewards, {bound}, would have to be above zero."
    if reason == Reason.NOT_GUARANTEED.name:
        yield "By its numbers the candidate passes. What is named below would have to be fixed."
    if reason in MORE_DATA and data.get("outlook"):
        yield data["outlook"]["sentence"]


def _broken_guardrails(data: Plain) -> Iterator[str]:
    rails = data["guardrails"]["outcomes"] if data.get("guardrails") else []
    for one in rails:
        if not one["holds"]:
            yield (
                f"The guardrail ‘{one['outcome']}’ would have to hold: its worst change is "
                f"{signed(one['bound'], 3)}, and its margin is {figure(one['margin'], 3)}."
            )
