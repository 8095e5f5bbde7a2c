"""Tables and progress bars in the terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .printing import printable


@contextmanager
def progress_bar(unit: str = "windows,") -> Iterator[Callable[[str, int, int], None]]:
    """A bar per name, on standard error so that standard output stays clean."""
    columns = (
        TextColumn("{task.description:<12}", markup=False),
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
                tasks[name] = int(bars.add_task(printable(name), total=total))
            bars.update(bars.task_ids[list(tasks).index(name)], completed=done)

        yield update


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A titled table: names on the left, numbers on the right."""
    table = Table(title=title)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
