"""The server's hold on its worker: started, woken, started again when it dies."""

import contextlib
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path

from . import evaluations
from .database import Database
from .worker import DATABASE

log = logging.getLogger("tidegate.service")
AGAIN = 1.0  # seconds before a worker that died is started again


class Worker:
    """One process that computes, as long as the server runs."""

    def __init__(self, database: Database, data: Path) -> None:
        self.database, self.data = database, data
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    def wake(self) -> None:
        """Say that there is work; if the worker is gone, the next one will look anyway."""
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # gone, or told so often that the pipe is full
                os.write(process.stdin.fileno(), b"\n")

    def stop(self) -> None:
        """End the worker; what it was at is taken up by the next one."""
        self._ending.set()
        process = self._process
        if process is not None:
            process.kill()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ending.is_set():
            name = f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(4)}"
            command = [sys.executable, "-m", "tidegate.service.worker", str(self.data), name]
            known = {**os.environ, DATABASE: self.database.url}  # others may read a command line
            # A session of its own: what interrupts the server reaches the worker through its pipe alone.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=known, start_new_session=True)
            assert process.stdin is not None
            os.set_blocking(process.stdin.fileno(), False)
            self._process = process
            if self._ending.is_set():
                process.kill()
            code = process.wait()
            crashed = not self._ending.is_set()
            if crashed:
                log.error("the worker ended with code %s; another one is started", code)
            try:
                with self.database.writing() as connection:
                    evaluations.release(connection, name, crashed=crashed)
            except Exception:  # then its leases run out
                log.warning("the work of a worker that ended could not be given back", exc_info=True)
            self._ending.wait(AGAIN)
