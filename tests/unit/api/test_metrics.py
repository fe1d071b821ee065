"""What the metrics of a process look like when they are read."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.metrics import Metrics
from mitosis.contracts.worker_health import WorkerHealth
from mitosis.store.registry.figures import Coverage, RegistryFigures, ServicesByHealth
from mitosis.store.schedules.figures import ScheduleFigures

NOTHING = RegistryFigures([], [], [])


def values(
    metrics: Metrics,
    figures: RegistryFigures = NOTHING,
    schedules: Sequence[ScheduleFigures] = (),
) -> dict[str, float]:
    """Each sample by its name and labels, these in the order of their names."""
    text, content_type = metrics.exposed(figures, "", schedules)
    assert content_type.startswith("text/plain")
    return {
        " ".join(
            [sample.name, *(sample.labels[name] for name in sorted(sample.labels))]
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_each_observation_is_in_the_bucket_of_its_seconds() -> None:
    metrics = Metrics()
    metrics.observe_request("GET", "/managers", 200, 0.003)
    metrics.observe_request("GET", "/managers", 200, 20.0)
    metrics.observe_request("GET", "/managers", 404, 60.0)
    metrics.observe_statement("a.sql one", 0.0002)
    metrics.observe_statement("a.sql one", 0.4)
    found = values(metrics)
    request, statement = "mitosis_http_request_seconds", "mitosis_database_statement_seconds"
    counted = [
        found[f"{request}_bucket {le} GET /managers 200"] for le in ("0.0025", "0.005", "30.0")
    ]
    assert counted == [0, 1, 2]
    assert found[f"{request}_bucket 30.0 GET /managers 404"] == 0
    assert found[f"{request}_count GET /managers 404"] == 1
    assert found[f"{statement}_count a.sql one"] == 2
    assert found[f"{statement}_sum a.sql one"] == 0.4002


def test_two_applications_of_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.observe_statement("a.sql one", 1.0)
    assert any("a.sql" in name for name in values(one))
    assert not any("a.sql" in name for name in values(other))


def test_every_number_of_available_services_is_shown_also_without_a_task() -> None:
    """An alert on ``available="0"`` needs the sample before it is true."""
    figures = RegistryFigures(
        services=[ServicesByHealth("team", WorkerHealth.REGISTERED, 3, None)],
        coverage=[Coverage("team", "images", 5, 1, 7), Coverage("team", "images", 5, 4, 2)],
        churn=[],
    )
    found = values(Metrics(), figures)
    tasks = {n: found[f"mitosis_named_tasks {n} images team"] for n in ("0", "1", "2", "3", "4+")}
    assert tasks == {"0": 0, "1": 7, "2": 0, "3": 0, "4+": 2}
    assert found["mitosis_namespace_active_workers images team"] == 5
    assert found["mitosis_worker_services registered team"] == 3
    assert "mitosis_worker_heartbeat_age_seconds registered team" not in found


def test_schedules_that_are_refused_late_or_held_up_are_shown() -> None:
    figures = ScheduleFigures(
        group_name="team",
        active=5,
        paused=1,
        refused=2,
        problems=3,
        waiting=40,
        late_seconds=61.5,
        overdue_seconds=7,
    )
    found = values(Metrics(), schedules=[figures])
    states = {s: found[f"mitosis_schedules {s} team"] for s in ("active", "paused", "refused")}
    assert states == {"active": 5, "paused": 1, "refused": 2}
    assert found["mitosis_schedules problem team"] == 3
    assert found["mitosis_schedule_starts_waiting team"] == 40
    assert found["mitosis_schedule_late_seconds team"] == 61.5
    assert found["mitosis_schedule_overdue_seconds team"] == 7


@pytest.mark.spec("S000-130")
def test_the_time_left_of_the_certificate_is_shown_where_there_is_one() -> None:
    name = "mitosis_api_certificate_left_seconds"
    metrics = Metrics()
    assert name not in values(metrics)
    ends = [datetime.now(UTC) + timedelta(hours=1)]
    metrics.show_certificate(lambda: ends[-1])
    assert 3500 < values(metrics)[name] <= 3600
    ends.append(datetime.now(UTC) - timedelta(hours=1))
    assert -3700 < values(metrics)[name] <= -3600
