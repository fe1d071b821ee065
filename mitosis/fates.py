"""Which errors pass and which are for good: one table for all callers of the API and of the store.

A call that fails with a passing error is repeated as it is. A refusal for good is never repeated as it is:
the caller changes the call, gives up or ends. What follows from each fate is decided by the caller.
"""

from collections.abc import Mapping
from enum import StrEnum

from mitosis.contracts.errors import MitosisError


class Fate(StrEnum):
    """What the same call, made again, will meet."""

    PASSING = "passing"
    """A service is away or busy: it may succeed later."""
    BROKEN = "broken"
    """A failure that the API does not expect, as a defect or a wrong setting. It may last or pass."""
    CALL_REFUSED = "call_refused"
    """The content of this call is refused for good; other calls of the same caller may succeed."""
    CALLER_REFUSED = "caller_refused"
    """The caller is refused for good: no call of it will succeed."""


BY_CODE: Mapping[str, Fate] = {
    "internal": Fate.BROKEN,
    "configuration_error": Fate.BROKEN,
    "data_folder_in_use": Fate.BROKEN,
    "invalid_request": Fate.CALL_REFUSED,
    "not_found": Fate.CALL_REFUSED,
    "worker_not_found": Fate.CALL_REFUSED,
    "method_not_allowed": Fate.CALL_REFUSED,
    "conflict": Fate.CALL_REFUSED,
    "already_exists": Fate.CALL_REFUSED,
    "invalid_transition": Fate.CALL_REFUSED,
    "task_group_closed": Fate.CALL_REFUSED,
    "idempotency_key_reused": Fate.CALL_REFUSED,
    "part_missing": Fate.CALL_REFUSED,
    "worker_not_registered": Fate.CALL_REFUSED,
    "no_workers_available": Fate.CALL_REFUSED,
    "not_available": Fate.CALL_REFUSED,
    "lease_lost": Fate.CALL_REFUSED,
    "upgrade_in_progress": Fate.CALL_REFUSED,
    "too_large": Fate.CALL_REFUSED,
    "unsupported_media_type": Fate.CALL_REFUSED,
    "unauthenticated": Fate.CALLER_REFUSED,
    "permission_denied": Fate.CALLER_REFUSED,
    "superseded": Fate.CALLER_REFUSED,
    "manager_id_in_use": Fate.CALLER_REFUSED,
    "worker_id_in_use": Fate.CALLER_REFUSED,
    "rate_limited": Fate.PASSING,
    "unavailable": Fate.PASSING,
    "database_unavailable": Fate.PASSING,
    "temporal_unavailable": Fate.PASSING,
    "api_unavailable": Fate.PASSING,
    "queue_full": Fate.PASSING,
    "overloaded": Fate.PASSING,
    "storage_full": Fate.PASSING,
}
"""Of the errors of this API, by ``MitosisError.code``."""

PASSING_STATUSES = frozenset({408, 425, 429, 502, 503, 504})


def fate(error: MitosisError) -> Fate:
    """Return the fate of a call that ended with this error."""
    status = error.facts.get("status")
    if error.code == "internal" and isinstance(status, int):
        return fate_of_status(status)
    return BY_CODE.get(error.code, Fate.BROKEN)


def fate_of_status(status: int) -> Fate:
    """Return the fate behind an HTTP status that comes without one of our problem documents.

    The sender is another server, such as a proxy. What it says of the caller is not the API's word: only
    the API refuses a caller for good.
    """
    if status in PASSING_STATUSES:
        return Fate.PASSING
    return Fate.CALL_REFUSED if 400 <= status < 500 else Fate.BROKEN
