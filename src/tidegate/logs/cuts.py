"""Where a log may be cut without splitting an episode, or that its episodes lie scattered."""

import numpy as np

from ..arrays import Integers
from ..door import episode_starts
from .columns import Columns
from .keys import episode_keys
from .memory import MemoryLimit
from .pieces import Pieces, batches

SURVEY_ROWS = 1_000_000  # that are looked at together
PART_ROWS = 4_000_000  # of the parts that workers read, about
RUN_BYTES = 24  # of an episode's key while repeated ones are looked for


class _Seen:
    """Keys of the episodes so far. As long as they rise, none can have come before."""

    def __init__(self) -> None:
        self.kept: list[Integers] = []
        self.count = self.compared = 0
        self.rising = True

    def repeats(self, keys: Integers) -> bool:
        """Whether an episode that is over has begun again; looked for whenever the keys have doubled."""
        before = self.kept[-1][-1:] if self.kept else keys[:0]
        self.rising = self.rising and bool(np.all(np.diff(np.concatenate([before, keys])) > 0))
        self.kept.append(keys)
        self.count += keys.size
        return self.count >= 2 * self.compared and self.any_repeated()

    def any_repeated(self) -> bool:
        if self.rising:
            return False
        ordered = np.sort(np.concatenate(self.kept))  # NumPy's `unique` takes many times as long
        self.kept, self.compared = [ordered], self.count
        return bool(np.any(ordered[1:] == ordered[:-1]))


def cuts_between_episodes(pieces: Pieces, columns: Columns, limit: MemoryLimit) -> tuple[int, ...] | None:
    """Positions at which episodes begin, not too close to each other, and the end; None if rows lie apart."""
    if columns.episode is None:
        return (*_targets(pieces, PART_ROWS), pieces.span)
    seen, last, found = _Seen(), None, [0]
    targets = np.array(_targets(pieces, PART_ROWS))
    for table in batches(pieces, [columns.episode], 0, pieces.span, SURVEY_ROWS):
        keys = episode_keys(table, columns)
        starts = episode_starts(keys)
        starts = starts[int(last is not None and keys[0] == last) :]
        last = keys[-1]
        if starts.size == 0:
            continue
        if seen.repeats(keys[starts]):
            return None
        limit.require(seen.count * RUN_BYTES, f"the names of more than {seen.count:,} episodes")
        positions = table.places.rows[starts]
        nearest = np.searchsorted(positions, targets)
        found.extend(positions[nearest[(nearest < positions.size) & (targets > found[-1])]].tolist())
        targets = targets[targets > positions[-1]]
    if seen.any_repeated():
        return None
    return (*sorted({*found}), pieces.span)


def whole_tasks(pieces: Pieces, rows: int) -> list[tuple[int, int]]:
    """All rows as stretches of about so many, cut without regard to episodes."""
    firsts = _targets(pieces, rows)
    return list(zip(firsts, [*firsts[1:], pieces.span], strict=True))


def _targets(pieces: Pieces, rows: int) -> list[int]:
    """Where cuts are wanted: anywhere in files that can be entered anywhere, else between files."""
    cuts = [0]
    for piece in pieces.all:
        end = piece.first + piece.span
        if not piece.seekable:
            cuts.extend([piece.first] if piece.first >= cuts[-1] + rows else [])
        elif end > cuts[-1] + rows:
            cuts.extend(range(max(piece.first, cuts[-1] + rows), end, rows))
    return cuts
