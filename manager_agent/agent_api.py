"""The calls of an agent to the API, each made once; callers own clocks, retries and the journal."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from mitosis.client.api_calls import ApiCalls, Links
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.agent_http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Goodbye,
    Hello,
    HelloAnswer,
    LeaseGrant,
)
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.http import Token
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.temporal_names import INCARNATION_HEADER
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimTasks,
    Followed,
    FollowedAnswer,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    WriteOutput,
    WriteOutputAnswer,
)

_claim_answer = msgspec.json.Decoder(ClaimAnswer)
_report_answer = msgspec.json.Decoder(ReportAnswer)
_followed_answer = msgspec.json.Decoder(FollowedAnswer)
_output_answer = msgspec.json.Decoder(WriteOutputAnswer)
_renewal_answer = msgspec.json.Decoder(RenewalAnswer)


class _EncodedReports(msgspec.Struct):
    """A :class:`mitosis.contracts.wire.ReportTasks` whose reports are JSON already."""

    epoch: int
    reports: list[msgspec.Raw]


class AgentApi(ApiCalls):
    """The API as one manager sees it; every call is contact (protocol P4)."""

    def __init__(
        self, url: str, token: str, links: Links | None = None, *, ca_file: Path | None = None
    ) -> None:
        """Make no connection yet.

        Raises:
            ConfigurationError: ``url`` is not ``http(s)://host[:port][/prefix]``, or ``ca_file`` cannot
                be used.
        """
        super().__init__(url, token, "mitosis-agent", links, ca_file)

    def set_incarnation(self, incarnation: int) -> None:
        """Name the calling process from now on; the API refuses it once a newer one has said hello (P5)."""
        self._set_header(INCARNATION_HEADER.encode(), str(incarnation).encode())

    # --- the manager, its leases and environments -----------------------------------------------

    async def hello(self, hello: Hello) -> HelloAnswer:
        """Send the identity and the place of this process (protocol P5).

        Raises:
            Superseded: a newer incarnation has said hello.
            ManagerIdInUse: another machine that is still in contact uses this manager id.
        """
        answer = await self._model(HelloAnswer, "POST", "/managers/hello", hello)
        self._listed = answer.request_fields
        return answer

    async def renew_token(self, lifetime: timedelta) -> Token:
        """Return a new token; the present one stays valid, and is sent until :meth:`use_token`."""
        body = IssueToken(lifetime=lifetime)
        return await self._model(Token, "POST", "/managers/token", body)

    async def goodbye(self, epoch: int | None = None) -> None:
        """Leave in order: the lease is released, its tasks become ready again, the manager goes offline."""
        await self._send("POST", "/managers/goodbye", Goodbye(epoch=epoch))

    async def take(self, epoch: int) -> LeaseGrant:
        """Take an offered lease; a lease that this manager has taken before is a success.

        Raises:
            LeaseLost: the lease is not, or no longer, offered to this manager.
        """
        return await self._model(LeaseGrant, "POST", f"/managers/leases/{epoch}/take")

    async def grant(self, epoch: int) -> LeaseGrant:
        """Return what :meth:`take` answered.

        Raises:
            LeaseLost: the lease is not held by this manager.
        """
        return await self._model(LeaseGrant, "GET", f"/managers/leases/{epoch}")

    async def environment(self, task_group_id: UUID) -> EnvironmentGrant:
        """Return the data for the teardown of a task group.

        Raises:
            NotFound: this manager has no environment of the task group.
        """
        return await self._model(EnvironmentGrant, "GET", f"/managers/environments/{task_group_id}")

    async def change_environment(
        self, task_group_id: UUID, change: EnvironmentChange
    ) -> EnvironmentState:
        """Move this manager's environment of a task group; return the state after it.

        Raises:
            InvalidTransition: the state does not allow it.
            LeaseLost: the lease named by ``change.epoch`` is not held.
        """
        path = f"/managers/environments/{task_group_id}"
        return (await self._model(EnvironmentAnswer, "POST", path, change)).state

    async def renew(self, renewal: Renewal) -> RenewalAnswer:
        """Keep contact, with or without a lease; return the standing of the lease."""
        answer = await self._struct(_renewal_answer, "/managers/heartbeat", renewal)
        self._listed = answer.request_fields
        return answer

    # --- tasks ----------------------------------------------------------------------------------

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        """Take tasks; waits up to ``wait_seconds`` for some to become claimable (P3, P7)."""
        return await self._struct(
            _claim_answer, "/managers/tasks/claim", request, request.wait_seconds
        )

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        """Report ended attempts; ``statuses[i]`` answers ``reports[i]``.

        Each report is the JSON of a :class:`~mitosis.contracts.wire.TaskReport` and is sent as it is.
        """
        request = _EncodedReports(epoch, list(map(msgspec.Raw, reports)))
        answer = await self._struct(_report_answer, "/managers/tasks/report", request)
        if len(answer.statuses) != len(reports):
            raise ApiUnavailable(
                f"the answer has {len(answer.statuses)} statuses for {len(reports)} reports"
            )
        return answer

    async def followed(self, request: Followed) -> FollowedAnswer:
        """Return the followers of the task group; wait up to ``wait_seconds`` for a change."""
        return await self._struct(
            _followed_answer, "/managers/tasks/followed", request, request.wait_seconds
        )

    async def output(self, request: WriteOutput) -> WriteOutputAnswer:
        """Send output of running attempts for its followers."""
        return await self._struct(_output_answer, "/managers/tasks/output", request)
