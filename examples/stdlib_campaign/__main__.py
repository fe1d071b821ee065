"""``python -m examples.stdlib_campaign``: runs the example on the stack that the CLI would use."""

import asyncio
import sys
import tempfile
import uuid
from pathlib import Path

from examples.stdlib_campaign.campaign import Campaign, verify
from examples.stdlib_campaign.run import run
from mitosis.cli.connection import find_api
from mitosis.client.client import Client
from mitosis.contracts.http import TaskGroupInfo
from mitosis.settings import load_settings


def show(group: TaskGroupInfo) -> None:
    print(f"{group.state}: {group.tasks_completed} of {group.tasks_total} tasks")


async def main() -> int:
    target = find_api(load_settings().settings)
    with tempfile.TemporaryDirectory(prefix="mitosis-example-") as folder:
        campaign = Campaign(Path(folder))
        async with Client(target.address, target.token, ca_file=target.ca_file) as client:
            report = await run(client, campaign, f"stdlib-{uuid.uuid4().hex[:8]}", 2, show)
        checked = verify(campaign)
    print(f"{report.results} results, {report.rate:.0f} tasks/s, {checked.files} files verified")
    for problem in checked.problems:
        print(problem, file=sys.stderr)
    return 1 if checked.problems else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
