"""What a watch is asked, what it remembers, and what it says."""

import dataclasses
import enum
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arrays import Floats
from ..errors import SettingsError
from ..inputs import number, whole
from ..reasons import Status
from ..record import plain
from .confidence import RunningSums
from .guardrails import Guardrail, guardrails_of, require_different
from .weighing import Expected

REWARD = "reward"


class WatchReason(enum.Enum):
    """Why a watch says what it says."""

    HARM = "the new policy is shown to do worse than the safe one since its release, beyond chance."
    NOT_FINITE = "an episode gives a number that is not finite, so the watch cannot say anything."
    NO_SUPPORT = (
        "the importance ratios do not average to one, so the episodes do not say what the safe policy would "
        "have earned. Let the new policy keep exploring, or check the logged probabilities."
    )
    TOO_FEW = "too few of the episodes since the release tell the two policies apart."
    NOT_SHOWN = "neither harm nor an advantage is shown since the release."
    BETTER = "the new policy is shown to do better than the safe one since its release, beyond chance."

    @property
    def sentence(self) -> str:
        return self.value

    @property
    def status(self) -> Status:
        """In the words of deployment pipelines: `fail` rolls back, all others let the new policy run on."""
        return _STATUSES.get(self, Status.INCONCLUSIVE)


_STATUSES = {
    WatchReason.HARM: Status.FAIL,
    WatchReason.NOT_FINITE: Status.FAIL,
    WatchReason.NO_SUPPORT: Status.ERROR,
    WatchReason.BETTER: Status.PASS,
}


@dataclasses.dataclass(frozen=True)
class Watch:
    """What is watched, and how.

    `margin` is how much worse than the safe policy the new one may be on average; each guardrail has its
    own. Nothing is shown before `min_episodes`. The sequences are tightest at about `tightest_at` episodes:
    a harm of half a standard deviation shows at about that time, larger ones sooner, and at ten or a hundred
    times as many the bounds are a tenth or a fifth wider than the best. Baselines forget after `memory`.
    """

    alpha: float = 0.05
    margin: float = 0.0
    guardrails: tuple[Guardrail, ...] = ()
    discount: float = 1.0
    min_episodes: int = 20
    tightest_at: int = 50
    memory: int = 100

    def __post_init__(self) -> None:
        checked = {
            "alpha": number("alpha", self.alpha, above=0, below=1),
            "margin": number("margin", self.margin, 0),
            "guardrails": guardrails_of(self.guardrails),
            "discount": number("discount", self.discount, 0, 1),
            "min_episodes": whole("min_episodes", self.min_episodes, 2),
            "tightest_at": whole("tightest_at", self.tightest_at, 2),
            "memory": whole("memory", self.memory, 2),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        require_different(self.guardrails)

    @property
    def names(self) -> tuple[str, ...]:
        """What is watched: the reward first."""
        return (REWARD, *(one.name for one in self.guardrails))

    @property
    def outcomes(self) -> tuple[tuple[str | None, float], ...]:
        """The same as columns of a log, each with the sign that makes more of it better."""
        return ((None, 1.0), *((one.name, one.sign) for one in self.guardrails))

    @property
    def margins(self) -> Floats:
        return np.array([self.margin, *(one.margin for one in self.guardrails)])

    @property
    def level(self) -> float:
        """Of each bound."""
        return self.alpha / len(self.names)

    def begin(self) -> "WatchState":
        """The state at the release."""
        return WatchState(
            RunningSums.empty((len(self.names),)),
            RunningSums.empty((3,)),
            Expected.nothing((len(self.names),)),
            None,
        )


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What ended a watch: in which sequence, at which episode, and how many there were since the release.

    `mean` and `upper` are of the advantage until then, signed so that more is better; `upper` is below
    −`margin`. Both are None where a number was not finite.
    """

    reason: WatchReason
    sequence: str
    episode: float
    num_episodes: int
    mean: float | None
    upper: float | None
    margin: float
    level: float

    @property
    def sentence(self) -> str:
        """The reason in words, with what shows it."""
        if self.reason is WatchReason.NOT_FINITE:
            return f"{self.reason.sentence} It is in '{self.sequence}'."
        if self.sequence == REWARD:
            return self.reason.sentence
        return f"the guardrail '{self.sequence}' is shown to be broken since the release, beyond chance."


@dataclasses.dataclass(frozen=True, eq=False)
class WatchState:
    """All that the next step needs to know: sums of the advantages and of the ratios, and what to expect.

    `ratios` are of the candidate's, of the safe policy's, and of the square of their difference.
    Once there is `harm`, the watch is over, and the state stays as it is.
    """

    sums: RunningSums
    ratios: RunningSums
    expected: Expected
    harm: Evidence | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, from which `restored_state` makes the same state, bit for bit."""
        found: dict[str, Any] = plain(self)
        return found


@dataclasses.dataclass(frozen=True)
class Sequence:
    """One outcome now: the mean advantage since the release and its bounds, signed so that more is better.

    The probability that a bound is ever wrong is at most `level`; None until there is one.
    """

    derived: ClassVar = ("harmful",)

    name: str
    mean: float | None
    lower: float | None
    upper: float | None
    margin: float
    level: float

    @property
    def harmful(self) -> bool:
        """Whether the bound alone shows harm now."""
        return self.upper is not None and self.upper < -self.margin


@dataclasses.dataclass(frozen=True)
class Signal:
    """What a watch says after some episodes.

    `num_episodes` are those behind the bounds: all since the release but the first. `harm` is what rolled
    back. The sequences are as they are now, or were then.
    """

    derived: ClassVar = ("rolls_back",)

    reason: WatchReason
    num_episodes: int
    sequences: tuple[Sequence, ...]
    harm: Evidence | None

    @property
    def status(self) -> Status:
        return self.reason.status

    @property
    def rolls_back(self) -> bool:
        return self.harm is not None


def restored_state(values: Any) -> WatchState:
    """The inverse of `WatchState.to_dict`."""
    try:
        harm = values["harm"]
        return WatchState(
            _sums(values["sums"]),
            _sums(values["ratios"]),
            Expected(*(_floats(values["expected"][name], np.nan) for name in ("sums", "counts"))),
            None if harm is None else Evidence(**{**harm, "reason": WatchReason[harm["reason"]]}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"the state of the watch is incomplete: {error!r}.", expected="all that `to_dict` gave"
        ) from error


def _sums(values: Any) -> RunningSums:
    extremes = {"highest": -np.inf, "lowest": np.inf}
    names = [one.name for one in dataclasses.fields(RunningSums)]
    return RunningSums(*(partial(_floats, absent=extremes.get(name, np.nan))(values[name]) for name in names))


def _floats(values: Any, absent: float) -> Floats:
    return np.array(
        [_floats(one, absent) if isinstance(one, list) else absent if one is None else one for one in values],
        np.float64,
    )
