"""The metrics of one API process, and those of the registry, in the formats of Prometheus.

The process counts its own requests and statements. What PostgreSQL has is read at each scrape, so every API
process says the same about it.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mitosis.store.registry.figures import CHURN_SECONDS, MOST_COUNTED, RegistryFigures
from mitosis.store.schedules.figures import ScheduleFigures

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Upper bounds of the buckets: from a statement by key to a long poll."""


class Metrics:
    """What this process has done since its start."""

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self._requests = Histogram(
            "mitosis_http_request_seconds",
            "Duration of requests to the API, long polls with their wait.",
            ("method", "route", "status"),
            registry=self._own,
            buckets=SECONDS,
        )
        self._statements = Histogram(
            "mitosis_database_statement_seconds",
            "Duration of statements in PostgreSQL, by their file and name.",
            ("statement",),
            registry=self._own,
            buckets=SECONDS,
        )
        self._by_statement: dict[str, Histogram] = {}
        self._reports = Counter(
            "mitosis_reports",
            "Reports of hosts and worker services, by what became of them.",
            ("status",),
            registry=self._own,
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def observe_statement(self, statement: str, seconds: float) -> None:
        """Count a statement; it is one of few names."""
        child = self._by_statement.get(statement)
        if child is None:
            child = self._by_statement[statement] = self._statements.labels(statement)
        child.observe(seconds)

    def count_reports(self, statuses: Sequence[str]) -> None:
        """Count reports by their answers."""
        for status in set(statuses):
            self._reports.labels(status).inc(statuses.count(status))

    def show_certificate(self, expires_at: Callable[[], datetime]) -> None:
        """Show from now on how long the certificate of the API is valid."""

        def seconds_left() -> float:
            return (expires_at() - datetime.now(UTC)).total_seconds()

        Gauge(
            "mitosis_api_certificate_left_seconds",
            "Seconds until the certificate of the API ends; below 0 it has expired.",
            registry=self._own,
        ).set_function(seconds_left)

    def exposed(
        self, figures: RegistryFigures, accept: str, schedules: Sequence[ScheduleFigures] = ()
    ) -> tuple[bytes, str]:
        """Return the text and its content type, in the format that ``accept`` asks for."""
        encode, content_type = choose_encoder(accept)
        everything = CollectorRegistry()
        everything.register(_Both(self._own, figures, schedules))
        return encode(everything), content_type


class _Both(Collector):
    def __init__(
        self,
        own: CollectorRegistry,
        figures: RegistryFigures,
        schedules: Sequence[ScheduleFigures],
    ) -> None:
        self._own = own
        self._schedules = schedules
        self._figures = figures

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield from self._own.collect()  # type: ignore[misc]  # of any kind
        yield from registry_families(self._figures)
        yield from schedule_families(self._schedules)


def registry_families(figures: RegistryFigures) -> Iterable[GaugeMetricFamily]:
    """Return the figures of the registry as gauges."""
    services = GaugeMetricFamily(
        "mitosis_worker_services",
        "Worker services of a user group by the health of their last registration.",
        labels=("user_group", "health"),
    )
    age = GaugeMetricFamily(
        "mitosis_worker_heartbeat_age_seconds",
        "Mean age of the last heartbeats of the worker services with that health.",
        labels=("user_group", "health"),
    )
    for row in figures.services:
        services.add_metric([row.group_name, row.health], row.services)
        if row.heartbeat_age_seconds is not None:
            age.add_metric([row.group_name, row.health], row.heartbeat_age_seconds)
    active = GaugeMetricFamily(
        "mitosis_namespace_active_workers",
        "Worker services that can execute some named task of the namespace now.",
        labels=("user_group", "namespace"),
    )
    tasks = GaugeMetricFamily(
        "mitosis_named_tasks",
        "Named tasks by the number of worker services that can execute them now:"
        " 0 cannot be executed, 1 has no redundancy.",
        labels=("user_group", "namespace", "available"),
    )
    for key, counts in _by_namespace(figures).items():
        active.add_metric(list(key), counts[0])
        for available in range(MOST_COUNTED + 1):
            more = "+" if available == MOST_COUNTED else ""
            tasks.add_metric([*key, f"{available}{more}"], counts[1].get(available, 0))
    churn = GaugeMetricFamily(
        "mitosis_worker_registrations_recent",
        f"Registrations of worker services that began or ended in the last {CHURN_SECONDS} s.",
        labels=("user_group", "event", "reason"),
    )
    for change in figures.churn:
        churn.add_metric([change.group_name, change.event, change.reason], change.registrations)
    return services, age, active, tasks, churn


def schedule_families(figures: Sequence[ScheduleFigures]) -> Iterable[GaugeMetricFamily]:
    """Return the figures of the schedules as gauges."""
    counts = GaugeMetricFamily(
        "mitosis_schedules",
        "Schedules: active or paused; of these refused, whose last start has made no run, and problem,"
        " which Temporal does not accept.",
        labels=("user_group", "state"),
    )
    waiting = GaugeMetricFamily(
        "mitosis_schedule_starts_waiting",
        "Runs of schedules that are due or asked for, and wait; of each schedule at most 1,000 count.",
        labels=("user_group",),
    )
    late = GaugeMetricFamily(
        "mitosis_schedule_late_seconds",
        "Seconds after which the last time of a schedule was noticed, the largest.",
        labels=("user_group",),
    )
    overdue = GaugeMetricFamily(
        "mitosis_schedule_overdue_seconds",
        "Seconds for which the first time that is due has not been looked at; above 60 nothing looks.",
        labels=("user_group",),
    )
    for row in figures:
        states = {"active": row.active, "paused": row.paused}
        states |= {"refused": row.refused, "problem": row.problems}
        for state, number in states.items():
            counts.add_metric([row.group_name, state], number)
        waiting.add_metric([row.group_name], row.waiting)
        late.add_metric([row.group_name], row.late_seconds)
        overdue.add_metric([row.group_name], row.overdue_seconds)
    return counts, waiting, late, overdue


def _by_namespace(figures: RegistryFigures) -> dict[tuple[str, str], tuple[int, dict[int, int]]]:
    """Return active services, and named tasks by their available services, for each namespace."""
    found: dict[tuple[str, str], tuple[int, dict[int, int]]] = {}
    for row in figures.coverage:
        _, tasks = found.setdefault((row.group_name, row.namespace), (row.active, {}))
        tasks[row.available] = row.tasks
    return found
