"""What `tidegate reproduce` does: a study, then its table and figures, all in one folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..reports.coverage import draw_coverage
from ..reports.figures import STYLE, draw_figure
from ..reports.studies import draw_bars, draw_curves, draw_unsafe
from .beyond import Effort, run_beyond
from .coverage import CoverageJob, coverage_study, coverage_table, summarise_coverage
from .domains import Domain
from .reproduce import Progress, run_jobs, run_study
from .store import Store
from .studies import diabetes_world, figure4, table1
from .sweep import Column, Sweep, load_sweep
from .tables import markdown, summarise

CURVE_SPEED = "2"


def reproduce_table1(
    speeds: list[int], out: Path, domain: Domain = Domain.RECOSYS, **study: Any
) -> str:
    """The ablation of the paper's Table 1."""
    _prepare(domain)
    published = domain is Domain.RECOSYS
    return _reproduce(table1(speeds, domain), out, _draw_bars, study, published=published)


def reproduce_figure4(
    speeds: list[int], out: Path, domain: Domain = Domain.RECOSYS, **study: Any
) -> str:
    """SPIN and the baseline: bars at every speed and, at speed 2, curves along time."""
    _prepare(domain)
    published = domain is Domain.RECOSYS
    return _reproduce(figure4(speeds, domain), out, _draw_figure4, study, published=published)


def reproduce_sweep(definition: Path, out: Path, **study: Any) -> str:
    """A sweep of the user's own."""
    return _reproduce([load_sweep(definition)], out, _draw_bars, study)


def reproduce_coverage(
    out: Path,
    *,
    runs: int,
    seed: int,
    engine: str = "local",
    address: str | None = None,
    progress: Progress | None = None,
) -> str:
    """How often intervals cover the truth, over lengths, levels, noises and orders."""
    jobs = [CoverageJob(cell, runs, seed) for cell in coverage_study()]
    store = Store(out, {"cells": [job.cell for job in jobs], "runs": runs, "seed": seed})
    rows = summarise_coverage(run_jobs(jobs, store, engine, address, progress))
    _save(out / "coverage", 7, 4, lambda axis: draw_coverage(axis, rows))
    return _table(out, coverage_table(rows))


def reproduce_beyond(
    speeds: list[int], out: Path, part: str, *, progress: Progress | None = None, **effort: Any
) -> str:
    """Three algorithms in the paper's worlds and in others; a part of the study, or all of it."""
    return run_beyond(part, out, Effort(**effort), speeds=speeds, progress=progress)


def _reproduce(
    sweeps: list[Sweep],
    out: Path,
    draw: Callable[[dict[str, Column], int, Path], None],
    study: dict[str, Any],
    *,
    published: bool = False,
) -> str:
    columns = run_study(sweeps, out=out, **study)
    draw(columns, sweeps[0].num_episodes, out)
    return _table(out, markdown(summarise(columns), published=published))


def _prepare(domain: Domain) -> None:
    """The truth about the treatments is simulated once, before the programs that look it up."""
    if domain is Domain.DIABETES:
        diabetes_world(0.0)


def _draw_bars(columns: dict[str, Column], num_episodes: int, out: Path) -> None:
    summaries = summarise(columns)
    for field, label in (
        ("normalised", "improvement over safe, normalised"),
        ("violation", "% of episodes under an unsafe policy"),
    ):
        _save(
            out / field, 6, 3.6, partial(draw_bars, summaries=summaries, field=field, label=label)
        )


def _draw_figure4(columns: dict[str, Column], num_episodes: int, out: Path) -> None:
    _draw_bars(columns, num_episodes, out)
    if CURVE_SPEED in columns["cell"]:
        for name, draw in (("learning_curve", draw_curves), ("unsafe_curve", draw_unsafe)):
            _save(
                out / name,
                7,
                3.8,
                lambda axis, draw=draw: draw(axis, columns, CURVE_SPEED, num_episodes),  # type: ignore[misc]
            )


def _save(path: Path, width: float, height: float, draw: Callable[[Axes], Axes]) -> None:
    figure = draw_figure(width, height, draw)
    with plt.rc_context(STYLE):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


def _table(out: Path, table: str) -> str:
    (out / "table.md").write_text(table, encoding="utf-8")
    return table
