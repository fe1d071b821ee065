"""Single calls go out together, and each is told once how it ended, whatever happens on the way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from mitosis.client.dispatch import Call, Dispatcher, calls_of
from mitosis.client.outcome import TaskNotRun
from mitosis.client.submitting import Part
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest, TaskGroupClosed
from mitosis.contracts.http import ResultsPage, TaskInfo
from mitosis.contracts.lifecycle import TaskState
from mitosis.contracts.wire import SubmitAnswer
from tests.support.waiting import wait_until_async

Told = dict[int, list[TaskInfo | Exception]]


def info(task_id: int, seq: int) -> TaskInfo:
    return TaskInfo(
        task_id=task_id,
        task_uuid=uuid4(),
        task_group_id=uuid4(),
        state=TaskState.SUCCEEDED,
        attempt=1,
        seq=seq,
        spec={},
        created_at=datetime.now(UTC),
    )


class Group:
    """An API with one group. The id of a task is the number in it plus 100; nothing runs by itself."""

    def __init__(self) -> None:
        self.parts: list[list[int]] = []
        self.recorded: list[TaskInfo] = []
        self.finished = False
        self.changed = asyncio.Event()
        self.before_answer: Callable[[Part], Awaitable[None]] | None = None
        self.polls = 0
        self.cancelled: list[list[int]] = []

    async def send(self, part: Part) -> SubmitAnswer:
        numbers = [msgspec.json.decode(task, type=int) for task in part.tasks]
        if -1 in numbers:
            raise InvalidRequest("must be positive", field=f"tasks[{numbers.index(-1)}].command")
        self.parts.append(numbers)
        if self.before_answer is not None:
            await self.before_answer(part)
        return SubmitAnswer(task_ids=[number + 100 for number in numbers], created=len(numbers))

    async def cancel(self, tasks: Sequence[int]) -> None:
        self.cancelled.append(list(tasks))

    async def page(self, after: int) -> ResultsPage:
        self.polls += 1
        while len(self.recorded) <= after and not self.finished:
            self.changed.clear()
            await self.changed.wait()
        items = self.recorded[after:]
        return ResultsPage(items=items, after=after + len(items), finished=self.finished)

    def end(self, *numbers: int) -> None:
        self.recorded += [
            info(number + 100, len(self.recorded) + i + 1) for i, number in enumerate(numbers)
        ]
        self.changed.set()


def calls(dispatcher: Dispatcher, *numbers: int) -> Told:
    told: Told = {number: [] for number in numbers}
    for number in numbers:
        dispatcher.add(Call(msgspec.Raw(msgspec.json.encode(number)), told[number].append))
    return told


def ids(told: Told) -> dict[int, list[object]]:
    return {
        number: [item.task_id if isinstance(item, TaskInfo) else type(item) for item in items]
        for number, items in told.items()
    }


async def test_what_is_queued_together_goes_together_and_each_is_told() -> None:
    group = Group()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    told = calls(dispatcher, 1, 2, 3)
    await dispatcher.submitted()
    assert group.parts == [[1, 2, 3]]
    group.end(3, 1, 99, 2)
    await dispatcher.delivered()
    assert ids(told) == {1: [101], 2: [102], 3: [103]}
    polls = group.polls
    await asyncio.sleep(0)
    assert group.polls == polls  # nobody waits, nobody asks
    again = calls(dispatcher, 4)
    await dispatcher.submitted()
    group.end(4)
    await dispatcher.delivered()
    assert ids(again) == {4: [104]}
    await dispatcher.aclose()


async def test_a_result_that_comes_before_the_answer_is_not_lost() -> None:
    group = Group()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)

    async def meanwhile(_: Part) -> None:
        group.end(1)
        await wait_until_async(lambda: group.polls == 2)  # it has been read

    group.before_answer = meanwhile
    told = calls(dispatcher, 1)
    await dispatcher.submitted()
    assert ids(told) == {1: [101]}
    await dispatcher.aclose()


async def test_one_that_is_refused_does_not_take_the_others_with_it() -> None:
    group = Group()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    told = calls(dispatcher, 1, -1, 2)
    await dispatcher.submitted()
    assert group.parts == [[1, 2]]
    (refused,) = told[-1]
    assert isinstance(refused, InvalidRequest)
    assert refused.facts["field"] == "command"
    group.end(1, 2)
    await dispatcher.delivered()
    assert ids(told) == {1: [101], -1: [InvalidRequest], 2: [102]}
    await dispatcher.aclose()


@pytest.mark.parametrize("error", [TaskGroupClosed(), ApiUnavailable()])
async def test_what_cannot_be_submitted_is_told(error: Exception) -> None:
    group = Group()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)

    async def fail(_: Part) -> None:
        raise error

    group.before_answer = fail
    told = calls(dispatcher, 1, 2)
    await dispatcher.submitted()
    assert ids(told) == {1: [type(error)], 2: [type(error)]}
    group.before_answer = None
    later = calls(dispatcher, 3)
    await dispatcher.submitted()
    group.end(3)
    await dispatcher.delivered()
    assert ids(later) == {3: [103]}
    await dispatcher.aclose()


async def test_when_results_cannot_be_read_those_who_wait_are_told_and_later_ones_try_again() -> (
    None
):
    group = Group()
    away = True

    async def page(after: int) -> ResultsPage:
        if away:
            raise ApiUnavailable
        return await group.page(after)

    dispatcher = Dispatcher(group.send, page, group.cancel)
    told = calls(dispatcher, 1)
    await wait_until_async(lambda: bool(told[1]))
    assert ids(told) == {1: [ApiUnavailable]}
    away = False
    later = calls(dispatcher, 2)
    await dispatcher.submitted()
    group.end(1, 2)
    await dispatcher.delivered()
    assert ids(later) == {2: [102]}
    assert ids(told) == {1: [ApiUnavailable]}
    await dispatcher.aclose()


async def test_the_end_of_the_group_and_the_end_of_the_block_are_told() -> None:
    group = Group()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    told = calls(dispatcher, 1, 2)
    await dispatcher.submitted()
    group.end(1)
    group.finished = True
    await dispatcher.delivered()
    assert ids(told) == {1: [101], 2: [TaskNotRun]}
    group.finished = False
    left = calls(dispatcher, 3)
    await dispatcher.submitted()
    queued = calls(dispatcher, 4)
    await dispatcher.aclose()
    assert (ids(left), ids(queued)) == ({3: [TaskNotRun]}, {4: [TaskNotRun]})


def call(number: int, told: list[TaskInfo | Exception]) -> Call:
    return Call(msgspec.Raw(str(number).encode()), told.append)


async def test_a_withdrawn_call_is_cancelled_or_never_sent() -> None:
    group, told = Group(), list[TaskInfo | Exception]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    sent, unsent, kept = call(1, told), call(2, told), call(3, told)
    dispatcher.add(sent)
    await dispatcher.submitted()
    for one in (unsent, kept):
        dispatcher.add(one)
    dispatcher.withdraw(unsent)
    dispatcher.withdraw(sent)
    await dispatcher.submitted()
    await dispatcher.withdrawals.sent()
    assert (group.parts, group.cancelled) == ([[1], [3]], [[101]])
    await dispatcher.aclose()
    assert [type(one) for one in told] == [TaskNotRun], "of the call that was kept"


async def test_a_call_that_is_withdrawn_while_it_is_submitted_is_cancelled() -> None:
    group, told = Group(), list[TaskInfo | Exception]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    one = call(1, told)

    async def withdraw(_: Part) -> None:
        dispatcher.withdraw(one)

    group.before_answer = withdraw
    dispatcher.add(one)
    await dispatcher.submitted()
    await dispatcher.withdrawals.sent()
    assert group.cancelled == [[101]]
    await dispatcher.aclose()
    assert told == []


async def test_a_task_is_cancelled_when_no_call_waits_for_it_any_more() -> None:
    """Two calls with one dedup key are one task."""
    group, told = Group(), list[TaskInfo | Exception]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    first, second = call(1, told), call(1, told)
    dispatcher.add(first)
    dispatcher.add(second)
    await dispatcher.submitted()
    dispatcher.withdraw(first)
    await dispatcher.withdrawals.sent()
    assert group.cancelled == []
    dispatcher.withdraw(second)
    await dispatcher.withdrawals.sent()
    assert group.cancelled == [[101]]
    await dispatcher.aclose()


async def test_what_is_dropped_in_time_is_not_cancelled() -> None:
    group, told = Group(), list[TaskInfo | Exception]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    one = call(1, told)
    dispatcher.add(one)
    await dispatcher.submitted()
    dispatcher.withdraw(one)
    dispatcher.withdrawals.drop()
    await dispatcher.withdrawals.sent()
    assert group.cancelled == []
    await dispatcher.aclose()


class Dependent(Group):
    """A group whose tasks are objects with a number, and perhaps with what they depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.depends_on: list[list[object]] = []

    async def send(self, part: Part) -> SubmitAnswer:
        tasks = [msgspec.json.decode(task) for task in part.tasks]
        self.depends_on.append([task.get("depends_on") for task in tasks])
        plain = [msgspec.Raw(msgspec.json.encode(task["n"])) for task in tasks]
        number = Part(tasks=plain, idempotency_key=part.idempotency_key, number=0)
        return await super().send(number)


