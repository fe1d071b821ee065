"""Figures about worker services and named tasks, for metrics."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from mitosis.contracts.worker_health import WorkerHealth
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.registry.health import with_health
from mitosis.store.store import Store

CHURN_SECONDS = 300
"""Registrations that began or ended in so many seconds are the churn."""
MOST_COUNTED = 4
"""A named task with more services than this counts as one with so many."""

SQL = load("registry/figures.sql")
SERVICES = with_health(SQL["services_by_health"]).replace("$viewed_group$", SQL["viewed_group"])
COVERAGE = with_health(SQL["coverage"]).replace("$viewed_group$", SQL["viewed_group"])
CHURN = (
    SQL["churn"]
    .replace("$reason$", SQL["reason"])
    .replace("$churn_seconds$", f"{CHURN_SECONDS:d}")
    .replace("$viewed_group$", SQL["viewed_group"])
)


@dataclass(frozen=True, slots=True)
class ServicesByHealth:
    """How many services of a user group have a health."""

    group_name: str
    health: WorkerHealth
    services: int
    heartbeat_age_seconds: float | None
    """Mean age of their last heartbeats; None if no current registration has sent one."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many named tasks of a namespace have so many available services."""

    group_name: str
    namespace: str
    active: int
    """Services that can execute some task of the namespace now."""
    available: int
    """0 to 4; 4 stands for 4 or more."""
    tasks: int


@dataclass(frozen=True, slots=True)
class Churn:
    """How many registrations began or ended in the last :data:`CHURN_SECONDS`."""

    group_name: str
    event: Literal["began", "ended"]
    reason: Literal["", "silent", "new_incarnation", "goodbye"]
    registrations: int


@dataclass(frozen=True, slots=True)
class RegistryFigures:
    """The registry in figures, as far as one user sees it."""

    services: list[ServicesByHealth]
    coverage: list[Coverage]
    churn: list[Churn]


async def registry_figures(store: Store, viewer_id: UUID) -> RegistryFigures:
    """Return the figures of the user groups of the viewer; an admin sees all."""
    viewer = {"viewer": viewer_id}
    async with store.database.connection() as connection:
        return RegistryFigures(
            services=await fetch_all(connection, ServicesByHealth, SERVICES, viewer),
            coverage=await fetch_all(connection, Coverage, COVERAGE, viewer),
            churn=await fetch_all(connection, Churn, CHURN, viewer),
        )
