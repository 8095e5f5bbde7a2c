"""From a user's table to a log that has passed the door, with row numbers in every error."""

import numpy as np

from ..arrays import Values
from ..door import check_frame
from ..episodes import EpisodeLog
from ..errors import LogError
from .columns import Columns
from .formats import Format
from .loaded import LoadedLog, Propensities
from .parts import action_labels, prepare_parts, require_parts
from .sources import Source, Table, read_table
from .timeline import Timeline, timeline


def read_log(
    source: Source, columns: Columns | None = None, *, format: Format | str | None = None
) -> LoadedLog:
    """Read and check a log: a path, a glob, a list of paths, `-`, a frame, or a Minari dataset.

    Rows may come in any order; they are sorted by episode (or time) and step. The format is told by
    the name (`.parquet`, `.csv`, `.tsv`, `.jsonl`, each also with `.gz`), else by the first bytes;
    `format` overrides both. Raises `LogError` or `SettingsError`, and nothing else.
    """
    columns = columns or Columns()
    table = read_table(source, format)
    if table.frame.height == 0:
        raise LogError(
            f"{table.name} has no rows.",
            expected="at least one episode with one step",
            remedy="Check the query or the file that produced it.",
        )
    require_parts(table.frame, columns)
    return _checked(table, columns, timeline(table.frame, columns, table.places))


def _checked(table: Table, columns: Columns, line: Timeline) -> LoadedLog:
    frame, places, notes = table.frame, table.places, []
    if line.order is not None:
        frame, places = frame[line.order], places.take(line.order)
        notes.append("The rows were not in order: they were sorted by episode and step.")
    if columns.episode is None and columns.step in frame.columns:
        notes.append(
            f"Every row counts as an episode, although there is a column '{columns.step}'."
        )
    labels = action_labels(frame, columns, places)
    parts = prepare_parts(
        frame, columns, places, _row_episodes(line, columns, frame.height), labels
    )
    fields = check_frame(
        parts.frame, **parts.names, recorded={}, propensity=columns.propensity, place=places
    )
    fields["episode_numbers"] = line.episode_numbers
    if columns.behavior_prob is None:
        # Not a number until ratios are given, so that nothing is computed from them by mistake.
        fields["behavior_log_probs"] = np.where(fields["mask"], np.nan, 0.0)
    return LoadedLog(
        log=EpisodeLog(**fields),
        frame=frame,
        columns=columns,
        places=places,
        time=line.meaning,
        source=table.name,
        labels=labels,
        propensities=Propensities.ABSENT if columns.behavior_prob is None else Propensities.LOGGED,
        notes=tuple(notes),
    )


def _row_episodes(line: Timeline, columns: Columns, count: int) -> Values:
    """The episode of each row as the door wants it: strictly growing, so ranks where times may tie."""
    ranks = np.arange(1.0, line.starts.size + 1)
    names = line.episode_numbers if columns.time is None else ranks
    return np.repeat(names, np.diff(np.append(line.starts, count)))
