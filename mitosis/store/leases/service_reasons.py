"""Explains the state of a group of worker services in one line: the first rule that holds. Pure."""

from mitosis.contracts.named_tasks import task_name
from mitosis.scheduling.wording import names
from mitosis.store.leases.no_host_reasons import Reason
from mitosis.store.leases.service_coverage import Coverage


def service_reason(coverage: Coverage) -> Reason | None:
    """Return what the worker services do about unfinished tasks; None: nothing can be claimed.

    A named task that no service can execute is always named.
    """
    executing = names([one.worker_id for one in coverage.executing])
    gaps = "; ".join(coverage.gaps)
    if executing:
        line = f"tasks run on {executing}"
        return Reason("working", f"{line}; {gaps}" if gaps else line, False)
    if gaps:
        return Reason("no_workers_available", gaps)
    if not coverage.claimable:
        return None
    first = coverage.claimable[0]
    name = task_name(first.namespace, first.name, first.version)
    return Reason(
        "unclaimed", f"{names(first.worker_ids)} can execute {name} and has not claimed it yet"
    )


def ending_reason(coverage: Coverage) -> Reason | None:
    """Return whose tasks a group that has ended waits for; None: no service has any."""
    executing = names([one.worker_id for one in coverage.executing])
    if not executing:
        return None
    return Reason("ending_tasks", f"running tasks are being ended by {executing}")
