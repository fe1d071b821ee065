"""The last steps of an agent: running tasks end or are stopped, reports leave, goodbye is said."""

import asyncio
import logging
from datetime import timedelta

from manager_agent.agent_api import AgentApi
from manager_agent.lease_session import LeaseSession
from mitosis.concurrency import race, within
from mitosis.contracts.errors import MitosisError
from mitosis.execution.events import Stop
from mitosis.execution.reporter import Reporter

KILL_MARGIN_SECONDS = 1.0
REPORT_SECONDS = 3.0
GOODBYE_SECONDS = 1.5

log = logging.getLogger(__name__)


async def drain(
    session: LeaseSession, limit: timedelta, longest_grace: timedelta, kill: asyncio.Event
) -> None:
    """End a session: unstarted tasks are returned, running ones may end, the rest is stopped and requeued.

    Args:
        session: which is not over.
        limit: how long running tasks may go on.
        longest_grace: from SIGTERM to SIGKILL, if the group of the session has no shorter one.
        kill: skips both.
    """
    session.handle(Stop())
    await race(session.over.wait(), kill.wait(), asyncio.sleep(limit.total_seconds()))
    if not session.over.is_set() and not kill.is_set():
        grace = _grace(session, longest_grace.total_seconds())
        session.handle(Stop(kill=True, grace_seconds=grace))
        stopped = asyncio.sleep(grace + KILL_MARGIN_SECONDS)
        await race(session.over.wait(), kill.wait(), stopped)
    if not session.over.is_set():
        session.handle(Stop(kill=True))
        await session.close()
    await session.over.wait()


def _grace(session: LeaseSession, longest: float) -> float:
    """Return the grace of the tasks that still run; say so if they asked for more."""
    wanted = session.grant.cancel_grace_seconds
    if wanted > longest and session.state.running:
        log.warning(
            "grace.cut",
            extra={
                "task_group": session.grant.task_group_name,
                "running": session.state.running,
                "wanted_seconds": wanted,
                "given_seconds": longest,
                "setting": "agent.stop_grace_seconds",
            },
        )
    return min(wanted, longest)


async def leave(api: AgentApi, reporter: Reporter, epoch: int | None) -> None:
    """Send the reports that wait and say goodbye, each for a short time: the journal keeps the rest."""
    try:
        await within(reporter.quiet(), REPORT_SECONDS)
    except TimeoutError:  # the next process names these attempts; a goodbye would requeue them
        log.warning("goodbye.omitted", extra={"reason": "reports are left in the journal"})
        return
    try:
        await within(api.goodbye(epoch), GOODBYE_SECONDS)
    except (MitosisError, TimeoutError) as error:
        log.warning("goodbye.failed", extra={"reason": str(error)})
