"""Runs a command under a supervisor, for the executors whose work is a process of this machine."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.variables import without_settings
from mitosis.executors.contract import ExecutionContext, ExecutorTask, ServiceFacts
from mitosis.executors.messages import Halt, Job, Over, Said, encode, from_supervisor
from mitosis.worker.report import Ended

PROGRESS_FILE = "progress"
PROGRESS_VARIABLE = "MITOSIS_PROGRESS"
CHECKPOINT_VARIABLE = "MITOSIS_CHECKPOINT"
MAX_LINE_BYTES = 16_000_000
"""A result of the longest form, in base64 and escaped, with two tails of output."""


class Child:
    """One command, from its start until no process of it is left."""

    def __init__(self, service: ServiceFacts) -> None:
        self._service = service
        self._process: Process | None = None
        self._halts: list[float] = []

    async def run(
        self,
        argv: Sequence[str],
        task: ExecutorTask,
        context: ExecutionContext,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Start it with the attempt as its standard input; its standard output is the result.

        Args:
            argv: of the command.
            task: the attempt.
            context: gets its progress and its checkpoints.
            environment: all of it; None: as :meth:`environment` returns it.
        """
        environment = self.environment(task, context) if environment is None else environment
        job = Job(
            argv=list(argv),
            environment=dict(environment),
            folder=task.working_directory or self._service.folder,
            input=task.document,
            progress_file=str(context.scratch_folder / PROGRESS_FILE),
        )
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mitosis.executors.supervisor"),
            stdin=PIPE,
            stdout=PIPE,
            env=self.own_environment(),
            limit=MAX_LINE_BYTES,
        )
        try:
            self._send(job)
            for grace in self._halts:
                self._send(Halt(grace))
            return await self._ended(process, context)
        finally:
            await self._end(process)

    def halt(self, grace_seconds: float) -> None:
        """Send SIGTERM to it now, and SIGKILL after the grace; a later call can only shorten that."""
        self._halts.append(grace_seconds)
        if self._process is not None:
            self._send(Halt(grace_seconds))

    def _send(self, message: Job | Halt) -> None:
        assert self._process is not None  # noqa: S101 - the callers have looked
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(ConnectionError, RuntimeError):  # it has ended
            self._process.stdin.write(encode(message) + b"\n")

    async def _ended(self, process: Process, context: ExecutionContext) -> Ended:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await process.stdout.readline():
            message = from_supervisor.decode(line)
            if isinstance(message, Over):
                return message.ended
            await _pass_on(message, context)
        return Ended(
            kind=FailureKind.WORKER_LOST,
            message="the supervisor of the command ended, so the command was lost",
        )

    async def _end(self, process: Process) -> None:
        """End the supervisor, which ends all that is left of the command."""
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.close()
        await asyncio.shield(process.wait())

    def environment(self, task: ExecutorTask, context: ExecutionContext) -> dict[str, str]:
        """Return the environment of a command on this machine."""
        return {
            **without_settings(os.environ),
            **task.environment,
            **context.variables,
            **self._service.variables,
            "MITOSIS_EXEC_DIR": str(context.scratch_folder),
            PROGRESS_VARIABLE: str(context.scratch_folder / PROGRESS_FILE),
            CHECKPOINT_VARIABLE: checkpoint_text(context),
        }

    def own_environment(self) -> dict[str, str]:
        """Return the environment of what is not the user's, as the supervisor."""
        return {**without_settings(os.environ), **self._service.variables}


def checkpoint_text(context: ExecutionContext) -> str:
    """Return the checkpoint of an earlier attempt as JSON, ``null`` without one."""
    return msgspec.json.encode(context.last_checkpoint).decode()


async def _pass_on(said: Said, context: ExecutionContext) -> None:
    try:
        context.progress(said.fraction, said.stage, said.message)
    except ValueError as error:
        context.log.warning("progress.refused", extra={"reason": str(error)})
    if said.checkpoint is not None:
        await context.checkpoint(said.checkpoint)
