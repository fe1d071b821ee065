"""The calls of a manager agent. Each is made once: the agent owns its clocks, backoff and journal."""

from datetime import timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

import httpx2
import msgspec

from mitosis.client.connection import Connection, Params
from mitosis.contracts.http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Goodbye,
    Hello,
    HelloAnswer,
    LeaseGrant,
    ManagerTaskGroup,
)
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.temporal_names import INCARNATION_HEADER
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    ReportTasks,
    TaskReport,
    TaskReportAnswer,
)


class ManagerClient:
    """The API as one manager sees it; every call is contact (protocol P4).

    Every method raises a :class:`~mitosis.contracts.errors.MitosisError`: ``ApiUnavailable`` without
    an answer, ``DatabaseUnavailable`` while PostgreSQL is away (``facts["retry_after_seconds"]``),
    ``Unauthenticated`` for a token that is no longer good, and what is named below. After an error
    without an answer the call may have had its effect; all of them may be repeated as they are.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: timedelta = timedelta(seconds=20),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._api = Connection(url, token, timeout=timeout, transport=transport)

    def set_incarnation(self, incarnation: int) -> None:
        """Say from now on which process calls: once another has said hello, it is refused (P5)."""
        self._api.set_header(INCARNATION_HEADER, str(incarnation))

    async def hello(self, hello: Hello) -> HelloAnswer:
        """Say who and where this process is (protocol P5).

        Raises:
            Superseded: a newer incarnation has said hello.
            ManagerIdInUse: another machine that is still in contact uses this manager id.
        """
        return await self._api.model(HelloAnswer, "POST", "/managers/hello", hello)

    async def goodbye(self, epoch: int | None = None) -> None:
        """Leave in order: the lease is released, its tasks are ready again, the manager offline."""
        await self._api.call("POST", "/managers/goodbye", Goodbye(epoch=epoch))

    async def heartbeat(self, renewal: Renewal) -> RenewalAnswer:
        """Contact, with or without a lease; learn the standing of the lease."""
        return await self._api.struct(RenewalAnswer, "POST", "/managers/heartbeat", renewal)

    async def take(self, epoch: int) -> LeaseGrant:
        """Take an offered lease; taken already by this manager is success.

        Raises:
            LeaseLost: it is not, or no longer, offered to this manager.
        """
        return await self._api.model(LeaseGrant, "POST", f"/managers/leases/{epoch}/take")

    async def grant(self, epoch: int) -> LeaseGrant:
        """What :meth:`take` answered, again.

        Raises:
            LeaseLost: the lease is not held by this manager.
        """
        return await self._api.model(LeaseGrant, "GET", f"/managers/leases/{epoch}")

    async def environment(self, task_group_id: UUID) -> EnvironmentGrant:
        """What is needed to clean up after a group.

        Raises:
            NotFound: this manager has no environment of the group.
        """
        return await self._api.model(
            EnvironmentGrant, "GET", f"/managers/environments/{task_group_id}"
        )

    async def change_environment(
        self, task_group_id: UUID, change: EnvironmentChange
    ) -> EnvironmentState:
        """Move this manager's environment of a group; the state after it.

        Raises:
            InvalidTransition: the state does not allow it.
            LeaseLost: the lease named by ``change.epoch`` is not held.
        """
        path = f"/managers/environments/{task_group_id}"
        return (await self._api.model(EnvironmentAnswer, "POST", path, change)).state

    async def claim(self, claim: ClaimTasks) -> ClaimAnswer:
        """Take tasks; waits up to ``claim.wait_seconds`` for some to become claimable (P3, P7)."""
        return await self._api.struct(
            ClaimAnswer, "POST", "/managers/tasks/claim", claim, wait_seconds=claim.wait_seconds
        )

    async def report(self, reports: ReportTasks) -> ReportAnswer:
        """Report ends of attempts; ``statuses[i]`` answers ``reports[i]``."""
        return await self._api.struct(ReportAnswer, "POST", "/managers/tasks/report", reports)

    async def task_group(self) -> ManagerTaskGroup | None:
        """The group of the lease that this manager holds or is offered; None = there is none."""
        content = await self._api.call("GET", "/managers/task-groups")
        return ManagerTaskGroup.model_validate_json(content) if content else None

    async def claim_one(
        self, epoch: int, claim_seq: int, *, wait: timedelta = timedelta(0)
    ) -> ClaimedTask | None:
        """Take one task; None when nothing became claimable within ``wait`` (at most 60 s).

        ``claim_seq`` counts the claims of a lease from 1 on; the same number gives the same task.

        Raises:
            LeaseLost: the lease is ending or gone (``facts["standing"]``).
        """
        seconds = wait.total_seconds()
        params: Params = {"epoch": epoch, "claim_seq": claim_seq, "wait_seconds": seconds}
        content = await self._api.call(
            "GET", "/managers/tasks", params=params, wait_seconds=seconds
        )
        return msgspec.json.decode(content, type=ClaimedTask) if content else None

    async def report_one(self, epoch: int, report: TaskReport) -> TaskReportAnswer:
        """Report the end of one attempt."""
        content = await self._api.call("POST", "/managers/tasks", report, params={"epoch": epoch})
        return msgspec.json.decode(content, type=TaskReportAnswer)

    async def aclose(self) -> None:
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
