"""The list of trend models, against integrals, textbook formulas and known seasons."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from tidegate import SettingsError
from tidegate.arrays import Floats
from tidegate.basis import TimeAxis
from tidegate.cells import CELLS, Cells, Series, divide
from tidegate.models import (
    BELIEVED,
    BREAKS,
    QUADRATURE,
    ROUGH,
    SMOOTH,
    STRENGTHS,
    Features,
    Movements,
    Shapes,
    TrendModels,
    Window,
    families_of,
    list_movements,
    list_shapes,
    season_cycles,
    time_features,
)

ROOM = 800
LOOKAHEAD = 0.15  # of the log's length
LISTS = {
    "all": TrendModels(),
    "no break": TrendModels(broken=0),
    "no smooth": TrendModels(smooth=0),
    "no rough": TrendModels(still=0.5, broken=0.25, smooth=0.25),
    "no season": TrendModels(season=0),
    "still": TrendModels(still=1, broken=0, smooth=0),
    "a level": TrendModels(still=1, broken=0, smooth=0, level=1, season=0),
}


class Listed(NamedTuple):
    """All that the log of some returns makes of a list of models."""

    cells: Cells
    movements: Movements
    shapes: Shapes


@eqx.filter_jit
def listed(models: TrendModels, series: Series, axis: TimeAxis) -> Listed:
    cells = divide(series, axis)
    window = Window(jnp.asarray(LOOKAHEAD, cells.mean.dtype))
    return Listed(cells, list_movements(models, cells, window), list_shapes(models, cells))


@jax.jit
def cycles_of(series: Series, axis: TimeAxis) -> Any:
    return season_cycles(divide(series, axis))


@jax.jit
def features_of(series: Series, axis: TimeAxis, cycles: Any) -> tuple[Cells, Features]:
    cells = divide(series, axis)
    return cells, time_features(cells, Window(jnp.asarray(LOOKAHEAD)), cycles)


def _series(times: Any, returns: Any) -> tuple[Series, TimeAxis]:
    spare = ROOM - times.size
    present = np.arange(ROOM) < times.size
    series = Series(jnp.asarray(np.pad(returns, (0, spare))), np.pad(times, (0, spare)), present)
    return series, TimeAxis.over((times[0], times[-1]), 10)


def _log(n: int, seed: int = 0) -> tuple[Series, TimeAxis]:
    return _series(np.arange(1.0, n + 1), np.random.default_rng(seed).normal(size=n))


def _strengths(cells: Cells) -> Floats:
    """From half the variance of the log's mean to four times all there is, each so many times the last."""
    unit, spread = float(cells.unit), float(cells.spread)
    return np.geomspace(0.5 * unit, 4 * max(unit, spread), STRENGTHS)


def _members(models: TrendModels, kind: str, memory: float) -> list[int]:
    """The movements of a family."""
    (flags,) = (one for name, known, one in families_of(models) if (name, known) == (kind, memory))
    return np.flatnonzero(flags.all(axis=1)).tolist()


def _mean_over(function: Callable[[float, float], float], one: Any, other: Any) -> float:
    """The mean of a function of two times over two intervals; it may have a kink where they are equal."""
    (a, b), (c, d) = one, other
    if (a, b) == (c, d):
        total = 2 * integrate.dblquad(function, a, b, a, lambda x: x, epsabs=1e-14, epsrel=1e-10)[0]
    else:
        total = integrate.dblquad(function, a, b, c, d, epsabs=1e-14, epsrel=1e-10)[0]
    return float(total / ((b - a) * (d - c)))


PAIRS = [(0, 0), (0, 1), (1, 1), (0, 3), (2, 5), (5, 5), (5, 6), (4, 20), (1, 30), (30, 30)]


def _pairs(cells: Cells) -> list[tuple[int, int]]:
    """Some pairs of cells that are not empty, by their places among these."""
    known = np.flatnonzero(np.asarray(cells.count) > 0)
    return [(known[i], known[j]) for i, j in PAIRS if max(i, j) < known.size]


