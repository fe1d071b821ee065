"""The loop that deletes rows of deleted groups: any failure is tried again, with fewer rows."""

import asyncio
from contextlib import suppress

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.errors import DatabaseUnavailable
from workflows.deletions import Deletions

FIRST = ChunkSize().rows


class Port:
    """Answers as it is told, and then stops the loop."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.limits: list[int] = []

    async def delete_chunk(self, limit: int) -> bool:
        self.limits.append(limit)
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def limits_after(*answers: bool | Exception) -> list[int]:
    port = Port(*answers)
    with suppress(asyncio.CancelledError):
        await Deletions(port, look_seconds=0).run()
    return port.limits


async def test_a_statement_that_is_too_slow_is_tried_with_fewer_rows() -> None:
    failures = [DatabaseUnavailable("canceling statement"), ValueError("?")] * 3
    limits = await limits_after(*failures, True, True, False)
    assert limits[:7] == [FIRST, FIRST // 10, FIRST // 100, 1, 1, 1, 1]
    assert limits[7:] == [2, 4, 8], "and then with more again"


async def test_it_looks_again_after_everything_is_deleted() -> None:
    limits = await limits_after(True, False, False, True)
    assert limits == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 16 * FIRST], "they took no time"
