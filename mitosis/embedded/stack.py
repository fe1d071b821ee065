"""The whole stack of one data folder: starts every server for which the settings give no address.

Owns order, addresses and the end of all parts. The caller adds the other parts (API, control worker,
agent)::

    async with EmbeddedStack(settings) as stack:
        await migrate(stack.database_url)
        await stack.add_service("control worker", control_worker(stack.database_url, …))
        await stack.add_service("api", serve_api(…))
        await stack.add_process("agent", [sys.executable, "-m", "mitosis", "agent"], ready=…)
        await stack.until_stopped()

Parts end in the reverse order, also when a later one cannot be started, the caller is cancelled, or
SIGINT, SIGTERM or SIGHUP comes at any moment.
When this process is killed, PostgreSQL, Temporal and every added process die with it, and the same
data folder can be started again.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.kept_service import KeptService
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.embedded.stop_signals import StopSignals
from mitosis.embedded.supervisor import Probe, ProcessSpec, SupervisedProcess, always_ready
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.settings import Settings, default_data_dir
from mitosis.stop_deadline import StopDeadline

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVICE_ENDS_WITHIN_SECONDS = 4.0
ABANDONED_SECONDS = 3.0
"""So long the rest of the program may take when a part in this process did not end."""


class EmbeddedStack:
    """PostgreSQL, Temporal and the caller's parts, up while the context is open."""

    def __init__(
        self,
        settings: Settings,
        signals: StopSignals | None = None,
        *,
        stop_within: float | None = None,
    ) -> None:
        """Create or open the data folder without starting or locking anything.

        ``signals`` belong to a caller that cleans up after the stack; without them the stack handles
        signals itself. ``stop_within``: seconds from the first signal, or the end of the context, after
        which everything that still runs is killed, this process last; None = it is waited for.

        Raises:
            UnsafeFolder: the data folder is not ours.
        """
        self.settings = settings
        self.folder = DataFolder(settings.data_dir or default_data_dir(), settings.run_dir)
        self.database_url = ""
        """libpq URL, password in it."""
        self.temporal_address = ""
        self.ui_url: str | None = None
        self.postgres: EmbeddedPostgres | None = None
        self.temporal: EmbeddedTemporal | None = None
        self._exits = AsyncExitStack()
        self._deadline = None if stop_within is None else StopDeadline(stop_within)
        self._abandoned = False
        self._given_signals = signals
        self._signals: StopSignals

    async def __aenter__(self) -> Self:
        """Start PostgreSQL and Temporal at the same time.

        Raises:
            DataFolderInUse, PortInUse, StartFailed, ProgramMissing, SocketPathTooLong,
            KeyboardInterrupt: nothing is left running.
        """
        self._signals = self._given_signals or StopSignals()
        if self._deadline is not None:
            self._signals.on_stop = self._deadline.arm
        try:
            async with AsyncExitStack() as exits:
                if self._given_signals is None:
                    exits.enter_context(self._signals)
                self.folder.lock()
                exits.callback(self.folder.release)
                async with asyncio.TaskGroup() as starting:
                    starting.create_task(self._start_postgres(exits))
                    starting.create_task(self._start_temporal(exits))
                self._exits = exits.pop_all()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        except asyncio.CancelledError:
            self._raise_interrupt()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything, last started first.

        Raises:
            KeyboardInterrupt: a signal cancelled the work on the stack, or its stop.
        """
        if self._deadline is not None:
            self._deadline.arm()
        try:
            await self._exits.__aexit__(kind, error, trace)
        except asyncio.CancelledError:
            self._raise_interrupt()
            raise
        finally:
            self._finish_stop()
        if isinstance(error, asyncio.CancelledError):
            self._raise_interrupt()

    def _finish_stop(self) -> None:
        if self._deadline is not None and self._abandoned:
            self._deadline.end_within(ABANDONED_SECONDS)
        elif self._deadline is not None:
            self._deadline.disarm()

    def _raise_interrupt(self) -> None:
        if self._signals.received:
            raise KeyboardInterrupt

    async def add_service(self, name: str, service: AbstractAsyncContextManager[T]) -> T:
        """Enter a part that runs in this process; the stack exits it when it stops.

        With a deadline, a part that does not end within :data:`SERVICE_ENDS_WITHIN_SECONDS` is left behind,
        so that the servers below it are stopped in order all the same.
        """
        if self._deadline is None:
            value = await self._exits.enter_async_context(service)
        else:
            kept = KeptService(service)
            value = await kept.enter()
            self._exits.push_async_callback(self._end_service, name, kept)
        log.info("part.ready", extra={"part": name})
        return value

    async def _end_service(self, name: str, kept: "KeptService[Any]") -> None:
        if not await kept.leave(SERVICE_ENDS_WITHIN_SECONDS):
            self._abandoned = True
            log.error("part.abandoned", extra={"part": name})

    async def add_process(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        without: Collection[str] = (),
        ready: Probe = always_ready,
        stop_seconds: float = 10.0,
    ) -> SupervisedProcess:
        """Start and supervise a child process; ``env`` is added to our environment, ``without`` left out.

        Raises:
            StartFailed: it did not become ready.
        """
        process = SupervisedProcess(
            ProcessSpec(
                name=name,
                argv=argv,
                log=self.folder.log(name),
                ready=ready,
                env={
                    **{key: value for key, value in os.environ.items() if key not in without},
                    **(env or {}),
                },
                stop=((signal.SIGTERM, stop_seconds),),
            )
        )
        self._exits.push_async_callback(process.stop)
        await process.start()
        return process

    async def until_stopped(self) -> signal.Signals:
        """Wait for SIGINT, SIGTERM or SIGHUP and return it."""
        return await self._signals.wait()

    async def _start_postgres(self, exits: AsyncExitStack) -> None:
        if url := self.settings.database.url:
            self.database_url = url.get_secret_value()
            return
        self.postgres = EmbeddedPostgres(self.folder)
        exits.push_async_callback(self.postgres.stop)
        await self.postgres.start()
        self.database_url = self.postgres.url()

    async def _start_temporal(self, exits: AsyncExitStack) -> None:
        settings = self.settings.temporal
        if settings.address:
            self.temporal_address, self.ui_url = settings.address, settings.ui_url
            return
        self.temporal = EmbeddedTemporal(
            self.folder, settings.namespace, settings.port, settings.ui_port
        )
        exits.push_async_callback(self.temporal.stop)
        await self.temporal.start()
        self.temporal_address, self.ui_url = self.temporal.address, self.temporal.ui_url