@pytest.mark.parametrize("memory", ROUGH)
@pytest.mark.parametrize("n", [25, 800])
def test_a_rough_movement_has_the_mean_covariance_of_its_cells(n: int, memory: float) -> None:
    """e^(−|h|/memory) between all pairs of times; 25 episodes make long cells, 800 short ones in halves."""

    def covariance(s: float, t: float) -> float:
        return math.exp(-abs(s - t) / memory)

    cells, movements, _ = listed(LISTS["all"], *_log(n))
    ends = np.stack([cells.newest, cells.oldest], axis=1).tolist()
    ahead = (-LOOKAHEAD, 0.0)
    pairs = _pairs(cells)
    inner = [_mean_over(covariance, tuple(ends[i]), tuple(ends[j])) for i, j in pairs]
    outer = [_mean_over(covariance, tuple(ends[i]), ahead) for i, _ in pairs]
    own = _mean_over(covariance, ahead, ahead)
    members = _members(LISTS["all"], "rough", memory)
    assert len(members) == STRENGTHS
    for member, strength in zip(members, _strengths(cells), strict=True):
        found = np.asarray(movements.cells[member]) / strength
        np.testing.assert_allclose([found[i, j] for i, j in pairs], inner, rtol=1e-5)
        np.testing.assert_allclose(found, found.T, rtol=1e-12)
        window = np.asarray(movements.window[member]) / strength
        np.testing.assert_allclose([window[i] for i, _ in pairs], outer, rtol=1e-5)
        assert float(movements.variance[member]) / strength == pytest.approx(own, rel=1e-5)


@pytest.mark.parametrize("memory", SMOOTH)
def test_a_smooth_movement_is_matern(memory: float) -> None:
    """At the middles of the cells, as in Rasmussen and Williams (2006), equation 4.14, with ν = 5/2."""

    def covariance(gap: Any) -> Any:
        scaled = math.sqrt(5) * np.maximum(np.abs(gap), 1e-12) / memory
        return 2**-1.5 / special.gamma(2.5) * scaled**2.5 * special.kv(2.5, scaled)

    cells, movements, _ = listed(LISTS["all"], *_log(800))
    middles = (np.asarray(cells.newest) + np.asarray(cells.oldest)) / 2
    ahead = -LOOKAHEAD * (np.arange(400) + 0.5) / 400
    members = _members(LISTS["all"], "smooth", memory)
    assert len(members) == STRENGTHS
    for member, strength in zip(members, _strengths(cells), strict=True):
        np.testing.assert_allclose(
            movements.cells[member] / strength, covariance(middles[:, None] - middles), rtol=1e-8
        )
        # The window is a few times that stand for all of it.
        np.testing.assert_allclose(
            movements.window[member] / strength, covariance(middles[:, None] - ahead).mean(axis=1), atol=1e-3
        )
        own = covariance(ahead[:, None] - ahead).mean()
        assert float(movements.variance[member]) / strength == pytest.approx(own, rel=1e-2)


@pytest.mark.parametrize("age", BREAKS)
@pytest.mark.parametrize("n", [25, 300])
def test_a_break_is_another_level_before_its_date(n: int, age: float) -> None:
    cells, movements, _ = listed(LISTS["all"], *_log(n))
    newest, oldest = np.asarray(cells.newest), np.asarray(cells.oldest)
    inside = newest[:, None] + (oldest - newest)[:, None] * (np.arange(1000) + 0.5) / 1000
    share = (inside > age).mean(axis=1)
    # That believed has eight squared standard errors of the difference between before and after.
    before, after = age * n, (1 - age) * n
    believed = BELIEVED * float(cells.unit) * n * (1 / before + 1 / after)
    members = _members(LISTS["all"], "break", age)
    for member, size in zip(members, [believed, max(believed, float(cells.spread))], strict=True):
        np.testing.assert_allclose(movements.cells[member] / size, np.outer(share, share), atol=2e-3)
        np.testing.assert_array_equal(movements.window[member], 0)
        assert float(movements.variance[member]) == 0


@pytest.mark.parametrize("n", [25, 800])
def test_every_movement_with_its_window_is_a_covariance(n: int) -> None:
    _, movements, _ = listed(LISTS["all"], *_log(n))
    inner, ahead, own = (np.asarray(one) for one in (movements.cells, movements.window, movements.variance))
    whole = np.concatenate(
        [
            np.concatenate([inner, ahead[:, :, None]], axis=2),
            np.concatenate([ahead[:, None, :], own[:, None, None]], axis=2),
        ],
        axis=1,
    )
    scale = np.maximum(whole.max(axis=(1, 2)), 1e-300)
    assert np.linalg.eigvalsh(whole / scale[:, None, None]).min() > -1e-5


