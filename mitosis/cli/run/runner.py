"""Carries out one run: creates the task group, submits the tasks, follows the results, handles interrupts."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import typer

from mitosis.cli.follow.display import Display
from mitosis.cli.follow.exit_statuses import RunExit
from mitosis.cli.follow.failures import Failures
from mitosis.cli.follow.follower import DETACH_HINT, TOO_MANY_FAILED, Follower
from mitosis.cli.follow.interrupt import Interrupts, OnInterrupt, StopRequest
from mitosis.cli.follow.task_output import (
    Missing,
    OutputLost,
    OutputOptions,
    TaskOutput,
    is_cut,
    print_json_line,
)
from mitosis.cli.outages import Outages
from mitosis.cli.run.feeding import Feeder
from mitosis.cli.run.keeping import keep_open, with_auto_close
from mitosis.cli.run.sources import Source
from mitosis.cli.run.template import Item, Template
from mitosis.cli.run.whole_output import WholeOutput
from mitosis.client.client import Client
from mitosis.concurrency import cancel_and_wait, finish_all, race
from mitosis.contracts.errors import (
    Conflict,
    InvalidRequest,
    MitosisError,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.http import TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import TaskGroupState
from mitosis.contracts.task import (
    command_fields,
    encode_submission,
    submission,
)
from mitosis.embedded.stop_signals import StopSignals

T = TypeVar("T")
ALL_PERCENT = 100
LAST_CALL_SECONDS = 10.0
"""How long the end of a run waits for an answer that it can do without."""
AWAY = "the API cannot be reached"
CANCELLABLE = (TaskGroupState.OPEN, TaskGroupState.CLOSED)


@dataclass(frozen=True, slots=True)
class MaxFail:
    """How many tasks may fail before the others are cancelled."""

    limit: float
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> "MaxFail":
        """Parse ``5`` or ``10%``; ``0`` cancels at the first failure.

        Raises:
            InvalidRequest: it is neither, or more than 100 percent.
        """
        match = re.fullmatch(r"(\d+)(%?)", text, re.ASCII)
        if match is None or (match[2] and float(match[1]) > ALL_PERCENT):
            raise InvalidRequest(
                f"write a number from 0, or a share from 0% to {ALL_PERCENT}%, not {text!r}",
                option="--max-fail",
            )
        return cls(float(match[1]), bool(match[2]))

    def exceeded(self, group: TaskGroupInfo) -> bool:
        """Return whether too many tasks have failed; a share applies once all inputs are known."""
        if not self.percent:
            return group.tasks_failed > self.limit
        known = group.state is not TaskGroupState.OPEN
        return known and 100 * group.tasks_failed > self.limit * group.tasks_total

    def __str__(self) -> str:
        return f"{self.limit:g}{' %' if self.percent else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything that defines a run."""

    spec: TaskGroupSpec
    template: Template
    source: Source
    task_fields: dict[str, Any]
    """Fields that all tasks share: timeout, environment, retries …"""
    detach: bool = False
    deadline: timedelta | None = None
    on_interrupt: OnInterrupt = "detach"
    max_fail: MaxFail | None = None
    output: OutputOptions = field(default_factory=OutputOptions)
    as_json: bool = False
    """Print each result and the group as one line of JSON."""

    def build_task(self, item: Item) -> msgspec.Raw:
        """Return the encoded task for one input, for the run and for the dry run.

        Raises:
            InvalidRequest, TooLarge: the filled command is invalid; names the input.
        """
        fields = command_fields(self.template.argv(item)) | self.task_fields
        try:
            return msgspec.Raw(encode_submission(submission(fields), ""))
        except (InvalidRequest, TooLarge) as error:  # only the command can be wrong here
            raise type(error)(f"input {item.number}: {error.message}", input=item.number) from None


