"""The calls of the process of a worker service, each made once; callers own clocks and retries."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from mitosis.client.api_calls import ApiCalls, Links
from mitosis.contracts.account_http import IssueToken
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.http import Token
from mitosis.contracts.service_tasks import (
    ClaimNamedTasks,
    ClaimNamedTasksAnswer,
    NamedTaskReport,
    RecordProgress,
    RecordProgressAnswer,
    ReportNamedTasks,
    ReportNamedTasksAnswer,
)
from mitosis.contracts.worker_services import (
    HeartbeatAnswer,
    RegisteredWorker,
    RegisterWorker,
    WorkerGoodbye,
    WorkerHeartbeat,
)

_claim_answer = msgspec.json.Decoder(ClaimNamedTasksAnswer)
_report_answer = msgspec.json.Decoder(ReportNamedTasksAnswer)
_progress_answer = msgspec.json.Decoder(RecordProgressAnswer)


class ServiceApi(ApiCalls):
    """The API as one worker service sees it."""

    def __init__(
        self, url: str, token: str, links: Links | None = None, *, ca_file: Path | None = None
    ) -> None:
        """Make no connection yet; ``token`` is that of a user, or the service's own.

        Raises:
            ConfigurationError: ``url`` is not ``http(s)://host[:port][/prefix]``, or ``ca_file`` cannot
                be used.
        """
        super().__init__(url, token, "mitosis-worker", links, ca_file)

    async def register(self, worker: RegisterWorker) -> RegisteredWorker:
        """Register this process; the answer has the token for all other calls.

        Raises:
            Superseded: a later process has registered.
            WorkerIdInUse: another machine that is still in contact uses the id.
        """
        return await self._model(RegisteredWorker, "POST", "/workers", worker)

    async def heartbeat(self, heartbeat: WorkerHeartbeat) -> HeartbeatAnswer:
        """Say that the process runs and what it holds; the answer names what to stop.

        Raises:
            WorkerNotRegistered: the registration is over: register again.
            Superseded: a later process has registered.
        """
        return await self._model(HeartbeatAnswer, "POST", "/workers/heartbeat", heartbeat)

    async def claim(self, request: ClaimNamedTasks) -> ClaimNamedTasksAnswer:
        """Take named tasks; waits up to ``wait_seconds`` for the first.

        Raises:
            WorkerNotRegistered, Superseded: as :meth:`heartbeat`.
        """
        return await self._struct(_claim_answer, "/workers/claim", request, request.wait_seconds)

    async def report(
        self, incarnation: int, reports: Sequence[NamedTaskReport]
    ) -> ReportNamedTasksAnswer:
        """Report ended attempts; ``statuses[i]`` answers ``reports[i]``."""
        request = ReportNamedTasks(incarnation=incarnation, reports=list(reports))
        answer = await self._struct(_report_answer, "/workers/report", request)
        if len(answer.statuses) != len(reports):
            raise ApiUnavailable(
                f"the answer has {len(answer.statuses)} statuses for {len(reports)} reports"
            )
        return answer

    async def record_progress(self, request: RecordProgress) -> RecordProgressAnswer:
        """Store progress and checkpoints of running attempts; ``statuses[i]`` answers ``progress[i]``.

        Raises:
            WorkerNotRegistered, Superseded: as :meth:`heartbeat`.
        """
        answer = await self._struct(_progress_answer, "/workers/progress", request)
        if len(answer.statuses) != len(request.progress):
            raise ApiUnavailable(
                f"the answer has {len(answer.statuses)} statuses for {len(request.progress)} attempts"
            )
        return answer

    async def renew_token(self, renewal: IssueToken) -> Token:
        """Return the next token of the service; this one stays valid until it expires."""
        return await self._model(Token, "POST", "/workers/token", renewal)

    async def goodbye(self, goodbye: WorkerGoodbye) -> None:
        """End the registration in order: what the process still holds is ready again, at no charge."""
        await self._send("POST", "/workers/goodbye", goodbye)