@pytest.mark.parametrize("n", [25, 799])
def test_in_32_bit_covariances_are_as_in_64(n: int) -> None:
    double = listed(LISTS["all"], *_log(n))
    with jax.enable_x64(False):
        single = listed(LISTS["all"], *_log(n))
        assert single.movements.cells.dtype == single.shapes.variances.dtype == jnp.float32
    np.testing.assert_array_equal(single.cells.count, double.cells.count)
    for field in ("cells", "window", "variance"):
        fine, coarse = (np.asarray(getattr(one.movements, field)) for one in (double, single))
        # Next to the largest entry of their movement: what is forgotten is 0 or next to it.
        largest = fine.reshape(len(fine), -1).max(axis=1).reshape(-1, *[1] * (fine.ndim - 1))
        assert np.all(np.abs(coarse - fine) <= 3e-5 * largest)
    np.testing.assert_allclose(single.shapes.variances, double.shapes.variances, rtol=1e-4)


def _wave(
    cycles: float, n: int = 600, noise: float = 0.2, irregular: bool = False
) -> tuple[Series, TimeAxis]:
    """A sine with so many cycles per log beside a line."""
    rng = np.random.default_rng(7)
    steps = rng.exponential(size=n) if irregular else np.ones(n)
    times = np.cumsum(steps)
    x = (times - times[0] + 1) / (times[-1] - times[0] + 1)
    return _series(times, np.sin(2 * np.pi * cycles * x + 1) + 3 * x + noise * rng.normal(size=n))


@pytest.mark.parametrize("irregular", [False, True])
@pytest.mark.parametrize("cycles", [1.1, 2.0, 3.3, 5.72, 8.9, 11.8])
def test_the_frequency_of_a_season_is_found(cycles: float, irregular: bool) -> None:
    """To 1/32 of a cycle, the finest that is tried."""
    assert abs(float(cycles_of(*_wave(cycles, irregular=irregular))) - cycles) <= 1 / 32


def test_a_frequency_that_the_cells_cannot_show_is_not_tried() -> None:
    """Four cells show no more than 4/3 of a cycle."""
    assert float(cycles_of(*_wave(3.0, n=25, noise=0.1))) <= 4 / 3 + 1 / 4


@pytest.mark.parametrize("cycles", [0.75, 4.0, 11.3])
def test_time_features_are_averages_over_cells_and_window(cycles: float) -> None:
    series, axis = _log(800)
    cells, found = features_of(series, axis, cycles)
    angle = 2 * np.pi * cycles

    def features(x: Any) -> Any:
        waves = [np.cos(angle * x), np.sin(angle * x)]
        return np.stack([np.ones_like(x), x, *waves, *(x * one for one in waves)], axis=-1)

    ages = (
        np.asarray(cells.age)[:, None]
        + (np.arange(200) - 99.5) / 200 * np.asarray(cells.oldest - cells.newest)[:, None]
    )
    expected = features(0.5 - ages).mean(axis=1)
    np.testing.assert_allclose(found.cells[:, :4], expected[:, :4], atol=1e-4)
    np.testing.assert_allclose(found.cells[:, 4:], expected[:, 4:], atol=5e-3)  # x is that of the middle
    ahead = features(0.5 + LOOKAHEAD * (np.arange(400) + 0.5) / 400).mean(axis=0)
    np.testing.assert_allclose(found.window[:2], ahead[:2], rtol=1e-12)
    # Eight points of a window with less than two cycles.
    np.testing.assert_allclose(found.window[2:], ahead[2:], atol=0.05)
    assert Window(jnp.ones(())).points.size == QUADRATURE


@pytest.mark.parametrize("name", LISTS)
def test_prior_probabilities_are_those_of_the_list(name: str) -> None:
    models = LISTS[name]
    cells, movements, shapes = listed(models, *_log(300))
    prior = np.exp(np.asarray(movements.log_prior))
    assert prior.sum() == pytest.approx(1, rel=1e-9)
    assert prior[0] == pytest.approx(models.still)
    for kind, memories, expected in (
        ("break", BREAKS, models.broken),
        ("rough", ROUGH, models.rough),
        ("smooth", SMOOTH, models.smooth),
    ):
        if expected:
            each = [prior[_members(models, kind, one)].sum() for one in memories]
            np.testing.assert_allclose(each, expected / len(memories), rtol=1e-9)
    odds, variances = np.exp(np.asarray(shapes.log_prior)), np.asarray(shapes.variances)
    seasonal, sloping = variances[:, 1] > 0, variances[:, 0] > 0
    # Only the season that fits best is weighed, of as many as could be told apart: this has its odds.
    apart = float(np.sum(np.asarray(cells.count) > 0)) / 3
    assert odds[~seasonal].sum() == pytest.approx(1 - models.season)
    assert odds[seasonal].sum() == pytest.approx(models.season / apart)
    assert odds[~sloping].sum() / odds.sum() == pytest.approx(models.level)


