"""The container engine of this machine: podman or docker, called as a program."""

import asyncio
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mitosis.contracts.errors import ConfigurationError

ENGINES = ("podman", "docker")
"""The first that works is used."""
CHECK_SECONDS = 20.0
SERVICE, TASK, ATTEMPT = "mitosis.service", "mitosis.task", "mitosis.attempt"
"""Labels of containers."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine."""

    program: str

    def run_words(
        self, name: str, labels: Mapping[str, str], options: Sequence[str], command: Sequence[str]
    ) -> list[str]:
        """Return the argv that runs a container, with the standard streams of this command.

        Args:
            name: of the container.
            labels: of the container.
            options: more options, as environment and limits.
            command: the image and what it executes.
        """
        marks = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        base = [self.program, "run", "--rm", "--interactive", "--name", name]
        return [*base, *marks, *options, *command]

    async def stop(self, name: str, grace_seconds: float) -> None:
        """Send SIGTERM to a container, and SIGKILL after the grace, in whole seconds."""
        await self._call("stop", "--time", str(max(0, round(grace_seconds))), name)

    async def kill(self, name: str) -> None:
        """End a container at once."""
        await self._call("kill", name)

    async def remove(self, *names: str) -> None:
        """Remove containers, running or not; those that are gone already do not matter."""
        await self._call("rm", "--force", *names)

    async def of_service(self, service: str) -> list[str]:
        """Return the ids of the containers of a worker service, running or not.

        Raises:
            ConfigurationError: the engine does not answer.
        """
        words = ("ps", "--all", "--quiet", "--filter", f"label={SERVICE}={service}")
        status, output = await self._call(*words)
        if status != 0:
            raise ConfigurationError(
                f"{self.program} cannot list containers: {output.strip()[-300:]}"
            )
        return output.split()

    async def _call(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            self.program, *words, stdin=DEVNULL, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode("utf-8", "replace")


def find_engine() -> Engine:
    """Return the engine of this machine.

    Raises:
        ConfigurationError: there is none that works; says what to install or to start.
    """
    problems = []
    for name in ENGINES:
        program = shutil.which(name)
        if program is None:
            problems.append(f"{name} is not installed")
        elif (problem := _problem(program)) is None:
            return Engine(program)
        else:
            problems.append(f"{name} does not work: {problem}")
    raise ConfigurationError(
        f"containers need an engine ({'; '.join(problems)}): install podman, as by `apt-get install podman`,"
        " or start the daemon of docker"
    )


def _problem(program: str) -> str | None:
    """Return why an engine does not work; None if it does."""
    try:
        done = subprocess.run(
            [program, "info"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"status {done.returncode}")
