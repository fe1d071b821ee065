"""Follows a stream of events until its end; reconnects after the last event.

One Server-Sent Events connection at a time. The id of the last event is the position in the stream, so no
event is lost or repeated, however often the API restarts.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from mitosis.client.connection import Connection, Params
from mitosis.client.repeating import SDK_POLICY
from mitosis.contracts.errors import ApiUnavailable, MitosisError
from mitosis.contracts.following import OutputEvent
from mitosis.retry_policy import Backoff


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event as received: its kind and its JSON."""

    kind: str
    data: str


async def follow(
    connection: Connection,
    path: str,
    params: Params,
    give_up_after: timedelta,
    on_outage: Callable[[MitosisError], None] = lambda _: None,
) -> AsyncGenerator[ReceivedEvent]:
    """Yield the events of a stream, including the last one, ``end``.

    Args:
        connection: the API and the token.
        path: of the stream, below ``/api/v1``.
        params: query of every request; after a reconnect it also names the last event.
        give_up_after: how long the stream may be unavailable.
        on_outage: called after every failed connection.

    Raises:
        MitosisError: the API refuses, or was unavailable for ``give_up_after``.
    """
    last_id = ""
    clock = asyncio.get_running_loop().time
    backoff, away_since = Backoff(SDK_POLICY), clock()
    while True:
        try:
            async with aclosing(connection.events(path, params, last_id)) as events:
                async for event in events:
                    last_id = event.id or last_id
                    backoff.reset()
                    yield ReceivedEvent(event.event, event.data)
                    away_since = clock()
                    if event.event == "end":
                        return
            raise ApiUnavailable("the API closed the stream before its last event")
        except MitosisError as error:
            pause = backoff.next_pause(error)
            away_for = clock() - away_since
            if not SDK_POLICY.worth(error) or away_for + pause > give_up_after.total_seconds():
                raise
            on_outage(error)
        await asyncio.sleep(pause)


class OutputSeen:
    """Tracks the bytes received of each attempt, so that a reconnect repeats none."""

    def __init__(self) -> None:
        self._at: dict[tuple[int | None, int | None, str | None], int] = {}

    def fresh(self, event: OutputEvent) -> OutputEvent | None:
        """Return the event without bytes received before, or None if nothing is left."""
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
