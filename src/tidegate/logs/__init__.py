"""From a user's file to a log and to policies, with row numbers in every error.

from tidegate.logs import Columns, read_log, resolve_policy

loaded = read_log("visits.parquet", Columns(episode="visit", reward="profit"))
candidate, loaded = resolve_policy("column:new_prob", loaded)
safe, loaded = resolve_policy("behavior", loaded)
tidegate.safety_test(candidate, safe, tidegate.HeldOutEpisodes(loaded.log), settings)
"""

from .columns import Columns as Columns
from .columns import TimeUnit as TimeUnit
from .columns import load_columns as load_columns
from .columns import override_columns as override_columns
from .formats import Format as Format
from .formats import without_panic_text as without_panic_text
from .propensities import Calibration as Calibration
from .propensities import CalibrationBin as CalibrationBin
from .propensities import estimate_propensities as estimate_propensities
from .reading import LoadedLog as LoadedLog
from .reading import Propensities as Propensities
from .reading import read_log as read_log
from .specs import PolicySpec as PolicySpec
from .specs import SpecKind as SpecKind
from .specs import parse_spec as parse_spec
from .specs import resolve_policy as resolve_policy
from .timeline import TimeMeaning as TimeMeaning
