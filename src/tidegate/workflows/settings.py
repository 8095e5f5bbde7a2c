"""The choices behind a forecast in plain values, as flags and records hold them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

from ..basis import Basis, ConstantBasis, CosineBasis, FourierBasis, PolynomialBasis
from ..errors import SettingsError
from ..performance import ForecastSettings
from .choices import BasisKind, PolicyClass

MAX_LOOKAHEAD = 1_000_000


@dataclasses.dataclass(frozen=True)
class PlainSettings:
    """How to forecast. Without a lookahead, it is a tenth of the time that the log spans."""

    lookahead: int | None = None
    basis: BasisKind = BasisKind.COSINE
    order: int = 3
    period: float | None = None
    alpha: float = 0.05
    draws: int = 500
    discount: float = 1.0

    def __post_init__(self) -> None:
        if self.lookahead is not None and self.lookahead > MAX_LOOKAHEAD:
            raise SettingsError(
                f"lookahead is {self.lookahead}",
                expected=f"at most {MAX_LOOKAHEAD:,}",
                remedy="Measure time in a larger unit.",
            )

    def over(self, span: tuple[float, float]) -> "PlainSettings":
        """The same settings with the lookahead that this log gives, if none was chosen."""
        if self.lookahead is not None:
            return self
        tenth = min((span[1] - span[0] + 1) / 10, MAX_LOOKAHEAD)
        return dataclasses.replace(self, lookahead=max(1, round(tenth)))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The settings in a record."""
        given = _given(cls, plain)
        return cls(**{**given, "basis": BasisKind[given["basis"]]})

    def forecast(self) -> ForecastSettings:
        """The settings as the library takes them."""
        if self.lookahead is None:
            raise SettingsError("the lookahead is not known yet.", expected="a number of episodes")
        if not 0 < self.alpha < 1:
            raise SettingsError(f"alpha is {self.alpha}", expected="a probability between 0 and 1")
        if self.draws < 1:
            raise SettingsError(f"draws is {self.draws}", expected="a whole number from 1 up")
        return ForecastSettings(
            self.lookahead,
            basis=_BASES[BasisKind(self.basis)](self),
            alpha=self.alpha,
            draws=self.draws,
            discount=self.discount,
        )


def _fourier(settings: PlainSettings) -> Basis:
    if settings.period is None:
        raise SettingsError(
            "a Fourier basis needs a period.",
            expected="as in --period 7, in units of the time axis",
        )
    return FourierBasis(settings.order, settings.period)


_BASES: dict[BasisKind, Callable[[PlainSettings], Basis]] = {
    BasisKind.COSINE: lambda settings: CosineBasis(settings.order),
    BasisKind.POLYNOMIAL: lambda settings: PolynomialBasis(settings.order),
    BasisKind.FOURIER: _fourier,
    BasisKind.CONSTANT: lambda settings: ConstantBasis(),
}


@dataclasses.dataclass(frozen=True)
class SearchChoices:
    """How a candidate is searched.

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
        if self.hidden < 1:
            raise SettingsError(f"hidden is {self.hidden}", expected="a width from 1 up")
        if not self.learning_rate > 0:
            raise SettingsError(
                f"learning_rate is {self.learning_rate}", expected="a positive number"
            )
        if not self.entropy >= 0:
            raise SettingsError(f"entropy is {self.entropy}", expected="a weight from 0 up")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The choices in a record."""
        given = _given(cls, plain)
        return cls(**{**given, "policy_class": PolicyClass[given["policy_class"]]})


def _given(cls: type[Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: plain[field.name] for field in dataclasses.fields(cls)}
