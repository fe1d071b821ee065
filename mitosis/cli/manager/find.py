"""Finds the host that the command line names."""

from typing import TYPE_CHECKING

from mitosis.contracts.errors import InvalidRequest, NotFound
from mitosis.contracts.ids import as_uuid

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient
    from mitosis.contracts.http import ManagerInfo


def find_manager(client: "SyncClient", text: str) -> "ManagerInfo":
    """Return the host with this id, or the only one with this name.

    Raises:
        NotFound, InvalidRequest: no host or several hosts have the name.
    """
    if (manager_id := as_uuid(text)) is not None:
        return client.manager(manager_id)
    found = [one for one in client.managers() if one.name == text]
    if not found:
        raise NotFound(f"no host is called {text!r}", hint="list them with: mitosis manager list")
    if len(found) > 1:
        ids = ", ".join(str(one.manager_id) for one in found)
        raise InvalidRequest(f"{len(found)} hosts are called {text!r}; give the id: {ids}")
    return found[0]
