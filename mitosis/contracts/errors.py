"""The error tree. Each class has a stable ``code``, says whether trying again can help, and its HTTP status.

::

    MitosisError
    ├── InvalidRequest          422  invalid_request      names the field and what would be right
    ├── Unauthenticated         401  unauthenticated
    ├── PermissionDenied        403  permission_denied
    ├── NotFound                404  not_found            no such thing, or no such path
    │   └── WorkerNotFound      404  worker_not_found
    ├── MethodNotAllowed        405  method_not_allowed
    ├── Conflict                409  conflict
    │   ├── AlreadyExists       409  already_exists
    │   ├── InvalidTransition   409  invalid_transition   lists the allowed events
    │   ├── TaskGroupClosed     409  task_group_closed
    │   ├── IdempotencyKeyReused 409 idempotency_key_reused
    │   ├── PartMissing         409  part_missing         of the submission, on which tasks depend
    │   ├── LeaseLost           409  lease_lost
    │   ├── UpgradeInProgress   409  upgrade_in_progress  a process of an older version runs still
    │   ├── Superseded          409  superseded           a newer incarnation of the manager exists
    │   ├── ManagerIdInUse      409  manager_id_in_use
    │   ├── WorkerIdInUse       409  worker_id_in_use
    │   ├── WorkerNotRegistered 409  worker_not_registered
    │   ├── NotAvailable        409  not_available        this version lacks it
    │   └── NoWorkersAvailable  409  no_workers_available for a named task
    ├── TooLarge                413  too_large
    ├── UnsupportedMediaType    415  unsupported_media_type
    ├── RateLimited             429  rate_limited         retryable
    ├── Unavailable             503  unavailable          retryable
    │   ├── DatabaseUnavailable / TemporalUnavailable / ApiUnavailable
    │   ├── QueueFull           429  queue_full           too many unfinished tasks
    │   ├── Overloaded          503  overloaded           too many requests at the same time
    │   └── StorageFull         507  storage_full         the disk of the database
    └── ConfigurationError      500  configuration_error  settings, data folder, ports, binaries of this host
        └── DataFolderInUse

They are mapped in exactly three places: ``api/errors.py`` (RFC 9457), ``activities/errors.py``
(Temporal ``ApplicationError``) and ``mitosis/cli/exit.py`` (exit status). Standard library only.
"""

from collections.abc import Sequence
from typing import Any, ClassVar


