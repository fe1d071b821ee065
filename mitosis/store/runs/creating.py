"""Creates the tasks of the steps of a run, in the transaction that holds the run."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from mitosis.chunk_size import SECONDS
from mitosis.contracts.errors import (
    InvalidRequest,
    MitosisError,
    NotFound,
    QueueFull,
    TaskGroupClosed,
    TooLarge,
)
from mitosis.contracts.lifecycle import StepState
from mitosis.contracts.task import MAX_TASKS_PER_SUBMIT, SubmittedTask, encode_submission
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.expansion import count_of, tasks_of
from mitosis.jobs.parameters import MAX_VALUE_BYTES
from mitosis.jobs.progress import StepProgress, may_create, room, storable
from mitosis.jobs.rendering import Values, is_wanted
from mitosis.jobs.results import results_named_by
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.rows import Loaded, lock_groups
from mitosis.store.store import Store
from mitosis.store.tasks.queue_limits import queue_room, waits_for_room
from mitosis.store.tasks.submit import submit_within

SQL = load("runs/creating.sql")
CHUNK = 10_000
"""Up to so many tasks are created by one transaction, and fewer while that locks task groups for long."""
LEAST = 100
"""So few that more transactions would cost more than they spare."""
KEPT_FOR_EACH = 4
"""So many tasks of an earlier run are looked at for each that may be created: a run with few open tasks has a
turn for each that ends."""
CHUNK_BYTES = 8_000_000
"""And about so many bytes of them as JSON: one task more may begin below it."""
SMALL_WINDOW = 32
"""Up to so many open tasks of a run, each that ends makes room for the next at once."""
NOT_WANTED = "its condition does not hold"


@dataclass(frozen=True, slots=True)
class _Task:
    id: int


@dataclass(frozen=True, slots=True)
class _Ending:
    reason: str


@dataclass(frozen=True, slots=True)
class _Kept:
    index: int
    id: int


@dataclass(frozen=True, slots=True)
class _Size:
    bytes: int


@dataclass(frozen=True, slots=True)
class _Result:
    value: Any
    found: bool


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Tasks of one step with the indexes from ``start`` up to ``stop``."""

    step: StepProgress
    start: int
    stop: int
    indexes: Sequence[int]
    """Of the tasks that are created."""
    tasks: Sequence[SubmittedTask]
    kept: Mapping[int, int]
    """Index -> task of an earlier run that has succeeded."""

    def all_tasks(self, created: Sequence[int]) -> list[int]:
        """Return the numbers of its tasks by index, given those of the tasks that were created."""
        numbers = {**self.kept, **dict(zip(self.indexes, created, strict=True))}
        return [numbers[index] for index in range(self.start, self.stop)]


