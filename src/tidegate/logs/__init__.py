"""From a user's file to a log and to policies, with row numbers in every error.

from tidegate.logs import Columns, read_log, resolve_policy

loaded = read_log("visits.parquet", Columns(episode="visit", reward="profit"))
candidate, loaded = resolve_policy("column:new_prob", loaded)
safe, loaded = resolve_policy("behavior", loaded)
tidegate.safety_test(candidate, safe, tidegate.HeldOutEpisodes(loaded.log), settings)
"""

from .columns import Columns, TimeUnit, load_columns, override_columns
from .formats import Format
from .loaded import LoadedLog, Propensities
from .panics import without_panic_text
from .propensities import Calibration, CalibrationBin, estimate_propensities
from .reading import read_log
from .specs import PolicySpec, SpecKind, parse_spec, resolve_policy
from .streaming import StreamedPolicy, StreamedReturns, stream_returns
from .timeline import TimeMeaning

__all__ = [
    "Calibration",
    "CalibrationBin",
    "Columns",
    "Format",
    "LoadedLog",
    "PolicySpec",
    "Propensities",
    "SpecKind",
    "StreamedPolicy",
    "StreamedReturns",
    "TimeMeaning",
    "TimeUnit",
    "estimate_propensities",
    "load_columns",
    "override_columns",
    "parse_spec",
    "read_log",
    "resolve_policy",
    "stream_returns",
    "without_panic_text",
]
