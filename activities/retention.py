"""The database activity that deletes what is kept no longer: an adapter over a port of the store."""

from typing import Protocol

from temporalio import activity

from activities.errors import as_application_errors


class RetentionPort(Protocol):
    """What is kept for how long (C-34)."""

    async def delete_expired(self) -> float:
        """Delete what is due, for about a second; return in how many seconds to call again.

        In any number of processes at once; after an interruption the next call goes on.
        """
        ...


class RetentionActivities:
    """Adapter from Temporal to a :class:`RetentionPort`."""

    def __init__(self, port: RetentionPort) -> None:
        self._port = port

    @activity.defn(name="delete_expired")
    async def delete_expired(self) -> float:
        with as_application_errors():
            return await self._port.delete_expired()
