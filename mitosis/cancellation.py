"""Makes sure that a cancelled loop ends.

``asyncio.wait_for`` before Python 3.12, with which psycopg waits, returns a result that arrives in the same
moment as a cancellation and forgets the cancellation: a loop would go on, and nobody cancels it twice.
"""

import asyncio


def raise_if_cancelled() -> None:
    """Call once in every turn of a loop that waits for PostgreSQL.

    Raises:
        asyncio.CancelledError: this task has been told to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
