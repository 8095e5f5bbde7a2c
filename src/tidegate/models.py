"""Trend models: how performance may move, each weighted by how well it would have forecast the past.

A model is a level or a line, perhaps with a season, and a way of moving about it: not at all; as a *rough*
movement, which wanders and is forgotten after a while (Ornstein–Uhlenbeck); as a *smooth* one (Matérn 5/2);
or with a *break* some time ago. Time scales are dyadic shares of the log, strengths go from what noise would
hide to all the movement that there is: no window, order or period is chosen by hand. What a model has to say
for itself, `mixture` computes.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .arrays import Flags, eliminate, map_leaves
from .cells import CELLS, Cells
from .inputs import number

ROUGH = 2.0 ** -np.arange(-1, 10, 2)  # memories, in lengths of the log: 2, 1/2, 1/8, … 1/512
SMOOTH = 2.0 ** -np.arange(4)  # 1, 1/2, 1/4, 1/8
BREAKS = 2.0 ** -np.arange(2, 6)  # ages: 1/4, … 1/32
STRENGTHS = 5
BELIEVED = 8.0  # squared standard errors of its own that a slope, break or season is believed to have
STRONG = 0.02  # the prior probability that a slope is larger than that
QUARTERS, FINER = 4, 8  # frequencies are tried at quarters of a cycle per log, then at parts of that
QUADRATURE = 8
STATE = 3  # numbers that say all that a movement's past tells of its future
MATERN_TURN = np.array([[1.0, 1, 0], [0, 1, 1], [-1, -3, -2]])  # a Matérn 5/2's generator, plus 1
MATERN_START = np.array([[1, 0, -1 / 3], [0, 1 / 3, 0], [-1 / 3, 0, 1]])  # and its covariance


class TrendModels(eqx.Module):
    """The list of models, as prior probabilities of what the world may do.

    It stands still about its level or line with probability `still`; its level had a `broken` past; it
    moves `smooth`ly; or roughly, with the probability that is left. It has no slope with probability `level`,
    and a season with `season`. A probability of 0 takes a part out of the list. `calendar` are periods, in
    the log's time, of seasons that may be too short for the cells: a day and a week, where times are dates.
    """

    still: float = eqx.field(static=True, default=0.5, converter=partial(number, "still", above=0, high=1))
    broken: float = eqx.field(static=True, default=0.05, converter=partial(number, "broken", low=0, below=1))
    smooth: float = eqx.field(static=True, default=0.05, converter=partial(number, "smooth", low=0, below=1))
    level: float = eqx.field(static=True, default=0.1, converter=partial(number, "level", low=0, high=1))
    season: float = eqx.field(static=True, default=0.05, converter=partial(number, "season", low=0, below=1))
    calendar: tuple[float, ...] = eqx.field(static=True, default=())

    def __check_init__(self) -> None:
        number("still + broken + smooth", self.still + self.broken + self.smooth, above=0, high=1)

    @property
    def rough(self) -> float:
        """The probability of a rough movement."""
        return max(0.0, 1 - self.still - self.broken - self.smooth)


class Window(eqx.Module):
    """The times that are forecast, in lengths of the log after its last episode."""

    length: Float[Array, ""]

    @property
    def points(self) -> Float[Array, " q"]:
        """Ages of a few times that stand for all of them."""
        return -self.length * (jnp.arange(QUADRATURE) + 0.5) / QUADRATURE


class Chain(eqx.Module):
    """A movement as a Markov chain along the cells, from the oldest to the newest.

    A cell shows `seen` · state and something of its own, of variance `own`. The next state is `onward` ·
    state and a shock of covariance `shock`, whose covariance with what the cell shows of its own is `alike`.
    """

    start: Float[Array, "*m d d"]
    seen: Float[Array, "*m c d"]
    own: Float[Array, "*m c"]
    onward: Float[Array, "*m c d d"]
    shock: Float[Array, "*m c d d"]
    alike: Float[Array, "*m c d"]


class Movements(eqx.Module):
    """Ways of moving: the covariance of cells with each other, with the window, and of the window.

    `chain` says the first of these once more, so that it need not be inverted: what it costs to condition on
    the cells grows with their number, not with its cube.
    """

    cells: Float[Array, "*m c c"]
    window: Float[Array, "*m c"]
    variance: Float[Array, "*m"]
    log_prior: Float[Array, "*m"]
    chain: Chain

    def of_strengths(self, strengths: Float[Array, " s"], prior: float) -> "Movements":
        """These movements, of variance 1, in several strengths that share a prior probability."""

        def times(values: Array) -> Array:
            return jnp.concatenate([strength * values for strength in strengths])

        def again(values: Array) -> Array:
            return jnp.concatenate([values] * strengths.size)

        chain = self.chain
        count = self.variance.size * strengths.size
        return Movements(
            times(self.cells),
            times(self.window),
            times(self.variance),
            jnp.log(jnp.full(count, prior / count)),
            Chain(
                times(chain.start), again(chain.seen), times(chain.own), again(chain.onward),
                times(chain.shock), times(chain.alike),
            ),
        )  # fmt: skip


class Features(eqx.Module):
    """Time features at the cells and over the window: level, line, season, and a season that changes."""

    cells: Float[Array, "c f"]
    window: Float[Array, " f"]


class Shapes(eqx.Module):
    """Prior variances of the features but the level: line, season, changing season; and their odds."""

    variances: Float[Array, "s f"]
    log_prior: Float[Array, " s"]


def list_movements(models: TrendModels, cells: Cells, window: Window) -> Movements:
    """Standing still, every break, and rough and smooth movements of every memory and strength."""
    size, dtype = cells.mean.size, cells.mean.dtype
    parts = [_jumps(jnp.zeros((1, size)), jnp.zeros(1), models.still)]
    if models.broken:
        parts.append(_breaks(cells, models.broken))
    for kind, memories, prior in ((_rough, ROUGH, models.rough), (_smooth, SMOOTH, models.smooth)):
        if prior:
            found = jax.vmap(partial(kind, cells, window))(jnp.asarray(memories, dtype))
            parts.append(found.of_strengths(_strengths(cells), prior))
    return map_leaves(lambda *leaves: jnp.concatenate(leaves).astype(dtype), *parts)


def _strengths(cells: Cells) -> Float[Array, " a"]:
    """Variances of a movement, from half that of the log's mean to four times all there is."""
    least, most = 0.5 * cells.unit, 4 * jnp.maximum(cells.spread, cells.unit)
    return least * (most / least) ** (jnp.arange(STRENGTHS) / (STRENGTHS - 1))


