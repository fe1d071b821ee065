"""Calls of the API with retries; :class:`Client` builds its methods on them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx2
from pydantic import BaseModel

from mitosis.client.connection import Connection, Params
from mitosis.client.parameters import check_connection, duration
from mitosis.client.port import Group, path_of
from mitosis.client.repeating import repeating
from mitosis.contracts.http import Page, TaskGroupInfo, VerbBody

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

PAGE = 500


class RepeatedCalls:
    """One connection to the API, and how calls over it are repeated and paged."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: timedelta = timedelta(seconds=60),
        give_up_after: timedelta = timedelta(seconds=45),
        ca_file: Path | str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """``timeout`` limits one call, ``give_up_after`` a call with all its retries.
        ``ca_file`` has the certificates to trust over https; None: those of the system.

        Raises:
            InvalidRequest: names the parameter and what would be right, as in all methods.
            ConfigurationError: ``ca_file`` cannot be used.
        """
        check_connection(url, token)
        timeout = duration(timeout, "timeout", above_zero=True)
        self.give_up_after = duration(give_up_after, "give_up_after")
        self._api = Connection(
            url,
            token,
            timeout=timeout,
            ca_file=None if ca_file is None else Path(ca_file),
            transport=transport,
        )

    async def _get(
        self, answer: type[M], path: str, params: Params | None = None, wait_seconds: float = 0.0
    ) -> M:
        return await self._repeat(
            lambda: self._api.model(answer, "GET", path, params=params, wait_seconds=wait_seconds)
        )

    async def _post(self, answer: type[M], path: str, body: BaseModel) -> M:
        """Make a call with an idempotency key, which may be repeated."""
        return await self._repeat(lambda: self._api.model(answer, "POST", path, body))

    async def _verb(self, method: str, group: Group, verb: str, body: VerbBody) -> TaskGroupInfo:
        """Apply a verb. Verbs ensure a state, so they may be repeated."""
        path = f"{path_of(group)}/{verb}"
        return await self._repeat(lambda: self._api.model(TaskGroupInfo, method, path, body))

    async def _pages(self, page: type[Page[T]], path: str, chosen: Params) -> AsyncIterator[T]:
        params: Params = {**chosen, "limit": PAGE}
        while True:
            answer = await self._get(page, path, params)
            for item in answer.items:
                yield item
            if answer.next is None:
                return
            params["after"] = answer.next

    async def _repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; retry it while that can help and ``give_up_after`` has not passed."""
        return await repeating(call, self.give_up_after)

    async def aclose(self) -> None:
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
