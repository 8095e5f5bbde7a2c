"""A checked log together with where it came from: what the commands and the reports work on."""

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ..arrays import Values
from ..door import Where
from ..episodes import EpisodeLog
from ..errors import LogError
from .columns import Columns
from .places import Places
from .timeline import TimeMeaning

if TYPE_CHECKING:
    from .propensities import Calibration


class Propensities(enum.Enum):
    """Where the probabilities of the logged actions come from: what a verdict must say about them."""

    LOGGED = "propensities as logged"
    ESTIMATED = "propensities estimated: not guaranteed"
    ABSENT = "propensities unknown: only importance ratios can be used"


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedLog:
    """A checked log and its source.

    `frame` holds all columns of the source, its rows sorted by episode and step as in the log: row r
    of the frame is the r-th filled step of `log`, episode after episode. `labels` are the names of the
    actions 0, 1, …, if the source has names. `notes` are sentences for the user.
    """

    log: EpisodeLog
    frame: pl.DataFrame
    columns: Columns
    places: Places
    time: TimeMeaning
    source: str
    labels: tuple[Any, ...] = ()
    propensities: Propensities = Propensities.LOGGED
    calibration: "Calibration | None" = None
    notes: tuple[str, ...] = ()

    def grid(self, values: Values) -> Values:
        """Values per row of the frame as (episodes, steps), zero at the unused steps."""
        mask = np.asarray(self.log.mask)
        grid = np.zeros((*mask.shape, *values.shape[1:]), values.dtype)
        grid[mask] = values
        return grid

    @property
    def where(self) -> Where:
        """From (episode, step) of the log to the place of that row in the source."""
        lengths = np.asarray(self.log.mask).sum(axis=1)
        starts = np.cumsum(lengths) - lengths
        return lambda index: self.places(int(starts[index[0]]) + index[1])

    @property
    def states(self) -> pl.DataFrame:
        """What a policy may look at: the mapped features, else every column without another part."""
        columns = self.columns
        if columns.features or columns.state:
            return self.frame.select(columns.features or (str(columns.state),))
        action = (columns.action,) if isinstance(columns.action, str) else columns.action
        parts = {columns.episode, columns.step, columns.behavior_prob, columns.reward, columns.time}
        named = (part for part in parts if part)
        return self.frame.drop(*action, *named, *columns.outcomes, strict=False)


def missing_propensities(what: str) -> LogError:
    """The paragraph a user reads when the probabilities of the logged actions are unknown."""
    return LogError(
        what,
        expected="the probability with which each logged action was drawn",
        remedy="Without it nothing can be said about another policy. Name the column "
        "(behavior_prob); or leave behavior_prob empty and give each policy as a column of "
        "importance ratios (ratio:NAME); or have the probabilities estimated "
        "(estimate_propensities), and then no verdict is guaranteed.",
    )
