"""Programs are traced once for all processes: what makes them the same, and what does not."""

import functools
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidegate as tg
from tidegate.arrays import forget_programs, in_double, kept, room_for, with_zeros
from tidegate.basis import TimeAxis
from tidegate.presets import multiscale_forecast
from tidegate.returns import effective_sample_size, episode_ratios
from tidegate.safety import compare_once, with_room
from tidegate.trend import fit_trend, trend_design

POLICY = tg.SoftmaxPolicy.from_probs([0.2, 0.3, 0.5])
SETTINGS = tg.ForecastSettings(10, tg.Paired(tg.CosineBasis(1)), draws=200)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache folder of its own for each test."""
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))  # type: ignore[no-untyped-call]
    forget_programs()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)  # type: ignore[no-untyped-call]
    forget_programs()


def programs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def log_of(count: int, seed: int = 0) -> tg.EpisodeLog:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, count)
    return tg.EpisodeLog.from_arrays(actions, actions + rng.normal(size=count), np.full(count, 1 / 3))


def counted(function: Callable[..., Any], times: list[str]) -> Callable[..., Any]:
    """The function as a kept program; each time that it is traced goes into the list."""

    @functools.wraps(function)
    def counting(*args: Any) -> Any:
        times.append(function.__name__)
        return function(*args)

    return kept(counting)


def test_a_program_is_traced_once_and_loaded_by_the_next_process(folder: Path) -> None:
    times: list[str] = []
    run = counted(effective_sample_size, times)
    values = np.arange(1.0, 9.0)
    expected = values.sum() ** 2 / (values**2).sum()
    for forgets in (False, False, True):
        if forgets:  # as a new process
            forget_programs()
        assert float(run(values)) == pytest.approx(expected, rel=1e-15)
    assert len(times) == 1
    assert len(programs(folder)) == 1
    run(np.arange(1.0, 10.0))
    assert len(times) == 2


def test_other_settings_types_and_precision_are_other_programs(folder: Path) -> None:
    run = kept(episode_ratios)
    log = log_of(8)
    run(POLICY, log)
    run(tg.SoftmaxPolicy.from_probs([0.1, 0.3, 0.6]), log)  # other numbers: the same program
    assert len(programs(folder)) == 1
    with jax.enable_x64(False):
        run(POLICY, log)
    assert len(programs(folder)) == 2
    run(tg.SoftmaxPolicy.from_probs([0.1, 0.2, 0.3, 0.4]), log)
    assert len(programs(folder)) == 3


def test_a_policy_of_the_users_own_is_compiled_and_not_kept(folder: Path) -> None:
    """Its class may be another one tomorrow."""

    class Mine(tg.SoftmaxPolicy):
        pass

    ratios = kept(episode_ratios)(Mine.from_probs([0.2, 0.3, 0.5]), log_of(8))
    np.testing.assert_allclose(ratios, episode_ratios(POLICY, log_of(8)))
    assert not programs(folder)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-7], lambda b: b[:40] + b"x" + b[41:]])
def test_a_damaged_program_is_made_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    run, values = kept(effective_sample_size), np.arange(1.0, 9.0)
    first = run(values)
    (path,) = programs(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    forget_programs()
    assert float(run(values)) == float(first)
    assert len(path.read_bytes()) == len(whole)


def test_nothing_is_read_from_a_folder_that_others_may_write(folder: Path) -> None:
    """JAX may keep its programs in one that many share; what is read here is code that runs."""
    run, values = kept(effective_sample_size), np.arange(1.0, 9.0)
    first = run(values)
    (path,) = programs(folder)
    path.write_bytes(hashlib.sha256(b"evil").digest() + b"evil")  # a seal that holds, around no program
    folder.chmod(0o777)
    forget_programs()
    assert float(run(values)) == float(first)
    assert path.read_bytes().endswith(b"evil")


def test_without_a_folder_the_numbers_are_the_same_to_the_bit(folder: Path) -> None:
    parts = with_room(SETTINGS, None, tg.HeldOutEpisodes(log_of(60)))
    run = functools.partial(compare_once, SETTINGS, POLICY, tg.SoftmaxPolicy([0.0, 0.0, 0.0]))
    found = []
    for place in (folder, folder, None):
        jax.config.update("jax_compilation_cache_dir", None if place is None else str(place))  # type: ignore[no-untyped-call]
        forget_programs()
        found.append(jax.tree.leaves(run(parts[1], parts[0])))
    for one, two, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_several_threads_and_a_folder_that_cannot_be_written(folder: Path) -> None:
    run, values = in_double(kept(effective_sample_size)), np.arange(1.0, 9.0)
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(float(run(values)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(programs(folder)) == 1
    jax.config.update("jax_compilation_cache_dir", str(folder / "gone"))  # type: ignore[no-untyped-call]
    forget_programs()
    assert float(run(values)) == found[0]


def test_programs_serve_lookaheads_levels_and_lengths(folder: Path) -> None:
    """As a user tries them one after the other: only the small programs are made again for a longer log."""
    settings = multiscale_forecast(SETTINGS)
    safe = tg.SoftmaxPolicy([0.0, 0.0, 0.0])
    made = []
    for count, lookahead, alpha in (
        (230, 5, 0.05), (230, 7, 0.05), (230, 5, 0.1), (237, 6, 0.02), (500, 5, 0.05),
    ):  # fmt: skip
        chosen = tg.ForecastSettings(
            lookahead, settings.test, alpha=alpha, draws=200, value_model=settings.value_model
        )
        seen, held_out = with_room(chosen, None, tg.HeldOutEpisodes(log_of(count)))
        compare_once(chosen, POLICY, safe, held_out, seen)
        made.append({one.name: one.stat().st_size for one in programs(folder)})
    assert [len(one) for one in made] == [3, 3, 3, 3, 5]
    longer = made[-1].keys() - made[0].keys()
    assert all(made[-1][one] < max(made[0].values()) / 2 for one in longer)


@pytest.mark.parametrize("lookahead", [1, 5, 64, 65])
def test_room_for_a_longer_lookahead_changes_nothing(lookahead: int) -> None:
    times, present = np.arange(1.0, 81.0), np.ones(80, bool)
    returns = jnp.asarray(np.random.default_rng(0).normal(size=80))
    exact = TimeAxis(0.0, 80.0, lookahead)
    roomy = TimeAxis.over((1.0, 80.0), lookahead)
    assert roomy.room >= lookahead
    np.testing.assert_array_equal(roomy.forecast_times, exact.forecast_times)
    for basis in (tg.CosineBasis(3), tg.PolynomialBasis(1), tg.FourierBasis(2, 7.0)):
        one, two = (fit_trend(trend_design(basis, times, present, axis), returns) for axis in (exact, roomy))
        assert float(one.point) == pytest.approx(float(two.point), rel=1e-12)
        assert float(one.variance) == pytest.approx(float(two.variance), rel=1e-12)


def test_rooms_are_a_quarter_too_large_at_most() -> None:
    rooms = [room_for(count) for count in range(5_000)]
    assert all(room >= max(count, 8) for count, room in enumerate(rooms))
    assert all(room <= 1.25 * count + 2 for count, room in enumerate(rooms) if count >= 8)
    assert len(set(rooms)) < 45
    assert with_zeros(np.ones((2, 3)), 2, axis=1).tolist() == [[1, 1, 1, 0, 0]] * 2


def test_spare_rows_change_no_verdict_and_no_number() -> None:
    """A log of 33 episodes has seven spare rows in the gate, and none where all signs are enumerated."""
    settings, safe = SETTINGS, tg.SoftmaxPolicy([0.0, 0.0, 0.0])
    log = log_of(33)
    padded = compare_once(settings, POLICY, safe, with_room(settings, None, tg.HeldOutEpisodes(log))[1], None)
    bare = compare_once(settings, POLICY, safe, tg.HeldOutEpisodes(log), None)
    for name in ("point", "lower", "upper", "p_value"):
        assert float(getattr(padded[0], name)) == pytest.approx(float(getattr(bare[0], name)), rel=1e-9)


def test_the_cache_is_shared_by_processes(tmp_path: Path) -> None:
    """Two commands at once, then a third: each prints the same forecast."""
    rng = np.random.default_rng(0)
    path = tmp_path / "log.csv"
    rows = "\n".join(f"{i},{a},0.5,{a + e:.6f}" for i, (a, e) in enumerate(
        zip(rng.integers(0, 2, 80), rng.normal(size=80), strict=True), 1))  # fmt: skip
    path.write_text(f"episode,action,behavior_prob,reward\n{rows}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["TIDEGATE_CACHE"] = str(tmp_path / "cache")
    command = [sys.executable, "-m", "tidegate", "evaluate", str(path), "--policy", "behavior", "--json",
               "--lookahead", "5", "--preset", "paper", "--order", "1"]  # fmt: skip

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)

    both = [start(), start()]
    printed = [one.communicate()[0] for one in both] + [start().communicate()[0]]
    assert '"point"' in printed[0]
    assert printed[0] == printed[1] == printed[2]
