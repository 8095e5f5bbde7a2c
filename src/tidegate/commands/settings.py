"""The choices behind a forecast in plain values, as flags and records hold them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from ..basis import MAX_ORDER, Basis, ConstantBasis, CosineBasis, FourierBasis, PolynomialBasis
from ..comparison import ComparisonTest, TwoBounds
from ..errors import SettingsError
from ..forecast import ForecastSettings
from ..inputs import flag, member, none_or, number, whole
from ..logs import TimeMeaning
from ..logs.memory import size_of
from ..logs.time_numbers import SECONDS
from ..presets import multiscale_forecast
from .choices import BasisKind, PolicyClass, Preset
from .lookaheads import MAX_LOOKAHEAD, Length, as_units, length_of

MAX_DRAWS = 100_000  # each is held for a block of episodes: this many take 2 GB
MAX_HIDDEN, MAX_STEPS = 1_000, 100_000
DEFAULT_ORDER = 3
SEARCH_MEMORY = "2GiB"
LARGE_ALPHA = 0.2
CALENDAR = (86_400.0, 604_800.0, 2_629_800.0)  # seconds of a day, a week and a mean month


@dataclasses.dataclass(frozen=True)
class PlainSettings:
    """How to forecast. Without a lookahead, it is a tenth of the time that the log spans.

    The lookahead is a number of units of the time axis, or a length of time: 12h, 7d, 2w, a timedelta.

    Basis, order and period belong to the paper's preset (by default three cosines). An `alpha` above 0.2
    is refused unless `allow_large_alpha` says that it is meant. `calendar` are the periods of a day, a week
    and a month where times are dates; the log gives them.
    """

    derived: ClassVar = ("trend", "rule", "doubly_robust")

    preset: Preset = Preset.MULTISCALE
    lookahead: Length | None = None
    basis: BasisKind | None = None
    order: int | None = None
    period: float | None = None
    alpha: float = 0.05
    draws: int = 500
    discount: float = 1.0
    allow_large_alpha: bool = False
    calendar: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        checked = {
            "preset": member("preset", Preset, self.preset),
            "lookahead": none_or(partial(length_of, "lookahead"), self.lookahead),
            "basis": none_or(partial(member, "basis", BasisKind), self.basis),
            "order": none_or(partial(whole, "order", low=0, high=MAX_ORDER), self.order),
            "period": none_or(partial(number, "period", above=0), self.period),
            "alpha": number("alpha", self.alpha, above=0, below=1),
            "draws": whole("draws", self.draws, 1, MAX_DRAWS),
            "discount": number("discount", self.discount, 0, 1),
            "allow_large_alpha": flag("allow_large_alpha", self.allow_large_alpha),
            "calendar": tuple(number("calendar", one, above=0) for one in self.calendar),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._require_small_alpha()
        chosen = [name for name in ("basis", "order", "period") if getattr(self, name) is not None]
        if chosen and self.preset is not Preset.PAPER:
            raise SettingsError(
                f"the preset '{self.preset}' has no {' and no '.join(chosen)} to choose.",
                remedy="Leave it out, or choose `preset='paper'`.",
            )

    def _require_small_alpha(self) -> None:
        if self.alpha > LARGE_ALPHA and not self.allow_large_alpha:
            raise SettingsError(
                f"alpha is {self.alpha:g}: of a hundred worthless candidates, up to "
                f"{math.ceil(100 * self.alpha)} would be deployed.",
                expected=f"at most {LARGE_ALPHA:g}",
                remedy="If that is meant, say so with `allow_large_alpha=True`.",
            )

    def over(self, span: tuple[float, float], time: TimeMeaning) -> "PlainSettings":
        """The same settings in units of the log's time: the lookahead, or the one that the log gives, and the
        periods of its calendar."""
        known = dataclasses.replace(self, calendar=calendar_periods(time))
        if self.lookahead is not None:
            return dataclasses.replace(known, lookahead=as_units("lookahead", self.lookahead, time))
        tenth = min((span[1] - span[0] + 1) / 10, MAX_LOOKAHEAD)
        return dataclasses.replace(known, lookahead=max(1, round(tenth)))

    def stationary(self) -> "PlainSettings":
        """The same settings, assuming that nothing changes."""
        return dataclasses.replace(
            self, preset=Preset.PAPER, basis=BasisKind.CONSTANT, order=None, period=None
        )

    @property
    def test(self) -> ComparisonTest:
        """How two policies are compared, whatever the lookahead."""
        return self._at_any_lookahead.test

    @property
    def doubly_robust(self) -> bool:
        """Whether a model of the rewards reduces the noise of the estimated returns."""
        return self._at_any_lookahead.value_model is not None

    @property
    def _at_any_lookahead(self) -> ForecastSettings:
        return dataclasses.replace(self, lookahead=1).forecast()

    @property
    def trend(self) -> str:
        """What the bounds assume about the trend."""
        return self.test.trend_words

    @property
    def rule(self) -> str:
        """When the gate opens, in a sentence."""
        return self.test.rule

    def forecast(self) -> ForecastSettings:
        """The settings as the library takes them."""
        if not isinstance(self.lookahead, int):
            raise SettingsError("the lookahead is not known yet.", expected="a number of episodes")
        shared = ForecastSettings(self.lookahead, alpha=self.alpha, draws=self.draws, discount=self.discount)
        if self.preset is Preset.MULTISCALE:
            return multiscale_forecast(shared, calendar=self.calendar)
        basis = _BASES[self.basis or BasisKind.COSINE](self)
        return dataclasses.replace(shared, test=TwoBounds(basis))


def calendar_periods(time: TimeMeaning) -> tuple[float, ...]:
    """A day, a week and a month in the log's unit, if that is of the calendar; those of two units or more."""
    unit = SECONDS.get(time.unit)
    return () if unit is None else tuple(one / unit for one in CALENDAR if one >= 2 * unit)


