"""The threads that deliver: each takes what is due, sends it, and writes what became of it."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Row

from ..database import Database
from . import queue
from .endpoints import WEBHOOK
from .posting import post_signed
from .queue import Outcome
from .tables import DEAD

log = logging.getLogger("tidegate.service")
THREADS = 4
PAUSE = 0.5  # seconds between looks: events also come from the worker and from other servers
AWAY = 5.0  # seconds to wait where the database fails
Carrier = Callable[[Database, Row[Any], Row[Any]], Outcome]


class Sender:
    """Delivers events while the server runs; `carriers` are for endpoints that are not plain webhooks."""

    def __init__(
        self,
        database: Database,
        carriers: Mapping[str, Carrier] | None = None,
        schedule: tuple[float, ...] = queue.SCHEDULE,
    ) -> None:
        self.database, self.schedule = database, schedule
        self.carriers = {WEBHOOK: post_signed, **(carriers or {})}
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        """Begin; an embedded database has no other sender, so what was claimed is free again."""
        if self.database.embedded:
            with self.database.writing() as connection:
                queue.release_all(connection)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after what is being sent now, or leave it to the next start."""
        self._ending.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(1)

    def turn(self) -> bool:
        """Try one delivery; False if none is due."""
        with self.database.reading() as connection:
            if not queue.due(connection):
                return False
        with self.database.writing() as connection:
            delivery = queue.claim(connection)
        if delivery is None:
            return False
        outcome = self._sent(delivery)
        with self.database.writing() as connection:
            state = queue.settle(connection, delivery, outcome, self.database.now(), self.schedule)
        if state == DEAD:
            told = (delivery.event.id, delivery.endpoint.name, outcome.problem)
            log.error("the event %s was not delivered to %s, and will not be: %s", *told)
        return True

    def _sent(self, delivery: queue.Delivery) -> Outcome:
        try:
            return self.carriers[delivery.endpoint.kind](self.database, delivery.endpoint, delivery.event)
        except Exception as error:  # one event must not stop the others
            log.exception("the event %s could not be sent", delivery.event.id)
            return Outcome(False, None, f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                pause = 0.0 if self.turn() else PAUSE
            except Exception:  # the database may be away, or full, for a while
                log.warning("events cannot be delivered now", exc_info=True)
                pause = AWAY
            self._ending.wait(pause)
