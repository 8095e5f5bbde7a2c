"""What `tidegate reproduce` does: a study, then its table and figures, all in one folder."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..record import write_whole, writing
from ..reports.figures import STYLE, draw_figure
from .coverage import run_coverage
from .domains import Domain
from .figures import draw_bars, draw_coverage, draw_curves, draw_unsafe
from .reproduce import Effort, run_study
from .studies import figure4, prepare, table1
from .sweep import Sweep, load_sweep
from .tables import markdown, summarise
from .trend_coverage import trend_cells, trend_table

CURVE_SPEED = "2"
BARS = {
    "normalised": "improvement over safe, normalised",
    "violation": "% of episodes under an unsafe policy",
}


def reproduce_table1(speeds: Sequence[int], out: Path, domain: Domain, effort: Effort) -> str:
    """The ablation of the paper's Table 1."""
    prepare(domain)
    return _reproduce(table1(speeds, domain), out, effort, published=domain is Domain.RECOSYS)


def reproduce_figure4(speeds: Sequence[int], out: Path, domain: Domain, effort: Effort) -> str:
    """SPIN and the baseline: bars at every speed and, at speed 2, curves over time."""
    prepare(domain)
    sweeps, published = figure4(speeds, domain), domain is Domain.RECOSYS
    return _reproduce(sweeps, out, effort, published=published, curves=CURVE_SPEED)


def reproduce_sweep(definition: Path, out: Path, effort: Effort) -> str:
    """A sweep of the user's own."""
    return _reproduce([load_sweep(definition)], out, effort, published=False)


def reproduce_coverage(out: Path, effort: Effort) -> str:
    """How often intervals cover the truth, over lengths, levels, noises and orders."""
    rows = run_coverage(trend_cells(), out, effort)
    _save(out / "coverage", 7, 4, partial(draw_coverage, rows=rows))
    return _table(out, trend_table(rows))


def _reproduce(
    sweeps: Sequence[Sweep],
    out: Path,
    effort: Effort,
    *,
    published: bool,
    curves: str | None = None,
) -> str:
    """`curves` is the cell whose runs are also drawn over time, if it was run."""
    columns = run_study(sweeps, out, effort)
    summaries = summarise(columns)
    for field, label in BARS.items():
        draw = partial(draw_bars, summaries=summaries, field=field, label=label)
        _save(out / field, 6, 3.6, draw)
    if curves is not None and curves in columns["cell"]:
        along: dict[str, Any] = {
            "columns": columns,
            "cell": curves,
            "num_episodes": sweeps[0].num_episodes,
        }
        _save(out / "learning_curve", 7, 3.8, partial(draw_curves, **along))
        _save(out / "unsafe_curve", 7, 3.8, partial(draw_unsafe, **along))
    return _table(out, markdown(summaries, published=published))


def _save(path: Path, width: float, height: float, draw: Callable[[Axes], Axes]) -> None:
    figure = draw_figure(width, height, draw)
    with plt.rc_context(STYLE):
        with writing(path.with_suffix(".svg")) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
        with writing(path.with_suffix(".png")) as file:
            figure.savefig(file, format="png", dpi=150)
    plt.close(figure)


def _table(out: Path, table: str) -> str:
    write_whole(out / "table.md", table)
    return table