class MitosisError(Exception):
    """Something went wrong in Mitosis."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        """``facts`` are the machine-readable details; the message is for people."""
        self.message = message or (type(self).__doc__ or type(self).__name__).strip()
        self.facts: dict[str, Any] = {k: v for k, v in facts.items() if v is not None}
        super().__init__(self.message)


class InvalidRequest(MitosisError):
    """The request is not valid."""

    code = "invalid_request"
    http_status = 422

    def __init__(
        self, message: str | None = None, *, field: str | None = None, **facts: Any
    ) -> None:
        """``field`` is the path of the invalid value, as in ``worker_allocation_plan.worker_count``."""
        super().__init__(message, field=field, **facts)

    def __str__(self) -> str:
        """Return the message, with the field unless the message begins with its name."""
        field = str(self.facts.get("field", ""))
        name = field.rpartition(".")[2]
        if name in self.message.split()[:2]:
            return self.message
        return f"{field}: {self.message}" if field else self.message


class Unauthenticated(MitosisError):
    """A valid token is needed."""

    code = "unauthenticated"
    http_status = 401


class PermissionDenied(MitosisError):
    """The token does not allow this."""

    code = "permission_denied"
    http_status = 403


class NotFound(MitosisError):
    """There is no such thing, or no such path."""

    code = "not_found"
    http_status = 404


class WorkerNotFound(NotFound):
    """There is no such worker service."""

    code = "worker_not_found"


class MethodNotAllowed(MitosisError):
    """The path does not have this method."""

    code = "method_not_allowed"
    http_status = 405


class Conflict(MitosisError):
    """The request conflicts with the present state."""

    code = "conflict"
    http_status = 409


class AlreadyExists(Conflict):
    """The name is taken."""

    code = "already_exists"


class InvalidTransition(Conflict):
    """The event is not allowed in this state."""

    code = "invalid_transition"

    def __init__(
        self,
        *,
        subject: str,
        state: str,
        event: str,
        allowed: Sequence[str],
        message: str | None = None,
    ) -> None:
        """Describe the transition; ``allowed`` lists the events that the state allows."""
        may = ", ".join(allowed) if allowed else "nothing: it is final"
        super().__init__(
            message or f"a {subject} that is {state} does not allow {event}; it allows {may}",
            subject=subject,
            state=str(state),
            event=str(event),
            allowed=[str(item) for item in allowed],
        )


class TaskGroupClosed(Conflict):
    """The task group accepts no new tasks."""

    code = "task_group_closed"


class IdempotencyKeyReused(Conflict):
    """The idempotency key belongs to another submission."""

    code = "idempotency_key_reused"


class PartMissing(Conflict):
    """A part of the submission, on which its tasks depend, has not been submitted."""

    code = "part_missing"


class LeaseLost(Conflict):
    """This manager no longer holds the lease with this epoch."""

    code = "lease_lost"


class UpgradeInProgress(Conflict):
    """A process of an older version runs still and does not know what the request needs."""

    code = "upgrade_in_progress"


class Superseded(Conflict):
    """A newer process of this manager has said hello."""

    code = "superseded"


class ManagerIdInUse(Conflict):
    """Another machine that is still in contact uses this manager id."""

    code = "manager_id_in_use"


class WorkerIdInUse(Conflict):
    """Another machine that is still in contact uses this id of a worker service."""

    code = "worker_id_in_use"


class WorkerNotRegistered(Conflict):
    """The worker service has no current registration; it registers again."""

    code = "worker_not_registered"


class NotAvailable(Conflict):
    """This version cannot do it."""

    code = "not_available"


class NoWorkersAvailable(Conflict):
    """No worker service can execute the named task now."""

    code = "no_workers_available"


class TooLarge(MitosisError):
    """The request is larger than allowed."""

    code = "too_large"
    http_status = 413


class UnsupportedMediaType(MitosisError):
    """The body is not declared as JSON; send it as Content-Type: application/json."""

    code = "unsupported_media_type"
    http_status = 415


class RateLimited(MitosisError):
    """Too many requests; try again later."""

    code = "rate_limited"
    http_status = 429
    retryable = True


class Unavailable(MitosisError):
    """A service that this needs is not reachable now; trying again can help."""

    code = "unavailable"
    http_status = 503
    retryable = True


class DatabaseUnavailable(Unavailable):
    """PostgreSQL cannot be reached."""

    code = "database_unavailable"


class TemporalUnavailable(Unavailable):
    """Temporal cannot be reached."""

    code = "temporal_unavailable"


class ApiUnavailable(Unavailable):
    """The Mitosis API cannot be reached."""

    code = "api_unavailable"


class QueueFull(Unavailable):
    """Too many tasks are unfinished; try again when some have ended."""

    code = "queue_full"
    http_status = 429


class Overloaded(Unavailable):
    """The API has too many concurrent requests."""

    code = "overloaded"


class StorageFull(Unavailable):
    """The disk of the database is full; free space on it, and work continues automatically."""

    code = "storage_full"
    http_status = 507


class ConfigurationError(MitosisError):
    """This installation or its settings cannot work as they are."""

    code = "configuration_error"


class DataFolderInUse(ConfigurationError):
    """Another process uses this data folder."""

    code = "data_folder_in_use"


def _tree(cls: type[MitosisError]) -> list[type[MitosisError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


BY_CODE: dict[str, type[MitosisError]] = {cls.code: cls for cls in _tree(MitosisError)}
"""Error class by its stable code; the client turns problem documents back into these."""
