"""The small form of `make chaos-services`, with a seed of its own that a failure names."""

import secrets
from pathlib import Path

import pytest

from tests.chaos.services.campaign import ServiceCampaign
from tests.chaos.services.judge import violations


@pytest.mark.timeout(420)
@pytest.mark.spec("S004-57")
def test_services_under_faults_lose_nothing_and_double_nothing(
    tmp_path: Path, runtime_dir: Path
) -> None:
    seed = secrets.randbelow(1_000_000)
    campaign = ServiceCampaign(tmp_path, runtime_dir, seed, services=4, tasks=400)
    assert violations(campaign.run()) == [], f"seed {seed}, faults {dict(campaign.done)}"
