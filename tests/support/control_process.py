"""A control plane in a process of its own, to be killed."""

import asyncio
import os

from tests.support.control_plane import ControlPlane
from tests.support.prepared import PreparedProcess


class ControlProcess:
    """A control plane in a process of its own that is killed and started again on demand."""

    def __init__(self, plane: ControlPlane, database: str) -> None:
        where = {"address": plane.where.address, "namespace": plane.where.namespace}
        self._given = {"database": database, **where}
        self._process: PreparedProcess | None = None
        self.kills: list[str] = []

    async def start(self) -> None:
        said, out = os.pipe()
        try:
            self._process = await PreparedProcess.start(
                "tests.support.run_control", self._given, out=out, err=2
            )
        finally:
            os.close(out)
        assert await asyncio.to_thread(os.read, said, 64) == b"ready\n"
        os.close(said)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def kill_and_start_again(self, step: str) -> None:
        """Once per step: what is repeated after a kill is not killed again."""
        if step not in self.kills:
            self.kills.append(step)
            await self.kill()
            await self.start()
