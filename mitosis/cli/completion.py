"""What the shell offers after Tab where only the API knows: names of task groups. No errors, no waiting."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

import typer

from mitosis.contracts.errors import MitosisError

PATIENCE = timedelta(seconds=1)
OFFERED = 50
LOOKED_AT = 500


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """The newest groups that begin so; none when nothing answers within a second."""
    given = context.params
    overrides = {
        "api.url": given.get("api_url"),
        "api.token_file": given.get("token_file"),
        "data_dir": given.get("data_dir"),
    }
    with suppress(MitosisError, OSError):
        found = (name for name in _newest(overrides) if name.startswith(incomplete))
        return list(islice(found, OFFERED))
    return []


def _newest(overrides: dict[str, Any]) -> Iterator[str]:
    from mitosis.cli.connection import find_api
    from mitosis.client.sync import SyncClient
    from mitosis.settings import load_settings

    target = find_api(load_settings(overrides).settings)
    with SyncClient(target.api_url, target.token, give_up_after=PATIENCE) as client:
        for group in islice(client.groups(), LOOKED_AT):
            yield group.name
