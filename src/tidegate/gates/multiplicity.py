"""Several hypotheses, one error rate: Bonferroni's and Holm's rules. Imports no numerical library."""

import enum
import math
from collections.abc import Sequence

PValues = Sequence[float | None]


class Multiplicity(enum.StrEnum):
    """How the level of several tests is shared.

    `NONE` tests each at α. All must pass before the gate opens, so even this allows a wrong deployment
    with probability α only (the intersection–union test of Berger, 1982). The others guarantee more: with
    probability 1 − α every outcome that is reported to pass does pass, even when the gate stays shut.
    """

    HOLM = "holm"
    """Holm (1979), step down: α/m for the smallest p-value, α/(m − 1) for the next, …, α for the last."""
    BONFERRONI = "bonferroni"
    """α/m each."""
    NONE = "none"
    """α each."""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Multiplicity.HOLM: (
        "The smallest of the m p-values must be at most α/m, the next α/(m − 1), and so on to α "
        "(Holm, 1979): with probability 1 − α, every outcome that is said to pass does."
    ),
    Multiplicity.BONFERRONI: (
        "Each of the m tests has level α/m (Bonferroni): with probability 1 − α, every outcome that is "
        "said to pass does, and all bounds hold."
    ),
    Multiplicity.NONE: (
        "Each test has level α. As all must pass, a wrong deployment has probability α at most "
        "(Berger, 1982); statements about single outcomes are not corrected for their number."
    ),
}


def bonferroni(p_values: PValues, alpha: float) -> tuple[bool, ...]:
    """Which hypotheses are rejected at α/m each; a missing p-value is never rejected."""
    level = _checked(alpha) / max(len(p_values), 1)
    return tuple(_or_infinity(p) <= level for p in p_values)


def holm(p_values: PValues, alpha: float) -> tuple[bool, ...]:
    """Which hypotheses Holm's step-down rule (1979) rejects, in the order given.

    With probability 1 − α no true hypothesis is rejected, however the tests depend on each other. A
    missing p-value (None, NaN) is never rejected, but counts among the m.
    """
    levels = holm_levels(p_values, alpha)
    return tuple(_or_infinity(p) <= level for p, level in zip(p_values, levels, strict=True))


def holm_levels(p_values: PValues, alpha: float) -> tuple[float, ...]:
    """The level that each p-value is compared with: α/m for the smallest, α/(m − 1) for the next, ….

    The first one above its level ends the steps: those after it are larger, and get its level too.
    So a hypothesis is rejected if and only if its p-value is at most its level.
    """
    _checked(alpha)
    values = [_or_infinity(p) for p in p_values]
    levels, level = [math.nan] * len(values), 0.0
    stopped = False
    for step, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        level = level if stopped else alpha / (len(values) - step)
        stopped = stopped or not values[place] <= level
        levels[place] = level
    return tuple(levels)


def _or_infinity(p_value: float | None) -> float:
    return p_value if p_value is not None and 0 <= p_value <= 1 else math.inf


def _checked(alpha: float) -> float:
    from ..inputs import number  # which knows NumPy's numbers

    return number("alpha", alpha, above=0, below=1)
