"""Composes the process of a worker service; owns the order of its start and its end (P10)."""

import asyncio
import logging
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mitosis.client.service_api import ServiceApi
from mitosis.concurrency import cancel_and_wait, race, within
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ConfigurationError, MitosisError, Unavailable
from mitosis.contracts.variables import without_settings
from mitosis.contracts.worker_services import WorkerGoodbye
from mitosis.execution.disk import DiskRoom
from mitosis.execution.events import Event, Stop
from mitosis.execution.identity import write_durably
from mitosis.execution.journal import Journal
from mitosis.execution.leftovers import kill_leftovers
from mitosis.execution.pool import Pool, ZygoteCommand
from mitosis.execution.reporter import Reporter
from mitosis.execution.router import Router
from mitosis.execution.run_folder import HostFolders, make_private
from mitosis.execution.session import SessionParts
from mitosis.execution.session_workers import SessionWorkers
from mitosis.executors.contract import ServiceFacts
from mitosis.worker.process_limit import default_limit
from mitosis.worker.zygote_protocol import Setup
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.contact import ServiceContact
from mitosis.worker_service.coroutine_slots import CoroutineSlots
from mitosis.worker_service.coroutines import CoroutineThread, are_coroutines
from mitosis.worker_service.discovery import Discovery
from mitosis.worker_service.executor_thread import ExecutorThread
from mitosis.worker_service.link import ServiceLink
from mitosis.worker_service.progress import ProgressBoard
from mitosis.worker_service.registration import Registration
from mitosis.worker_service.session import Returns, ServiceSession
from mitosis.worker_service.slot_pauses import SlotPauses
from mitosis.worker_service.targets import by_name

KILL_MARGIN_SECONDS = 1.0
REPORT_SECONDS = 3.0
GOODBYE_SECONDS = 1.5
ID_FILE = "service-id"

log = logging.getLogger(__name__)


def process_id(state_dir: Path) -> str:
    """Return the id by which the processes of this service on this machine are recognised."""
    path = state_dir / ID_FILE
    if not path.exists():
        make_private(state_dir)
        write_durably(path, uuid.uuid4().hex.encode())
    return path.read_text().strip()


class Slots(Protocol):
    """Claims for free slots, executes, and reports to the reporter."""

    over: asyncio.Event
    """Set when nothing is left to do."""

    @property
    def held(self) -> Collection[AttemptKey]: ...

    def start(self) -> None: ...

    def handle(self, event: Event) -> None: ...

    async def close(self) -> None: ...