def _rough(cells: Cells, window: Window, memory: Float[Array, ""]) -> Movements:
    """e^(−|h|/memory), averaged over the cells in closed form."""

    def share(length: Array) -> Array:  # the mean of e^(−h/memory) over a cell's length
        ratio = length / memory
        return jnp.where(ratio > 1e-6, -jnp.expm1(-ratio) / jnp.where(ratio > 1e-6, ratio, 1), 1.0)

    def within(length: Array) -> Array:  # the mean over pairs of times in one cell
        ratio = length / memory
        safe = jnp.where(ratio > 1e-2, ratio, 1.0)
        return jnp.where(ratio > 1e-2, 2 * (safe + jnp.expm1(-safe)) / safe**2, 1 - ratio / 3)

    lengths = cells.oldest - cells.newest
    shares = share(lengths)
    gap = jnp.maximum(cells.newest[:, None] - cells.oldest, cells.newest - cells.oldest[:, None])
    apart = jnp.exp(-jnp.maximum(gap, 0) / memory) * shares[:, None] * shares
    same = jnp.eye(lengths.size, dtype=bool)
    ahead = jnp.exp(-cells.newest / memory) * shares * share(window.length)
    kept = jnp.exp(-lengths / memory)
    chain = _line_of(
        jnp.ones(()), shares, within(lengths) - shares**2, kept, 1 - kept**2, shares * (1 - kept)
    )
    inner = jnp.where(same, within(lengths)[:, None], apart)
    return Movements(inner, ahead, within(window.length), jnp.zeros(()), chain)


