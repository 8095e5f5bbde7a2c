"""Tables and progress bars in the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ..experiments.demo import Demo


@contextmanager
def progress_bar(unit: str = "windows,") -> Iterator[Callable[[str, int, int], None]]:
    """A bar per name, on standard error so that standard output stays clean."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, int] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = int(bars.add_task(name, total=total))
            bars.update(bars.task_ids[list(tasks).index(name)], completed=done)

        yield update


def demo_table(demo: "Demo", page: Path) -> None:
    """The demonstration in three numbers per algorithm."""
    world = {"recosys": "Recommender", "diabetes": "Diabetes"}[demo.domain]
    table = Table(title=f"{world} at speed {demo.speed}, one run each, seed {demo.seed}")
    table.add_column("algorithm")
    table.add_column("improvement\nover safe", justify="right")
    table.add_column("episodes under\nan unsafe policy", justify="right")
    table.add_column("windows with\na candidate", justify="right")
    for run in demo.runs:
        table.add_row(
            run.name,
            f"{run.improvement_over_safe:+.3f}",
            f"{100 * run.violation_rate:.1f} %",
            f"{run.deployments} of {len(run.deployed)}",
        )
    console = Console()
    console.print(table)
    console.print(f"Learning curves, decisions and one decision in detail: {page}")