class Runner:
    """Carries out one plan against one API."""

    def __init__(
        self,
        client: Client,
        plan: RunPlan,
        display: Display,
        own_stack: StopSignals | None = None,
        outages: Outages | None = None,
    ) -> None:
        """``own_stack``: the receiver of signals for a stack that ends with this run."""
        self._client = client
        self._plan = plan
        self._own_stack = own_stack
        self._display = display
        self._failures = Failures()
        self._whole: WholeOutput | None = None
        self._feeder = Feeder(client, plan.source, plan.build_task)
        detaches = plan.on_interrupt == "detach" and own_stack is None
        hint = DETACH_HINT if detaches else "Ctrl-C: cancel"
        self._follower = Follower(client, display, hint, self._failures, outages)

    async def run(self) -> RunExit:
        """Run from the first inputs, which are checked before anything is created, to the exit status.

        Raises:
            MitosisError: the group could not be created, or an input is invalid.
        """
        limit = self._plan.deadline.total_seconds() if self._plan.deadline else None
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limit):
                await self._feeder.read_first()
        except TimeoutError:
            self._display.say("--deadline passed before the first input; nothing was created")
            return RunExit.DEADLINE
        group = await self._client.create_group(with_auto_close(self._plan.spec))
        left = None if limit is None else began + limit - asyncio.get_running_loop().time()
        with Interrupts(self._plan.on_interrupt, self._own_stack) as interrupts:
            status = await self._work(group, interrupts, left)
        if self._plan.as_json:
            try:
                async with asyncio.timeout(LAST_CALL_SECONDS):
                    last = await self._client.group(group.task_group_id)
            except TimeoutError:
                self._display.say(f"{AWAY}; how the task group ended is not known")
                return status
            try:
                print_json_line({"kind": "end" if last.settled else "group", "group": last})
            except OSError as error:
                status = self._output_lost(OutputLost(error))
        return status

    def _output_lost(self, error: OutputLost) -> RunExit:
        self._display.say(f"cannot write the output of tasks: {error}")
        return error.status

    async def _work(
        self, group: TaskGroupInfo, interrupts: Interrupts, seconds_left: float | None
    ) -> RunExit:
        whole = asyncio.create_task(self._feed_and_follow(group))
        ends = [interrupts.asked()]
        if seconds_left is not None:
            ends.append(asyncio.sleep(seconds_left))
        try:
            if (status := await race(whole, *ends)) is not None:
                return status
            if interrupts.request is not None:
                return await self._interrupted(group, interrupts, whole)
            return await self._out_of_time(group, interrupts)
        except OutputLost as error:
            status = self._output_lost(error)
            interrupts.lose_output()
            await self._interrupted(group, interrupts, whole)
            return status
        finally:
            await cancel_and_wait(whole)
            if self._whole is not None:
                self._whole.close()

    # --- the work -----------------------------------------------------------------------------------

    async def _feed_and_follow(self, group: TaskGroupInfo) -> RunExit:
        key = group.task_group_id
        if self._plan.task_fields.get("stream_output"):
            self._whole = WholeOutput(self._client, key)
        async with _task_scope() as start:
            if self._whole is not None:
                await self._whole.catch_up()  # from now on agents send whole outputs
            feeding = start(self._feed(group))
            if self._plan.detach:
                await feeding
                self._display.say(f"{group.name} runs: mitosis watch {group.name}")
                if not self._plan.as_json:
                    typer.echo(group.name)
                return RunExit.OK
            if self._whole is not None:
                start(self._whole.read())
            results, setup_failed = start(self._results(group)), start(self._watch(group))
            ended = start(finish_all(results, setup_failed))
            await asyncio.wait((feeding, ended), return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                await feeding
            await ended
            if not await setup_failed:
                await feeding
        last = await self._client.group(key)
        return self._follower.conclude(last, self._failures, missing=bool(await results))

    async def _feed(self, group: TaskGroupInfo) -> None:
        try:
            async with _task_scope() as start:
                start(keep_open(self._client, group, self._feeder))
                await self._feeder.run(group.task_group_id)
        except TaskGroupClosed:
            if not (await self._client.group(group.task_group_id)).setup_failed:
                raise
            return  # the end of the group says what to do
        except MitosisError as error:
            await self._end_group(group, "an input of the run was invalid")
            error.facts["hint"] = (
                f"{group.name} is cancelled; list the submitted tasks with: mitosis group tasks {group.name}"
            )
            raise
        await self._client.close_group(
            group.task_group_id, reason="the run has submitted all tasks"
        )
        if not self._feeder.submitted:
            self._display.say(
                "there were no inputs (empty lines do not count); no task was submitted"
            )

    async def _results(self, group: TaskGroupInfo) -> Sequence[Missing]:
        """Print the output of tasks as they end; return what is missing of it."""
        output = TaskOutput(
            self._display, self._plan.output, as_json=self._plan.as_json, beginnings=self._whole
        )
        with contextlib.closing(output):
            async for task in self._client.results(group.task_group_id):
                number = await self._feeder.numbers.wait_for(task.task_id)
                self._failures.add(task, number)
                if self._whole is not None and is_cut(task):
                    await self._whole.catch_up()
                    await asyncio.to_thread(output.add, number, task)  # its reader may be slow
                else:
                    output.add(number, task)
            output.finish()
        return output.missing

    async def _watch(self, group: TaskGroupInfo) -> bool:
        """Show progress until the group is settled; return whether no host could be prepared."""
        said = False
        async for info in self._follower.until_settled(group.task_group_id):
            if info.setup_failed and not said:
                said = True
                self._display.say(f"cannot run: {info.reason}")
            limit = self._plan.max_fail
            if limit is not None and info.state in CANCELLABLE and limit.exceeded(info):
                self._display.say(f"more than {limit} tasks failed; the others are cancelled")
                with contextlib.suppress(Conflict):
                    await self._client.cancel(group.task_group_id, reason=TOO_MANY_FAILED)
        return said

    # --- ends ---------------------------------------------------------------------------------------

    async def _interrupted(
        self, group: TaskGroupInfo, interrupts: Interrupts, whole: "asyncio.Task[RunExit]"
    ) -> RunExit:
        self._follower.ends_as = RunExit.INTERRUPTED
        if interrupts.request is StopRequest.DETACH:
            how = f"mitosis watch {group.name}, mitosis group cancel {group.name}"
            chance = "; Ctrl-C again within 2 s cancels" if interrupts.second_chance else ""
            self._display.say(f"detaching, tasks keep running ({how}){chance}")
            if not await interrupts.again_soon() or interrupts.request is StopRequest.DETACH:
                closing, limit = self._close_quietly(group), asyncio.sleep(LAST_CALL_SECONDS)
                if not await _answered(closing, interrupts.asked_for_more(), limit):
                    self._display.say(f"{AWAY}; the task group stays open for inputs")
                self._display.say("detached")
                return RunExit.INTERRUPTED
        grace = self._plan.spec.cancel_grace_seconds
        ends = "; the stack of this run ends with them" if self._own_stack else ""
        chance = "; Ctrl-C stops waiting" if interrupts.second_chance else ""
        self._display.say(f"cancelling: tasks get SIGTERM and {grace:g} s{ends}{chance}")
        self._follower.hint = "cancelling; Ctrl-C: stop waiting (the cancel stays in force)"
        cancelling = self._client.cancel(group.task_group_id, reason=interrupts.reason)
        last = not interrupts.second_chance or interrupts.request is StopRequest.LEAVE
        limits = [asyncio.sleep(LAST_CALL_SECONDS)] if last else []
        if not await _answered(cancelling, interrupts.asked_for_more(), *limits):
            self._display.say(f"{AWAY}; not cancelled")
            return RunExit.INTERRUPTED
        asked = asyncio.create_task(interrupts.asked())
        with contextlib.suppress(MitosisError, OutputLost):
            await race(asked, self._client.wait(group.task_group_id), whole)
        self._display.say("cancelled; not waiting for the end" if asked.done() else "cancelled")
        asked.cancel()
        return RunExit.INTERRUPTED

    async def _out_of_time(self, group: TaskGroupInfo, interrupts: Interrupts) -> RunExit:
        self._display.say(f"--deadline passed; {group.name} is cancelled")
        self._follower.ends_as = RunExit.DEADLINE
        if not await _answered(self._end_group(group, "deadline of the run"), interrupts.asked()):
            self._display.say(f"{AWAY}; not cancelled")
        return RunExit.DEADLINE

    async def _close_quietly(self, group: TaskGroupInfo) -> None:
        """Close the group of an open pipe, which gets no more inputs."""
        with contextlib.suppress(MitosisError):
            await self._client.close_group(group.task_group_id, reason="the run detached")

    async def _end_group(self, group: TaskGroupInfo, reason: str) -> None:
        with contextlib.suppress(MitosisError):
            await self._client.cancel(group.task_group_id, reason=reason)


async def _answered(call: Coroutine[Any, Any, object], *ends: Awaitable[object]) -> bool:
    """Make a call until one of the ends comes; return whether it was answered.

    An API may be away for longer than its user waits.
    """
    calling = asyncio.create_task(call)
    try:
        await race(calling, *ends)
        return calling.done()
    finally:
        await cancel_and_wait(calling)


@contextlib.asynccontextmanager
async def _task_scope() -> Any:
    """Start tasks that are cancelled at the end of the context."""
    tasks: list[asyncio.Task[Any]] = []

    def start(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        tasks.append(task)
        return task

    try:
        yield start
    finally:
        await cancel_and_wait(*tasks)
