"""From a user's log to a record that can be printed, stored and replayed; one function per command.

from tidegate.logs import Columns
from tidegate.commands import LogFile, PlainSettings, gate

record = gate(
    LogFile("visits.parquet", Columns(reward="profit")),
    candidate="column:new_prob",
    settings=PlainSettings(lookahead=500),
)
print(record)
record.to_dict()  # plain JSON values: what `tidegate gate --json` prints

Every record has `to_dict`, in which a number that is not finite is null. Arrays that only a picture needs
are thinned to at most 1,000 points.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
