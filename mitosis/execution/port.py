"""The calls to the API that a session and the reporter make; their owner implements them."""

from collections.abc import Sequence
from typing import Protocol

from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimTasks,
    Followed,
    FollowedAnswer,
    ReportAnswer,
    WriteOutput,
    WriteOutputAnswer,
)


class SessionApi(Protocol):
    """Each makes one call, raises a :class:`~mitosis.contracts.errors.MitosisError`, and may be repeated."""

    async def claim(self, request: ClaimTasks) -> ClaimAnswer: ...

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        """Report ended attempts; ``epoch`` is the number with which they were added to the reporter."""
        ...

    async def followed(self, request: Followed) -> FollowedAnswer: ...

    async def output(self, request: WriteOutput) -> WriteOutputAnswer: ...