def _line_of(start: Array, seen: Array, own: Array, onward: Array, shock: Array, alike: Array) -> Chain:
    """A chain whose state is one number."""
    first = jnp.zeros(STATE).at[0].set(1.0)
    both = jnp.outer(first, first)
    return Chain(
        start * both, seen[:, None] * first, own, onward[:, None, None] * both,
        shock[:, None, None] * both, alike[:, None] * first,
    )  # fmt: skip


def _smooth(cells: Cells, window: Window, memory: Float[Array, ""]) -> Movements:
    """Matérn 5/2 at the middles of the cells, which are short beside its memory."""

    def covariance(one: Array, other: Array) -> Array:
        ratio = jnp.sqrt(5.0) * jnp.abs(one[:, None] - other) / memory
        return (1 + ratio + ratio**2 / 3) * jnp.exp(-ratio)

    ages, ahead = (cells.newest + cells.oldest) / 2, window.points
    return Movements(
        covariance(ages, ages),
        covariance(ages, ahead).mean(axis=1),
        covariance(ahead, ahead).mean(),
        jnp.zeros(()),
        _matern(ages, memory),
    )


def _matern(ages: Float[Array, " c"], memory: Float[Array, ""]) -> Chain:
    """The state is the curve and its first two derivatives, in units of memory/√5.

    (Hartikainen and Särkkä, 2010.)
    """
    apart = jnp.sqrt(5.0) * jnp.diff(ages, prepend=ages[:1])[:, None, None] / memory
    turn = jnp.asarray(MATERN_TURN, ages.dtype)
    onward = jnp.exp(-apart) * (jnp.eye(STATE) + apart * turn + apart**2 / 2 * (turn @ turn))
    start = jnp.asarray(MATERN_START, ages.dtype)
    shock = start - onward @ start @ jnp.swapaxes(onward, -1, -2)
    nothing = jnp.zeros((ages.size, STATE))
    return Chain(start, nothing.at[:, 0].set(1.0), jnp.zeros(ages.size), onward, shock, nothing)


def _breaks(cells: Cells, prior: float) -> Movements:
    """Another level before some date."""
    ages = jnp.asarray(BREAKS, cells.mean.dtype)
    lengths = jnp.maximum(cells.oldest - cells.newest, 1e-9)
    before = jnp.clip((cells.oldest - ages[:, None]) / lengths, 0, 1)
    least = BELIEVED * cells.unit / (ages * (1 - ages))
    sizes = jnp.concatenate([least, jnp.maximum(least, cells.spread)])
    return _jumps(jnp.tile(before, (2, 1)), sizes, prior)


def _jumps(before: Float[Array, "m c"], sizes: Float[Array, " m"], prior: float) -> Movements:
    """Something of these variances that counts in each cell as far as it lies before the break."""
    inner = sizes[:, None, None] * before[:, :, None] * before[:, None, :]
    nothing = jnp.zeros_like(before)

    def chain(before: Array, size: Array) -> Chain:
        return _line_of(size, before, 0 * before, jnp.ones_like(before), 0 * before, 0 * before)

    each = jnp.log(jnp.full(sizes.size, prior / sizes.size))
    return Movements(inner, nothing, nothing[:, 0], each, jax.vmap(chain)(before, sizes))


def time_features(cells: Cells, window: Window, cycles: Float[Array, ""]) -> Features:
    """Level, line and season. Both sides of a season are believed to grow or shrink a little over the log."""

    def features(age: Array, length: Array) -> Array:
        x = 0.5 - age
        angle = 2 * jnp.pi * cycles * x
        flattened = jnp.sinc(cycles * length)
        cos, sin = flattened * jnp.cos(angle), flattened * jnp.sin(angle)
        return jnp.stack([jnp.ones_like(x), x, cos, sin, x * cos, x * sin], axis=-1)

    ahead = features(window.points, jnp.zeros(())).mean(axis=0)
    return Features(features(cells.age, cells.oldest - cells.newest), ahead)


