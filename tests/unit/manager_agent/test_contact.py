"""Renewals: what an answer changes, and in which session."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from manager_agent.contact import Contact
from mitosis.contracts.wire import CancelOrder, LeaseStanding, Renewal, RenewalAnswer
from mitosis.execution.state import State

GRACE = 5.0
ORDER = CancelOrder(kill=True, grace_seconds=GRACE, reason="cancelled")


class Session:
    """What renewals use of a lease session."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.state = State(worker_count=1)
        self.workers = SimpleNamespace(cannot_start=None)
        self.grant = SimpleNamespace(cancel_grace_seconds=GRACE)
        self.events: list[object] = []

    def handle(self, event: object) -> None:
        self.events.append(event)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(Session(7), Session(8), id="another lease began"),
        pytest.param(Session(7), None, id="the lease is over"),
        pytest.param(None, Session(8), id="a lease began"),
    ],
)
async def test_an_answer_to_an_older_session_changes_nothing(
    before: Session | None, after: Session | None
) -> None:
    """The session ends while the API answers that it is over: that is no news for another one."""
    sessions = {"current": before}
    asked: list[Renewal] = []
    again = asyncio.Event()
    lost: list[bool] = []

    async def renew(renewal: Renewal) -> RenewalAnswer:
        asked.append(renewal)
        if len(asked) == 2:
            again.set()
            await asyncio.Event().wait()
        sessions["current"] = after
        return RenewalAnswer(standing=LeaseStanding.GONE, order=ORDER)

    parts: Any = SimpleNamespace(renew=renew, trouble=lambda: None, unacknowledged=lambda: ())
    contact = Contact(
        parts,
        parts,
        1,
        lambda: sessions["current"],  # type: ignore[arg-type,return-value]
        renew_seconds=0.01,
        counted_lost=lambda: lost.append(True),
    )
    async with asyncio.timeout(20):
        running = asyncio.create_task(contact.run())
        await again.wait()
        running.cancel()
    assert [one.epoch for one in asked] == [one.epoch if one else None for one in (before, after)]
    assert [one.events for one in (before, after) if one is not None and one.events] == []
    assert lost == []
