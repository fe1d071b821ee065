"""The worker processes of one lease session: started, ended, and started again when their zygote dies.

Turns what happens to them into events of the reactor; knows no tasks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Protocol

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import MitosisError
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.execution import exits, stopped
from mitosis.execution.events import Begin, Event, Paused, PoolLost, Withdrawn, WorkerExited
from mitosis.execution.pool import HandlersNotImported, Pool
from mitosis.execution.router import Router
from mitosis.execution.state import START_ATTEMPTS, State
from mitosis.execution.stopped import (
    STOPPED_LIMIT,
    TWO_LOOKS,
    StoppedProcesses,
    has_lost_main_thread,
)
from mitosis.ipc.messages import WorkerToManager
from mitosis.retry_policy import RetryPolicy
from mitosis.worker.zygote_protocol import Exited

LAST_MESSAGES_SECONDS = 0.05
"""From the death of a worker until its last messages have been read."""
WITHDRAWN_SECONDS = 0.5
"""Far more than another process needs to see a change in shared memory."""
MAX_REASON = 1_000
MOST_DEATHS = 10
"""After so many zygotes that ended soon the host is not used for a while: each charges what ran."""
LASTING_SECONDS = 60.0
"""A zygote that lived for so long ends a row of deaths."""
POOL_RETRIES = RetryPolicy(first_seconds=0.5, longest_seconds=5.0, jitter=0.0)

log = logging.getLogger(__name__)


class WorkersOwner(Protocol):
    """The session that has the workers."""

    state: State
    epoch: int

    @property
    def ending(self) -> bool: ...

    def handle(self, event: Event) -> None: ...

    def on_message(self, slot: int, generation: int, message: WorkerToManager) -> None: ...

    def background(self, coroutine: Coroutine[None, None, None]) -> None: ...


class SessionWorkers:
    """The pool of a session and its successors; nothing runs before :meth:`start`."""

    def __init__(
        self,
        session: WorkersOwner,
        router: Router,
        make_pool: Callable[[bool], Pool],
        renew_now: Callable[[], None],
        stopped_limit: timedelta = STOPPED_LIMIT,
    ) -> None:
        """Start nothing before :meth:`start`.

        Args:
            session: has the state of the workers.
            router: reads their messages.
            make_pool: with True, the handler modules are imported before workers are forked.
            renew_now: renews the lease at once.
            stopped_limit: how long a signal may stop a worker that holds a task.
        """
        self.pool: Pool | None = None
        self.cannot_start: str | None = None
        """Why no worker can be started here; the next renewal says so and ends the lease."""
        self.renewed: set[tuple[int, int]] = set()
        """Slots and generations of workers that have said goodbye so that another process takes over."""
        self._session = session
        self._router = router
        self._make_pool = make_pool
        self._renew_now = renew_now
        self._loop = asyncio.get_running_loop()
        self._oom_kills = exits.oom_kills()
        self._wanted = False
        self._deaths = 0
        """Number of zygotes in a row that have died without lasting."""
        self._began_at = 0.0
        self._pauses = 0
        """Pauses so far: what starts a zygote gives up when one begins."""
        self._stopped = StoppedProcesses(stopped_limit)
        self._headless = StoppedProcesses(TWO_LOOKS, has_lost_main_thread)
        self._stopped_limit = stopped_limit
        self._not_spawned: dict[int, str] = {}
        """Slot → why the last start of its worker made no process."""
        self._exits: dict[tuple[int, int], tuple[asyncio.TimerHandle, WorkerExited]] = {}
        """Slots and generations of dead workers whose last messages may not have been read."""
        self._killed_stopped: set[tuple[int, int]] = set()
        """Slots and generations of workers that were stopped for too long."""
        self._killed_headless: set[tuple[int, int]] = set()
        """Slots and generations of workers whose main thread had ended."""

    async def start(self) -> None:
        """Start the zygote; after some failures with a growing pause, give the lease back."""
        preload, failures, pauses = True, 0, self._pauses
        while not self._session.ending and pauses == self._pauses:
            try:
                pool = self.pool = self._make_pool(preload)
                ready = await pool.start()
            except HandlersNotImported:
                preload = False  # each task that needs them fails with its own message
                await self.close()
            except (MitosisError, OSError) as error:
                # Cores and limits may have shrunk since the plan was checked.
                log.error("workers.not_started", extra={"reason": str(error)})  # noqa: TRY400
                await self.close()
                failures += 1
                if failures >= START_ATTEMPTS:
                    self.give_up(str(error))
                    return
                await asyncio.sleep(POOL_RETRIES.pause(failures - 1))
            else:
                if pauses != self._pauses:
                    await pool.close()
                    return
                log.info(
                    "workers.starting",
                    extra={
                        "epoch": self._session.epoch,
                        "forks": ready.forks,
                        "no_fork_reason": ready.no_fork_reason,
                    },
                )
                self._wanted, self._began_at = True, self._loop.time()
                self._session.handle(Begin())
                return

    async def close(self) -> None:
        """Kill the workers and wait until all processes are gone."""
        if self.pool is not None:
            await self.pool.close()

    async def pause(self, reason: str) -> None:
        """End all workers, take no task, and start none before :meth:`start_after_pause`.

        Only after :meth:`give_up`: nothing runs then.
        """
        self._pauses += 1
        self._session.handle(Paused(reason))
        await self.close()

    async def start_after_pause(self) -> None:
        """Start the zygote again."""
        self.cannot_start = None
        self._session.handle(Paused(None))
        await self.start()

    def spawn(self, slot: int, generation: int) -> None:
        if self.pool is not None:
            self.pool.spawn(slot, generation)

    def kill(self, slot: int, generation: int) -> None:
        if self.pool is not None:
            self.pool.kill(slot, generation)

    def kill_stuck(self, slot: int, generation: int) -> None:
        log.warning("worker.stuck", extra={"slot": slot, "generation": generation})
        self.kill(slot, generation)

    def withdraw(self, slot: int, generation: int) -> None:
        """Keep a worker that reads no messages from beginning what it holds."""
        if (pool := self.pool) is None:
            return
        try:
            pool.withdraw(slot)
        except OSError as error:  # then its tasks wait for its answer
            log.warning("worker.tasks_not_withdrawn", extra={"slot": slot, "reason": str(error)})
            return
        log.info("worker.tasks_withdrawn", extra={"slot": slot, "generation": generation})
        self._loop.call_later(WITHDRAWN_SECONDS, self._withdrawn, pool, slot, generation)

    def _withdrawn(self, pool: Pool, slot: int, generation: int) -> None:
        if pool is self.pool:
            self._session.handle(Withdrawn(slot, generation, pool.running(slot)))

    def running(self, slot: int) -> AttemptKey | None:
        """Return what the worker in this slot runs, also if it has not said so."""
        return self.pool.running(slot) if self.pool is not None else None

    async def watch_stopped(self) -> None:
        """Kill workers with a task that stay stopped, or have no main thread, until cancelled."""
        while True:
            await asyncio.sleep(stopped.LOOK_SECONDS)
            self._end_stopped()
            self._end_headless()

    def _end_headless(self) -> None:
        """Kill workers that end no task any more, although the kernel does not call them dead."""
        pids = self.pool.pids if self.pool is not None else {}
        workers = {pid: worker for worker, pid in pids.items()}
        for pid in self._headless.look(workers):
            slot, generation = worker = workers[pid]
            log.warning("worker.headless", extra={"slot": slot, "generation": generation})
            self._killed_headless.add(worker)
            self.kill(slot, generation)

    def _end_stopped(self) -> None:
        if (pool := self.pool) is None:
            return
        busy = {
            pid: (slot, generation)
            for (slot, generation), pid in pool.pids.items()
            if any(self._session.state.workers[slot].attempts())
        }
        for pid in self._stopped.look((pool.zygote, *busy)):
            if (worker := busy.get(pid)) is None:
                log.warning("zygote.continued", extra={"pid": pid})
                pool.wake()
            elif worker not in self._killed_stopped:
                slot, generation = worker
                log.warning("worker.stopped", extra={"slot": slot, "generation": generation})
                self._killed_stopped.add(worker)
                self.kill(slot, generation)

    # --- events of the pool ---------------------------------------------------------------------

    def worker_spawned(self, slot: int, generation: int, pid: int) -> None:
        self._not_spawned.pop(slot, None)
        self._router.expect(slot, generation, pid, self._session.on_message)

    def worker_not_spawned(self, slot: int, generation: int, reason: str) -> None:
        self._not_spawned[slot] = reason
        self.worker_exited(slot, generation, ExitReason(ExitKind.UNKNOWN))

    def worker_exited(
        self, slot: int, generation: int, reason: ExitReason, packet: Exited | None = None
    ) -> None:
        self._router.drain()
        kills = exits.oom_kills()
        out_of_memory, self._oom_kills = kills > self._oom_kills, kills
        words = packet.stderr_tail if packet is not None else ""
        running = packet.running if packet is not None else None
        limit = None
        if (slot, generation) in self._killed_stopped:
            self._killed_stopped.discard((slot, generation))
            limit = self._stopped_limit.total_seconds()
        headless = (slot, generation) in self._killed_headless
        self._killed_headless.discard((slot, generation))
        event = WorkerExited(
            slot,
            generation,
            reason,
            out_of_memory,
            time.time(),
            words,
            running,
            self._begun(slot),
            limit,
            headless,
        )
        worker = self._session.state.workers[slot]
        all_read = (slot, generation) in self.renewed or not any(worker.attempts())
        wait = 0.0 if all_read else LAST_MESSAGES_SECONDS
        timer = self._loop.call_later(wait, self._handle_exit, event)
        self._exits[slot, generation] = timer, event

    def _begun(self, slot: int) -> frozenset[AttemptKey]:
        """Return what a dead worker had begun: its slot has no other process yet."""
        return self.pool.begun(slot) if self.pool is not None else frozenset()

    def zygote_ended(self, ended: ExitReason) -> None:
        """Handle the end of the zygote and all its workers; start again while the session is active.

        What a worker ran is read from shared memory: its last message may be lost with it, and a task that
        kills its zygote must not run again uncharged.
        """
        pool, self.pool = self.pool, None
        if not self._wanted or pool is None:
            return
        self._wanted = False
        self._router.drain()
        self._session.handle(PoolLost())
        for timer, exited in [*self._exits.values()]:  # they did not end with the zygote
            timer.cancel()
            self._handle_exit(exited)
        reason = ExitReason(ExitKind.UNKNOWN)
        for worker in [worker for worker in self._session.state.workers if worker.alive]:
            event = WorkerExited(
                worker.slot,
                worker.generation,
                reason,
                out_of_memory=False,
                at=time.time(),
                running=pool.running(worker.slot),
                begun=pool.begun(worker.slot),
                zygote=ended,
            )
            self._handle_exit(event)
        if self._session.ending or self.cannot_start is not None:
            return
        pause = self._pause_after_death()
        facts = {"epoch": self._session.epoch, "reason": str(ended), "pause_seconds": pause}
        log.error("zygote.died", extra=facts)
        if self._deaths >= MOST_DEATHS:
            self.give_up(f"{self._deaths} zygotes in a row ended soon: {ended}")
        else:
            self._session.background(self._start_again(pause, self._pauses))

    def _pause_after_death(self) -> float:
        """Return the pause before the next zygote: none, and a growing one while none lives for long."""
        short = self._loop.time() - self._began_at < LASTING_SECONDS
        self._deaths = self._deaths + 1 if short else 1
        return POOL_RETRIES.pause(self._deaths - 2) if self._deaths > 1 else 0.0

    async def _start_again(self, pause: float, pauses: int) -> None:
        await asyncio.sleep(pause)
        if pauses == self._pauses:
            await self.start()

    def _handle_exit(self, event: WorkerExited) -> None:
        self._router.drain()
        self._router.forget(event.slot, event.generation)
        worker = (event.slot, event.generation)
        self._exits.pop(worker, None)
        if worker in self.renewed:
            self.renewed.discard(worker)
        elif not self._session.ending:
            log.warning(
                "worker.died",
                extra={
                    "slot": event.slot,
                    "generation": event.generation,
                    "reason": str(event.reason),
                    "out_of_memory": event.out_of_memory,
                },
            )
        self._session.handle(event)
        if self._session.state.cannot_start and not self._session.ending:
            self.give_up(self._why_not_ready(event))

    def _why_not_ready(self, event: WorkerExited) -> str:
        """Return why workers could not be started, or what their last words before they were ready were."""
        if event.slot in self._not_spawned:
            return self._not_spawned[event.slot]
        said = event.stderr_tail.strip().splitlines()
        return f"workers end before they are ready: {event.reason}{f': {said[-1]}' if said else ''}"

    def give_up(self, reason: str) -> None:
        """Have the lease ended, so that a host which can start workers and commands gets the work.

        A worker service, which has no lease, pauses instead.
        """
        if self.cannot_start is not None:
            return
        log.error("work.given_up", extra={"epoch": self._session.epoch, "reason": reason})
        self.cannot_start = reason[:MAX_REASON] or "no reason is known"
        self._renew_now()
