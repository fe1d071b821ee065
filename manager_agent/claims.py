"""The hot calls of an agent: claim, report, renew, live output. msgspec structs.

Each kind has a connection of its own, so that a claim that waits for work never holds up a report.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from manager_agent.channel import ApiAddress, ApiChannel, TokenProvider
from mitosis.contracts.errors import ApiUnavailable
from mitosis.contracts.wire import (
    ClaimAnswer,
    ClaimTasks,
    Followed,
    FollowedAnswer,
    Renewal,
    RenewalAnswer,
    ReportAnswer,
    WriteOutput,
)

_encode = msgspec.json.Encoder().encode
_claim_answer = msgspec.json.Decoder(ClaimAnswer)
_report_answer = msgspec.json.Decoder(ReportAnswer)
_followed_answer = msgspec.json.Decoder(FollowedAnswer)
_renewal_answer = msgspec.json.Decoder(RenewalAnswer)

ANSWER_SECONDS = 15.0


class _EncodedReports(msgspec.Struct):
    """A :class:`mitosis.contracts.wire.ReportTasks` whose reports are JSON already."""

    epoch: int
    reports: list[msgspec.Raw]


class TaskCalls:
    """Claim, report, renew, and what followers see. Every method raises as :meth:`ApiChannel.call` does."""

    def __init__(self, address: ApiAddress, token: TokenProvider, user_agent: str) -> None:
        self._claims = ApiChannel(address, token, user_agent)
        self._reports = ApiChannel(address, token, user_agent)
        self._renewals = ApiChannel(address, token, user_agent)
        self._follows = ApiChannel(address, token, user_agent)
        self._outputs = ApiChannel(address, token, user_agent)

    async def claim(self, request: ClaimTasks) -> ClaimAnswer:
        """Answered at once if there is work, else after ``wait_seconds`` at the latest."""
        timeout = ANSWER_SECONDS + request.wait_seconds
        body = await self._claims.call("POST", "/managers/tasks/claim", _encode(request), timeout)
        return _decoded(_claim_answer, body)

    async def report(self, epoch: int, reports: Sequence[bytes]) -> ReportAnswer:
        """Report ended attempts; each is the JSON of a :class:`TaskReport` and is sent as it is."""
        request = _encode(_EncodedReports(epoch, list(map(msgspec.Raw, reports))))
        body = await self._reports.call("POST", "/managers/tasks/report", request, ANSWER_SECONDS)
        return _decoded(_report_answer, body)

    async def renew(self, request: Renewal) -> RenewalAnswer:
        body = await self._renewals.call(
            "POST", "/managers/heartbeat", _encode(request), ANSWER_SECONDS
        )
        return _decoded(_renewal_answer, body)

    async def followed(self, request: Followed) -> FollowedAnswer:
        """Who follows the group; answered when that is news, after ``wait_seconds`` at the latest."""
        timeout = ANSWER_SECONDS + request.wait_seconds
        body = await self._follows.call(
            "POST", "/managers/tasks/followed", _encode(request), timeout
        )
        return _decoded(_followed_answer, body)

    async def output(self, request: WriteOutput) -> None:
        """Output of running attempts, for those who follow."""
        body = _encode(request)
        await self._outputs.call("POST", "/managers/tasks/output", body, ANSWER_SECONDS)

    def close(self) -> None:
        channels = (self._claims, self._reports, self._renewals, self._follows, self._outputs)
        for channel in channels:
            channel.close()


_A = TypeVar("_A", ClaimAnswer, ReportAnswer, RenewalAnswer, FollowedAnswer)


def _decoded(decoder: msgspec.json.Decoder[_A], body: bytes) -> _A:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiUnavailable(f"an answer that is none of ours: {error}") from None
