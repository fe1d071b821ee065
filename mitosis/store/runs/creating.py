"""Creates the tasks of the steps of a run, in the transaction that holds the run."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg

from mitosis.contracts.errors import (
    InvalidRequest,
    MitosisError,
    NotFound,
    QueueFull,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.lifecycle import StepState
from mitosis.contracts.task import SubmittedTask
from mitosis.jobs.expansion import count_of, tasks_of
from mitosis.jobs.parameters import MAX_VALUE_BYTES
from mitosis.jobs.progress import StepProgress, may_create, room
from mitosis.jobs.rendering import Values, is_wanted
from mitosis.jobs.results import results_named_by
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.rows import Loaded
from mitosis.store.tasks.submit import submit_within

SQL = load("runs/creating.sql")
CHUNK = 10_000
"""So many tasks are created by one transaction."""
NOT_WANTED = "its condition does not hold"


@dataclass(frozen=True, slots=True)
class _Task:
    id: int


@dataclass(frozen=True, slots=True)
class _Size:
    bytes: int


@dataclass(frozen=True, slots=True)
class _Result:
    value: Any


@dataclass(slots=True)
class Creation:
    """Starts steps and creates their tasks, in one transaction."""

    connection: Connection
    loaded: Loaded
    most_unfinished: int
    """Limit on the unfinished tasks of a task group."""
    queue_full: bool = False
    """Tasks could not be created now; trying again later can help."""
    _results: dict[str, Any] = field(default_factory=dict)

    async def start(self, step: StepProgress) -> None:
        """Start a step whose turn it is: decide how many tasks it has, or that it is skipped."""
        definition = self.loaded.definition
        wanted = definition.steps[step.name]
        try:
            values = await self._values(step)
            if not is_wanted(wanted, values):
                step.end(StepState.SKIPPED, NOT_WANTED)
                return
            step.total = count_of(definition, step.name, values)
        except (InvalidRequest, TooLarge) as error:
            step.end(StepState.FAILED, str(error))
            return
        step.state = StepState.RUNNING
        step.deadline = self.loaded.deadline(wanted.timeout)

    async def create_tasks(self) -> bool:
        """Create the next tasks of running steps, up to :data:`CHUNK`; return whether some were.

        Task groups are locked in the order of their ids, as far as steps do not follow one by one.
        """
        left = CHUNK
        for step in sorted(self.loaded.steps, key=lambda one: str(one.task_group)):
            count = self._allowed(step, left)
            if count:
                left -= await self._create(step, count)
        return left < CHUNK

    def unfinished(self) -> bool:
        """Return whether more tasks may be created now."""
        return any(self._allowed(step, CHUNK) for step in self.loaded.steps)

    def _allowed(self, step: StepProgress, left: int) -> int:
        loaded = self.loaded
        count = min(may_create(loaded.definition, step, loaded.by_name), left)
        free = room(loaded.definition, loaded.steps)
        return count if free is None else min(count, free)

    async def _create(self, step: StepProgress, count: int) -> int:
        """Create tasks of one step; return how many. What refuses them ends the step."""
        start, stop = step.created, step.created + count
        try:
            async with (
                self.connection.transaction()
            ):  # a savepoint: a refusal undoes this step only
                ids = await self._submit(step, start, stop)
                given = {"step": step.id, "start": start, "ids": number_array(ids)}
                await self.connection.execute(SQL["add_tasks"], given)
        except QueueFull:
            self.queue_full = True
            return 0
        except (InvalidRequest, TooLarge, TaskGroupClosed, NotFound) as error:
            step.stop("error", _refusal(error))
            return 0
        except psycopg.DataError as error:
            step.stop("error", f"a value cannot be stored: {error}")
            return 0
        step.created = stop
        return count

    async def _submit(self, step: StepProgress, start: int, stop: int) -> Sequence[int]:
        values = await self._values(step)
        tasks = await asyncio.to_thread(self._render, step.name, values, start, stop)
        for parents in await self._parents(step, start, stop):
            tasks = [
                msgspec.structs.replace(task, depends_on=[*task.depends_on, parent])
                for task, parent in zip(tasks, parents, strict=True)
            ]
        if step.task_group is None:
            raise NotFound("the run has no task group for it")
        answer = await submit_within(
            self.connection, self.most_unfinished, step.task_group, tasks, step.id
        )
        return answer.task_ids

    def _render(self, name: str, values: Values, start: int, stop: int) -> list[SubmittedTask]:
        return list(tasks_of(self.loaded.definition, name, values, start, stop))

    async def _parents(self, step: StepProgress, start: int, stop: int) -> list[list[int]]:
        """Return the tasks that precede each new task, by step; those of a succeeded step need no edges."""
        found = []
        for name in self.loaded.definition.steps[step.name].each_of:
            before = self.loaded.by_name[name]
            if before.state is not StepState.SUCCEEDED:
                given = {"step": before.source or before.id, "start": start, "stop": stop}
                rows = await fetch_all(self.connection, _Task, SQL["tasks_between"], given)
                found.append([row.id for row in rows])
        return found

    async def _values(self, step: StepProgress) -> Values:
        """Return what the templates of a step may name.

        Raises:
            TooLarge: the results that it names are too large.
        """
        run = self.loaded.run
        needed = results_named_by(self.loaded.definition, step.name)
        for name in needed:
            if name not in self._results:
                self._results[name] = await self._results_of(self.loaded.by_name[name])
        return Values(
            parameters=run.parameters,
            results={name: self._results[name] for name in needed},
            run={"id": str(run.uuid), "nominal_time": None},
            job={"name": run.job_name, "version": run.version},
        )

    async def _results_of(self, step: StepProgress) -> Any:
        given = {"step": step.source or step.id}
        size = await fetch_one(self.connection, _Size, SQL["size_of_results"], given)
        if size is not None and size.bytes > MAX_VALUE_BYTES:
            raise TooLarge(
                f"the results of {step.name} have {size.bytes} bytes as JSON, and a step takes up to"
                f" {MAX_VALUE_BYTES}; put the data into a file or an object that the tasks can read,"
                " and return its name",
                limit_bytes=MAX_VALUE_BYTES,
            )
        rows = await fetch_all(self.connection, _Result, SQL["results"], given)
        values = [row.value for row in rows]
        if self.loaded.definition.steps[step.name].is_array:
            return values
        return values[0] if values else None


def _refusal(error: MitosisError) -> str:
    if isinstance(error, TaskGroupClosed | NotFound):
        return f"{error.code}: {error.message}"
    return str(error)
