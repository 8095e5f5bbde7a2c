"""The choices behind a forecast in plain values, as flags and records hold them."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from ..basis import Basis, ConstantBasis, CosineBasis, FourierBasis, PolynomialBasis
from ..comparison import ComparisonTest, TwoBounds
from ..errors import SettingsError
from ..forecast import ForecastSettings
from ..presets import multiscale_forecast
from .choices import BasisKind, PolicyClass, Preset

MAX_LOOKAHEAD = 1_000_000
MAX_DRAWS = 100_000  # each is held for a block of episodes: this many take 2 GB
MAX_HIDDEN, MAX_STEPS = 1_000, 100_000
DEFAULT_ORDER = 3


def require_between(name: str, value: int, least: int, most: int) -> None:
    """A count lies in its range."""
    if not least <= value <= most:
        raise SettingsError(f"{name} is {value:,}", expected=f"a whole number from {least} to {most:,}")


@dataclasses.dataclass(frozen=True)
class PlainSettings:
    """How to forecast. Without a lookahead, it is a tenth of the time that the log spans.

    Basis, order and period belong to the paper's preset (by default three cosines).
    """

    derived: ClassVar = ("trend", "rule", "doubly_robust")

    preset: Preset = Preset.MULTISCALE
    lookahead: int | None = None
    basis: BasisKind | None = None
    order: int | None = None
    period: float | None = None
    alpha: float = 0.05
    draws: int = 500
    discount: float = 1.0

    def __post_init__(self) -> None:
        require_between("draws", self.draws, 1, MAX_DRAWS)
        if self.lookahead is not None and self.lookahead > MAX_LOOKAHEAD:
            raise SettingsError(
                f"lookahead is {self.lookahead}",
                expected=f"at most {MAX_LOOKAHEAD:,}",
                remedy="Measure time in a larger unit.",
            )
        chosen = [name for name in ("basis", "order", "period") if getattr(self, name) is not None]
        if chosen and self.preset is not Preset.PAPER:
            raise SettingsError(
                f"the preset '{self.preset}' has no {' and no '.join(chosen)} to choose.",
                remedy="Leave it out, or choose the preset 'paper' (--preset paper).",
            )

    def over(self, span: tuple[float, float]) -> "PlainSettings":
        """The same settings with the lookahead that this log gives, if none was chosen."""
        if self.lookahead is not None:
            return self
        tenth = min((span[1] - span[0] + 1) / 10, MAX_LOOKAHEAD)
        return dataclasses.replace(self, lookahead=max(1, round(tenth)))

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
        """Whether a model of the rewards takes noise out of the estimated returns."""
        return self._at_any_lookahead.value_model is not None

    @property
    def _at_any_lookahead(self) -> ForecastSettings:
        return dataclasses.replace(self, lookahead=self.lookahead or 1).forecast()

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
        if self.lookahead is None:
            raise SettingsError("the lookahead is not known yet.", expected="a number of episodes")
        if not 0 < self.alpha < 1:
            raise SettingsError(f"alpha is {self.alpha}", expected="a probability between 0 and 1")
        shared = ForecastSettings(self.lookahead, alpha=self.alpha, draws=self.draws, discount=self.discount)
        if self.preset is Preset.MULTISCALE:
            return multiscale_forecast(shared)
        basis = _BASES[BasisKind(self.basis or BasisKind.COSINE)](self)
        return dataclasses.replace(shared, test=TwoBounds(basis))


def _fourier(settings: PlainSettings) -> Basis:
    if settings.period is None:
        raise SettingsError(
            "a Fourier basis needs a period.",
            expected="as in --period 7, in units of the time axis",
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
    """

    policy_class: PolicyClass = PolicyClass.AUTO
    hidden: int = 16
    steps: int = 300
    learning_rate: float = 0.02
    entropy: float = 0.1
    train_fraction: float = 0.5

    def __post_init__(self) -> None:
        require_between("hidden", self.hidden, 1, MAX_HIDDEN)
        require_between("steps", self.steps, 0, MAX_STEPS)
        if not self.learning_rate > 0:
            raise SettingsError(f"learning_rate is {self.learning_rate}", expected="a positive number")
        if not self.entropy >= 0:
            raise SettingsError(f"entropy is {self.entropy}", expected="a weight from 0 up")
