"""Time features φ(i): what shape the performance of a policy may take over the episodes.

Only `TimeAxis` knows which episodes are forecast. It maps times to x = (t − origin)/(end − origin), so
that the last forecast episode lies at x = 1 and the solver never sees raw episode numbers.
"""

import abc
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .arrays import ArrayLike
from .inputs import array_or, number, whole

MAX_ORDER = 100  # more waves than this are not a trend
LEAST_ROOM = 64  # episodes of a lookahead; the next rooms are four times as large
WRITTEN_OUT = 16  # columns; a hundred, written out, take a minute to compile


class TimeAxis(eqx.Module):
    """Past and future: from `origin`, one episode before the first, to `lookahead` after the `last`.

    A lookahead that is an array is an argument of the compiled program, with `room` for larger ones.
    """

    origin: Float[ArrayLike, ""] | float
    last: Float[ArrayLike, ""] | float
    lookahead: Int[ArrayLike, ""] | int
    room: int = eqx.field(static=True)

    def __init__(self, origin: Any, last: Any, lookahead: Any, room: int | None = None) -> None:
        self.origin, self.last, self.lookahead = origin, last, lookahead
        self.room = int(lookahead) if room is None else room

    @classmethod
    def over(cls, span: tuple[float, float], lookahead: int) -> Self:
        """The axis of a log with this first and last episode; one program serves many lookaheads."""
        first, last = span
        room = LEAST_ROOM
        while room < lookahead:
            room *= 4
        return cls(np.asarray(first - 1.0), np.asarray(float(last)), np.asarray(lookahead), room)

    def before(self, last: Any, span: Any = None) -> "TimeAxis":
        """The axis as it was when `last` was the last episode, going back by `span` if one is given."""
        origin = self.origin if span is None else last - span
        return TimeAxis(origin, last, self.lookahead, self.room)

    @property
    def end(self) -> Any:
        """The last forecast episode."""
        return self.last + self.lookahead

    @property
    def length(self) -> Any:
        """How much time the log spans."""
        return self.last - self.origin

    @property
    def forecast_times(self) -> Any:
        """τ: the episodes whose mean return is forecast."""
        return self.end + np.arange(1.0 - int(self.lookahead), 1.0)

    def forecast_mean(self, of_times: Callable[[Any], Float[Array, "n d"]]) -> Float[Array, " d"]:
        """The mean of a function over the episodes that are forecast."""
        back = jnp.arange(1 - self.room, 1)
        rows = of_times(jnp.asarray(self.end) + back)
        return jnp.sum(jnp.where((back > -self.lookahead)[:, None], rows, 0.0), axis=0) / self.lookahead

    @property
    def latest_trial(self) -> Any:
        """The latest date whose whole forecast window lies within the log."""
        return self.last - self.lookahead

    @property
    def longest_tried(self) -> Any:
        """The longest lookahead that the log can try: three windows, one after another."""
        return self.length / 3

    @property
    def longest_trusted(self) -> Any:
        """The longest lookahead for which a trend over the whole log is taken on trust: half of its time."""
        return self.length / 2

    @property
    def trusted(self) -> Any:
        """Whether the log is long enough for a trend that is taken on trust."""
        return jnp.asarray(self.lookahead <= self.longest_trusted)

    def recent(self, span: Any) -> "TimeAxis":
        """The same forecast window, with only the last `span` of the log before it."""
        return self.before(self.last, span)

    def normalise(self, times: Any) -> Float[Array, " n"]:
        return (jnp.asarray(times) - self.origin) / jnp.asarray(self.end - self.origin)


class Basis(eqx.Module):
    """A family of functions of time; `size` columns, of which `active` are in use."""

    @property
    @abc.abstractmethod
    def size(self) -> int: ...

    @abc.abstractmethod
    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]: ...

    def active(self) -> Bool[Array, " d"]:
        return jnp.ones(self.size, bool)


class ConstantBasis(Basis):
    """φ = [1]: the world stands still. SPIN with this basis is the stationary baseline."""

    @property
    def size(self) -> int:
        return 1

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        return jnp.ones_like(axis.normalise(times))[:, None]


