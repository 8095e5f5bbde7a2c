"""The study beyond the paper: three algorithms in the paper's worlds and in others that drift otherwise.

No setting is chosen for a world: look-ahead, gradient steps, entropy weight and SPIN's order are drawn
as in the paper, the same for all worlds. Neither Matplotlib nor Polars is imported here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import SettingsError
from ..reports.beyond import coverage_table, lapse_table, sweep_table
from ..simulators.drifting import DriftingBandit
from ..simulators.recommender import PERIODS
from .beyond_coverage import LogCell, LogJob, summarise_logs
from .domains import Domain
from .reproduce import Progress, run_jobs, run_study
from .store import Store
from .studies import diabetes_world, figure4
from .sweep import Sweep

PARTS = ("recosys", "worlds", "diabetes", "coverage")
MULTISCALE = "tidegate.presets:multiscale_run"
EPISODES = 2_000
JUMP = 1_028.0  # after 20 episodes of warm-up a window of 2, 4, 6 or 8 episodes begins here
JUMPING = "jump"
WORLDS: dict[str, DriftingBandit] = {
    **{
        f"period {period}, noise {noise}": DriftingBandit.seasonal(float(period), noise)
        for noise in (0.05, 0.5)
        for period in (200, 400, 1_000, 5_000)
    },
    "linear": DriftingBandit.linear(float(EPISODES)),
    "stops": DriftingBandit.stopping(1_500.0, 700.0),
    "fixed order": DriftingBandit.fixed_order(1_500.0),
    **{f"{arms} arms": DriftingBandit.seasonal(1_500.0, arms=arms) for arms in (3, 10, 20)},
    JUMPING: DriftingBandit.jumping(JUMP),
}
LOG_LENGTHS, LOOKAHEADS = (500, 2_000), (2, 10, 100)

# A sweep names its world; the number of arms fixes array shapes, so each has a name of its own.
bandit_3, bandit_5, bandit_10, bandit_20 = (
    partial(DriftingBandit, arms=arms) for arms in (3, 5, 10, 20)
)


@dataclass(frozen=True)
class Effort:
    """How much is run, from which seed, and where."""

    runs: int
    seed: int
    engine: str = "local"
    address: str | None = None
    num_episodes: int = EPISODES


def run_beyond(
    part: str,
    out: Path,
    effort: Effort,
    *,
    speeds: Sequence[int] = range(4),
    progress: Progress | None = None,
) -> str:
    """Run a part of the study, or all; return its tables.

    Each part has a folder of its own in `out`; out/table.md holds all parts that are done.
    """
    if part not in (*PARTS, "all"):
        raise SettingsError(f"part is '{part}'", expected=f"{', '.join(PARTS)} or all")
    chosen = PARTS if part == "all" else (part,)
    for one in chosen:
        shown = None if progress is None else _named(progress, one)
        run = _run_coverage if one == "coverage" else _run_sweeps
        table = run(one, out / one, effort, speeds, shown)
        (out / one / "table.md").write_text(table, encoding="utf-8")
    (out / "table.md").write_text(_page(PARTS, out), encoding="utf-8")
    return _page(chosen, out)


def beyond_sweeps(part: str, speeds: Iterable[int] = range(4)) -> list[Sweep]:
    """The sweeps of one part: three algorithms for each number of arms."""
    if part == "worlds":
        numbers = dict.fromkeys(world.arms for world in WORLDS.values())
        return [sweep for arms in numbers for sweep in _bandit_sweeps(arms)]
    return [
        replace(one, cells={f"speed {speed}": cell for speed, cell in one.cells.items()})
        for one in contenders(figure4(speeds, Domain(part)))
    ]


def contenders(pair: Sequence[Sweep]) -> list[Sweep]:
    """SPIN and the baseline as in the paper, after the algorithm that has no order to draw."""
    spin, baseline = pair
    return [
        replace(baseline, name="Multiscale", algorithm=MULTISCALE),
        replace(spin, name="SPIN"),
        replace(baseline, name="Baseline"),
    ]


def coverage_cells(speeds: Iterable[int] = range(4)) -> list[LogCell]:
    """All worlds but the jump, which no log foretells; all lengths and look-aheads."""
    worlds = {f"speed {speed}": DriftingBandit.seasonal(PERIODS[speed]) for speed in speeds}
    worlds |= {name: world for name, world in WORLDS.items() if name != JUMPING}
    return [
        LogCell(name, world, length, lookahead)
        for name, world in worlds.items()
        for length in LOG_LENGTHS
        for lookahead in LOOKAHEADS
    ]


def _bandit_sweeps(arms: int) -> list[Sweep]:
    cells = {name: _traced(world) for name, world in WORLDS.items() if world.arms == arms}
    place = f"{__name__}:bandit_{arms}"
    named = contenders(figure4())
    suffix = "" if arms == 5 else f", {arms} arms"
    return [replace(one, name=one.name + suffix, cells=cells, world=place) for one in named]


def _traced(world: DriftingBandit) -> dict[str, float]:
    """The world as a cell of a sweep."""
    names = [field.name for field in fields(world) if field.name != "arms"]
    return {name: float(getattr(world, name)) for name in names}


def _run_sweeps(
    part: str, out: Path, effort: Effort, speeds: Sequence[int], progress: Progress | None
) -> str:
    if part == Domain.DIABETES:
        diabetes_world(0.0)  # the truth is simulated once, before the programs that look it up
    sweeps = [replace(one, num_episodes=effort.num_episodes) for one in beyond_sweeps(part, speeds)]
    columns = run_study(
        sweeps,
        runs=effort.runs,
        seed=effort.seed,
        out=out,
        engine=effort.engine,
        address=effort.address,
        progress=progress,
    )
    columns["algorithm"] = np.array([_algorithm(name) for name in columns["algorithm"].tolist()])
    worlds = list(dict.fromkeys(cell for sweep in sweeps for cell in sweep.cells))
    table = sweep_table(columns, worlds)
    return f"{table}\n{lapse_table(columns)}" if JUMPING in worlds else table


def _run_coverage(
    part: str, out: Path, effort: Effort, speeds: Sequence[int], progress: Progress | None
) -> str:
    jobs = [LogJob(cell, effort.runs, effort.seed) for cell in coverage_cells(speeds)]
    settings = {"cells": [job.cell for job in jobs], "runs": effort.runs, "seed": effort.seed}
    columns = run_jobs(jobs, Store(out, settings), effort.engine, effort.address, progress)
    return coverage_table(summarise_logs(columns))


def _page(parts: Iterable[str], out: Path) -> str:
    """The tables of those parts that are done."""
    done = {part: out / part / "table.md" for part in parts if (out / part / "table.md").exists()}
    tables = (f"## {part}\n\n{path.read_text(encoding='utf-8')}" for part, path in done.items())
    return "\n".join(tables)


def _algorithm(name: str) -> str:
    """Its name whatever the number of arms."""
    return name.partition(", ")[0]


def _named(progress: Progress, part: str) -> Progress:
    return lambda _, done, total: progress(part, done, total)
