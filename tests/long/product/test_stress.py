"""The stress campaign in small: simulated hosts and task groups under random verbs, as in ``make stress``."""

from pathlib import Path

from tests.campaigns.stress import LOST_AFTER, stress
from tests.support.fleet import fleet
from workflows import options


async def test_random_verbs_and_lost_hosts_leave_nothing(
    database: str, temporal_server: str, tmp_path: Path
) -> None:
    where = (database, temporal_server, tmp_path)
    beats = options.HOST_HEARTBEAT_WITHIN
    async with fleet(*where, host_lost_after=LOST_AFTER, heartbeat_within=beats) as it:
        done = await stress(it, seed=5, agents=5, groups=10, seconds=6.0)
    assert len(done.groups) >= 5
