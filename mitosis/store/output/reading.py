"""Reading the whole output of the tasks of a group, piece by piece, without gaps (``write_whole``).

A reader is a row that says how far it has read. While it exists, agents keep sending and the rows that it
does not have are kept; when it is behind, they are refused, and so the tasks wait. Repeating a call gives
the same pieces again, so a lost answer loses nothing.
"""

from uuid import UUID

from mitosis.contracts.wire import OutputPiece, ReadOutput, ReadOutputAnswer
from mitosis.store.output.following import Chunk
from mitosis.store.pg.long_poll import look_until
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load
from mitosis.store.pg.wake import Topic
from mitosis.store.store import Store
from mitosis.store.tasks.group import group_number

SQL = load("output/reading.sql")
PIECES = 16
"""Of at most ``wire.MAX_CHUNK_BYTES`` each: 2 MB in one answer."""
LIFE_SECONDS = 30.0


async def read_output(store: Store, task_group_id: UUID, request: ReadOutput) -> ReadOutputAnswer:
    """Return the next pieces; wait up to ``wait_seconds`` for the first.

    Raises:
        NotFound: no such group.
    """
    async with store.database.connection() as connection:
        number = await group_number(connection, task_group_id)
    parameters = {
        "follower": request.reader,
        "group_number": number,
        "after": request.after,
        "limit": PIECES,
        "seconds": LIFE_SECONDS + request.wait_seconds,
    }

    async def look() -> list[Chunk]:
        async with store.database.connection() as connection:
            return await fetch_all(connection, Chunk, SQL["whole_after"], parameters)

    with store.listening.waiter(number, Topic.OUTPUT) as waiter:
        async with store.database.connection() as connection:
            await connection.execute(SQL["read_whole"], parameters)
        rows = await look_until(waiter, bool, look, seconds=request.wait_seconds)
    return ReadOutputAnswer(
        pieces=[
            OutputPiece(
                task_id=row.task_id,
                attempt=row.attempt,
                stream=row.stream,
                offset=row.position,
                data=row.data,
            )
            for row in rows
        ],
        after=rows[-1].id if rows else request.after,
    )
