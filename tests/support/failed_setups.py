"""A setup that fails, as an agent reports it."""

from typing import Any
from uuid import UUID

from mitosis.contracts.control import ReleaseReason, ReleaseRequest
from mitosis.store.managers.release import release_lease
from tests.support.campaigns import Host, hook


async def fail_setup(group: UUID, host: Host, state: str = "failed", **ended: Any) -> None:
    """Take the offer, fail the setup, clean up and give the lease back."""
    await host.take(group, prepare=False)
    await host.environment(group, "preparing", epoch=host.epoch, hook=hook("running"))
    await host.environment(group, "setup_failed", epoch=host.epoch, hook=hook(state, **ended))
    await host.environment(group, "cleaned")
    request = ReleaseRequest(
        manager_id=host.manager_id, epoch=host.epoch, reason=ReleaseReason.SETUP_FAILED
    )
    await release_lease(host.world.store, request)
