"""What a gate asks beside the forecast, and for how long its answer is good."""

import dataclasses
import datetime
from typing import Any

from ..errors import SettingsError
from ..gates.finite_sample import checked_range
from ..gates.guardrails import Guardrail, guardrails_of
from ..gates.multiplicity import Multiplicity
from ..inputs import duration, flag, instance, member, none_or, whole
from ..reasons import Status
from ..record import sealed

WEEK = datetime.timedelta(days=7)


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Guardrails that must hold, a range of returns for which a finite-sample bound must agree, and what to
    do with a verdict that is not guaranteed. `dates` is the number of past dates for a backtest."""

    guardrails: tuple[Guardrail, ...] = ()
    multiplicity: Multiplicity = Multiplicity.HOLM
    reward_range: tuple[float, float] | None = None
    allow_unguaranteed: bool = False
    valid_for: datetime.timedelta = WEEK
    now: datetime.datetime | None = None
    dates: int = 0

    def __post_init__(self) -> None:
        checked = {
            "guardrails": guardrails_of(self.guardrails),
            "multiplicity": member("multiplicity", Multiplicity, self.multiplicity),
            "reward_range": none_or(checked_range, self.reward_range),
            "allow_unguaranteed": flag("allow_unguaranteed", self.allow_unguaranteed),
            "valid_for": parse_validity(self.valid_for),
            "now": none_or(lambda one: instance("now", datetime.datetime, one), self.now),
            "dates": whole("dates", self.dates, 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def decided_at(self) -> datetime.datetime:
        """The moment of the decision, to the second."""
        moment = self.now or datetime.datetime.now(datetime.UTC)
        return moment.astimezone(datetime.UTC).replace(microsecond=0)


def parse_validity(given: Any) -> datetime.timedelta:
    """How long a decision is good for: `90m`, `12h`, `7d`, `2w`, or a timedelta."""
    found = duration(given)
    if found is None or not WEEK * 0 < found <= 520 * WEEK:
        raise SettingsError(
            "the time for which a decision is valid is unclear.",
            expected="a number and a unit, as in 12h, 7d or 2w, up to ten years",
        )
    return found


def written(moment: datetime.datetime) -> str:
    """A moment as ISO 8601 in UTC."""
    return moment.isoformat().replace("+00:00", "Z")


def error_record(sentence: str) -> dict[str, Any]:
    """The record of a gate that could not decide; it has no verdict, and there is nothing to replay."""
    moment = written(Conditions().decided_at)
    content = {"status": Status.ERROR.value, "verdict": None, "sentence": sentence}
    return sealed("gate", {**content, "decided_at": moment, "expires_at": moment})


def watch_error_record(sentence: str) -> dict[str, Any]:
    """The record of a watch that could not look: it does not say to roll back, nor that all is well."""
    content = {"status": Status.ERROR.value, "rolls_back": None, "reason": None, "sentence": sentence}
    return sealed("watch", {**content, "decided_at": written(Conditions().decided_at)})
