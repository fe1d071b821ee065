"""The product that is called: API and control worker in a thread, over a real PostgreSQL and Temporal."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from api.app_state import ControlPlane, Verb
from api.service import ApiOptions, RunningApi, running_api
from mitosis.contracts.control import GroupView, VerbRequest
from mitosis.embedded.data_folder import DataFolder, ed25519_private_key
from mitosis.embedded.postgres import DATABASE, EmbeddedPostgres
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.store.control.control_store import ControlStore
from mitosis.store.pg.migrate import migrate
from mitosis.store.store import StoreOptions
from tests.support.control_plane import control_plane
from tests.support.databases import DatabasePool
from tests.support.servers import LoopThread

NOBODY_LISTENS = "http://127.0.0.1:9"
"""Where the Temporal Web UI would be."""


@dataclass(frozen=True)
class Servers:
    """What all chunks share."""

    loop: LoopThread
    databases: DatabasePool
    temporal: str
    """``host:port``."""


@contextmanager
def servers() -> Iterator[Servers]:
    """PostgreSQL and Temporal in a folder that is gone afterwards."""
    with ExitStack() as exits:
        parent = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="mt-fuzz-")))
        folder = DataFolder(parent / "data", parent / "run")
        folder.lock()
        exits.callback(folder.release)
        loop = exits.enter_context(LoopThread())
        options = {"fsync": "off", "full_page_writes": "off", "max_connections": "100"}
        postgres, temporal = EmbeddedPostgres(folder, options=options), EmbeddedTemporal(folder)
        for server in (postgres, temporal):
            loop.run(server.start())
            exits.callback(stopping, loop, server)
        migrate(postgres.url(DATABASE))
        databases = DatabasePool(postgres, DATABASE)
        exits.callback(databases.close)
        yield Servers(loop, databases, temporal.address)


def stopping(loop: LoopThread, server: EmbeddedPostgres | EmbeddedTemporal) -> None:
    loop.run(server.stop())


class NoWorkflows:
    """Applies verbs to PostgreSQL as workflows do; a workflow for each group would be slow."""

    store: ControlStore

    async def execute_verb(self, task_group_id: UUID, verb: Verb) -> GroupView:
        return await self.store.apply(VerbRequest(task_group_id=task_group_id, verb=verb))

    async def check(self) -> None:
        """Answer as if Temporal did."""


@asynccontextmanager
async def product(database: str, temporal: str | None) -> AsyncIterator[RunningApi]:
    """The API over ``database``; with ``temporal`` a control worker too, in a namespace of its own."""
    async with AsyncExitStack() as exits:
        control: ControlPlane = NoWorkflows()
        namespace = "mitosis"
        if temporal is not None:
            plane = await exits.enter_async_context(control_plane(database, temporal))
            await plane.start()
            control, namespace = await plane.control(), plane.where.namespace
        options = ApiOptions(
            store=StoreOptions(database_url=database),
            signing_key=ed25519_private_key(),
            temporal_namespace=namespace,
            temporal_ui_url=NOBODY_LISTENS,
        )
        api = await exits.enter_async_context(running_api(options, control))
        if isinstance(control, NoWorkflows):
            control.store = ControlStore(api.app_state.store)
        yield api
