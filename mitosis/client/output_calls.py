"""The calls about the output of tasks; :class:`Client` has them."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from uuid import UUID

from mitosis.client.connection import Params
from mitosis.client.following import OutputSeen, follow
from mitosis.client.parameters import duration, identifier, query
from mitosis.client.port import Group, path_of
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.checking import checked
from mitosis.contracts.following import OutputEvent
from mitosis.contracts.queries import OutputQuery
from mitosis.contracts.wire import ReadOutput, ReadOutputAnswer


class OutputCalls(RepeatedCalls):
    """Live output, and the whole output."""

    def task_output(
        self, task_uuid: UUID, *, patience: timedelta | None = None
    ) -> AsyncIterator[OutputEvent]:
        """Follow the output of a task from its kept tail, attempt by attempt, until its result.

        Reconnects, and yields no byte twice; ``patience`` is how long the API may be unavailable.
        The last event is ``end``.
        """
        return self._output(task_path(task_uuid) + "/output", {}, patience)

    def group_output(
        self, group: Group, *, after: int = 0, patience: timedelta | None = None
    ) -> AsyncIterator[OutputEvent]:
        """Follow the output of all tasks of a group; each result after number ``after`` comes once."""
        return self._output(path_of(group) + "/output", query(OutputQuery, after=after), patience)

    def _output(
        self, path: str, params: Params, patience: timedelta | None
    ) -> AsyncIterator[OutputEvent]:
        """Check ``patience`` before the output is read for the first time."""
        give_up_after = duration(patience or self.give_up_after, "patience")
        return self._output_events(path, params, give_up_after)

    async def _output_events(
        self, path: str, params: Params, give_up_after: timedelta
    ) -> AsyncIterator[OutputEvent]:
        seen = OutputSeen()
        async with aclosing(follow(self._api, path, params, give_up_after)) as events:
            async for event in events:
                if new := seen.fresh(OutputEvent.model_validate_json(event.data)):
                    yield new

    async def read_output(
        self, group: Group, reader: UUID, *, after: int = 0, wait_seconds: float = 0.0
    ) -> ReadOutputAnswer:
        """Return the next pieces of the whole output of tasks submitted with ``stream_output``.

        Choose a ``reader``, call once before such tasks run, then with ``after`` of the last answer, which
        acknowledges its pieces. The tasks wait while the reader is behind. Without one for 30 s they keep
        only the tails.
        """
        fields = {"reader": reader, "after": after, "wait_seconds": wait_seconds}
        body = checked(fields, ReadOutput)
        path = path_of(group) + "/output/read"
        return await self._repeat(
            lambda: self._api.struct(
                ReadOutputAnswer, "POST", path, body, wait_seconds=body.wait_seconds
            )
        )


def task_path(task_uuid: UUID) -> str:
    return f"/tasks/{identifier(task_uuid, 'task_uuid')}"
