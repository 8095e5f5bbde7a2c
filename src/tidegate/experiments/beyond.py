"""The study beyond the paper: three algorithms in the paper's worlds and in worlds with other drifts.

No setting is chosen for a world: look-ahead, gradient steps, entropy weight and SPIN's order are drawn
as in the paper, the same for all worlds. Neither Matplotlib nor Polars is imported here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from ..inputs import one_of
from ..record import write_whole
from ..simulators.drifting import DriftingBandit
from ..simulators.recommender import PERIODS
from .coverage import run_coverage
from .domains import Domain
from .reproduce import Effort, Progress, run_study
from .studies import figure4, prepare
from .sweep import Sweep
from .tables import lapse_table, summarise, world_table
from .world_coverage import WorldCell, world_coverage_table

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


def run_beyond(
    part: str,
    out: Path,
    effort: Effort,
    *,
    speeds: Sequence[int] = range(4),
    num_episodes: int = EPISODES,
) -> str:
    """Run a part of the study, or all; return its tables.

    Each part has a folder of its own in `out`; out/table.md holds all parts that are done.
    """
    part = one_of("part", part, (*PARTS, "all"))
    chosen = PARTS if part == "all" else (part,)
    for one in chosen:
        named = replace(effort, progress=_named(effort.progress, one))
        if one == "coverage":
            rows = run_coverage(coverage_cells(speeds), out / one, named)
            table = world_coverage_table(rows)
        else:
            sweeps = [replace(s, num_episodes=num_episodes) for s in beyond_sweeps(one, speeds)]
            table = _run_sweeps(one, sweeps, out / one, named)
        write_whole(out / one / "table.md", table)
    write_whole(out / "table.md", _page(PARTS, out))
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


def coverage_cells(speeds: Iterable[int] = range(4)) -> list[WorldCell]:
    """All worlds but the jump, which no log foretells; all lengths and look-aheads."""
    worlds = {f"speed {speed}": DriftingBandit.seasonal(PERIODS[speed]) for speed in speeds}
    worlds |= {name: world for name, world in WORLDS.items() if name != JUMPING}
    return [
        WorldCell(name, world, length, lookahead)
        for name, world in worlds.items()
        for length in LOG_LENGTHS
        for lookahead in LOOKAHEADS
    ]


def _bandit_sweeps(arms: int) -> list[Sweep]:
    """The number of arms fixes array shapes; all other fields of a world are traced."""
    traced = [field.name for field in fields(DriftingBandit) if field.name != "arms"]
    cells = {
        name: {field: float(getattr(world, field)) for field in traced}
        for name, world in WORLDS.items()
        if world.arms == arms
    }
    place = f"{DriftingBandit.__module__}:{DriftingBandit.__name__}"
    return [
        replace(one, cells=cells, world=place, world_fixed={"arms": arms}, jump="jump")
        for one in contenders(figure4())
    ]


def _run_sweeps(part: str, sweeps: Sequence[Sweep], out: Path, effort: Effort) -> str:
    prepare(part)
    columns = run_study(sweeps, out, effort)
    worlds = list(dict.fromkeys(cell for sweep in sweeps for cell in sweep.cells))
    table = world_table(summarise(columns), worlds)
    return f"{table}\n{lapse_table(columns)}" if JUMPING in worlds else table


def _page(parts: Iterable[str], out: Path) -> str:
    """The tables of those parts that are done."""
    done = {part: out / part / "table.md" for part in parts if (out / part / "table.md").exists()}
    tables = (f"## {part}\n\n{path.read_text(encoding='utf-8')}" for part, path in done.items())
    return "\n".join(tables)


def _named(progress: Progress, part: str) -> Progress:
    return lambda _, done, total: progress(part, done, total)
