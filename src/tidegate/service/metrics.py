"""What Prometheus may know: requests and how long they took, episodes, evaluations that wait."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from . import evaluations, registry
from .database import Database

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The counters of one server; what the tables know is read when it is asked for."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tidegate_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "tidegate_request_seconds", "Time to answer.", ["method", "route"],
            buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.registry.register(_Tables(database))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Tables(Collector):
    def __init__(self, database: Database) -> None:
        self.database = database

    def collect(self) -> Iterator[Metric]:
        with self.database.reading() as connection:
            gates, left = registry.all_gates(connection), evaluations.waiting(connection)
        yield GaugeMetricFamily("tidegate_evaluations_waiting", "Evaluations not decided.", value=left)
        episodes = GaugeMetricFamily("tidegate_episodes", "Episodes stored.", labels=["gate"])
        released = GaugeMetricFamily("tidegate_released", "Whether a release is in force.", labels=["gate"])
        for gate in gates:
            episodes.add_metric([gate.name], gate.row.episodes)
            released.add_metric([gate.name], float(gate.row.in_force is not None))
        yield from (episodes, released)

    def describe(self) -> Iterator[Metric]:
        yield from ()
