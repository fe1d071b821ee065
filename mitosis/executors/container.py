"""The executor ``container``: an image that reads the attempt as JSON and writes its result as JSON.

The configuration of the association names the image, and may name ``command`` (argv in the image),
``memory_mb``, ``cpus``, ``network`` and ``pull`` (``always``, ``missing`` or ``never``). The private folder
of the attempt is ``/mitosis`` in the container.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.outcome import FailureKind
from mitosis.executors.child import (
    CHECKPOINT_VARIABLE,
    PROGRESS_FILE,
    PROGRESS_VARIABLE,
    checkpoint_text,
)
from mitosis.executors.command import LocalExecutor, LocalKind
from mitosis.executors.contract import (
    ExecutionContext,
    ExecutorTask,
    ResourcesRefused,
    ServiceFacts,
    positive,
)
from mitosis.executors.engine import ATTEMPT, SERVICE, TASK, Engine, find_engine
from mitosis.worker.report import Ended

FOLDER = "/mitosis"
ENVIRONMENT_FILE = "environment"
PULLS = ("always", "missing", "never")
EXIT_ENGINE_FAILED = 125
"""The engine could not run the container. Source: podman-run(1), docker run, "Exit status"."""
CLIENT_GRACE_SECONDS = 5.0
"""So long the client of the engine may take to return after its container has ended."""


class ContainerExecutor(LocalExecutor):
    """One container."""

    kind = "container"

    def __init__(self, service: ServiceFacts, engine: Engine) -> None:
        super().__init__(service)
        self._engine = engine
        self._name = ""
        self._stopping: list[asyncio.Task[None]] = []

    def validate_resources(self, task: ExecutorTask) -> None:
        super().validate_resources(task)
        needed, there = positive(task.configuration.get("cpus")), os.cpu_count() or 1
        if needed is not None and needed > there:
            raise ResourcesRefused(f"the machine has {there} cores; cpus is {needed:g}")

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        self._name = f"mitosis-{self._service.service[:12]}-{task.key.task_id}-{task.key.attempt}"
        configuration, folder = task.configuration, context.scratch_folder
        variables = _variables(task, context)
        if (name := next((n for n, value in variables.items() if "\n" in value), None)) is not None:
            message = f"the variable {name} has a line break, which containers cannot get"
            return Ended(kind=FailureKind.NOT_STARTED, message=message)
        # A file, since all users of a machine see argv, and variables of the client may steer it.
        file = folder / ENVIRONMENT_FILE
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        given = ["--volume", f"{folder}:{FOLDER}", "--env-file", str(file)]
        options = [*given, *_limits(configuration)]
        argv = self._engine.run_words(
            self._name,
            {
                SERVICE: self._service.service,
                TASK: str(task.task_uuid),
                ATTEMPT: str(task.key.attempt),
            },
            options,
            [configuration["image"], *configuration.get("command", [])],
        )
        try:
            ended = await self._child.run(argv, task, context, self._child.own_environment())
        finally:
            await cancel_and_wait(*self._stopping)
            await asyncio.shield(self._engine.remove(self._name))
        return _of_engine(ended)

    async def cancel(self, grace_seconds: float) -> None:
        self._stopping.append(asyncio.ensure_future(self._stop(grace_seconds)))

    async def _stop(self, grace_seconds: float) -> None:
        """End the container, then the client, which ends by itself with its container."""
        with suppress(OSError):
            if grace_seconds > 0:
                await self._engine.stop(self._name, grace_seconds)
            await self._engine.kill(self._name)
        self._child.halt(CLIENT_GRACE_SECONDS)


def _variables(task: ExecutorTask, context: ExecutionContext) -> dict[str, str]:
    """Return the environment of the container; that of this machine does not reach it."""
    return {
        **task.environment,
        **context.variables,
        "MITOSIS_EXEC_DIR": FOLDER,
        PROGRESS_VARIABLE: f"{FOLDER}/{PROGRESS_FILE}",
        CHECKPOINT_VARIABLE: checkpoint_text(context),
    }


def _limits(configuration: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    if (memory := positive(configuration.get("memory_mb"))) is not None:
        words += ["--memory", f"{round(memory)}m"]
    if (cpus := positive(configuration.get("cpus"))) is not None:
        words += ["--cpus", f"{cpus:g}"]
    for name in ("network", "pull"):
        if name in configuration:
            words += [f"--{name}", configuration[name]]
    return words


def _of_engine(ended: Ended) -> Ended:
    """Return the end of a container that its engine could not run as not started, with the reason."""
    if ended.kind is FailureKind.EXIT_CODE and ended.exit_code == EXIT_ENGINE_FAILED:
        lines = ended.stderr.text.strip().splitlines()
        ended.kind = FailureKind.NOT_STARTED
        ended.message = f"the engine could not run it: {lines[-1] if lines else 'no reason given'}"
    return ended


class ContainerKind(LocalKind):
    """Makes executors of the kind ``container``."""

    def __init__(self) -> None:
        super().__init__()
        self._engine: Engine | None = None

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Check the fields, and that there is an engine.

        Raises:
            ConfigurationError: names the field and what would be right, or what to install.
        """
        super().check(configuration)
        _check_fields(configuration)
        self._engine = self._engine or find_engine()

    async def start(self, service: ServiceFacts) -> None:
        await super().start(service)
        left = await self.engine.of_service(service.service)
        if left:
            await self.engine.remove(*left)

    @property
    def engine(self) -> Engine:
        assert self._engine is not None  # noqa: S101 - it is checked first
        return self._engine

    def make(self) -> ContainerExecutor:
        return ContainerExecutor(self.service, self.engine)


def _check_fields(configuration: Mapping[str, Any]) -> None:
    image = configuration.get("image")
    if not isinstance(image, str) or not image or image.startswith("-"):
        raise ConfigurationError(
            f"configuration.image must name an image, as docker.io/library/alpine:3, not {image!r:.100}"
        )
    command = configuration.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise ConfigurationError(
            f'configuration.command must be a list of words, as ["resize", "--fast"], not {command!r:.100}'
        )
    cpus = configuration.get("cpus")
    if cpus is not None and positive(cpus) is None:
        raise ConfigurationError(f"configuration.cpus must be a number above 0, not {cpus!r:.100}")
    if configuration.get("pull", "missing") not in PULLS:
        raise ConfigurationError(
            f"configuration.pull must be one of {', '.join(PULLS)}, not {configuration['pull']!r:.100}"
        )
    network = configuration.get("network", "none")
    if not isinstance(network, str) or not network:
        raise ConfigurationError(f"configuration.network must be a name, not {network!r:.100}")
