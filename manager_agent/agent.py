"""Composes the manager agent of one host; owns the order of its start and shutdown (protocol P5).

Takes plain values and reads no settings. The other modules do one thing each: ``session`` runs a lease,
``contact`` keeps it alive, ``environments`` runs hooks, ``host`` answers Temporal, ``reporter`` and
``journal`` lose no result.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from manager_agent.affinity import cpuset_prefix, plan_cpus
from manager_agent.agent_api import AgentApi
from manager_agent.checkpoint import Checkpoints
from manager_agent.contact import RENEW_SECONDS, Contact
from manager_agent.ended_hooks import EndedHooks
from manager_agent.environments import Environments
from manager_agent.hello import hello as hello_of_host
from manager_agent.host import Host
from manager_agent.instance import instance_mark
from manager_agent.lease_session import LeaseSession
from manager_agent.planned_stop import PlannedStop
from manager_agent.registration import Credentials
from manager_agent.shutdown import drain, leave
from manager_agent.step_deaths import Step, StepDeaths
from manager_agent.temporal import TemporalTarget, poll_for_ever
from manager_agent.token_renewal import TokenRenewal
from mitosis.concurrency import race
from mitosis.contracts.agent_http import HelloAnswer, LeaseGrant
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.control import LeaseEnd
from mitosis.contracts.errors import (
    MitosisError,
)
from mitosis.contracts.variables import without_settings
from mitosis.execution import identity
from mitosis.execution.backoff import until_reached
from mitosis.execution.disk import MIN_FREE_BYTES, DiskRoom
from mitosis.execution.journal import Journal
from mitosis.execution.leftovers import kill_leftovers
from mitosis.execution.pool import Pool, ZygoteCommand, ZygoteFailed
from mitosis.execution.reporter import Reporter
from mitosis.execution.router import Router
from mitosis.execution.run_folder import HostFolders, make_private
from mitosis.execution.session import SessionParts
from mitosis.execution.session_workers import SessionWorkers
from mitosis.execution.stopped import STOPPED_LIMIT
from mitosis.worker.evidence import begun_attempts, forget_begun
from mitosis.worker.process_limit import default_limit
from mitosis.worker.zygote_protocol import Setup

CLOSE_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of an agent."""

    api_url: str
    manager_id: UUID
    token: str
    temporal_address: str
    state_dir: Path
    """Holds journal, incarnation, checkpoints and scratch; on a disk that survives a reboot."""
    run_parent: Path | None = None
    """Parent of the run folder, with a short path; None: $XDG_RUNTIME_DIR or /tmp."""
    ca_file: Path | None = None
    """Certificates to trust for an https address; None: those of the system."""
    temporal_tls: bool = False
    temporal_api_key: str | None = None
    take_over: bool = False
    """Take the manager id from another host that is still in contact."""
    drain: timedelta = timedelta(seconds=30)
    """How long running tasks may go on after a stop."""
    stop_grace: timedelta = timedelta(seconds=4)
    """After that, the longest time from SIGTERM to SIGKILL; a shorter cancel grace of a group applies."""
    stopped_limit: timedelta = STOPPED_LIMIT
    """A worker with a task that a signal has stopped for longer is killed."""
    renew_seconds: float = RENEW_SECONDS
    min_free_bytes: int = MIN_FREE_BYTES
    """Free space on the disk of ``state_dir`` below which no task is claimed."""

    def __repr__(self) -> str:
        return f"AgentConfig({self.manager_id} at {self.api_url})"


