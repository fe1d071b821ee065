"""The calls of an agent to the API, each made once; callers own clocks, retries and the journal.

Calls that run at the same time use connections of their own, so a claim that waits for work never
holds up a report or a renewal.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel, ValidationError

from mitosis.client.http_link import (
    API_PREFIX,
    Header,
    HttpAddress,
    HttpAnswer,
    HttpLinks,
    HttpRequest,
    LinkError,
)
from mitosis.client.problems import error_from
from mitosis.contracts.agent_http import (
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGrant,
    Goodbye,
    Hello,
    HelloAnswer,
    LeaseGrant,
)
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest
from mitosis.contracts.lifecycle import EnvironmentState
from mitosis.contracts.request_fields import RequestFields, encoded
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
from mitosis.version import __version__

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
SLOWEST_BYTES_PER_SECOND = 200_000
"""A call may take longer for its body: a slow network carries a large one, but late."""
MOST_CONNECTIONS = 32
"""More than the concurrent calls of an agent: five, and two for each command of Temporal."""

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=msgspec.Struct)

_claim_answer = msgspec.json.Decoder(ClaimAnswer)
_report_answer = msgspec.json.Decoder(ReportAnswer)
_followed_answer = msgspec.json.Decoder(FollowedAnswer)
_output_answer = msgspec.json.Decoder(WriteOutputAnswer)
_renewal_answer = msgspec.json.Decoder(RenewalAnswer)


class Links(Protocol):
    """Makes calls; :class:`HttpLinks`, or a server in the same process."""

    async def call(
        self, request: HttpRequest, *, connect_seconds: float | None, answer_seconds: float | None
    ) -> HttpAnswer: ...

    def close(self) -> None: ...


class _EncodedReports(msgspec.Struct):
    """A :class:`mitosis.contracts.wire.ReportTasks` whose reports are JSON already."""

    epoch: int
    reports: list[msgspec.Raw]


class AgentApi:
    """The API as one manager sees it; every call is contact (protocol P4).

    Every method raises a :class:`~mitosis.contracts.errors.MitosisError`: ``ApiUnavailable`` without an
    answer, ``DatabaseUnavailable`` while PostgreSQL is away, ``Unauthenticated`` for a token that is no
    longer valid, and the errors that the method names. After an error without an answer the call may have
    had its effect; all calls may be repeated as they are.
    """

    def __init__(self, url: str, token: str, links: Links | None = None) -> None:
        """Make no connection yet.

        Raises:
            ConfigurationError: ``url`` is not ``http(s)://host[:port][/prefix]``.
        """
        address = HttpAddress.parse(url)
        self._links = links or HttpLinks(address, most=MOST_CONNECTIONS)
        self._prefix = f"{address.prefix}{API_PREFIX}"
        self._listed: RequestFields = {}
        self._headers: list[Header] = [
            (b"Host", address.host_header.encode()),
            (b"Authorization", b"Bearer " + token.encode()),
            (b"User-Agent", f"mitosis-agent/{__version__}".encode()),
            (b"Accept", b"application/json"),
            (b"Content-Type", b"application/json"),
        ]

    def set_incarnation(self, incarnation: int) -> None:
        """Name the calling process from now on; the API refuses it once a newer one has said hello (P5)."""
        name = INCARNATION_HEADER.encode()
        self._headers = [header for header in self._headers if header[0] != name]
        self._headers.append((name, str(incarnation).encode()))

    def close(self) -> None:
        """Close the connections."""
        self._links.close()

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

    # --- one call -------------------------------------------------------------------------------

    async def _model(
        self, answer: type[M], method: str, path: str, body: BaseModel | None = None
    ) -> M:
        content = await self._send(method, path, body)
        try:
            return answer.model_validate_json(content)
        except ValidationError as error:
            raise _not_ours(error) from None

    async def _struct(
        self,
        answer: msgspec.json.Decoder[S],
        path: str,
        body: msgspec.Struct,
        wait_seconds: float = 0.0,
    ) -> S:
        content = await self._send("POST", path, body, wait_seconds)
        try:
            return answer.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(error) from None

    async def _send(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | BaseModel | None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """Make one call with the fields that the API has listed.

        If it refuses them, an API of an earlier version has taken over: repeat the call with the first ones.
        """
        if body is None:
            return await self._call(method, path)
        content = encoded(body, self._listed)
        try:
            return await self._call(method, path, content, wait_seconds)
        except InvalidRequest:
            least = encoded(body, {})
            if least == content:
                raise
            self._listed = {}
            return await self._call(method, path, least, wait_seconds)

    async def _call(
        self, method: str, path: str, body: bytes = b"", wait_seconds: float = 0.0
    ) -> bytes:
        """Make one call below ``/api/v1`` and return the body of its 2xx answer."""
        headers = [*self._headers, (b"Content-Length", b"%d" % len(body))]
        target = f"{self._prefix}{path}".encode()
        try:
            answer = await self._links.call(
                HttpRequest(method.encode(), target, headers, body),
                connect_seconds=CONNECT_SECONDS,
                answer_seconds=ANSWER_SECONDS + wait_seconds + len(body) / SLOWEST_BYTES_PER_SECOND,
            )
        except LinkError as error:
            raise ApiUnavailable(f"no answer from the API: {error}") from None
        if 200 <= answer.status < 300:
            return answer.body
        names = {name.decode("latin-1").lower(): value for name, value in answer.headers}
        texts = {name: value.decode("latin-1") for name, value in names.items()}
        raise error_from(answer.status, texts, answer.body)


def _not_ours(error: Exception) -> ApiUnavailable:
    return ApiUnavailable(f"the answer is not one of this API: {error}")