def list_shapes(models: TrendModels, cells: Cells) -> Shapes:
    """Level or line, with or without a season, each of a few strengths."""

    def strengths(least: Array, most: Array) -> Array:
        most = jnp.maximum(least, most)
        return jnp.stack([jnp.zeros_like(least), least, jnp.sqrt(least * most), most])

    line = strengths(12 * BELIEVED * cells.unit, 16 * cells.spread)
    season = strengths(2 * BELIEVED * cells.unit, 2 * cells.spread)
    told_apart = jnp.maximum(_resolved(cells), 1.0)  # so many frequencies compete
    sloping = (1 - models.level) * np.array([1 - STRONG, STRONG / 2, STRONG / 2])
    line_odds = jnp.array([models.level, *sloping])
    season_odds = jnp.stack([1 - models.season, *[models.season / 3 / told_apart] * 3])
    i, j = (one.ravel() for one in np.meshgrid(range(4), range(4 if models.season else 1)))
    variances = jnp.stack([line[i], *[season[j]] * 4], axis=1)
    return Shapes(variances.astype(cells.mean.dtype), jnp.log(line_odds[i] * season_odds[j]))


def _resolved(cells: Cells) -> Float[Array, ""]:
    """The most cycles per log that the cells can show."""
    return jnp.sum(cells.count > 0) / 3


def season_cycles(cells: Cells) -> Float[Array, ""]:
    """The number of cycles per log of the season that fits best, beside a line."""
    tried = jnp.arange(3, QUARTERS * CELLS // 3) / QUARTERS
    resolved = tried <= _resolved(cells)
    best = tried[jnp.argmax(jnp.where(resolved, jax.vmap(partial(_season_fit, cells))(tried), -jnp.inf))]
    finer = best + jnp.linspace(-1.0, 1.0, 2 * FINER + 1) / QUARTERS
    return finer[jnp.argmax(jax.vmap(partial(_season_fit, cells))(finer))]


def _season_fit(cells: Cells, cycles: Float[Array, ""]) -> Float[Array, ""]:
    """How much of the squares a wave takes out beside a line, which it may nearly be itself."""
    found = time_features(cells, Window(jnp.ones(())), cycles).cells[:, :4]
    columns = jnp.sqrt(cells.precision)[:, None] * jnp.concatenate([found, cells.mean[:, None]], axis=1)
    gram = columns.T @ columns
    held_back = 1e-3 * jnp.diag(gram) * jnp.array([0.0, 0.0, 1.0, 1.0, 0.0])
    left, _ = eliminate(gram + jnp.diag(held_back), 4)
    line, _ = eliminate(gram[jnp.array([0, 1, 4])][:, jnp.array([0, 1, 4])], 2)
    return line[0, 0] - left[0, 0]


def families_of(models: TrendModels) -> list[tuple[str, float, Flags]]:
    """Kind, memory and members (movements × shapes) of every family of models, strengths taken together."""
    lines = 4 * (4 if models.season else 1)
    sloping = np.arange(lines) % 4 > 0
    kinds = [("still", 1.0)]
    kinds += [("break", age) for age in BREAKS] * 2 if models.broken else []
    kinds += [("rough", one) for one in ROUGH] * STRENGTHS if models.rough else []
    kinds += [("smooth", one) for one in SMOOTH] * STRENGTHS if models.smooth else []
    found = [
        (name, 1.0, np.outer([one[0] == "still" for one in kinds], shape))
        for name, shape in (("level", ~sloping), ("line", sloping))
    ]
    return found + [
        (*kind, np.outer([one == kind for one in kinds], np.ones(lines, bool)))
        for kind in dict.fromkeys(kinds[1:])
    ]
