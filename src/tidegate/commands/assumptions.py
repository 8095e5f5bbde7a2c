"""What a verdict takes for granted, because no log can show it; the verdict lists it."""

from collections.abc import Iterator

from ..gates.finite_sample import RangeBound
from .provenance import Provenance
from .settings import PlainSettings

PROPENSITIES = (
    "The logged probabilities are those with which the actions were drawn, and nothing outside the log "
    "influenced both an action and its reward."
)
SELECTION = "No episode is missing from the log because of how it went."
INDEPENDENCE = "Episodes are independent of each other, given their time."


def assumptions(
    origin: Provenance, settings: PlainSettings, tested: int, bound: RangeBound | None
) -> Iterator[str]:
    """One sentence each, the most easily broken first."""
    yield PROPENSITIES
    yield SELECTION
    if bound is None:
        # The rule of three (Hanley and Lippman-Hand, 1983).
        share = min(3 / max(tested, 1), 1)
        yield (
            f"Nothing much worse will happen than has been seen: what did not occur in {tested:,} test "
            f"episodes may still occur in up to {share:.2%} of them (`reward_range` insures against it)."
        )
    yield INDEPENDENCE
    yield f"The future follows {settings.trend}."
    if origin.columns.get("time") == "":
        yield "Episodes happened in the order of their numbers, and their numbers measure time."
