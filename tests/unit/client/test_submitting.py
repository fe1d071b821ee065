"""Any number of tasks becomes parts in order, read no further than they are sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from mitosis.client.submitting import PART_BYTES, PARTS_IN_FLIGHT, Part, parts_of, submit_parts
from mitosis.contracts.errors import InvalidRequest, TaskGroupClosed
from mitosis.contracts.task import TaskSubmission
from mitosis.contracts.wire import SubmitAnswer, SubmitTasks


def numbered(count: int) -> Iterator[TaskSubmission]:
    return (TaskSubmission(command=["echo", str(i)]) for i in range(count))


SMALL = 100


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of at most ``SMALL`` tasks instead of 10,000."""
    monkeypatch.setattr("mitosis.client.submitting.MAX_TASKS_PER_SUBMIT", SMALL)


class Api:
    """Answers each part by the numbers in its tasks, in any order."""

    def __init__(self) -> None:
        self.parts: list[SubmitTasks] = []
        self.running = 0
        self.most = 0

    async def send(self, part: Part) -> SubmitAnswer:
        body = msgspec.json.decode(msgspec.json.encode(part), type=SubmitTasks)
        self.parts.append(body)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(10 - part.number % 5):
            await asyncio.sleep(0)
        self.running -= 1
        ids = [int(task.command[1]) for task in body.tasks if task.command]
        return SubmitAnswer(task_ids=ids, created=len(ids))


@pytest.mark.spec("S000-165")
async def test_ids_come_in_the_order_of_the_tasks() -> None:
    api = Api()
    assert await submit_parts(parts_of(numbered(45_000), "key"), api.send) == list(range(45_000))
    assert sorted(part.part for part in api.parts) == [0, 1, 2, 3, 4]
    assert {part.idempotency_key for part in api.parts} == {"key"}
    assert max(len(part.tasks) for part in api.parts) == 10_000
    assert api.most == PARTS_IN_FLIGHT


async def test_mappings_and_async_iterables_are_tasks_too() -> None:
    async def some() -> AsyncIterator[dict[str, object]]:
        for number in range(3):
            yield {"command": ["echo", str(number)], "priority": 7}

    api = Api()
    assert await submit_parts(parts_of(some(), "key"), api.send) == [0, 1, 2]
    assert api.parts[0].tasks[0].priority == 7


async def test_nothing_to_submit_sends_nothing() -> None:
    api = Api()
    assert await submit_parts(parts_of([], "key"), api.send) == []
    assert api.parts == []


async def test_large_tasks_make_small_parts() -> None:
    tasks = [TaskSubmission(command=["echo", "x" * 900_000]) for _ in range(40)]
    parts = [part async for part in parts_of(tasks, "key")]
    assert len(parts) == 3
    assert sum(len(part.tasks) for part in parts) == 40
    assert all(len(msgspec.json.encode(part)) < PART_BYTES + 1_000_000 for part in parts)


@pytest.mark.usefixtures("small_parts")
async def test_a_generator_is_not_read_ahead() -> None:
    read = 0

    def counting() -> Iterator[TaskSubmission]:
        nonlocal read
        for task in numbered(10 * SMALL):
            read += 1
            yield task

    async def refuse(part: Part) -> SubmitAnswer:
        raise TaskGroupClosed

    with pytest.raises(TaskGroupClosed):
        await submit_parts(parts_of(counting(), "key"), refuse)
    assert read <= (PARTS_IN_FLIGHT + 1) * SMALL


@pytest.mark.usefixtures("small_parts")
async def test_an_error_names_the_task_in_the_whole_submission() -> None:
    async def refuse(part: Part) -> SubmitAnswer:
        if part.number == 2:
            raise InvalidRequest("must name a program", field="tasks[7].command")
        return SubmitAnswer(task_ids=[0] * len(part.tasks), created=0)

    with pytest.raises(InvalidRequest) as refused:
        await submit_parts(parts_of(numbered(250), "key"), refuse)
    assert refused.value.facts["field"] == "tasks[207].command"


async def test_what_comes_slowly_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mitosis.client.submitting.PROMPT_SECONDS", 0.0)
    prompt = [len(part.tasks) async for part in parts_of(numbered(3), "key", prompt=True)]
    whole = [len(part.tasks) async for part in parts_of(numbered(3), "key")]
    assert (prompt, whole) == ([1, 1, 1], [3])


@pytest.mark.spec("S001-46")
@pytest.mark.usefixtures("small_parts")
async def test_places_in_the_whole_become_places_in_parts_that_are_sent_in_order() -> None:
    tasks = [TaskSubmission(command=["echo", str(i)]) for i in range(200)]
    tasks += [
        TaskSubmission(command=["echo", "200"], depends_on=[[0, 5], [0, 199], 77]),
        TaskSubmission(command=["echo", "201"], depends_on=[[0, 200]]),
    ]
    api = Api()
    assert await submit_parts(parts_of(tasks, "key"), api.send) == list(range(202))
    last = api.parts[-1]
    assert last.part == 2, "when the parts before it have their answers"
    assert [task.depends_on for task in last.tasks] == [[[0, 5], [1, 99], 77], [[2, 0]]]
    with pytest.raises(InvalidRequest, match="index of an earlier task") as wrong:
        await submit_parts(parts_of([{"command": ["x"], "depends_on": [[1, 0]]}], "k"), api.send)
    assert wrong.value.facts["field"] == "tasks[0].depends_on[0]"


@pytest.mark.usefixtures("small_parts")
async def test_a_part_waits_for_the_parts_before_it_only_if_its_tasks_depend_on_others() -> None:
    api = Api()
    tasks = [*numbered(200), TaskSubmission(command=["echo", "1"], depends_on=[3])]
    running: list[int] = []

    async def send(part: Part) -> SubmitAnswer:
        running.append(api.running)
        return await api.send(part)

    await submit_parts(parts_of(tasks, "key"), send)
    assert running == [0, 1, 0]
