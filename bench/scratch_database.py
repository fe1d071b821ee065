"""A migrated PostgreSQL in a folder of its own, for one bench."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mitosis.embedded.data_folder import DataFolder
from mitosis.embedded.postgres import EmbeddedPostgres
from mitosis.store.pg.migrate import migrate


@asynccontextmanager
async def scratch_database(**options: str) -> AsyncIterator[str]:
    """Yield the URL of an empty database with the present schema; its server ends with the context.

    ``options``: of PostgreSQL, as ``fsync="off"``.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = DataFolder(Path(folder))
        data.lock()
        postgres = EmbeddedPostgres(data, options=options)
        await postgres.start()
        try:
            await asyncio.to_thread(migrate, postgres.url())
            yield postgres.url()
        finally:
            await postgres.stop()
            data.release()
