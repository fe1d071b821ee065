"""Following a stream of events for as long as it takes: reconnects by itself, behind the last event.

One Server-Sent Events connection at a time. What is known of the place in the stream is the id of the
last event, so nothing is lost and nothing told twice, however often the API restarts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from mitosis.client.connection import Connection, Params
from mitosis.contracts.errors import ApiUnavailable, MitosisError
from mitosis.contracts.following import OutputEvent

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Told:
    """One event as it came: its kind and its JSON."""

    kind: str
    data: str


async def follow(
    connection: Connection,
    path: str,
    params: Params,
    give_up_after: timedelta,
    on_outage: Callable[[MitosisError], None] = lambda _: None,
) -> AsyncGenerator[Told]:
    """The events of a stream until the one called ``end``, which is the last that is given.

    Args:
        connection: where; its token goes with every connection.
        path: of the stream, below ``/api/v1``.
        params: of the first connection; later ones go on behind the last event.
        give_up_after: how long the stream may be away.
        on_outage: told of every failed connection.

    Raises:
        MitosisError: the API refuses, or has been away for ``give_up_after``.
    """
    last_id = ""
    failures, away_since = 0, time.monotonic()
    while True:
        try:
            async with aclosing(connection.events(path, params, last_id)) as events:
                async for event in events:
                    last_id, failures = event.id or last_id, 0
                    yield Told(event.event, event.data)
                    away_since = time.monotonic()
                    if event.event == "end":
                        return
            raise ApiUnavailable("the API ended the stream before its end")
        except MitosisError as error:
            if not error.retryable:
                raise
            if time.monotonic() - away_since > give_up_after.total_seconds():
                raise
            on_outage(error)
            asked = error.facts.get("retry_after_seconds")
        delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2**failures)
        failures = min(failures + 1, 10)
        await asyncio.sleep(float(asked) if isinstance(asked, int | float) else delay)


class OutputSeen:
    """Which bytes of which attempt came already, so that a reconnect repeats none."""

    def __init__(self) -> None:
        self._at: dict[tuple[int | None, int | None, str | None], int] = {}

    def fresh(self, event: OutputEvent) -> OutputEvent | None:
        """The event without bytes that came before; None when nothing is left of it."""
        if event.kind == "result":
            self._at = {key: at for key, at in self._at.items() if key[0] != event.task_id}
        if event.kind != "output":
            return event
        key = (event.task_id, event.attempt, event.stream)
        known, offset, data = self._at.get(key, 0), event.offset or 0, event.data or b""
        end = offset + len(data)
        if end <= known:
            return None
        self._at[key] = end
        if offset >= known:
            return event.model_copy(update={"skipped": offset - known or None})
        return event.model_copy(
            update={"offset": known, "skipped": None, "data": data[known - offset :]}
        )
