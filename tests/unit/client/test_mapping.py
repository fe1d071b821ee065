"""Maps read no further than asked and give results in either order, in both kinds of program."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future

import pytest

from mitosis.client.mapping import Inputs, mapped
from mitosis.client.sync_task_group import as_completed, in_order, results_of
from tests.support.waiting import wait_until_async


class Workers:
    """Futures for numbers, ended by hand."""

    def __init__(self) -> None:
        self.futures: dict[int, asyncio.Future[int]] = {}

    def submit(self, number: int) -> "asyncio.Future[int]":
        self.futures[number] = asyncio.get_running_loop().create_future()
        return self.futures[number]

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.futures[number].set_result(number * 10)

    def map(
        self, inputs: Inputs[int], *, ordered: bool = True, buffer_size: int = 10
    ) -> AsyncIterator[object]:
        return mapped(
            self.submit, inputs, ordered=ordered, return_exceptions=False, buffer_size=buffer_size
        )


@pytest.mark.parametrize(("ordered", "order"), [(True, [0, 10, 20]), (False, [20, 0, 10])])
async def test_results_in_the_order_of_inputs_or_of_ends(ordered: bool, order: list[int]) -> None:
    workers = Workers()
    results = workers.map(range(3), ordered=ordered)
    first = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: len(workers.futures) == 3)
    workers.end(2, 0, 1)
    assert [await first, *[result async for result in results]] == order


@pytest.mark.parametrize("ordered", [True, False])
async def test_it_reads_only_so_far_ahead(ordered: bool) -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            read.append(len(read))
            yield read[-1]

    workers = Workers()
    results = workers.map(endless(), ordered=ordered, buffer_size=4)
    first = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: len(workers.futures) == 4)
    assert len(read) <= 5
    workers.end(0)
    assert await first == 0
    await wait_until_async(lambda: len(workers.futures) == 5)
    assert len(read) <= 6
    await results.aclose()  # type: ignore[attr-defined]


async def test_results_come_while_inputs_are_still_coming() -> None:
    more = asyncio.Event()

    async def slow() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    workers = Workers()
    results = workers.map(slow())
    first = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: 1 in workers.futures)
    workers.end(1)
    assert await first == 10
    more.set()
    second = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: 2 in workers.futures)
    workers.end(2)
    assert await second == 20


@pytest.mark.parametrize("ordered", [True, False])
async def test_what_reading_inputs_raises_comes_after_the_results_before(ordered: bool) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("no more files")

    workers = Workers()
    results = workers.map(broken(), ordered=ordered)
    first = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: 1 in workers.futures)
    workers.end(1)
    assert await first == 10
    with pytest.raises(LookupError, match="no more files"):
        await anext(results)


async def test_leaving_early_stops_reading() -> None:
    workers = Workers()
    read: list[int] = []

    def inputs() -> Iterator[int]:
        for number in range(10**9):
            read.append(number)
            yield number

    results = workers.map(inputs(), buffer_size=2)
    first = asyncio.ensure_future(anext(results))
    await wait_until_async(lambda: 0 in workers.futures)
    workers.end(0)
    await first
    await results.aclose()  # type: ignore[attr-defined]
    before = len(read)
    await asyncio.sleep(0)
    assert len(read) == before < 10


# --- without an event loop


class PlainWorkers:
    """Futures of the plain kind; those of even numbers are done at once."""

    def __init__(self) -> None:
        self.futures: list[Future[int]] = []

    def submit(self, number: int) -> "Future[int]":
        future: Future[int] = Future()
        if number % 2 == 0:
            future.set_result(number)
        self.futures.append(future)
        return future


def test_plain_results_in_order_are_given_as_soon_as_they_can_be() -> None:
    workers = PlainWorkers()
    results = results_of(in_order(workers.submit, iter(range(5)), 10), False)
    assert next(results) == 0
    assert len(workers.futures) == 1  # nothing more is read before
    workers.futures.clear()
    assert next(in_order(workers.submit, iter([1, 2, 3]), 2)) is workers.futures[0]
    assert len(workers.futures) == 2  # as many as there is room for


def test_plain_results_as_they_come() -> None:
    workers = PlainWorkers()
    results = as_completed(workers.submit, iter([1, 2, 3, 4]), 10)
    assert [next(results).result(), next(results).result()] == [2, 4]
    assert len(workers.futures) == 4
    workers.futures[2].set_result(3)
    workers.futures[0].set_result(1)
    assert [future.result() for future in results] == [3, 1]


@pytest.mark.parametrize("how", [in_order, as_completed])
def test_plain_maps_read_only_so_far_ahead(how: object) -> None:
    workers = PlainWorkers()
    read: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            read.append(2 * len(read))
            yield read[-1]

    results = how(workers.submit, endless(), 3)  # type: ignore[operator]
    assert [next(results).result() for _ in range(5)] == [0, 2, 4, 6, 8]
    assert len(read) <= 5 + 3
