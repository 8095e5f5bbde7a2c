"""Deliveries, for Prometheus: how many are in which state, and how long the oldest waits."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from ..database import Database
from ..evaluations import clock
from .tables import PENDING, deliveries


class EventNumbers(Collector):
    """What the tables know, read when it is asked for."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def collect(self) -> Iterator[Metric]:
        table = deliveries
        counted = select(table.c.endpoint, table.c.state, func.count()).group_by(
            table.c.endpoint, table.c.state
        )
        overdue = select(func.min(table.c.due)).where(table.c.state == PENDING, table.c.attempts > 0)
        with self.database.reading() as connection:
            rows = connection.execute(counted).all()
            late = connection.execute(overdue).scalar()
            now = clock(connection)
        found = GaugeMetricFamily(
            "tidegate_event_deliveries",
            "Deliveries of events; dead ones are given up.",
            labels=["endpoint", "state"],
        )
        for endpoint, state, count in rows:
            found.add_metric([endpoint, state], count)
        yield found
        value = 0.0 if late is None else max(0.0, now - late)
        help_ = "Seconds that the delivery which is tried again has been due."
        yield GaugeMetricFamily("tidegate_event_delivery_overdue_seconds", help_, value=value)

    def describe(self) -> Iterator[Metric]:
        yield from ()