@dataclass(slots=True)
class Creation:
    """Starts steps and creates their tasks, in one transaction."""

    connection: Connection
    loaded: Loaded
    store: Store
    refills: bool = True
    """Whether a few tasks are created too, where the run may have few; else half of what it may have."""
    locked: bool = False
    """The task groups of the run that are open are locked."""
    _results: dict[str, Any] = field(default_factory=dict)
    _bytes_left: int = field(default_factory=lambda: CHUNK_BYTES)
    _most: int = CHUNK

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
        except (InvalidRequest, TooLarge, NotFound) as error:
            step.end(StepState.FAILED, error.message if isinstance(error, NotFound) else str(error))
            return
        step.state = StepState.RUNNING
        step.deadline = self.loaded.deadline(wanted.timeout)

    async def create_tasks(self) -> bool:
        """Create the next tasks of running steps; return whether some were.

        Up to :data:`CHUNK` tasks, about as many as take 50 ms, and about :data:`CHUNK_BYTES`. They are
        rendered before any task group is locked, and all groups are locked before any task is written, by
        number (P14).
        """
        self._most = min(CHUNK, max(self.store.step_chunks.rows, LEAST))
        chunks, left = [], self._most
        rooms = {}
        for step in self.loaded.steps:  # a step comes after those that it follows one by one
            if not (count := self._allowed(step, left)) or self._bytes_left <= 0:
                continue
            group = step.task_group
            if group not in rooms:
                rooms[group] = await queue_room(self.connection, self.store, group)
            room_now = rooms[group]
            step.reason = None if room_now.tasks else room_now.reason
            if room_now.tasks and (chunk := await self._render(step, min(count, room_now.tasks))):
                chunks.append(chunk)
                left -= len(chunk.tasks)
                room_now.tasks -= len(chunk.tasks)
                step.created = chunk.stop
        if not chunks:
            return False
        await lock_groups(self.connection, self._groups_of(chunks))
        self.locked, began = True, time.monotonic()
        created = [await self._create(chunk) for chunk in chunks]
        self._learn(sum(len(chunk.tasks) for chunk in chunks), time.monotonic() - began)
        return any(created)

    def _learn(self, tasks: int, seconds: float) -> None:
        """Adapt the number of tasks to the time; a few that were fast say nothing of many."""
        if tasks >= self._most or seconds > SECONDS:
            self.store.step_chunks.took(seconds)

    def unfinished(self) -> bool:
        """Return whether more tasks may be created now."""
        definition, steps = self.loaded.definition, self.loaded.steps
        left = any(may_create(definition, step, self.loaded.by_name) for step in steps)
        return left and room(definition, steps) != 0

    def _allowed(self, step: StepProgress, left: int) -> int:
        loaded = self.loaded
        count = min(may_create(loaded.definition, step, loaded.by_name), left)
        if not count:
            return 0
        free = room(loaded.definition, loaded.steps)
        if free is None:
            return count
        most = loaded.definition.max_concurrent_tasks or 0
        enough = self.refills or left < self._most or most <= SMALL_WINDOW or free >= most / 2
        return min(count, free) if enough else 0

    async def _render(self, step: StepProgress, count: int) -> _Chunk | None:
        """Return the next tasks of a step. What cannot be rendered ends it."""
        loaded = self.loaded
        stop = step.created + may_create(loaded.definition, step, loaded.by_name)
        stop = min(stop, step.created + min(CHUNK, max(KEPT_FOR_EACH * count, LEAST)))
        kept = await self._kept(step, step.created, stop)
        if not kept:
            stop = min(stop, step.created + count)
        wanted = [index for index in range(step.created, stop) if index not in kept]
        try:
            values = await self._values(step)
            tasks, size = await asyncio.to_thread(
                render, loaded.definition, step, values, wanted[:count], self._bytes_left
            )
        except (InvalidRequest, TooLarge, NotFound) as error:
            step.stop("error", _refusal(error))
            return None
        self._bytes_left -= size
        indexes, left = wanted[: len(tasks)], wanted[len(tasks) :]
        stop = left[0] if left else stop
        kept = {index: task for index, task in kept.items() if index < stop}
        return _Chunk(step, step.created, stop, indexes, tasks, kept)

    async def _kept(self, step: StepProgress, start: int, stop: int) -> dict[int, int]:
        """Return the tasks of an earlier run that need not run again, by index."""
        if not step.reuses:
            return {}
        given = {"step": step.reuses, "start": start, "stop": stop, "chunk": CHUNK}
        rows = await fetch_all(self.connection, _Kept, SQL["kept"], given)
        return {row.index: row.id for row in rows}

    def _groups_of(self, chunks: Sequence[_Chunk]) -> Sequence[UUID]:
        """Return the groups of the tasks, of those that they follow, and the ones that may be closed next."""
        loaded = self.loaded
        steps = [chunk.step for chunk in chunks]
        names = {name for one in steps for name in loaded.definition.steps[one.name].each_of}
        groups = {step.task_group for step in (*steps, *(loaded.by_name[name] for name in names))}
        groups |= {one.task_group for one in loaded.groups.values() if one.may_close}
        return [group for group in groups if group is not None]

    async def _create(self, chunk: _Chunk) -> bool:
        """Write the tasks of one chunk. What refuses them ends the step."""
        step = chunk.step
        each_of = self.loaded.definition.steps[step.name].each_of
        is_created = False
        if all(self.loaded.by_name[name].created >= chunk.stop for name in each_of):
            try:
                async with self.connection.transaction():  # a refusal undoes this step only
                    ids = chunk.all_tasks(await self._submit(chunk) if chunk.tasks else ())
                    given = {"step": step.id, "start": chunk.start, "ids": number_array(ids)}
                    await self.connection.execute(SQL["add_tasks"], given)
                is_created = True
                step.taken += len(chunk.kept)
                step.succeeded += len(chunk.kept)
            except QueueFull as error:
                step.reason = storable(waits_for_room(error))
            except (InvalidRequest, TooLarge, TaskGroupClosed, NotFound) as error:
                step.stop("error", _refusal(error) + await self._why_ended(step, error))
            except psycopg.DataError as error:
                step.stop("error", f"a value cannot be stored: {error}")
        if not is_created:
            step.created = chunk.start
        return is_created

    async def _why_ended(self, step: StepProgress, error: MitosisError) -> str:
        """Return why others ended the task group that refuses a step, as a failed setup; "" if unknown."""
        if not isinstance(error, TaskGroupClosed):
            return ""
        given = {"group": step.task_group}
        found = await fetch_one(self.connection, _Ending, SQL["why_ended"], given)
        return "" if found is None else f": {found.reason}"

    async def _submit(self, chunk: _Chunk) -> Sequence[int]:
        step, tasks = chunk.step, chunk.tasks
        for parents in await self._parents(step, chunk.start, chunk.stop):
            tasks = [
                msgspec.structs.replace(task, depends_on=[*task.depends_on, parents[index]])
                if index in parents
                else task
                for task, index in zip(tasks, chunk.indexes, strict=True)
            ]
        if step.task_group is None:
            raise NotFound("the run has no task group for it")
        most = self.store.queue_limits.per_group
        answer = await submit_within(self.connection, most, step.task_group, tasks, step.id)
        return answer.task_ids

    async def _parents(self, step: StepProgress, start: int, stop: int) -> list[dict[int, int]]:
        """Return the tasks that precede each task, by step and index; those that have succeeded before it
        is created need no edges, as far as that is known without a look at them.
        """
        found = []
        for name in self.loaded.definition.steps[step.name].each_of:
            before = self.loaded.by_name[name]
            if before.state is not StepState.SUCCEEDED:
                given = {
                    "step": before.source or before.id,
                    "start": start,
                    "stop": stop,
                    "chunk": MAX_TASKS_PER_SUBMIT,
                }
                rows = await fetch_all(self.connection, _Task, SQL["tasks_between"], given)
                kept = await self._kept(before, start, stop)
                by_index = {index: row.id for index, row in enumerate(rows, start)}
                found.append({index: one for index, one in by_index.items() if index not in kept})
        return found

    async def _values(self, step: StepProgress) -> Values:
        """Return what the templates of a step may name.

        Raises:
            TooLarge: the results that it names are too large.
            NotFound: they are no longer there.
        """
        run = self.loaded.run
        needed = results_named_by(self.loaded.definition, step.name)
        for name in needed:
            if name not in self._results:
                self._results[name] = await self._results_of(self.loaded.by_name[name])
        return Values(
            parameters=run.parameters,
            results={name: self._results[name] for name in needed},
            run=run.shown,
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
        if sum(row.found for row in rows) < step.succeeded:
            raise NotFound(
                f"results of {step.name} are gone: they, or their task group, were deleted before the"
                " step that needs them could start"
            )
        values = [row.value for row in rows]
        if self.loaded.definition.steps[step.name].is_array:
            return values
        return values[0] if values else None


def render(
    definition: JobDefinition,
    step: StepProgress,
    values: Values,
    indexes: Sequence[int],
    most_bytes: int,
) -> tuple[Sequence[SubmittedTask], int]:
    """Return tasks of a step, with their bytes as JSON: at least the first, and none after ``most_bytes``.

    Raises:
        InvalidRequest, TooLarge: a task cannot be rendered, or is too large.
    """
    tasks: list[SubmittedTask] = []
    size = 0
    for task in tasks_of(definition, step.name, values, indexes):
        tasks.append(task)
        size += len(encode_submission(task, f"steps.{step.name}"))
        if size >= most_bytes:
            break
    return tasks, size


def _refusal(error: MitosisError) -> str:
    if isinstance(error, TaskGroupClosed | NotFound):
        return f"{error.code}: {error.message}"
    return str(error)
