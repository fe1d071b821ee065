"""Creates in Temporal what must exist: namespace, search attributes, and the workflows PostgreSQL requires.

The control worker's process runs it at start, every 30 s, and when Temporal reports something missing
(protocol P6). So the data of Temporal may be lost at any time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from temporalio.service import RPCError

from mitosis.concurrency import raise_if_cancelled, wait_event
from mitosis.contracts.control import Names, WorkflowKind
from mitosis.contracts.errors import DatabaseUnavailable, TemporalUnavailable
from workflows.client import WORKFLOW_TYPES, ControlClient, target
from workflows.namespace import ensure_namespace
from workflows.ports import ExpectedPort

log = logging.getLogger(__name__)
Call: TypeAlias = Callable[[WorkflowKind, UUID, Names | None], Awaitable[None]]

EVERY_SECONDS = 30.0
AT_ONCE = 16
"""Calls to the server at the same time."""
SHARE = 0.8
"""Of the rate at which the server starts workflows: what is left is for hosts, verbs and pokes."""
RPC_TIMEOUT = timedelta(seconds=10)


class Bootstrap:
    """Idempotent; any number of processes may run it at once."""

    def __init__(
        self,
        client: ControlClient,
        expected: ExpectedPort,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._client = client
        self._expected = expected
        self._every_seconds = every_seconds
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Request a run soon: something seems to be missing."""
        self._asked.set()

    async def run(self) -> None:
        """Ensure everything repeatedly, until cancelled."""
        while True:
            raise_if_cancelled()
            await wait_event(self._asked, self._every_seconds)
            self._asked.clear()
            try:
                await self.ensure()
            except (TemporalUnavailable, DatabaseUnavailable, RPCError) as error:
                log.warning("bootstrap.failed", extra={"reason": str(error)})

    async def ensure(self) -> None:
        """Ensure the namespace, the search attributes and every workflow that must run.

        Raises:
            TemporalUnavailable, RPCError, DatabaseUnavailable: try again later.
        """
        await ensure_namespace(self._client.temporal)
        await self._client.start("scheduler")
        await self._client.start("retention")
        await self.reconcile()

    async def reconcile(self) -> None:
        """Start what is missing: hosts first, then task groups with leases or timers, runs, and the rest.

        Hosts whose silence is a loss are poked before all. The rest is started at a pace that leaves the
        server time, and for one interval at most, because a host may become silent in the meantime.
        """
        expected = await self._expected.expected()
        running, names = await self._running(), expected.names
        if expected.overdue_managers:
            await self._each(self._client.poke, "manager", expected.overdue_managers, names)
        silent, urgent = frozenset(expected.overdue_managers), frozenset(expected.urgent_groups)
        hosts = [one for one in expected.managers if one not in silent]
        rest = [one for one in expected.task_groups if one not in urgent]
        in_turn: Sequence[tuple[WorkflowKind, Sequence[UUID]]] = (
            ("manager", hosts),
            ("task_group", expected.urgent_groups),
            ("run", expected.runs),
        )
        for kind, subjects in in_turn:
            await self._each(self._client.start, kind, _missing(kind, subjects, running), names)
        await self._start_slowly("task_group", _missing("task_group", rest, running), names)

    async def _each(
        self, call: Call, kind: WorkflowKind, subjects: Sequence[UUID], names: Mapping[UUID, Names]
    ) -> None:
        """Make one call for each subject, a few at the same time; raise the first error of a few."""
        if subjects:
            log.info("bootstrap.starting", extra={"kind": kind, "count": len(subjects)})
        for few in _in_fews(subjects):
            await _together(call(kind, one, names.get(one)) for one in few)

    async def _start_slowly(
        self, kind: WorkflowKind, subjects: Sequence[UUID], names: Mapping[UUID, Names]
    ) -> None:
        clock = asyncio.get_running_loop().time
        ends = clock() + self._every_seconds
        if subjects:
            log.info("bootstrap.starting_rest", extra={"kind": kind, "count": len(subjects)})
        for few in _in_fews(subjects):
            began = clock()
            if began >= ends:
                self.ask()
                return
            await _together(self._client.start(kind, one, names.get(one)) for one in few)
            await asyncio.sleep((clock() - began) * (1 - SHARE) / SHARE)

    async def _running(self) -> frozenset[str]:
        types = ", ".join(f"'{name}'" for name in WORKFLOW_TYPES.values())
        query = f"WorkflowType IN ({types}) AND ExecutionStatus = 'Running'"
        found = self._client.temporal.list_workflows(query, page_size=1000, rpc_timeout=RPC_TIMEOUT)
        return frozenset([execution.id async for execution in found])


def _missing(
    kind: WorkflowKind, subjects: Sequence[UUID], running: frozenset[str]
) -> Sequence[UUID]:
    return [one for one in subjects if target(kind, one).id not in running]


def _in_fews(subjects: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    return (subjects[first : first + AT_ONCE] for first in range(0, len(subjects), AT_ONCE))


async def _together(calls: Iterable[Awaitable[None]]) -> None:
    """Wait for all; raise the first error."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if outcome is not None:
            raise outcome