class CosineBasis(Basis):
    """Half-range cosines cos(π n x), n = 0 … order; flat at both ends of the axis.

    With `columns` given, `order` may be a traced number below it: the columns above the order are
    switched off, so that one compiled program serves a sweep over orders.
    """

    order: int | Array
    columns: int = eqx.field(static=True)

    def __init__(self, order: int | Array, columns: int | None = None) -> None:
        if columns is None:
            self.order = _checked_order(order)
            self.columns = self.order + 1
        else:
            self.columns = whole("columns", columns, 1, MAX_ORDER + 1)
            self.order = array_or(lambda one: _checked_order(one, self.columns - 1), order)

    @property
    def size(self) -> int:
        return self.columns

    def active(self) -> Bool[Array, " d"]:
        return jnp.arange(self.columns) <= self.order

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        # cos(nθ) = Tₙ(cos θ): one cosine per episode instead of one per feature.
        waves = _chebyshev(jnp.cos(jnp.pi * axis.normalise(times)), self.columns)
        return waves * self.active()


class FourierBasis(Basis):
    """The paper's φ: sines and cosines of 2π n t/period, n = 1 … order, and 1; all divided by √(order+1).

    Episode numbers are used as they are, so the period is counted in episodes.
    """

    order: int = eqx.field(static=True, converter=lambda n: _checked_order(n))
    period: float | Array = eqx.field(converter=lambda one: array_or(_checked_period, one))

    @property
    def size(self) -> int:
        return 2 * self.order + 1

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        cycles = jnp.asarray(times) / self.period
        angles = 2 * jnp.pi * cycles[:, None] * jnp.arange(1, self.order + 1)
        one = jnp.ones_like(cycles)[:, None]
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles), one], axis=1) / jnp.sqrt(self.order + 1.0)


class PolynomialBasis(Basis):
    """Polynomials up to `degree`, as Chebyshev polynomials on [−1, 1]: the same span, well scaled."""

    degree: int = eqx.field(static=True, converter=lambda n: _checked_order(n))

    @property
    def size(self) -> int:
        return self.degree + 1

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        return _chebyshev(2 * axis.normalise(times) - 1, self.size)


class PeriodicBasis(Basis):
    """A line and a season: 1, x, then cosines and sines of `harmonics` waves of the period.

    The period is counted in episodes and may be traced: one program serves every period. A period
    estimated from the returns that are then fitted is itself uncertain; no interval allows for that.
    """

    period: float | Array = eqx.field(converter=lambda one: array_or(_checked_period, one))
    harmonics: int = eqx.field(
        static=True, default=1, converter=lambda n: whole("harmonics", n, 1, MAX_ORDER)
    )

    @property
    def size(self) -> int:
        return 2 + 2 * self.harmonics

    def design_matrix(self, times: Any, axis: TimeAxis) -> Float[Array, "n d"]:
        x = axis.normalise(times)
        cycles = (jnp.asarray(times) - axis.origin) / self.period
        angles = 2 * jnp.pi * cycles[:, None] * jnp.arange(1, self.harmonics + 1)
        line = jnp.stack([jnp.ones_like(x), x], axis=1)
        return jnp.concatenate([line, jnp.cos(angles), jnp.sin(angles)], axis=1)


def _chebyshev(x: Float[Array, " n"], count: int) -> Float[Array, "n count"]:
    """T₀(x) … T_{count−1}(x) by their recurrence."""
    if count > WRITTEN_OUT:
        first = (jnp.ones_like(x), x)
        _, rows = jax.lax.scan(lambda pair, _: (_next(x, *pair), pair[0]), first, length=count)
        return jnp.asarray(rows.T)
    columns = [jnp.ones_like(x), x]
    for _ in range(2, count):
        columns.append(_next(x, *columns[-2:])[1])
    return jnp.stack(columns[:count], axis=1)


def _next(x: Array, before: Array, last: Array) -> tuple[Array, Array]:
    """The last polynomial and the one that follows it."""
    return last, 2 * x * last - before


def _checked_period(period: Any) -> float:
    return number("period", period, above=0)


def _checked_order(order: Any, highest: int = MAX_ORDER) -> int:
    return whole("the order of the basis", order, 0, highest)