Settings = PlainSettings | Mapping[str, Any] | None


def _fourier(settings: PlainSettings) -> Basis:
    if settings.period is None:
        raise SettingsError(
            "a Fourier basis needs a period.",
            expected="as in `period=7`, in units of the time axis",
        )
    return FourierBasis(_order(settings), settings.period)


def _order(settings: PlainSettings) -> int:
    return DEFAULT_ORDER if settings.order is None else settings.order


_BASES: dict[BasisKind, Callable[[PlainSettings], Basis]] = {
    BasisKind.COSINE: lambda settings: CosineBasis(_order(settings)),
    BasisKind.POLYNOMIAL: lambda settings: PolynomialBasis(_order(settings)),
    BasisKind.FOURIER: _fourier,
    BasisKind.CONSTANT: lambda settings: ConstantBasis(),
}


@dataclasses.dataclass(frozen=True)
class SearchChoices:
    """How to search for a candidate.

    `entropy` is the bonus per nat of entropy, in standard deviations of an episode's return, so that it
    means the same whatever the rewards' unit. `hidden` is the width of an MLP's hidden layer.
    Of a large log, no more episodes are searched than fit into `search_memory`, bytes or a text such as 2GiB.
    `min_probability` is what every action keeps, in the search, in the test and in production, so that the
    next log can tell what each action is worth.
    """

    policy_class: PolicyClass = PolicyClass.AUTO
    hidden: int = 16
    steps: int = 300
    learning_rate: float = 0.02
    entropy: float = 0.1
    train_fraction: float = 0.5
    search_memory: int | str = SEARCH_MEMORY
    min_probability: float = 0.0

    def __post_init__(self) -> None:
        room = size_of("search_memory", self.search_memory)
        checked = {
            "policy_class": member("policy_class", PolicyClass, self.policy_class),
            "hidden": whole("hidden", self.hidden, 1, MAX_HIDDEN),
            "steps": whole("steps", self.steps, 0, MAX_STEPS),
            "learning_rate": number("learning_rate", self.learning_rate, above=0),
            "entropy": number("entropy", self.entropy, 0),
            "train_fraction": number("train_fraction", self.train_fraction, 0, 1),
            "search_memory": self.search_memory if isinstance(self.search_memory, str) else room,
            "min_probability": number("min_probability", self.min_probability, 0, below=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
