"""A history as shapes with numbers, for a template to draw: nothing here is computed but places."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from ...reports.numbers import count, figure, signed
from .history import Event, History, Point, Span


@dataclasses.dataclass(frozen=True)
class Size:
    """A canvas, and the plot in it."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


WIDE = Size(960, 330, 64, 14, 34, 62)
NARROW = Size(440, 320, 52, 10, 34, 62)
SMALL = Size(240, 64, 2, 2, 4, 10)


@dataclasses.dataclass(frozen=True)
class Tick:
    """A place on an axis, and the number that stands there."""

    place: float
    label: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A decision: from the forecast down to the bound, each cut at the edge of the plot."""

    x: float
    forecast: float
    lower: float | None
    status: str
    above: bool  # the forecast lies outside of the plot
    below: bool  # the bound does
    title: str


@dataclasses.dataclass(frozen=True)
class Flag:
    """An event as an upright line with a word."""

    x: float
    label: str
    kind: str
    anchor: str
    level: int


@dataclasses.dataclass(frozen=True)
class Strip:
    """A stretch of the band in which one policy ran."""

    x: float
    width: float
    policy: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """What the template draws."""

    size: Size
    zero: float
    base: float
    bars: tuple[Bar, ...]
    path: str
    flags: tuple[Flag, ...]
    strips: tuple[Strip, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def chart(found: History, size: Size) -> Chart | None:
    """The places of everything; None if no decision has a forecast."""
    points = [one for one in found.points if one.forecast is not None]
    if not points:
        return None
    last = max([points[-1].episodes, *(one.last for one in found.spans)])
    first = points[0].episodes if points[0].episodes < last else 0
    across = _Axis(first, last, size.left, size.width - size.right, pad=0.02)
    low, high = _visible(points)
    up = _Axis(low, high, size.height - size.bottom, size.top, pad=0.0)
    bars = tuple(_bar(one, across, up) for one in points)
    base = size.height - size.bottom
    return Chart(
        size,
        up(0.0),
        base,
        bars,
        "M" + " L".join(f"{one.x:.1f} {one.forecast:.1f}" for one in bars),
        tuple(_flags(found.events, across, size)),
        tuple(_strip(one, across) for one in found.spans),
        tuple(_numbers(across, figure, _ticks(across.low, across.high, size.width // 110, 1.0))),
        tuple(_numbers(up, lambda one: signed(one, 3) if one else "0", _ticks(low, high, 5))),
    )


def described(found: History) -> str:
    """What a chart shows, for those who cannot see it."""
    points = [one for one in found.points if one.forecast is not None]
    if not points:
        return "No decision has a forecast yet."
    first, last = points[0], points[-1]
    passed = sum(one.status == "pass" for one in points)
    events = "; ".join(f"{one.said} at {count(one.episodes, 'episode')}" for one in _shown(found.events))
    return (
        f"Forecast advantage of the candidate at {count(len(points), 'decision')}, from "
        f"{count(first.episodes, 'episode')} to {count(last.episodes, 'episode')}. {passed} passed. "
        f"The newest: {_said(last)}" + (f" Events: {events}." if events else "")
    )


class _Axis:
    """Numbers to places, along a line."""

    def __init__(self, low: float, high: float, start: float, end: float, pad: float) -> None:
        width = (high - low) or 1.0
        self.low, self.high = low - pad * width, low + width + pad * width
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def _visible(points: Sequence[Point]) -> tuple[float, float]:
    """All forecasts and zero; bounds as far as they are not much further away."""
    forecasts = [one.forecast for one in points if one.forecast is not None]
    lowers = [one.lower for one in points if one.lower is not None and math.isfinite(one.lower)]
    low, high = min(0.0, *forecasts), max(0.0, *forecasts)
    width = (high - low) or 1.0
    lowest = max(min([low, *lowers]), low - 0.8 * width)
    margin = 0.08 * (high - lowest or 1.0)
    return lowest - margin, high + margin


def _strip(one: Span, across: _Axis) -> Strip:
    return Strip(across(one.first), across(one.last) - across(one.first), one.policy)


def _numbers(axis: _Axis, said: Callable[[float], str], values: Sequence[float]) -> Iterator[Tick]:
    return (Tick(axis(one), said(one)) for one in values)


def _bar(one: Point, across: _Axis, up: _Axis) -> Bar:
    assert one.forecast is not None
    lower = one.lower if one.lower is not None and math.isfinite(one.lower) else None
    return Bar(
        across(one.episodes),
        up(one.forecast),
        None if lower is None else up(lower),
        one.status,
        one.forecast > up.high,
        lower is None or lower < up.low,
        f"{count(one.episodes, 'episode')}: {_said(one)}",
    )


def _said(one: Point) -> str:
    bound = "no bound" if one.lower is None else f"at least {signed(one.lower, 3)}"
    return f"{one.status}, advantage {signed(one.forecast, 3)}, {bound}."


def _shown(events: Sequence[Event]) -> list[Event]:
    return [one for one in events if one.kind != "gate.defined" or one.content.get("version", 1) > 1]


def _flags(events: Sequence[Event], across: _Axis, size: Size) -> Iterator[Flag]:
    """Labels that would lie on each other are put on two levels."""
    before, level = -math.inf, 0
    for one in _shown(events):
        x = across(one.episodes)
        level = 1 - level if x - before < 90 else 0
        anchor = "end" if x > size.width - 100 else "start"
        yield Flag(x, one.said, one.kind.replace(".", "-").replace("_", "-"), anchor, level)
        before = x


def _ticks(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Round numbers between two, at most about so many."""
    rough = max((high - low) / max(most, 1), 1e-12)
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(least, next(one * power for one in (1, 2, 5, 10) if one * power >= rough * 0.999))
    first = math.ceil(low / step)
    return [n * step + 0.0 for n in range(first, math.floor(high / step) + 1)]


@dataclasses.dataclass(frozen=True)
class DecisionPicture:
    """One decision on a line: zero, the bound, the forecast, in per cent of the width."""

    zero: float
    lower: float | None
    forecast: float
    passes: bool


def decision_picture(advantage: dict[str, float | None] | None) -> DecisionPicture | None:
    """Where the forecast and its bound lie beside zero; None if there is no forecast."""
    forecast, lower = (advantage or {}).get("forecast"), (advantage or {}).get("lower")
    if forecast is None or not math.isfinite(forecast):
        return None
    bound = lower if lower is not None and math.isfinite(lower) else None
    ends = [0.0, forecast, *([] if bound is None else [bound])]
    axis = _Axis(min(ends), max(ends), 0.0, 600.0, pad=0.12)
    place = None if bound is None else axis(bound)
    return DecisionPicture(axis(0.0), place, axis(forecast), bound is not None and bound > 0)