def test_shapes_are_levels_and_lines_with_and_without_a_season() -> None:
    cells, _, shapes = listed(LISTS["all"], *_log(300))
    unit, spread = float(cells.unit), float(cells.spread)
    variances = np.asarray(shapes.variances)
    assert variances.shape == (16, 5)
    line, season = np.unique(variances[:, 0]), np.unique(variances[:, 1])
    # The variance of x over a log is 1/12, that of a wave 1/2: a believed slope has eight squared errors.
    least = BELIEVED * unit
    np.testing.assert_allclose(line, [0, 12 * least, math.sqrt(12 * least * 16 * spread), 16 * spread])
    np.testing.assert_allclose(season, [0, 2 * least, math.sqrt(4 * least * spread), 2 * spread])
    np.testing.assert_array_equal(variances[:, 1:], np.tile(variances[:, 1:2], 4))
    pairs = {(float(one), float(other)) for one, other in variances[:, :2]}
    assert pairs == {(float(one), float(other)) for one in line for other in season}


@pytest.mark.parametrize("name", LISTS)
def test_every_model_is_in_one_family(name: str) -> None:
    models = LISTS[name]
    _, movements, shapes = listed(models, *_log(300))
    families = families_of(models)
    together = np.sum([members for _, _, members in families], axis=0)
    assert together.shape == (movements.log_prior.size, shapes.log_prior.size)
    np.testing.assert_array_equal(together, 1)
    assert len({(kind, memory) for kind, memory, _ in families}) == len(families)
    sloping = np.asarray(shapes.variances)[:, 0] > 0
    for kind, _, members in families[:2]:
        np.testing.assert_array_equal(members[0], sloping if kind == "line" else ~sloping)
        assert not members[1:].any()


@pytest.mark.parametrize(
    ("name", "kinds", "movements", "shapes"),
    [
        ("all", {"level", "line", "break", "rough", "smooth"}, 1 + 8 + 30 + 20, 16),
        ("no break", {"level", "line", "rough", "smooth"}, 1 + 30 + 20, 16),
        ("no smooth", {"level", "line", "break", "rough"}, 1 + 8 + 30, 16),
        ("no rough", {"level", "line", "break", "smooth"}, 1 + 8 + 20, 16),
        ("no season", {"level", "line", "break", "rough", "smooth"}, 1 + 8 + 30 + 20, 4),
        ("still", {"level", "line"}, 1, 16),
    ],
)
def test_a_part_without_probability_leaves_the_list(
    name: str, kinds: set[str], movements: int, shapes: int
) -> None:
    found = listed(LISTS[name], *_log(300))
    assert {kind for kind, _, _ in families_of(LISTS[name])} == kinds
    assert found.movements.log_prior.shape == (movements,)
    assert found.movements.cells.shape == (movements, *[found.cells.mean.size] * 2)
    assert found.shapes.log_prior.shape == (shapes,)
    assert found.cells.mean.size < CELLS + 10


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"still": 0}, "still is 0"),
        ({"still": 1.5}, "still is 1.5"),
        ({"still": "often"}, "still is 'often'"),
        ({"broken": -0.1}, "broken is -0.1"),
        ({"broken": 1}, "broken is 1"),
        ({"smooth": math.nan}, "smooth is nan"),
        ({"smooth": True}, "smooth is True"),
        ({"level": 2}, "level is 2"),
        ({"level": -1}, "level is -1"),
        ({"season": 1}, "season is 1"),
        ({"season": None}, "season is None"),
        ({"still": 0.9, "broken": 0.2}, r"still \+ broken \+ smooth is 1\.1"),
    ],
)
def test_what_is_no_probability_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        TrendModels(**wrong)
