"""A manager for tests of the API: the calls of an agent, one socket or none, and those for single tasks."""

from datetime import timedelta
from typing import Self
from urllib.parse import urlencode

import httpx2
import msgspec

from manager_agent.agent_api import AgentApi
from mitosis.client.http_link import AnswerBroken, HttpAnswer, HttpRequest
from mitosis.contracts.agent_http import ManagerTaskGroup
from mitosis.contracts.wire import (
    ClaimedTask,
    ReportAnswer,
    ReportTasks,
    TaskReport,
    TaskReportAnswer,
)


class TransportLinks:
    """Makes the calls of an agent over a transport of httpx2, as to an application in this process."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._http = httpx2.AsyncClient(transport=transport, base_url="http://api.test")

    async def call(
        self, request: HttpRequest, *, connect_seconds: float | None, answer_seconds: float | None
    ) -> HttpAnswer:
        timeout = httpx2.Timeout(answer_seconds, connect=connect_seconds)
        try:
            answer = await self._http.request(
                request.method.decode(),
                request.target.decode(),
                headers=list(request.headers),
                content=request.body,
                timeout=timeout,
            )
        except httpx2.TransportError as error:
            raise AnswerBroken(str(error)) from error
        return HttpAnswer(answer.status_code, answer.headers.raw, answer.content)

    def close(self) -> None:
        """Nothing is open between calls."""


class ManagerApi(AgentApi):
    """An agent's API, closed by its context."""

    def __init__(
        self, url: str, token: str, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        super().__init__(url, token, TransportLinks(transport) if transport is not None else None)
        self.token = token

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def report_tasks(self, request: ReportTasks) -> ReportAnswer:
        """Report what is not encoded yet."""
        return await self.report(request.epoch, list(map(msgspec.json.encode, request.reports)))

    async def task_group(self) -> ManagerTaskGroup | None:
        """The group of the lease that this manager holds or is offered; None = there is none."""
        content = await self._call("GET", "/managers/task-groups")
        return ManagerTaskGroup.model_validate_json(content) if content else None

    async def claim_one(
        self, epoch: int, claim_seq: int, *, wait: timedelta = timedelta(0)
    ) -> ClaimedTask | None:
        """Take one task; None when nothing became claimable within ``wait``."""
        seconds = wait.total_seconds()
        query = urlencode({"epoch": epoch, "claim_seq": claim_seq, "wait_seconds": seconds})
        content = await self._call("GET", f"/managers/tasks?{query}", wait_seconds=seconds)
        return msgspec.json.decode(content, type=ClaimedTask) if content else None

    async def report_one(self, epoch: int, report: TaskReport) -> TaskReportAnswer:
        """Report the end of one attempt."""
        content = await self._call(
            "POST", f"/managers/tasks?epoch={epoch}", msgspec.json.encode(report)
        )
        return msgspec.json.decode(content, type=TaskReportAnswer)