def dependent(number: int, deliver: list[object], *after: Call | int) -> Call:
    return Call(msgspec.Raw(msgspec.json.encode({"n": number})), deliver.append, after)


@pytest.mark.spec("S001-46")
async def test_calls_depend_on_calls_of_the_same_part_and_of_earlier_ones_and_on_numbers() -> None:
    group, told = Dependent(), list[object]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    first = dependent(1, told)
    second = dependent(2, told, first, 7)
    for call in (first, second):
        dispatcher.add(call)
    await dispatcher.submitted()
    dispatcher.add(dependent(3, told, second))
    await dispatcher.submitted()
    assert group.depends_on == [[None, [[0, 0], 7]], [[102]]]
    await dispatcher.aclose()


async def test_a_call_that_depends_on_a_refused_one_is_refused_and_others_keep_their_places() -> (
    None
):
    group, told = Dependent(), list[object]()
    dispatcher = Dispatcher(group.send, group.page, group.cancel)
    refused, good = dependent(-1, told), dependent(1, [])
    for call in (refused, dependent(2, told, refused), good, dependent(3, [], good)):
        dispatcher.add(call)
    await dispatcher.submitted()
    assert group.depends_on[-1] == [None, [[0, 0]]]
    assert group.parts == [[1, 3]]
    assert [type(error) for error in told] == [InvalidRequest, InvalidRequest]
    await dispatcher.aclose()


def test_true_is_no_number_of_a_task() -> None:
    assert calls_of([7]) == [7]
    with pytest.raises(InvalidRequest, match="not True") as caught:
        calls_of([7, True])
    assert caught.value.facts["field"] == "after[1]"
