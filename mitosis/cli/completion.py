"""Shell completion of task groups and tasks, from the API. It reports no errors and waits for one second."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

import typer

from mitosis.cli.common_options import setting_overrides
from mitosis.cli.references import check_reference
from mitosis.contracts.errors import MitosisError

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient

GIVE_UP_AFTER = timedelta(seconds=1)
OFFERED = 50
LOOKED_AT = 500


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the newest task groups with this prefix; none if the API does not answer within a second."""
    with suppress(MitosisError, OSError), _client(context) as client:
        newest = islice(client.groups(), LOOKED_AT)
        names = (group.name for group in newest if group.name.startswith(incomplete))
        return list(islice(names, OFFERED))
    return []


def groups_and_tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Return groups as in ``render``, and after a slash the first tasks of the group: ``render/17``."""
    group, slash, number = incomplete.rpartition("/")
    if not slash:
        return group_names(context, incomplete)
    with suppress(MitosisError, OSError), _client(context) as client:
        first = islice(client.tasks(check_reference(group)), LOOKED_AT)
        numbers = (str(task.task_id) for task in first if str(task.task_id).startswith(number))
        return [f"{group}/{one}" for one in islice(numbers, OFFERED)]
    return []


@contextmanager
def _client(context: typer.Context) -> "Iterator[SyncClient]":
    from mitosis.cli.connection import find_api
    from mitosis.client.sync import SyncClient
    from mitosis.settings import load_settings

    typed = context.params
    overrides = setting_overrides(
        typed.get("api_url"), typed.get("token_file"), typed.get("data_dir")
    )
    target = find_api(load_settings(overrides).settings)
    with SyncClient(
        target.address, target.token, give_up_after=GIVE_UP_AFTER, ca_file=target.ca_file
    ) as client:
        yield client
