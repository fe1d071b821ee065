"""Managers (hosts): registration, hello, contact, leases, environments; and the port of ManagerWorkflow."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from mitosis.contracts.control import ManagerView, ReleaseAnswer, ReleaseRequest
from mitosis.contracts.http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Hello,
    HelloAnswer,
    LeaseGrant,
    ManagerInfo,
    Page,
    RegisterManager,
)
from mitosis.contracts.names import NAMESPACE
from mitosis.contracts.wire import Renewal, RenewalAnswer
from mitosis.store.database import Database

HOST_LOST_AFTER = timedelta(seconds=90)


class ManagerStore:
    """All access to managers. Implements ``activities.managers.ManagerPort``."""

    def __init__(self, database: Database, host_lost_after: timedelta = HOST_LOST_AFTER) -> None:
        """``host_lost_after`` is the deployment's; a group may have its own. At least 10 s."""
        self._database = database
        self._host_lost_after = host_lost_after

    async def register(self, spec: RegisterManager, user_id: UUID) -> tuple[UUID, int]:
        """A new manager, OFFLINE until its agent says hello: ``(manager id, token version)``.

        Raises:
            NotFound: no such user group.
            PermissionDenied: the user has no such role there.
            InvalidRequest: ``groups`` has a role that does not exist.
        """
        raise NotImplementedError

    async def token_version(self, manager_id: UUID) -> int | None:
        """The version a valid token of this manager carries; None = no such manager. Cached for 5 s."""
        raise NotImplementedError

    async def get(self, manager_id: UUID) -> ManagerInfo:
        """One manager with its derived state, lease and environments.

        Raises:
            NotFound: no such manager.
        """
        raise NotImplementedError

    async def list(
        self, viewer_id: UUID, *, after: str | None = None, limit: int = 100
    ) -> Page[ManagerInfo]:
        """Managers of the user's groups (an admin sees all), by name. ``limit`` at most 500."""
        raise NotImplementedError

    async def group_ids(self, manager_id: UUID) -> Sequence[UUID]:
        """The user groups the manager belongs to: who may read a user group may see it.

        Raises:
            NotFound: no such manager.
        """
        raise NotImplementedError

    # --- calls of its agent -------------------------------------------------------------------------

    async def hello(
        self, manager_id: UUID, hello: Hello, *, namespace: str = NAMESPACE
    ) -> HelloAnswer:
        """A process of the agent begins (protocol P5). Idempotent for the same incarnation.

        Raises:
            NotFound: no such manager.
            Superseded: a later process has said hello.
            ManagerIdInUse: another machine that is still in contact has this id.
        """
        raise NotImplementedError

    async def goodbye(self, manager_id: UUID, epoch: int | None) -> None:
        """The agent ends in order: its lease is released, the manager OFFLINE. Again is success."""
        raise NotImplementedError

    async def contact(self, manager_id: UUID) -> None:
        """Any authenticated call of the agent: moves ``alive_until``, at most once a second (P4)."""
        raise NotImplementedError

    async def renew(self, manager_id: UUID, renewal: Renewal) -> RenewalAnswer:
        """Contact, started attempts, returned tasks, held ids (P3, P4).

        Raises:
            NotFound: no such manager.
            Superseded: the incarnation is an earlier one.
        """
        raise NotImplementedError

    async def take(self, manager_id: UUID, epoch: int) -> LeaseGrant:
        """OFFERED → ACTIVE; ACTIVE already is success.

        Raises:
            LeaseLost: the offer was withdrawn, is ending or is not this manager's.
        """
        raise NotImplementedError

    async def grant(self, manager_id: UUID, epoch: int) -> LeaseGrant:
        """What the agent needs to run an ACTIVE or ENDING lease.

        Raises:
            LeaseLost: there is no such lease any more.
        """
        raise NotImplementedError

    async def change_environment(
        self, manager_id: UUID, task_group_id: UUID, change: EnvironmentChange
    ) -> EnvironmentAnswer:
        """A compare-and-set by ``lifecycle.ENVIRONMENT``, with the hook's report (P9).

        The state after the event already is success (the same report again).

        Raises:
            NotFound: no such group or environment.
            LeaseLost: preparing, prepared or setup_failed without the ACTIVE lease it names.
            InvalidTransition: the state, or a live lease, does not allow it.
        """
        raise NotImplementedError

    async def environment(self, manager_id: UUID, task_group_id: UUID) -> EnvironmentGrant:
        """What the agent needs to clean up.

        Raises:
            NotFound: no such environment, or it is gone.
        """
        raise NotImplementedError

    # --- the port of ManagerWorkflow ----------------------------------------------------------------

    async def observe(self, manager_id: UUID) -> ManagerView:
        """The manager, its live lease and its environments as they are now."""
        raise NotImplementedError

    async def release(self, request: ReleaseRequest) -> ReleaseAnswer:
        """End an epoch and requeue what it held (protocol P1, P4)."""
        raise NotImplementedError
