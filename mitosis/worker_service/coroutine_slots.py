"""The asyncio slots of a worker service whose handlers are all `async def`: claims, runs and reports.

A coroutine that goes on after its cancel or timeout and its grace cannot be killed. It is reported as it
would have ended, and its slot stays taken until it ends. If it blocks its event loop then, no other handler
of the process can go on: the process ends, and gives the others back. A handler that blocks the loop before
its own end delays the others and ends nothing; those that have not begun do not time out. If the event loop
itself is lost, which handler did it is unknown: the process ends without a goodbye, so what it held counts as
lost with it.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.wire import ClaimedTask, ClaimTasks
from mitosis.execution.backoff import until_reached
from mitosis.execution.claimer import WAIT_SECONDS
from mitosis.execution.endings import SUPERSEDED
from mitosis.execution.events import Event, Stop, StopsOrdered, Superseded
from mitosis.execution.port import SessionApi
from mitosis.execution.reporter import Reporter
from mitosis.execution.session import HANG_MARGIN_SECONDS
from mitosis.ipc.messages import RunTask
from mitosis.worker.report import Ended, encode_report
from mitosis.worker_service.attempts import Groups
from mitosis.worker_service.coroutines import CoroutineThread, HandlerRun, call_soon

BLOCKED_SECONDS = 10.0
"""An event loop is given up that one step of a handler blocks for so long after its end was reported."""
log = logging.getLogger(__name__)

_spec = msgspec.json.Decoder(RunSpec)


@dataclass(slots=True)
class _Slot:
    """An attempt in its slot."""

    number: int
    task: RunTask
    run: HandlerRun
    settled: bool = False
    """Its end is reported, or is not to be."""
    timer: asyncio.TimerHandle | None = None
    """Gives it up if it goes on after its timeout or cancel; then looks whether it blocks the others."""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class CoroutineSlots:
    """Runs up to ``slots`` handlers at the same time."""

    def __init__(
        self,
        slots: int,
        api: SessionApi,
        reporter: Reporter,
        groups: Groups,
        thread: CoroutineThread,
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """Claim nothing before :meth:`start`.

        Args:
            slots: so many handlers run at the same time.
            api: its ``claim``.
            reporter: gets how each attempt ended.
            groups: knows the task group of each attempt.
            thread: runs the handlers.
            room: waits until there is room for what more tasks would bring.
        """
        self.over = asyncio.Event()
        self.blocked = False
        """Whether a handler that goes on after its end blocks all others."""
        self.lost = False
        """Whether the event loop of the handlers cannot run any more."""
        self._api, self._reporter, self._groups = api, reporter, groups
        self._thread, self._room = thread, room
        self._free = list(range(slots))
        self._taken: dict[AttemptKey, _Slot] = {}
        self._changed = asyncio.Event()
        self._ending = self._closed = False
        self._claiming: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def held(self) -> Collection[AttemptKey]:
        """The attempts that run; the reporter knows those that have ended."""
        return [key for key, slot in self._taken.items() if not slot.settled]

    def start(self) -> None:
        self._thread.start(partial(call_soon, self._loop, self._end_lost))
        self._claiming = self._loop.create_task(self._claim_for_ever())

    def handle(self, event: Event) -> None:
        """Act on a stop of the process or of attempts; other events are about processes."""
        match event:
            case Stop():
                self._stop(event)
            case StopsOrdered():
                for order in event.orders:
                    text = f"cancelled: {order.reason}" if order.reason else "cancelled"
                    key = AttemptKey(order.task_id, order.attempt)
                    self._cancel(key, text, order.grace_seconds)
            case Superseded():
                for key in event.keys:
                    self._cancel(key, SUPERSEDED, event.grace_seconds)
            case _:
                return

    async def close(self) -> None:
        """Cancel what runs, unreported, and stop the thread. Idempotent: it waits once for the thread."""
        if self._closed:
            return
        self._closed = True
        self._end()
        self._give_back()
        await asyncio.to_thread(self._thread.close)
        self.over.set()

    # --- claims and ends ------------------------------------------------------------------------

    async def _claim_for_ever(self) -> None:
        while True:
            while not self._free:
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._room()
                answer = await until_reached(partial(self._api.claim, self._request()))
            except MitosisError as error:
                log.warning("claim.refused", extra={"reason": error.message})
                self._end()
                return
            for claimed in answer.tasks:
                self._begin(claimed)

    def _request(self) -> ClaimTasks:
        return ClaimTasks(
            epoch=0,
            claim_seq=1,
            acked_seq=0,
            max_tasks=len(self._free),
            wait_seconds=WAIT_SECONDS,
        )

    def _begin(self, claimed: ClaimedTask) -> None:
        key = AttemptKey(claimed.task_id, claimed.attempt)
        if key in self._taken:
            return
        task, spec = RunTask(key, bytes(claimed.spec)), _spec.decode(claimed.spec)
        ended, began = partial(call_soon, self._loop, self._ended, key), None
        if (seconds := spec.timeout_seconds) is not None:
            latest = seconds + spec.kill_grace_seconds
            began = partial(call_soon, self._loop, self._began, key, latest)
        run = self._thread.run(key, spec, ended, began)
        self._taken[key] = _Slot(self._free.pop(), task, run)

    def _began(self, key: AttemptKey, latest: float) -> None:
        if (slot := self._taken.get(key)) is not None:
            self._give_up_after(slot, latest)

    def _ended(self, key: AttemptKey, how: Ended) -> None:
        slot = self._taken.pop(key)
        slot.stop_timer()
        self._free.append(slot.number)
        self._changed.set()
        self._report(slot, how)
        self._over_if_empty()

    def _report(self, slot: _Slot, how: Ended) -> None:
        if slot.settled:
            return
        slot.settled = True
        report = encode_report(slot.task, how, slot.number, ())
        number = self._groups.number(slot.task.key)
        self._reporter.add(number, [report], urgent=not self.held)

    # --- stops ----------------------------------------------------------------------------------

    def _cancel(self, key: AttemptKey, text: str, grace_seconds: float) -> None:
        slot = self._taken.get(key)
        if slot is None:
            return
        slot.run.cancel(text, grace_seconds)
        self._give_up_after(slot, grace_seconds)

    def _give_up_after(self, slot: _Slot, seconds: float) -> None:
        """Report what has not ended after ``seconds`` and a margin; a second call can only shorten that."""
        due = self._loop.time() + seconds + HANG_MARGIN_SECONDS
        if slot.settled or (slot.timer is not None and slot.timer.when() <= due):
            return
        slot.stop_timer()
        slot.timer = self._loop.call_at(due, self._give_up, slot)

    def _give_up(self, slot: _Slot) -> None:
        if slot.settled:
            return
        self._report(slot, slot.run.overdue())
        if slot.run.began_at is not None:
            key = slot.task.key
            log.warning("handler.goes_on", extra={"task_id": key.task_id, "attempt": key.attempt})
            self._look_whether_it_blocks(slot, None)

    def _look_whether_it_blocks(self, slot: _Slot, since: threading.Event | None) -> None:
        """End the process if what was given up blocks the others in one step since the last look.

        Args:
            slot: of what was given up; it is looked at until it ends.
            since: set if the step of the last look is over; None if another handler was executed then.
        """
        if self._closed or self.over.is_set():
            return
        executes = self._thread.executes(slot.run)
        if executes and since is not None and not since.is_set():
            self._end_blocked()
            return
        ping = self._thread.ping() if executes else None
        look = self._look_whether_it_blocks
        slot.timer = self._loop.call_later(BLOCKED_SECONDS, look, slot, ping)

    def _end_blocked(self) -> None:
        log.error("handlers.blocked", extra={"seconds": BLOCKED_SECONDS})
        self.blocked = True
        self._end_at_once()

    def _end_lost(self) -> None:
        self.lost = True
        self._end_at_once()

    def _end_at_once(self) -> None:
        self._end()
        self._give_back()
        self.over.set()

    def _stop(self, event: Stop) -> None:
        self._end()
        if event.kill:
            self._give_back(event.grace_seconds or 0.0)

    def _end(self) -> None:
        """Claim nothing more."""
        self._ending = True
        if self._claiming is not None and self._claiming is not asyncio.current_task():
            self._claiming.cancel()
        self._over_if_empty()

    def _give_back(self, grace_seconds: float = 0.0) -> None:
        """Cancel what runs without reports: the goodbye gives it back."""
        for slot in self._taken.values():
            slot.settled = True
            slot.run.cancel("the worker was shut down", grace_seconds)

    def _over_if_empty(self) -> None:
        if self._ending and not self._taken:
            self.over.set()
