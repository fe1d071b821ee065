"""One session: carries out the instructions of the reactor and turns what happens into events.

The I/O shell of one epoch: workers, messages and timers. It decides nothing about tasks. Its owner keeps
contact with the API and reads the state of the session for that.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.execution import exits
from mitosis.execution.claimer import Claimer, always_room
from mitosis.execution.events import (
    AbandonClaim,
    CancelRunning,
    Claim,
    Dismiss,
    Event,
    Hold,
    Instruction,
    Kill,
    Looked,
    Recall,
    RenewNow,
    Report,
    RespawnDue,
    Send,
    SessionOver,
    Spawn,
    SpawnLater,
    StopsOrdered,
    TaskBegan,
    TaskNotBegun,
    TasksEnded,
    TasksTakenBack,
    Withdraw,
    WorkerHangs,
    WorkerReady,
)
from mitosis.execution.following import OutputFollower
from mitosis.execution.pool import Pool
from mitosis.execution.port import SessionApi
from mitosis.execution.reactor import step
from mitosis.execution.reporter import Reporter
from mitosis.execution.router import Control, Router
from mitosis.execution.session_workers import SessionWorkers
from mitosis.execution.starved import gives_up
from mitosis.execution.state import State
from mitosis.execution.stopped import STOPPED_LIMIT
from mitosis.execution.unstarted import LOOK_SECONDS
from mitosis.execution.watchdog import watch_processes
from mitosis.ipc.messages import (
    CancelTask,
    EncodedReport,
    Goodbye,
    Hello,
    Pause,
    Resume,
    RunTask,
    RunTasks,
    Shutdown,
    TakeBack,
    TakenBack,
    TaskNotStarted,
    TaskOutput,
    TasksFinished,
    TaskStarted,
    WorkerToManager,
)

HANG_MARGIN_SECONDS = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The collaborators of a session; made by its owner."""

    api: SessionApi
    router: Router
    reporter: Reporter
    make_pool: Callable[[SessionWorkers, bool], Pool]
    """The flag: import the handler modules before workers are forked."""
    renew_now: Callable[[], None]
    room: Callable[[], Awaitable[None]] = always_room
    """Wait until this host has room for tasks."""
    in_contact: Callable[[], bool] = lambda: True
    """Return whether the API has answered the last renewal in time."""
    stopped_limit: timedelta = STOPPED_LIMIT
    """How long a signal may stop a worker that holds a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTerms:
    """What a session is given: its number and its slots."""

    epoch: int
    worker_count: int
    prefetch: int | None = None
    """Number of tasks to hold beyond what the workers have; None: as they end."""
    fence_kills: bool = False
    """Kill what runs when contact is lost for too long."""


class Session:
    """Runs tasks under one epoch until its reactor says that it is over."""

    def __init__(
        self, terms: SessionTerms, parts: SessionParts, *, claim_seq: int = 0, generation: int = 0
    ) -> None:
        """Make the state; nothing runs before :meth:`start`.

        Args:
            terms: its number and slots.
            parts: its collaborators.
            claim_seq: the last claim number used under this epoch.
            generation: of the first workers; higher than any generation this agent has used.
        """
        self.epoch = terms.epoch
        self.over = asyncio.Event()
        self.ends = asyncio.Event()
        """Set when the session begins to end."""
        self.ended_in: LeaseEnd | None = None
        self.state = State(
            worker_count=terms.worker_count,
            prefetch=terms.prefetch,
            fence_kills=terms.fence_kills,
            claim_seq=claim_seq,
            acked_seq=claim_seq,
        )
        for worker in self.state.workers:
            worker.generation = generation
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._claimer = Claimer(parts.api, terms.epoch, self.handle, parts.room)
        self._output = OutputFollower(terms.epoch, self.state, parts.api, self._parts.router.send)
        self._hang_timers: dict[AttemptKey, asyncio.TimerHandle] = {}
        self.workers = SessionWorkers(
            self,
            parts.router,
            lambda preload: parts.make_pool(self.workers, preload),
            parts.renew_now,
            parts.stopped_limit,
        )

    # --- for others ----------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        """Whether the session has stopped claiming; it ends when its tasks have ended."""
        return not self.state.active

    def ask_standing(self) -> None:
        """Renew at once to get the standing of this lease."""
        self._parts.renew_now()

    def start(self) -> None:
        """Start the workers; claims begin when the first of them is ready."""
        self._parts.reporter.subscribe(self.epoch, self.handle)
        self.background(self.workers.start())
        self.background(watch_processes(self.state, self.workers.kill_stuck))
        self.background(self.workers.watch_stopped())
        self.background(self._look())
        self.background(self._output.ask())
        self.background(self._output.deliver())
        self.background(self._output.whole.deliver())

    async def close(self) -> None:
        """Stop every process of the session and wait until they are gone. Does not wait for reports."""
        self.state.over = True
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        self._claimer.abandon()
        for timer in self._hang_timers.values():
            timer.cancel()
        await self.workers.close()
        for worker in self.state.workers:
            self._parts.router.forget(worker.slot, worker.generation)
        self._parts.reporter.unsubscribe(self.epoch)
        self.over.set()

    def handle(self, event: Event) -> None:
        """Pass an event to the reactor and carry out its instructions."""
        if isinstance(event, StopsOrdered):  # what runs is ended otherwise than what waits
            self._learn_starts()
        for instruction in step(self.state, event):
            self._do(instruction)
        if (why := gives_up(self.state)) is not None:
            self.workers.give_up(why)
        if self.ending:
            self.ends.set()

    # --- instructions ---------------------------------------------------------------------------

    def _do(self, instruction: Instruction) -> None:  # noqa: C901, PLR0912 - one line per instruction
        match instruction:
            case Send():
                self._send(instruction)
            case Recall():
                self._parts.router.send(instruction.slot, instruction.generation, TakeBack())
            case Withdraw():
                self.workers.withdraw(instruction.slot, instruction.generation)
            case Report():
                self._cancel_timers(instruction.reports)
                self._report(instruction)
            case Claim():
                self._claimer.start(instruction)
            case AbandonClaim():
                self._claimer.abandon()
            case Spawn():
                self.workers.spawn(instruction.slot, instruction.generation)
            case SpawnLater():
                due = RespawnDue(instruction.slot, instruction.generation)
                self._loop.call_later(instruction.seconds, self.handle, due)
            case Kill():
                self.workers.kill(instruction.slot, instruction.generation)
            case CancelRunning():
                self._cancel_running(instruction)
            case Dismiss():
                self._dismiss(instruction)
            case Hold():
                self._control(instruction, Pause if instruction.on else Resume)
            case RenewNow():
                self._parts.renew_now()
            case SessionOver():
                self.background(self._end(instruction.end))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._learn_starts()
            self.handle(Looked(self._parts.in_contact()))

    def _learn_starts(self) -> None:
        """Look what the workers run: most starts of short tasks are not said."""
        for worker in self.state.workers:
            if worker.unstarted and worker.announced is None:
                self._learn_start(worker.slot, worker.generation)

    def _learn_start(self, slot: int, generation: int) -> None:
        """Learn from shared memory what a worker runs that cannot say so: a handler in code in C."""
        key = self.workers.running(slot)
        if key is not None and key in self.state.workers[slot].unstarted:
            self._began(slot, generation, key, time.time())

    def _began(self, slot: int, generation: int, key: AttemptKey, at: float) -> None:
        self.handle(TaskBegan(slot, generation, key, at))
        self._output.started(slot, generation, key)

    def _send(self, send: Send) -> None:
        tasks = tuple(RunTask(t.key, t.spec) for t in send.tasks)
        # An unreachable worker is dead; its exit event returns these tasks.
        self._parts.router.send(send.slot, send.generation, RunTasks(tasks))

    def _report(self, report: Report) -> None:
        self._parts.reporter.add(self.epoch, report.reports, report.urgent)

    def _cancel_running(self, order: CancelRunning) -> None:
        key = order.key
        self._control(
            order,
            lambda message_id: CancelTask(message_id, key, order.grace_seconds, order.reason),
        )
        self._watch(order.slot, order.generation, key, order.grace_seconds, exits.HUNG_CANCEL)

    def _dismiss(self, order: Dismiss) -> None:
        graceful, grace = order.graceful, order.grace_seconds
        self._control(order, lambda message_id: Shutdown(message_id, graceful, grace))

    def _control(self, to: CancelRunning | Dismiss | Hold, make: Callable[[int], Control]) -> None:
        self.background(self._controlled(to.slot, to.generation, make))

    async def _controlled(self, slot: int, generation: int, make: Callable[[int], Control]) -> None:
        await self._parts.router.control(slot, generation, make)

    def _watch(self, slot: int, generation: int, key: AttemptKey, seconds: float, why: str) -> None:
        """Kill the worker if the attempt is not over after ``seconds`` and a margin."""
        self._unwatch(key)
        event = WorkerHangs(slot, generation, key, why)
        self._hang_timers[key] = self._loop.call_later(
            seconds + HANG_MARGIN_SECONDS, self.handle, event
        )

    def _unwatch(self, key: AttemptKey) -> None:
        if timer := self._hang_timers.pop(key, None):
            timer.cancel()

    def _cancel_timers(self, reports: tuple[EncodedReport, ...]) -> None:
        if self._hang_timers:
            for report in reports:
                self._unwatch(report.key)

    async def _end(self, end: LeaseEnd) -> None:
        if (
            end is LeaseEnd.ENDING
        ):  # the lease ends after this, and its rows may have reports in the journal
            await self._parts.reporter.replayed()
        self.ended_in = end
        log.info(
            "session.over",
            extra={"epoch": self.epoch, "end": end, "finished": self.state.finished},
        )
        await self.close()

    # --- messages -------------------------------------------------------------------------------

    def on_message(self, slot: int, generation: int, message: WorkerToManager) -> None:  # noqa: C901 - one line per message
        match message:
            case TasksFinished():
                self.handle(TasksEnded(slot, generation, message.tasks))
            case TaskStarted():
                self._began(slot, generation, message.key, message.started_at)
                if message.overdue_seconds is not None:
                    self._watch(
                        slot, generation, message.key, message.overdue_seconds, exits.OVERDUE
                    )
            case TaskNotStarted():
                self._unwatch(message.key)
                self.handle(TaskNotBegun(slot, generation, message.key, message.reason))
            case TakenBack():
                self.handle(TasksTakenBack(slot, generation, message.keys))
            case TaskOutput():
                self._output.wrote(slot, generation, message)
            case Hello():
                log.info(
                    "worker.ready", extra={"slot": slot, "pid": message.pid, "cpus": message.cpus}
                )
                self.handle(WorkerReady(slot, generation))
            case Goodbye():
                self._on_goodbye(message)

    def _on_goodbye(self, message: Goodbye) -> None:
        """Note why a worker ends by itself; its exit follows."""
        if message.renewed_for is not None:
            self.workers.renewed.add((message.slot, message.generation))
            facts = {"slot": message.slot, "reason": message.renewed_for}
            log.info("worker.renewed", extra=facts)

    def background(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
