"""The processes of a deployment, as users see them."""

from mitosis.store.processes.live import recording_process
from mitosis.version import __version__
from tests.support.http_api import in_process_api, problem, said_hello


async def test_users_see_the_processes_that_run_and_hosts_do_not(database: str) -> None:
    async with in_process_api(database) as api:
        async with api.client() as client, recording_process(api.app_state.store, "control"):
            (one,) = (await client.processes()).processes
            assert (one.kind, one.version) == ("control", __version__)
        async with said_hello(api) as (manager, _):
            with problem(
                await api.call("GET", "/processes", token=manager.token), 403, "permission_denied"
            ):
                pass