class Service:
    """One process of a worker service. Make it inside a running event loop, with the folders locked."""

    def __init__(
        self,
        config: ServiceConfig,
        discovery: Discovery,
        folders: HostFolders,
    ) -> None:
        """Make the parts; nothing runs before :meth:`run`.

        Args:
            config: of the service.
            discovery: what it executes.
            folders: of this process, locked.
        """
        targets, functions = discovery.targets, discovery.functions
        self._config = config
        self._folders = folders
        self._id = process_id(config.state_dir)
        self._api = ServiceApi(config.api_url, config.token or "", ca_file=config.ca_file)
        self._link = ServiceLink(
            self._api, by_name(targets), config.slots, config.folder, self._look_now
        )
        self._reporter = Reporter(self._link, Journal(folders.journal))
        self._registration = Registration(
            config, self._api, lambda: discovery.targets, self._link.unreported
        )
        self._contact = ServiceContact(self._api, self._registration, self._link, discovery)
        self._router = Router(folders.endpoint)
        self._disk = DiskRoom(folders.state_dir, config.min_free_bytes)
        self._modules = tuple(sorted({m for t in targets if (m := t.handler_module) is not None}))
        only_coroutines = all(target.handler is not None for target in targets)
        if discovery.executors:
            self.slots: Slots = self._executor_slots(discovery)
        elif only_coroutines and are_coroutines(functions):
            self.slots = self._coroutine_slots(functions)
        else:
            self.slots = self._process_slots()
        self._contact.slots = self.slots
        self._link.connect(self._registration, self._reporter, lambda: self.slots.held)
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._is_refused = False

    def stop(self) -> None:
        """End in order: what runs is finished. When called again, what runs is stopped and given back."""
        if self._stop.is_set() or self._config.stop_now:
            self._kill.set()
        self._stop.set()

    @property
    def forced(self) -> bool:
        """Whether what runs is not waited for."""
        return self._kill.is_set()

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises:
            MitosisError: the API refuses this process, or a handler blocks all others.
        """
        try:
            if await self._work() and not self._has_lost_handlers():
                await self._say_goodbye()
        finally:
            self._api.close()
        if (lack := self._lack()) is not None:
            raise lack

    async def _work(self) -> bool:
        """Work until :meth:`stop`; return whether a goodbye may give back what the API counts as held."""
        kill_leftovers(self._id)
        shutil.rmtree(self._folders.scratch, ignore_errors=True)
        running: list[asyncio.Task[None]] = []
        try:
            loop = asyncio.get_running_loop()
            begun = loop.create_task(self._registration.begin())
            running = [begun]
            await race(begun, self._stop.wait())
            if not begun.done():
                return False
            running = [
                loop.create_task(self._reporter.run()),
                loop.create_task(self._contact.run(self._config.look_seconds)),
                loop.create_task(self._registration.keep_token()),
            ]
            self.slots.start()
            await race(self._stop.wait(), self._refused(), *running)
            await race(self._end_slots(), *running)
            return await self._all_reported()
        finally:
            await self._close(running)

    # --- parts ----------------------------------------------------------------------------------

    def _coroutine_slots(self, functions: Mapping[str, Callable[..., Any]]) -> Slots:
        make_private(self._folders.scratch)
        thread = CoroutineThread(functions, self._folders.scratch)
        slots, groups = self._config.slots, self._link.groups
        return CoroutineSlots(slots, self._link, self._reporter, groups, thread, self._room)

    def _executor_slots(self, discovery: Discovery) -> Slots:
        make_private(self._folders.scratch)
        board = ProgressBoard(self._api, self._registration, self._link.groups)
        self._contact.send_progress = board.send
        service = ServiceFacts(
            service=self._id,
            folder=str(self._config.folder),
            variables=self._variables(),
            python_path=self._config.python_path,
        )
        targets = by_name(discovery.targets)
        thread = ExecutorThread(discovery.executors, targets, board, service, self._folders.scratch)

        async def room() -> None:
            await thread.ready()
            await self._room()

        slots, groups = self._config.slots, self._link.groups
        return CoroutineSlots(slots, self._link, self._reporter, groups, thread, room)

    def _variables(self) -> dict[str, str]:
        """Return the variables by which the processes of this service are recognised."""
        return {
            "MITOSIS_MANAGER_ID": self._id,
            "MITOSIS_WORKER_ENDPOINT": self._folders.endpoint,
        }

    def _process_slots(self) -> Slots:
        returns = Returns()
        parts = SessionParts(
            self._link,
            self._router,
            self._reporter,
            lambda workers, preload: self._make_pool(workers, preload=preload),
            returns.renew_now,
            self._room,
            in_contact=lambda: False,  # what is returned waits for this process anyway
        )
        session = ServiceSession(self._config.slots, parts, self._link.groups)
        pauses = SlotPauses(session, self._registration, self._reporter)
        returns.connect(session, pauses.begin)
        return session

    def _look_now(self) -> None:
        self._contact.look_now()

    async def _refused(self) -> None:
        """Wait until the session ends by itself: the API refuses it, or no handler can go on."""
        await self.slots.over.wait()
        self._is_refused = True

    def _lack(self) -> MitosisError | None:
        """Return why this process could not work; None if it was stopped."""
        if isinstance(self.slots, CoroutineSlots) and self.slots.blocked:
            return Unavailable("a handler that has not ended in time blocks all others")
        if self._has_lost_handlers():
            return Unavailable("a handler has closed the event loop of all handlers")
        if self._is_refused:
            return ConfigurationError("the API gives this process no tasks (claim.refused)")
        return None

    def _has_lost_handlers(self) -> bool:
        """Return whether what ran is lost as in a crash: no goodbye may give it back at no charge."""
        return isinstance(self.slots, CoroutineSlots) and self.slots.lost

    async def _room(self) -> None:
        """Wait until disk and reporter have room for what more tasks would bring."""
        await self._disk.until_there()
        await self._reporter.room()

    def _make_pool(self, workers: SessionWorkers, *, preload: bool) -> Pool:
        make_private(self._folders.scratch)
        config = self._config
        setup = Setup(
            manager_id=self._id,
            endpoint=self._folders.endpoint,
            task_group_id="",
            task_group_number=0,
            task_group_name="",
            group_name="",
            scratch_folder=str(self._folders.scratch),
            run_folder=str(self._folders.run_dir),
            handler_modules=self._modules if preload else (),
            python_path=config.python_path,
            max_processes_per_worker=default_limit(config.slots),
        )
        environment = without_settings(os.environ) | self._variables()
        command = ZygoteCommand(sys.executable, setup, environment)
        return Pool(command, [None] * config.slots, workers)

    # --- end ------------------------------------------------------------------------------------

    async def _end_slots(self) -> None:
        """Claim nothing more, finish what runs or stop it; the goodbye gives back what has not begun."""
        slots = self.slots
        log.info("worker.stopping", extra={"held": len(slots.held)})
        slots.handle(Stop())
        await race(slots.over.wait(), self._kill.wait())
        if not slots.over.is_set():
            grace = self._config.stop_grace.total_seconds()
            slots.handle(Stop(kill=True, grace_seconds=grace))
            await race(slots.over.wait(), asyncio.sleep(grace + KILL_MARGIN_SECONDS))
        if not slots.over.is_set():
            slots.handle(Stop(kill=True))
            await slots.close()
        await slots.over.wait()

    async def _all_reported(self) -> bool:
        """Send the reports that wait, for a short time; return whether none is left in the journal."""
        with suppress(TimeoutError):
            await within(self._reporter.quiet(), REPORT_SECONDS)
        if (
            self._link.unreported()
        ):  # the next process names these attempts; a goodbye would requeue them
            log.warning("goodbye.omitted", extra={"reason": "reports are left in the journal"})
            return False
        return True

    async def _say_goodbye(self) -> None:
        """Give back what was stopped, as the last step: what cannot be stopped ends with the process."""
        lack = self._lack()
        reason = "stopped" if lack is None else lack.message
        goodbye = WorkerGoodbye(incarnation=self._registration.incarnation, reason=reason)
        try:
            await within(self._api.goodbye(goodbye), GOODBYE_SECONDS)
        except (MitosisError, TimeoutError) as error:
            log.warning("goodbye.failed", extra={"reason": str(error)})

    async def _close(self, running: Sequence[asyncio.Task[None]]) -> None:
        await cancel_and_wait(*running)
        await self.slots.close()
        self._router.close()
        self._reporter.close()
