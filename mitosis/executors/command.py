"""The executor ``command``: a program that reads the attempt as JSON and writes its result as JSON."""

from collections.abc import Mapping
from typing import Any

from mitosis.executors.child import Child
from mitosis.executors.contract import ExecutionContext, ExecutorTask, ServiceFacts
from mitosis.executors.local_resources import check_demands, estimate, require
from mitosis.worker.report import Ended


class LocalExecutor:
    """One attempt as a process of this machine; its subclasses choose the command."""

    kind = ""

    def __init__(self, service: ServiceFacts) -> None:
        self._service = service
        self._child = Child(service)

    def estimate_seconds(self, task: ExecutorTask) -> float | None:
        return estimate(task.configuration)

    def validate_resources(self, task: ExecutorTask) -> None:
        require(task.configuration, self._service.folder)

    async def cancel(self, grace_seconds: float) -> None:
        self._child.halt(grace_seconds)


class CommandExecutor(LocalExecutor):
    """One run of the program."""

    kind = "command"

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        return await self._child.run(task.program, task, context)


class LocalKind:
    """Executors that need nothing but this machine."""

    def __init__(self) -> None:
        self._service: ServiceFacts | None = None

    def check(self, configuration: Mapping[str, Any]) -> None:
        check_demands(configuration)

    async def start(self, service: ServiceFacts) -> None:
        self._service = service

    async def close(self) -> None:
        """Nothing is shared."""

    @property
    def service(self) -> ServiceFacts:
        assert self._service is not None  # noqa: S101 - it is started first
        return self._service


class CommandKind(LocalKind):
    """Makes executors of the kind ``command``."""

    def make(self) -> CommandExecutor:
        return CommandExecutor(self.service)
