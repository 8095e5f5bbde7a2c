"""Where the parts of a log are worked on: by threads of this process, or as tasks on a Ray cluster.

An engine applies a function to each part and gives the results in the order of the parts, whoever finished
first. polars, NumPy and JAX let other threads run while they compute, so threads are enough on one machine.
"""

import collections
import dataclasses
import enum
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from ..errors import SettingsError, TidegateError

A = TypeVar("A")
B = TypeVar("B")
RETRIES = 3
AHEAD = 2  # results that may wait for their turn, for each worker


class EngineKind(enum.Enum):
    """Who works on the parts."""

    THREADS = "threads"
    RAY = "ray"

    def __str__(self) -> str:
        return self.value


class Engine(Protocol):
    """Something that works on parts."""

    @property
    def workers(self) -> int: ...

    def map(self, function: Callable[[A], B], parts: Iterable[A]) -> Iterator[B]: ...


@dataclasses.dataclass(frozen=True)
class Threads:
    """This process, with some threads."""

    workers: int = os.cpu_count() or 1

    def map(self, function: Callable[[A], B], parts: Iterable[A]) -> Iterator[B]:
        """The results in the order of the parts; a few parts are worked on ahead, no more."""
        waiting: collections.deque[Future[B]] = collections.deque()
        pool, left = ThreadPoolExecutor(self.workers), iter(parts)
        try:
            for part in itertools.islice(left, self.workers):
                waiting.append(pool.submit(function, part))
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(function, part) for part in itertools.islice(left, 1))
                yield result
        finally:
            # Whoever stops early, by an error or an interruption, leaves no thread behind.
            pool.shutdown(wait=True, cancel_futures=True)


@dataclasses.dataclass(frozen=True)
class Ray:
    """A Ray cluster, each part a task of one core. Parts that were lost with their node are done again."""

    address: str | None = None

    @property
    def workers(self) -> int:
        return max(1, int(connected(self.address).cluster_resources().get("CPU", 1)))

    def map(self, function: Callable[[A], B], parts: Iterable[A]) -> Iterator[B]:
        """The results in the order of the parts; twice as many parts as workers are under way."""
        ray, waiting, left = connected(self.address), collections.deque[Any](), iter(parts)
        task = ray_task(ray, function)
        try:
            waiting.extend(task.remote(part) for part in itertools.islice(left, AHEAD * self.workers))
            while waiting:
                result: B = _got(ray, waiting[0])
                waiting.popleft()
                waiting.extend(task.remote(part) for part in itertools.islice(left, 1))
                yield result
        finally:
            for lost in waiting:
                ray.cancel(lost)


def engine_of(kind: EngineKind, workers: int | None) -> Engine:
    """The engine of a kind; a Ray cluster has the workers that it has."""
    if kind is EngineKind.RAY and workers is not None:
        raise SettingsError(
            f"workers is {workers}, and a Ray cluster has its own.", remedy="Leave it out, or use threads."
        )
    if kind is EngineKind.RAY:
        return Ray()
    return Threads() if workers is None else Threads(workers)


def ray_task(ray: Any, function: Callable[[A], B]) -> Any:
    """The function as a task of one core, which Ray runs again if its node is lost."""

    def work(part: A) -> B:  # Ray takes nothing that is called like a function without being one
        return function(part)

    return ray.remote(num_cpus=1, max_retries=RETRIES)(work)


def connected(address: str | None) -> Any:
    """Ray, connected to the cluster at this address, else to the one in the environment, or to a new one."""
    try:
        import ray
    except ImportError as error:
        raise SettingsError(
            "the engine 'ray' needs Ray.", remedy="Install it: pip install 'tidegate[ray]'."
        ) from error
    if not ray.is_initialized():
        ray.init(address=address or os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    return ray


def ray_reason(error: Exception) -> str:
    """The task's own error, or what happened to the process that ran it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}".rstrip(".")
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}, after {RETRIES} more attempts: {lines[0]}".rstrip(".")


def _got(ray: Any, reference: Any) -> Any:
    """The result of a task; our own errors as they are, all others in our words."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        if isinstance(cause := getattr(error, "cause", None), TidegateError):
            raise cause from None
        raise TidegateError(
            f"Ray could not work on a part of the log: {ray_reason(error)}.",
            remedy="Run the command again when the cause is gone; nothing was written.",
        ) from error
