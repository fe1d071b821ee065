"""The agent's side of the HTTP contract, kept in memory, with switches for faults.

Follows protocol P2-P5 for one manager and one task group. It exists for the faults (an answer that is
lost, an API that is away) that the real API cannot be made to have on purpose; the same agent is tested
against the real API and PostgreSQL elsewhere.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID, uuid4

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mitosis.contracts.agent_http import (
    AttemptList,
    EnvironmentChange,
    EnvironmentGrant,
    HeldLease,
    HelloAnswer,
    LeaseGrant,
)
from mitosis.contracts.allocation import WorkerAllocationPlan
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.lifecycle import ENVIRONMENT, EnvironmentEvent, EnvironmentState, LeaseState
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.temporal_names import INCARNATION_HEADER, host_task_queue
from mitosis.contracts.wire import (
    MAX_REPORTS,
    CancelOrder,
    ClaimAnswer,
    ClaimedTask,
    ClaimTasks,
    LeaseStanding,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    ReportStatus,
    ReportTasks,
    TaskAttempt,
    TaskReport,
)

TOKEN = "manager-token"
TWO_WORKERS = WorkerAllocationPlan(worker_count=2)
GOALS = {
    "prepared": EnvironmentState.READY,
    "setup_failed": EnvironmentState.TEARING_DOWN,
    "tear_down": EnvironmentState.TEARING_DOWN,
    "postpone": EnvironmentState.OWED,
    "cleaned": EnvironmentState.GONE,
}
"""The state after each change; one that it brings about again is success."""


@dataclass
class OpenTask:
    task_id: int
    spec: bytes
    alone: bool = False
    attempt: int = 0
    epoch: int | None = None
    claim_seq: int | None = None
    started: bool = False
    failures: int = 0


@dataclass
class FakeApi:
    """State of the world as the API would have it, and the routes over it."""

    manager_id: UUID = field(default_factory=uuid4)
    task_group_id: UUID = field(default_factory=uuid4)
    plan: WorkerAllocationPlan = TWO_WORKERS
    setup: HookSpec | None = None
    teardown: HookSpec | None = None
    probe: HookSpec | None = None
    retries: int = 0
    """How often a failed attempt is put back."""
    fence: Literal["finish", "kill"] = "finish"
    grace_seconds: float = 1.0
    host_lost_after_seconds: float = 90.0
    epoch: int = 7
    standing: LeaseStanding = LeaseStanding.ACTIVE
    taken: bool = False
    order: CancelOrder | None = None
    owed: tuple[UUID, ...] = ()
    owed_teardowns: bool = False
    """Renewals order the teardown of an environment that is owed."""
    incarnation: int = 0
    environment: EnvironmentState | None = None
    degraded: bool = False
    open: dict[int, OpenTask] = field(default_factory=dict)
    results: dict[int, TaskReport] = field(default_factory=dict)
    failures: list[TaskReport] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    changes: list[EnvironmentChange] = field(default_factory=list)
    heard: list[EnvironmentChange] = field(default_factory=list)
    """Those that were refused too."""
    statuses: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    hellos: list[int] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    said_goodbye: bool = False
    counted_lost: bool = False
    """The manager is offline until its next hello."""
    lose_answers: Counter[str] = field(default_factory=Counter)
    """Path → how many of the next answers are lost after the work was done."""
    down: bool = False
    """Every connection is cut."""
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Path → (status, code) instead of an answer."""
    port: int = 0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _next_id: int = 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def submit(self, *tasks: TaskSubmission, alone: bool = False) -> list[int]:
        ids = []
        for task in tasks:
            spec = msgspec.json.encode(task)
            self.open[self._next_id] = OpenTask(self._next_id, spec, alone)
            ids.append(self._next_id)
            self._next_id += 1
        self._woken.set()
        return ids

    def end(self, order: CancelOrder) -> None:
        self.standing, self.order = LeaseStanding.ENDING, order
        self._woken.set()

    def lose_lease(self) -> None:
        self.standing = LeaseStanding.GONE
        self._requeue_epoch()
        self._woken.set()

    # --- routes ---------------------------------------------------------------------------------

    async def hello(self, request: Request) -> Any:
        body = await request.json()
        if body["incarnation"] < self.incarnation:
            return problem(409, "superseded")
        if body["incarnation"] > self.incarnation and self.incarnation and self.taken:
            self._requeue_epoch(AttemptList.model_validate(body.get("journal", {})).keys())
            self.epoch += 1
        self.incarnation = body["incarnation"]
        self.hellos.append(self.incarnation)
        self.counted_lost = False
        return HelloAnswer(
            manager_id=self.manager_id,
            name="host",
            incarnation=self.incarnation,
            temporal_namespace="mitosis",
            temporal_task_queue=host_task_queue(self.manager_id),
            lease=HeldLease(epoch=self.epoch, task_group_id=self.task_group_id)
            if self.taken and self.standing is LeaseStanding.ACTIVE
            else None,
            owed=self.owed,
            host_lost_after_seconds=self.host_lost_after_seconds,
        )

    async def goodbye(self, request: Request) -> Any:
        self.said_goodbye = True
        self._requeue_epoch()
        return Response(status_code=204)

    async def lease(self, request: Request) -> Any:
        if int(request.headers[INCARNATION_HEADER]) < self.incarnation:
            return problem(409, "superseded")
        if int(request.path_params["epoch"]) != self.epoch or self.standing is LeaseStanding.GONE:
            return problem(409, "lease_lost")
        self.taken = True
        return LeaseGrant(
            epoch=self.epoch,
            lease_state=LeaseState(self.standing),
            task_group_id=self.task_group_id,
            task_group_number=3,
            task_group_name="campaign",
            group_name="lab",
            worker_allocation_plan=self.plan,
            environment_setup_hook=self.setup,
            environment_probe=self.probe,
            environment_state=self.environment,
            cancel_grace_seconds=self.grace_seconds,
            host_lost_after_seconds=self.host_lost_after_seconds,
            fence=self.fence,
        )

    async def environment_of(self, request: Request) -> Any:
        if self.environment is None:
            return problem(404, "not_found")
        return EnvironmentGrant(
            task_group_id=self.task_group_id,
            task_group_name="campaign",
            group_name="lab",
            worker_count=self.plan.worker_count,
            state=self.environment,
            environment_teardown_hook=self.teardown,
        )

    async def change_environment(self, request: Request) -> Any:
        change = EnvironmentChange.model_validate_json(await request.body())
        self.heard.append(change)
        if change.event == "preparing":
            self.environment = EnvironmentState.PREPARING
        else:
            state = self.environment or EnvironmentState.GONE
            try:
                if state is not GOALS[change.event]:
                    self.environment = ENVIRONMENT.after(state, EnvironmentEvent(change.event))
            except Exception:  # noqa: BLE001 - the body says which
                return problem(409, "invalid_transition", state=str(state), event=change.event)
        self.changes.append(change)
        self.degraded |= change.degraded
        return Response(
            msgspec.json.encode({"state": self.environment}), media_type="application/json"
        )

    async def claim(self, request: Request) -> Any:
        body = msgspec.json.decode(await request.body(), type=ClaimTasks)
        answer = self._claim(body)
        if not answer.tasks and answer.standing is LeaseStanding.ACTIVE:
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), body.wait_seconds)
            answer = self._claim(body)
        return answer

    def _claim(self, body: ClaimTasks) -> ClaimAnswer:
        standing = self._standing(body.epoch)
        if standing is not LeaseStanding.ACTIVE:
            return ClaimAnswer(standing=standing)
        again = [
            task
            for task in self.open.values()
            if task.epoch == body.epoch and (task.claim_seq or 0) > body.acked_seq
        ]
        prepared = self.environment is EnvironmentState.READY
        ready = [task for task in self.open.values() if task.epoch is None and prepared]
        fresh = ready[: max(0, body.max_tasks - len(again))]
        for task in fresh:
            task.attempt += 1
            task.epoch, task.claim_seq, task.started = body.epoch, body.claim_seq, False
        return ClaimAnswer(
            standing=standing,
            tasks=[
                ClaimedTask(
                    task_id=task.task_id,
                    attempt=task.attempt,
                    spec=msgspec.Raw(task.spec),
                    alone=task.alone,
                )
                for task in [*again, *fresh]
            ],
        )

    async def report(self, request: Request) -> Any:
        body = msgspec.json.decode(await request.body(), type=ReportTasks)
        if len(body.reports) > MAX_REPORTS:
            return problem(413, "too_large")
        statuses = [self._report(report) for report in body.reports]
        self.statuses.update(statuses)
        return ReportAnswer(standing=self._standing(body.epoch), statuses=statuses)

    def _report(self, report: TaskReport) -> ReportStatus:
        done = self.results.get(report.task_id)
        if done is not None:
            same = done.attempt == report.attempt
            return ReportStatus.DUPLICATE if same else ReportStatus.SUPERSEDED
        task = self.open.get(report.task_id)
        if task is None:
            return ReportStatus.UNKNOWN
        if task.attempt != report.attempt:
            seen = any(
                (f.task_id, f.attempt) == (report.task_id, report.attempt) for f in self.failures
            )
            return ReportStatus.DUPLICATE if seen else ReportStatus.SUPERSEDED
        if report.outcome == "failed" and task.failures < self.retries:
            task.failures += 1
            task.attempt += 1
            task.epoch = task.claim_seq = None
            self.failures.append(report)
            self._woken.set()
        else:
            del self.open[report.task_id]
            self.results[report.task_id] = report
        return ReportStatus.COMMITTED

    async def renew(self, request: Request) -> Any:
        body = msgspec.json.decode(await request.body(), type=Renewal)
        self.renewals.append(body)
        if body.epoch is None:
            return RenewalAnswer(
                standing=LeaseStanding.GONE if self.counted_lost else None,
                teardowns=[self.task_group_id] if self._is_owed() else [],
                host_lost_after_seconds=self.host_lost_after_seconds,
            )
        for attempt in body.started:
            self._matching(attempt.task_id, attempt.attempt, started=True)
        for attempt in body.returned:
            self.returned.append(attempt.task_id)
            self._matching(attempt.task_id, attempt.attempt, started=False)
        if body.held is not None:
            self._compare_held(body.epoch, body.held.acked_seq, set(body.held.task_ids))
        standing = self._standing(body.epoch)
        return RenewalAnswer(
            standing=standing,
            order=self.order if standing is LeaseStanding.ENDING else None,
            superseded=[key for key in body.running if not self._counts(key)],
            host_lost_after_seconds=self.host_lost_after_seconds,
        )

    def _is_owed(self) -> bool:
        return self.owed_teardowns and self.environment is EnvironmentState.OWED

    def _matching(self, task_id: int, attempt: int, *, started: bool) -> None:
        task = self.open.get(task_id)
        if task is None or task.attempt != attempt:
            return
        task.started = started
        if not started:
            task.epoch = task.claim_seq = None
            self._woken.set()

    def _counts(self, key: TaskAttempt) -> bool:
        task = self.open.get(key.task_id)
        return task is not None and task.attempt == key.attempt

    def _compare_held(self, epoch: int, acked_seq: int, held: set[int]) -> None:
        for task in self.open.values():
            lost = task.epoch == epoch and (task.claim_seq or 0) <= acked_seq
            if lost and task.task_id not in held:
                task.epoch = task.claim_seq = None
                self._woken.set()

    def _standing(self, epoch: int) -> LeaseStanding:
        return self.standing if epoch == self.epoch else LeaseStanding.GONE

    def _requeue_epoch(self, journalled: Sequence[AttemptKey] = ()) -> None:
        """Put everything back but the attempts in the journal of the next process."""
        for task in self.open.values():
            if (task.task_id, task.attempt) in journalled:
                task.epoch, task.claim_seq = self.epoch + 1, 0
            else:
                task.epoch = task.claim_seq = None

    # --- serving --------------------------------------------------------------------------------

    def _route(
        self, path: str, methods: list[str], handler: Callable[[Request], Awaitable[Any]]
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            self.calls[path] += 1
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return problem(401, "unauthenticated")
            if path in self.refuse:
                return problem(*self.refuse[path])
            if self.down:
                return Cut()
            answer = await handler(request)
            if self.lose_answers[path] > 0 or self.down:
                self.lose_answers[path] -= 1
                return Cut()
            if isinstance(answer, Response):
                return answer
            data = (
                msgspec.json.encode(answer)
                if isinstance(answer, msgspec.Struct)
                else answer.model_dump_json().encode()
            )
            return Response(data, media_type="application/json")

        return Route(f"/api/v1{path}", endpoint, methods=methods)

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                self._route("/managers/hello", ["POST"], self.hello),
                self._route("/managers/goodbye", ["POST"], self.goodbye),
                self._route("/managers/heartbeat", ["POST"], self.renew),
                self._route("/managers/leases/{epoch}/take", ["POST"], self.lease),
                self._route("/managers/leases/{epoch}", ["GET"], self.lease),
                self._route("/managers/environments/{group}", ["GET"], self.environment_of),
                self._route("/managers/environments/{group}", ["POST"], self.change_environment),
                self._route("/managers/tasks/claim", ["POST"], self.claim),
                self._route("/managers/tasks/report", ["POST"], self.report),
            ]
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeApi"]:
        """On a free port of loopback, in this event loop."""
        # With the protocol named, so that asyncio turns Nagle off on what is accepted.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                self._app(),
                log_level="error",
                lifespan="off",
                timeout_graceful_shutdown=1,
                http="httptools",
            )
        )
        serving = asyncio.get_running_loop().create_task(server._serve([listener]))
        try:
            yield self
        finally:
            self._woken.set()
            server.should_exit = True
            await serving
            listener.close()


class Cut(Response):
    """The connection ends in the middle of the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


def problem(status: int, code: str, **facts: str) -> Response:
    document = {"title": code, "status": status, "detail": code, "code": code, **facts}
    return Response(
        msgspec.json.encode(document), status_code=status, media_type="application/problem+json"
    )


def command(*argv: str, **more: Any) -> TaskSubmission:
    return TaskSubmission(command=list(argv), **more)
