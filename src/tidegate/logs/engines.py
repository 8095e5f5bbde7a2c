"""stub"""
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any
class EngineKind(enum.Enum):
    """How."""
    THREADS = "threads"
    RAY = "ray"
Engine = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
def serially(f, parts):
    """One."""
    return map(f, parts)
def engine_of(kind, workers, stage):
    """One."""
    return serially
