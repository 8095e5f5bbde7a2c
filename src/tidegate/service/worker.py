"""The process that computes: it takes evaluations from the queue, one after the other, at low priority.

`python -m tidegate.service.worker DATA NAME` is started by the server, and ends with it: its standard input
is a pipe that the server holds, and a line on it says that there is work. The environment names the database.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from pathlib import Path

from .database import Database

log = logging.getLogger("tidegate.service")
DATABASE = "TIDEGATE_WORKER_DATABASE"
NICENESS = 10
PAUSE = 1.0  # seconds between looks at the queue, in case another server has put something there
PROGRAMS = "programs"  # the folder of compiled programs, beside the data


def run(url: str, data: Path, name: str) -> None:
    """Work until the server that started this one is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every accelerator that is not there
    with contextlib.suppress(OSError, AttributeError):  # Windows has no niceness
        os.nice(NICENESS)
    keep_programs(data / PROGRAMS)
    database, bell = Database(url), threading.Event()
    threading.Thread(target=_listen, args=(bell,), daemon=True).start()
    while True:
        try:
            busy = turn(database, name)
        except Exception:  # the database may be away, or full, for a while
            log.exception("the worker could not go on; it tries again")
            busy = False
            time.sleep(PAUSE)
        if not busy:
            bell.wait(PAUSE)
            bell.clear()


def turn(database: Database, name: str) -> bool:
    """Look at what was released, then decide one evaluation; whether there was anything to do."""
    from . import deciding, watching  # which load JAX: the server only needs this file's names

    with database.reading() as connection:
        gates = watching.pending(connection)
    for gate in gates:
        watching.watch(database, gate)
    return deciding.work(database, name) or bool(gates)


def keep_programs(folder: Path) -> None:
    """What JAX compiles is kept beside the data, for the next start."""
    import jax

    if jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return  # the environment names another place
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for option, value in {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(option, value)  # type: ignore[no-untyped-call]


def _listen(bell: threading.Event) -> None:
    """A line wakes the worker; the end of the pipe is the end of the server, and of this."""
    while sys.stdin.buffer.readline():
        bell.set()
    os._exit(0)


if __name__ == "__main__":
    run(os.environ[DATABASE], Path(sys.argv[1]), sys.argv[2])
