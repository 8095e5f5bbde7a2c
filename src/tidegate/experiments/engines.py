"""Where jobs run: on this machine's cores or its GPU, or as tasks on a Ray cluster.

An engine takes jobs and calls `done(job, columns)` for each exactly once, in any order, from the
calling thread.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

import jax

from ..errors import TidegateError
from ..logs.engines import connected, ray_reason, ray_task
from .sweep import Columns


class Job(Protocol):
    """A part of a study: some runs, as plain data that can travel to another process."""

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int:
        """How many runs."""

    @property
    def program(self) -> Hashable:
        """Jobs of one program share what `prepare` makes."""

    def prepare(self) -> None: ...

    def run(self) -> Columns: ...


J = TypeVar("J", bound=Job)
Done = Callable[[J, Columns], None]
BYTES_PER_RUN = 2**20  # log, rows and draws of one run at full capacity, generously
COMPILERS = 2  # a program is compiled on several cores already: more of them only delay the first
MOST_RUNS = {"cpu": 32, "gpu": 12_000}


def batch_size() -> int:
    """As many runs as suit the device, or as fit into its free memory."""
    device = jax.devices()[0]
    stats = device.memory_stats() or {}
    free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
    if free <= 0:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = int(free / 2 / BYTES_PER_RUN)
    return max(1, min(MOST_RUNS.get(device.platform, MOST_RUNS["cpu"]), fits))


def run_local(jobs: Sequence[J], done: Done[J]) -> None:
    """Two cores work on two jobs; a GPU on one, while the next programs compile."""
    workers = 1 if jax.default_backend() == "gpu" else os.cpu_count() or 1
    firsts = {job.program: job for job in reversed(jobs)}
    compilers = ThreadPoolExecutor(min(os.cpu_count() or 1, COMPILERS))
    runners = ThreadPoolExecutor(workers)
    try:
        for job in reversed(firsts.values()):
            compilers.submit(job.prepare)
        tasks = {runners.submit(job.run): job for job in jobs}
        for task in as_completed(tasks):
            done(tasks[task], task.result())
    finally:
        runners.shutdown(wait=False, cancel_futures=True)
        compilers.shutdown(wait=False, cancel_futures=True)


def run_ray(jobs: Sequence[J], done: Done[J], *, address: str | None = None) -> None:
    """The same jobs as Ray tasks; Ray runs those again whose node is lost, a few times at most."""
    ray = connected(address)
    task = ray_task(ray, _run)
    waiting = {task.remote(job): job for job in jobs}
    while waiting:
        (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
        job = waiting.pop(ready)
        try:
            columns = ray.get(ready)
        except ray.exceptions.RayError as error:
            raise TidegateError(
                f"Ray could not run the job {job.name}: {ray_reason(error)}.",
                remedy="Finished jobs are kept: when the cause is gone, the same command goes on from there.",
            ) from error
        done(job, columns)


def _run(job: Job) -> Columns:
    return job.run()