class Agent:
    """One process of one manager. Make it inside a running event loop, with the folders locked."""

    def __init__(self, config: AgentConfig, folders: HostFolders) -> None:
        self._config = config
        self._folders = folders
        self._api = AgentApi(config.api_url, config.token, ca_file=config.ca_file)
        self._journal = Journal(folders.journal)
        self._reporter = Reporter(self._api, self._journal)
        self._checkpoints = Checkpoints(
            folders.checkpoints,
            identity.machine_id(folders.state_dir),
            identity.boot_id(),
            instance_mark(),
        )
        self._steps = StepDeaths(folders.state_dir / "steps")
        self._environments = Environments(
            config.manager_id,
            self._api,
            self._checkpoints,
            self._steps,
            EndedHooks(folders.state_dir / "ended_hooks", self._api),
        )
        self.host = Host(
            config.manager_id,
            self._api,
            self._environments,
            self._make_session,
            self._reporter.replayed,
        )
        self._contact = Contact(
            self._api,
            self._reporter,
            0,
            self._live_session,
            config.renew_seconds,
            self._counted_lost,
        )
        self._contact.host = self.host
        self._router = Router(folders.endpoint)
        self._tokens = TokenRenewal(
            Credentials(config.manager_id, config.token),
            folders.state_dir,
            self._api.renew_token,
            self._api.use_token,
        )
        self._planned_stop = PlannedStop(folders.state_dir)
        self._begun: set[AttemptKey] = set()
        """What an earlier process has started; PostgreSQL knows which of these have ended."""
        self._disk = DiskRoom(folders.state_dir, config.min_free_bytes)
        self._contact.lack = self._disk.lack
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._claim_seqs: dict[int, int] = {}
        self._generation = 0
        self._greeting = False
        self._background: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Shut down in order; when called again, without waiting for running tasks."""
        if self._stop.is_set():
            self._kill.set()
        self._stop.set()

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises:
            MitosisError: the API refuses this agent.
        """
        kill_leftovers(str(self._config.manager_id), self._checkpoints.prepared())
        shutil.rmtree(self._folders.scratch, ignore_errors=True)
        self._begun = begun_attempts(self._folders.run_dir)
        last = identity.read_incarnation(self._folders.state_dir)
        self._steps.count(stopped_in_order=self._planned_stop.incarnation() == last)
        incarnation = identity.raise_incarnation(self._folders.state_dir)
        running: list[asyncio.Task[None]] = []
        try:
            hello = self._hello(incarnation, take_over=self._config.take_over)
            answer = await race(hello, self._stop.wait())
            if answer is None:
                return
            loop = asyncio.get_running_loop()
            running = [
                loop.create_task(self._reporter.run()),
                loop.create_task(self._contact.run()),
                loop.create_task(self._tokens.run_for_ever()),
                loop.create_task(self._serve(answer)),
            ]
            with _first_error():
                await race(*running, self._stop.wait())
            await self._shut_down()
        except MitosisError:  # the tasks that run here are not to blame
            self._record_stop()
            raise
        finally:
            await self._close(running)

    # --- start ----------------------------------------------------------------------------------

    async def _hello(self, incarnation: int, *, take_over: bool = False) -> HelloAnswer:
        """Say hello with the attempts in the journal, which are not requeued but replayed beside work."""
        hello = hello_of_host(
            self._folders.state_dir,
            incarnation,
            take_over=take_over,
            journal=self._reporter.unacknowledged(),
            planned_stop=self._planned_stop.incarnation(),
            begun=self._begun,
        )
        answer = await until_reached(lambda: self._api.hello(hello))
        if self._contact.incarnation == 0:  # the first of this process
            self._planned_stop.forget()
            forget_begun(self._folders.run_dir)
            self._begun = set()
        if answer.incarnation != incarnation:
            identity.keep_incarnation(self._folders.state_dir, answer.incarnation)
        self._contact.incarnation = answer.incarnation
        self._api.set_incarnation(answer.incarnation)
        self._contact.host_lost_after_seconds = answer.host_lost_after_seconds
        self._contact.restart()
        log.info(
            "hello.answered",
            extra={
                "manager": answer.name,
                "incarnation": answer.incarnation,
                "epoch": answer.lease.epoch if answer.lease is not None else None,
                "owed": len(answer.owed),
            },
        )
        return answer

    async def _serve(self, answer: HelloAnswer) -> None:
        """Run owed teardowns, resume the held lease, then carry out commands of Temporal for ever."""
        await self.host.clean_owed(answer.owed)
        if answer.lease is not None:
            await self.host.resume(answer.lease)
        await poll_for_ever(
            TemporalTarget(
                self._config.temporal_address,
                answer.temporal_namespace,
                answer.temporal_task_queue,
                self._config.temporal_tls,
                self._config.temporal_api_key,
            ),
            self.host,
        )

    # --- sessions -------------------------------------------------------------------------------

    def _live_session(self) -> LeaseSession | None:
        """Return the session, also after its lease is gone: its tasks may have to be killed (P5)."""
        session = self.host.session
        return None if session is None or session.over.is_set() else session

    def _make_session(self, grant: LeaseGrant) -> LeaseSession:
        parts = SessionParts(
            self._api,
            self._router,
            self._reporter,
            lambda workers, preload: self._make_pool(grant, workers, preload=preload),
            self._contact.renew_now,
            self._room,
            lambda: self._contact.recent,
            self._config.stopped_limit,
        )
        session = LeaseSession(
            grant,
            parts,
            claim_seq=self._claim_seqs.get(grant.epoch, 0),
            generation=self._generation,
        )
        self._contact.restart()
        self._in_background(self._after(session))
        return session

    async def _room(self) -> None:
        """Wait until disk and reporter have room for what more tasks would bring."""
        await self._disk.until_there()
        await self._reporter.room()

    def _in_background(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _after(self, session: LeaseSession) -> None:
        """Store the numbers that the next session continues; say hello again after a loss (P5)."""
        await session.over.wait()
        self._claim_seqs = {session.epoch: session.state.claim_seq}
        self._generation = 1 + max(worker.generation for worker in session.state.workers)
        shutil.rmtree(self._folders.scratch, ignore_errors=True)
        if session.ended_in is LeaseEnd.GONE:
            self._counted_lost()
        elif session.ended_in is LeaseEnd.ENDING:
            await self._reporter.replayed()  # rows of the lease may wait for these reports (P5)
            self.host.over = session.epoch
            self._contact.renew_now()

    def _counted_lost(self) -> None:
        """Say hello again, once at a time; run the teardowns that are owed by then."""
        if not self._stop.is_set() and not self._greeting:
            self._greeting = True
            self._in_background(self._greet_again())

    async def _greet_again(self) -> None:
        try:
            answer = await self._hello(self._contact.incarnation)
            await self.host.clean_owed(answer.owed)
        except MitosisError as error:  # if fatal, the next renewal is refused too
            log.warning("hello.refused", extra={"reason": error.message})
        finally:
            self._greeting = False

    def _make_pool(self, grant: LeaseGrant, workers: SessionWorkers, *, preload: bool) -> Pool:
        plan = grant.worker_allocation_plan
        starting: AbstractContextManager[None] = contextlib.nullcontext()
        if plan.worker_python or (preload and plan.handler_modules):
            starting = self._starting_workers(grant)
        make_private(self._folders.scratch)
        setup = Setup(
            manager_id=str(self._config.manager_id),
            endpoint=self._folders.endpoint,
            task_group_id=str(grant.task_group_id),
            task_group_number=grant.task_group_number,
            task_group_name=grant.task_group_name,
            group_name=grant.group_name,
            scratch_folder=str(self._folders.scratch),
            run_folder=str(self._folders.run_dir),
            handler_modules=plan.handler_modules if preload else (),
            python_path=plan.python_path,
            environment=plan.environment,
            max_tasks_per_worker=plan.max_tasks_per_worker,
            cpusets=cpuset_prefix(self._config.manager_id) if plan.enforces_cores else None,
            max_processes_per_worker=plan.max_processes_per_worker
            or default_limit(plan.worker_count),
        )
        environment = without_settings(os.environ) | {
            "MITOSIS_MANAGER_ID": str(self._config.manager_id),
            "MITOSIS_WORKER_ENDPOINT": self._folders.endpoint,
        }
        command = ZygoteCommand(plan.worker_python or sys.executable, setup, environment)
        return Pool(command, plan_cpus(plan), workers, starting)

    def _starting_workers(self, grant: LeaseGrant) -> AbstractContextManager[None]:
        """Return the record of a start of workers that runs an interpreter or modules of users.

        Raises:
            ZygoteFailed: the agent has died in it too often.
        """
        plan = grant.worker_allocation_plan
        step = Step("start of workers", grant.task_group_id, plan.model_dump_json())
        if (refused := self._steps.refusal(step)) is not None:
            raise ZygoteFailed(refused)
        return self._steps.during(step)

    # --- end ------------------------------------------------------------------------------------

    async def _shut_down(self) -> None:
        """Stop claiming, return unstarted tasks, let running ones end, report, say goodbye."""
        self._record_stop()
        log.info("agent.stopping")
        self.host.stopping = True
        session = self.host.session
        if session is not None and not session.over.is_set():
            await drain(session, self._config.drain, self._config.stop_grace, self._kill)
        await leave(self._api, self._reporter, session.epoch if session is not None else None)

    def _record_stop(self) -> None:
        if self._contact.incarnation:  # else PostgreSQL does not know this process
            self._planned_stop.record(self._contact.incarnation)

    async def _close(self, running: list[asyncio.Task[None]]) -> None:
        self._steps.leave()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_SECONDS)
        await self.host.close()
        await self._environments.close()
        if self.host.session is not None:
            await self.host.session.close()
        for task in list(self._background):
            task.cancel()
        self._router.close()
        self._api.close()
        self._reporter.close()


@contextlib.contextmanager
def _first_error() -> Iterator[None]:
    """Raise the first error instead of a group that holds only errors of ours."""
    try:
        yield
    except (
        BaseExceptionGroup
    ) as group:  # raising one error in except* differs between 3.11.2 and .7
        ours, others = group.split(MitosisError)
        if ours is None or others is not None:
            raise
        raise _first(ours) from None


def _first(group: BaseExceptionGroup[MitosisError]) -> MitosisError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
